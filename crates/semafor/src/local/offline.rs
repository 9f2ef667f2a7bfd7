//! A connection without an agent and without a thread, for fuzzing: what a client makes of the bytes that it receives.

#![allow(missing_docs, reason = "it is hidden")]

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use super::address::Config;
use super::driver::DriverHandle;
use super::home::LocalHome;
use crate::Home;
use crate::error::{HomeError, HomeErrorKind};

/// The other end of a home's connection.
pub struct OfflineAgent {
    handle: Arc<DriverHandle>,
    received: Vec<u8>,
    _stream: UnixStream,
}

impl OfflineAgent {
    /// # Errors
    ///
    /// If the system refuses a pair of sockets.
    pub fn new() -> Result<Self, HomeError> {
        // No agent can be started there.
        let nowhere = Path::new("/dev/null/semafor");
        let handle = DriverHandle::new(Config::default().directory(nowhere));
        let (ours, theirs) = UnixStream::pair().map_err(|error| {
            HomeError::caused_by(error, HomeErrorKind::Unreachable, "can't create a pair of sockets")
        })?;
        handle.driver().start_session(ours, nowhere)?;
        Ok(Self { handle, received: Vec::new(), _stream: theirs })
    }

    /// A home whose requests are sent to nowhere.
    pub fn home(&self) -> Home {
        Home::on(LocalHome::of(Arc::clone(&self.handle)))
    }

    /// The home receives these bytes.
    ///
    /// # Errors
    ///
    /// If they are no messages. Then the home has given up the connection.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), HomeError> {
        self.received.extend_from_slice(bytes);
        self.handle.driver().receive(&mut self.received)
    }

    pub fn handle_timeouts(&self) {
        self.handle.driver().handle_timeouts();
    }
}
