//! The connection to an agent.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::net::SendFlags;

use super::address;
use crate::error::{HomeError, HomeErrorKind};
use crate::remote::clock::Instant;

pub(super) struct Socket {
    pub(super) stream: Arc<UnixStream>,
    /// Bytes that the socket did not accept yet.
    unsent: Vec<u8>,
    /// Wakes the thread.
    wake_sender: Arc<UnixStream>,
    /// Until when the thread sleeps, unless it receives something.
    pub(super) sleeps_until: Option<Instant>,
    pub(super) directory: PathBuf,
}

impl Socket {
    pub(super) fn new(stream: Arc<UnixStream>, wake_sender: UnixStream, directory: &Path) -> Self {
        let (wake_sender, directory) = (Arc::new(wake_sender), directory.to_owned());
        Self { stream, unsent: Vec::new(), wake_sender, sleeps_until: None, directory }
    }

    /// Never blocks: the thread sends later what the socket does not accept now.
    pub(super) fn send(&mut self, frame: &[u8]) {
        let is_idle = self.unsent.is_empty();
        self.unsent.extend_from_slice(frame);
        if is_idle {
            self.flush();
            if !self.unsent.is_empty() {
                self.wake();
            }
        }
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub(super) fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match rustix::net::send(&*self.stream, &self.unsent, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                // The thread notices it, too, and sends everything again to the next agent.
                Err(_) => self.unsent.clear(),
            }
        }
    }

    pub(super) fn wake_by(&mut self, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return };
        if self.sleeps_until.is_none_or(|until| deadline < until) {
            self.sleeps_until = Some(deadline);
            self.wake();
        }
    }

    fn wake(&self) {
        let _ = rustix::net::send(&*self.wake_sender, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

/// Connects to the agent of that folder, if one is running.
pub(super) fn connect(directory: &Path) -> Result<Option<UnixStream>, HomeError> {
    if !address::check(directory)? {
        return Ok(None);
    }
    let socket = address::socket_in(directory);
    match UnixStream::connect(&socket) {
        Ok(stream) => check_peer(&stream, directory).map(|()| Some(stream)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
        Err(error) => Err(address::io_failure("connect to", &socket, error)),
    }
}

/// Checks that the agent is a process of this user.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn check_peer(stream: &UnixStream, directory: &Path) -> Result<(), HomeError> {
    let peer = rustix::net::sockopt::socket_peercred(stream);
    match peer {
        Ok(peer) if peer.uid == rustix::process::geteuid() => Ok(()),
        _ => Err(HomeError::new(
            HomeErrorKind::AccessDenied,
            format!("the agent in {} belongs to another user", directory.display()),
        )),
    }
}

/// Nothing to check: the folder belongs to the user and is closed to others.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn check_peer(_: &UnixStream, _: &Path) -> Result<(), HomeError> {
    Ok(())
}
