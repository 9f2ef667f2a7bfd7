//! The signals that this process handles.
//!
//! Signals that were ignored when it started stay ignored, also for the child (`nohup`).

use std::future::poll_fn;
use std::task::Poll;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{self, SignalKind};

use super::system::{self, Disposition};
use crate::exit::{Code, Failure};
use crate::inherited;

/// All signals that can be caught and that other processes send. Not signals that a process causes itself (SEGV, FPE),
/// and not those for reading from the terminal in the background (TTIN, TTOU).
const FORWARDED: &[Signal] = &[
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::XCPU,
    Signal::IO,
    #[cfg(target_os = "linux")]
    Signal::POWER,
    Signal::WINCH,
    Signal::URG,
    Signal::CONT,
];

/// The signal listeners.
pub(super) struct Signals {
    listeners: Vec<(Signal, unix::Signal)>,
    was_child_ignored: bool,
}

impl Signals {
    /// Does not listen for Ctrl-Z yet: before the child is started, it stops this process as usual.
    pub(super) fn listen() -> Result<Self, Failure> {
        let was_child_ignored = inherited::is_ignored(Signal::CHILD);
        let mut signals = Self { listeners: Vec::with_capacity(FORWARDED.len() + 2), was_child_ignored };
        // With SIGCHLD ignored, the exit code of the child would be lost.
        signals.add(Signal::CHILD)?;
        for signal in FORWARDED {
            signals.add_unless_ignored(*signal)?;
        }
        Ok(signals)
    }

    /// Listens for this signal, unless it is ignored.
    pub(super) fn add_unless_ignored(&mut self, signal: Signal) -> Result<(), Failure> {
        if inherited::is_ignored(signal) { Ok(()) } else { self.add(signal) }
    }

    fn add(&mut self, signal: Signal) -> Result<(), Failure> {
        let listener = unix::signal(SignalKind::from_raw(signal.as_raw()))
            .map_err(|error| Code::CannotRun.because(format!("can't listen for signals: {error}")))?;
        self.listeners.push((signal, listener));
        Ok(())
    }

    /// Signals that were ignored at the start, and that Rust or we changed. They must be ignored again in the child.
    pub(super) fn to_ignore_again(&self) -> [Option<Signal>; 2] {
        let pipe = inherited::was_pipe_ignored().then_some(Signal::PIPE);
        [pipe, self.was_child_ignored.then_some(Signal::CHILD)]
    }

    /// The next signal. Several signals of a kind may be merged into one, as the system does.
    ///
    /// Cancel safe: no signal is lost.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, listener) in &mut self.listeners {
                if listener.poll_recv(cx).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that ends a process by default.
    pub(super) async fn next_fatal(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::CHILD | Signal::CONT | Signal::URG | Signal::WINCH => {}
                signal => return signal,
            }
        }
    }
}

/// Ends this process by the signal itself. After an exit code of 130, a shell would continue its loop.
pub(super) fn die_by(signal: Signal) {
    system::set_disposition(signal, Disposition::Default);
    let _ = kill_process(getpid(), signal);
}
