//! The signals that reach this process.
//!
//! What was ignored when it was started stays ignored, for its child too (`nohup`): nobody listens to that.

use std::future::poll_fn;
use std::task::Poll;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{self, SignalKind};

use super::system::{self, Disposition};
use crate::exit::{Code, Failure};
use crate::inherited;

/// All that can be caught and that others send. Not what a process brings upon itself (SEGV, FPE), nor what the terminal
/// tells those who read from it without being asked to (TTIN, TTOU).
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

/// Who listens to them.
pub(super) struct Signals {
    listeners: Vec<(Signal, unix::Signal)>,
    was_child_ignored: bool,
}

impl Signals {
    /// Ctrl-Z is not among them yet: while there is no child, it stops this process as any other.
    pub(super) fn listen() -> Result<Self, Failure> {
        let was_child_ignored = inherited::is_ignored(Signal::CHILD);
        let mut signals = Self { listeners: Vec::with_capacity(FORWARDED.len() + 2), was_child_ignored };
        // Whoever ignores it is told nothing about its children.
        signals.add(Signal::CHILD)?;
        for signal in FORWARDED {
            signals.add_unless_ignored(*signal)?;
        }
        Ok(signals)
    }

    /// To this one as well, unless it is ignored.
    pub(super) fn add_unless_ignored(&mut self, signal: Signal) -> Result<(), Failure> {
        if inherited::is_ignored(signal) { Ok(()) } else { self.add(signal) }
    }

    fn add(&mut self, signal: Signal) -> Result<(), Failure> {
        let listener = unix::signal(SignalKind::from_raw(signal.as_raw()))
            .map_err(|error| Code::CannotRun.because(format!("can't listen to signals: {error}")))?;
        self.listeners.push((signal, listener));
        Ok(())
    }

    /// What a child would find ignored without us, and does not: Rust and we have changed it for our own sake.
    pub(super) fn to_ignore_again(&self) -> [Option<Signal>; 2] {
        let pipe = inherited::was_pipe_ignored().then_some(Signal::PIPE);
        [pipe, self.was_child_ignored.then_some(Signal::CHILD)]
    }

    /// The next one. Several of a kind may be told as one, as the system does.
    ///
    /// Cancel safe: nothing is missed.
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

    /// The next one that ends a process which does not listen.
    pub(super) async fn next_fatal(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::CHILD | Signal::CONT | Signal::URG | Signal::WINCH => {}
                signal => return signal,
            }
        }
    }
}

/// Ends this process as the signal would have. A shell goes on with its loop after a mere exit code of 130.
pub(super) fn die_by(signal: Signal) {
    system::set_disposition(signal, Disposition::Default);
    let _ = kill_process(getpid(), signal);
}
