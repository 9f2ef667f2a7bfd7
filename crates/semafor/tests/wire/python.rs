//! The library itself: `contender.py`, run by the interpreter that `SEMAFOR_WIRE_PYTHON` names.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use semafor_testkit::redis::RedisServer;
use serde_json::Value;

use super::Mailboxes;

pub(super) fn interpreter() -> Option<OsString> {
    std::env::var_os("SEMAFOR_WIRE_PYTHON")
}

/// The process ends when this is dropped.
struct Contenders(Mutex<Child>);

impl Drop for Contenders {
    fn drop(&mut self) {
        let child = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}

pub(super) fn start_peer(
    server: &RedisServer,
    mailboxes: Arc<Mailboxes>,
) -> Box<dyn Fn(&Value) + Send + Sync> {
    let python = interpreter().expect("an interpreter was found");
    let mut command = Command::new(&python);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/contender.py"));
    command.args([&server.url(), "adv-sem"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{python:?} can't be run: {error}"));
    let mut events = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut orders = child.stdin.take().expect("it is piped");
    let ready = events.next().unwrap_or_else(|| panic!("{python:?} ends at once: has it the library?"));
    assert!(ready.expect("it is text").contains("ready"));
    thread::spawn(move || {
        for event in events.map_while(Result::ok) {
            mailboxes.deliver(serde_json::from_str(&event).expect("contender.py writes JSON"));
        }
        mailboxes.close();
    });
    // Writing an order to the pipe does not block, so the lock is held only briefly.
    let orders = Mutex::new(move |order: &Value| writeln!(orders, "{order}"));
    let contenders = Contenders(Mutex::new(child));
    Box::new(move |order| {
        let _ = &contenders;
        let mut write = orders.lock().unwrap_or_else(PoisonError::into_inner);
        write(order).expect("contender.py reads its orders");
    })
}
