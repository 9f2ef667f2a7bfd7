//! Processes that contend for slots.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::eventually::eventually;
use crate::history::Event;
use crate::spawner::spawn;

/// A process of the program `contender`, whose documentation lists its orders.
///
/// It does not outlive the test. Its output is kept when it is killed.
pub struct Contender {
    child: Child,
    orders: Option<ChildStdin>,
    received: Arc<Mutex<Received>>,
    listener: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Received {
    events: Vec<Event>,
    words: Vec<String>,
}

impl Contender {
    /// Starts `program` for the Redis at `url`. It is connected when this returns.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn start(program: &str, url: &str) -> Self {
        let mut command = Command::new(program);
        command.arg(url).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn(command).unwrap_or_else(|error| panic!("{program} can't be started: {error}"));
        let received = Arc::<Mutex<Received>>::default();
        let output = child.stdout.take().expect("it was asked for");
        let listener = std::thread::spawn({
            let received = Arc::clone(&received);
            move || listen(BufReader::new(output), &received)
        });
        let contender = Self { orders: child.stdin.take(), child, received, listener: Some(listener) };
        contender.has_said("ready");
        contender
    }

    fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an order.
    ///
    /// # Panics
    ///
    /// If the process no longer takes orders.
    pub fn order(&self, order: &str) {
        let mut orders = self.orders.as_ref().expect("it is alive");
        writeln!(orders, "{order}").unwrap_or_else(|error| panic!("{order:?} was not delivered: {error}"));
    }

    /// What its contestants have seen so far.
    pub fn events(&self) -> Vec<Event> {
        self.received().events.clone()
    }

    /// Returns as soon as it has printed this line, which is not an event.
    ///
    /// # Panics
    ///
    /// If it never does.
    #[track_caller]
    pub fn has_said(&self, line: &str) {
        eventually(&format!("a contender prints {line:?}"), || {
            self.received().words.iter().any(|word| word == line).then_some(())
        });
    }

    /// Calls `look` with the events until it returns something.
    ///
    /// # Panics
    ///
    /// If it never does.
    #[track_caller]
    pub fn shows<T>(&self, what: &str, mut look: impl FnMut(&Event) -> Option<T>) -> T {
        eventually(what, || self.received().events.iter().find_map(&mut look))
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) -> Pid {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it is our child");
        pid
    }

    /// Stops it with SIGSTOP. It has stopped when this returns.
    ///
    /// # Panics
    ///
    /// If it has ended.
    pub fn pause(&self) {
        let pid = self.signal(Signal::STOP);
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(pid), stopped).expect("it is our child").expect("it was waited for");
        assert!(status.stopped(), "it has ended instead");
    }

    /// Continues it after a [pause](Self::pause).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it with SIGKILL. When this returns, it is gone and all its output was read.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.wait();
    }

    /// Returns when it has ended by itself and all its output was read.
    pub fn wait(&mut self) {
        self.orders = None;
        self.child.wait().expect("it is our child");
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        self.kill();
        // For the reader of a test that has failed.
        self.received()
            .words
            .iter()
            .filter(|word| word.starts_with("failure"))
            .for_each(|word| println!("{word}"));
    }
}

fn listen(mut output: impl BufRead, received: &Mutex<Received>) {
    let mut line = String::new();
    // A process that is killed while it writes leaves an unfinished line.
    while matches!(output.read_line(&mut line), Ok(length) if length > 0) && line.ends_with('\n') {
        let mut received = received.lock().unwrap_or_else(PoisonError::into_inner);
        match line.trim_end().parse::<Event>() {
            Ok(event) => received.events.push(event),
            Err(_) => received.words.push(line.trim_end().to_owned()),
        }
        line.clear();
    }
}
