//! One client process of a site.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{SyncSender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::Message;
use crate::redis::Proxy;
use crate::spawner::spawn;

/// A client that is not connected by then will never be.
const TIME_TO_START: Duration = Duration::from_secs(60);

/// A process that contends. Dropping it kills it.
pub(super) struct Client {
    pub(super) number: u64,
    pub(super) is_python: bool,
    /// It is never killed, so that its memory can be watched.
    pub(super) is_steady: bool,
    pub(super) is_stopped: bool,
    /// Its way to the server.
    pub(super) proxy: Option<Proxy>,
    child: Child,
    orders: Option<ChildStdin>,
    reader: Option<JoinHandle<()>>,
}

impl Client {
    /// Starts the process. It is connected when this returns. Its lines go to `messages`.
    pub(super) fn start(
        mut command: Command,
        (site, number): (usize, u64),
        proxy: Option<Proxy>,
        messages: SyncSender<Message>,
    ) -> Result<Self, String> {
        // In a group of its own: Ctrl-C is for us.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let program = Path::new(command.get_program()).display().to_string();
        let mut child = spawn(command).map_err(|error| format!("{program} can't be started: {error}"))?;
        let output = child.stdout.take().ok_or("its output was asked for")?;
        let (tell, ready) = channel();
        let reader = thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = String::new();
            // A process that is killed while it writes leaves an unfinished line.
            while matches!(output.read_line(&mut line), Ok(length) if length > 0) && line.ends_with('\n') {
                if line.trim_end() == "ready" {
                    // The other end may have given up.
                    let _ = tell.send(());
                }
                let message = Message::Line { site, client: number, line: line.trim_end().to_owned() };
                if messages.send(message).is_err() {
                    return;
                }
                line.clear();
            }
            let _ = messages.send(Message::EndOfOutput { site, client: number });
        });
        let orders = child.stdin.take();
        let client = Self {
            number,
            is_python: false,
            is_steady: false,
            is_stopped: false,
            proxy,
            child,
            orders,
            reader: Some(reader),
        };
        ready.recv_timeout(TIME_TO_START).map_err(|_| format!("{program} does not start"))?;
        Ok(client)
    }

    /// Sends an order. A process that has died is noticed elsewhere.
    pub(super) fn order(&self, order: &str) -> io::Result<()> {
        self.orders.as_ref().map_or(Ok(()), |mut orders| writeln!(orders, "{order}"))
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it has ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    fn signal(&self, signal: Signal) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Stops it with SIGSTOP. It has stopped when this returns.
    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
        self.signal(Signal::STOP);
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _ = waitid(WaitId::Pid(Pid::from_child(&self.child)), stopped);
    }

    /// Continues it after that.
    pub(super) fn resume(&mut self) {
        self.is_stopped = false;
        self.signal(Signal::CONT);
    }

    /// Kills it with SIGKILL. When this returns, it is gone and all its output was passed on.
    pub(super) fn kill(&mut self) {
        self.orders = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.kill();
    }
}
