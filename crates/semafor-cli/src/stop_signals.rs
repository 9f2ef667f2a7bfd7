//! Signals that stop this process, for commands without a child process.
//!
//! A signal that was ignored when this process started stays ignored (`nohup`, `&` in a script).

use std::future::pending;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::inherited;

/// Waits for SIGINT, SIGTERM or SIGHUP, and returns its number.
pub(crate) async fn next() -> u8 {
    let wait = |signal: Signal| async move {
        if inherited::is_ignored(signal) {
            return pending().await;
        }
        match unix::signal(SignalKind::from_raw(signal.as_raw())) {
            Ok(mut stream) => {
                stream.recv().await;
                u8::try_from(signal.as_raw()).unwrap_or_default()
            }
            // Then the signal keeps its default action, and ends this process.
            Err(_) => pending().await,
        }
    };
    tokio::select! {
        number = wait(Signal::INT) => number,
        number = wait(Signal::TERM) => number,
        number = wait(Signal::HUP) => number,
    }
}
