//! Being asked to stop, where there is nothing to stop but this.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for a signal that means to end this process, and gives its number.
pub(crate) async fn next() -> u8 {
    let wait = |kind: SignalKind| async move {
        match signal(kind) {
            Ok(mut stream) => {
                stream.recv().await;
                u8::try_from(kind.as_raw_value()).unwrap_or_default()
            }
            // Then it ends this process in the system's own way.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        number = wait(SignalKind::interrupt()) => number,
        number = wait(SignalKind::terminate()) => number,
        number = wait(SignalKind::hangup()) => number,
    }
}
