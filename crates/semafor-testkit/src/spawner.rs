//! Starts processes that do not outlive this one, not even if it is killed.
//!
//! Linux ends such a child with the **thread** that started it. Tests run on short-lived threads, so one thread that
//! never ends starts all children.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

struct Order {
    command: Command,
    reply: Sender<io::Result<Child>>,
}

/// Starts `command`.
pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
    static ORDERS: OnceLock<Sender<Order>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let (orders, received) = channel::<Order>();
        let serve = move || {
            for Order { mut command, reply } in received {
                // The caller waits for the answer.
                let _ = reply.send(command.spawn());
            }
        };
        thread::Builder::new().name("spawner".to_owned()).spawn(serve).expect("a thread can be started");
        orders
    });

    let parent = getpid();
    let die_with_parent = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before we asked for the signal.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::other("the parent is gone")) }
    };
    // SAFETY: two system calls, without allocation or locks: an error from a literal does not allocate either.
    unsafe { command.pre_exec(die_with_parent) };

    let (reply, answer) = channel();
    orders.send(Order { command, reply }).expect("the spawner never ends");
    answer.recv().expect("the spawner answers")
}
