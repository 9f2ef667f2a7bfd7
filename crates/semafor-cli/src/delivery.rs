//! Delivers the id of `acquire` to its reader, and detects when it can't be delivered.
//!
//! If the id of a slot is lost, the slot stays held for its whole lease. So `acquire` gives up as soon as it
//! sees that it can't deliver the id:
//!
//! - the reader has closed the pipe or socket that is our stdout, or the terminal is gone;
//! - the parent has ended, if we are a foreground command of it: in its process group, and ignoring none of the signals
//!   that `nohup`, or `&` in a script, make a command ignore. A background command is meant to outlive its parent;
//! - writing fails;
//! - the reader closes the pipe within 0.1 s after the id was written, and the id is still in the pipe (Linux only).
//!
//! It can't notice a reader that ends later, with or without having read the id, or a file that is never read.

use std::future::pending;
#[cfg(target_os = "linux")]
use std::io::Read;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, ioctl_fionread};
use rustix::process::{Pid, Signal, getppid};
use rustix::stdio::stdout;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::{groups, inherited};

/// How often to check the parent where the system can't report its end.
const PARENT_CHECK_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// How long to wait for room in stdout in the middle of an id.
const WRITE_TIMEOUT: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// How often to check whether a full pipe has room again: from the first pause, doubling up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// How long to wait for a reader to read the id from a pipe. Most read it at once.
const READ_TIMEOUT: Duration = Duration::from_millis(100);

/// Why the id can't be delivered: its reader or our parent is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gone {
    Reader,
    Parent,
}

impl Gone {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Reader => "the reader of stdout is gone",
            Self::Parent => "the parent process has ended",
        }
    }
}

/// The reader of the id: of stdout, and the parent process if it is watched.
#[derive(Clone, Copy)]
pub(crate) struct Recipient {
    parent: Option<Pid>,
}

impl Recipient {
    /// Call before this process installs signal handlers: they hide which signals were ignored.
    pub(crate) fn of_this_process() -> Self {
        Self { parent: parent_to_watch() }
    }

    /// Waits until the reader or the parent is gone.
    pub(crate) async fn gone(self) -> Gone {
        let (sender, gone) = oneshot::channel();
        let watch = move || {
            if let Some(gone) = wait_until_gone(self.parent) {
                let _ = sender.send(gone);
            }
        };
        // Without a thread, only the check right before writing the id remains.
        let _ = thread::Builder::new().name("recipient".to_owned()).spawn(watch);
        match gone.await {
            Ok(gone) => gone,
            Err(_) => pending().await,
        }
    }

    /// Waits until stdout has room for a short text.
    pub(crate) async fn has_room(self) -> Result<(), Gone> {
        let mut pause = FIRST_PAUSE;
        while !poll_stdout(self.parent)?.contains(PollFlags::OUT) {
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Ok(())
    }
}

/// The parent process, if this is a foreground command of it.
fn parent_to_watch() -> Option<Pid> {
    let parent = getppid()?;
    let is_in_background = [Signal::INT, Signal::QUIT, Signal::HUP].into_iter().any(inherited::is_ignored);
    let is_in_its_group = groups::group_of(parent) == Some(groups::own_group());
    (!is_in_background && is_in_its_group).then_some(parent)
}

/// Polls stdout. An error if its reader or our parent is gone.
fn poll_stdout(parent: Option<Pid>) -> Result<PollFlags, Gone> {
    if parent.is_some_and(|parent| getppid() != Some(parent)) {
        return Err(Gone::Parent);
    }
    let stdout = stdout();
    let mut files = [PollFd::new(&stdout, PollFlags::OUT)];
    match poll(&mut files, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) if is_disconnected(&files[0]) => Err(Gone::Reader),
        Ok(_) => Ok(files[0].revents()),
        Err(Errno::INTR) => Ok(PollFlags::empty()),
        // Then the write reports the error.
        Err(_) => Ok(PollFlags::OUT),
    }
}

fn is_disconnected(stdout: &PollFd<'_>) -> bool {
    stdout.revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Blocks until the reader or the parent is gone. `None` if that can't be detected.
fn wait_until_gone(parent: Option<Pid>) -> Option<Gone> {
    let end = parent.and_then(end_descriptor);
    let timeout = (parent.is_some() && end.is_none()).then_some(&PARENT_CHECK_INTERVAL);
    let stdout = stdout();
    loop {
        let mut files = vec![PollFd::new(&stdout, PollFlags::empty())];
        files.extend(end.iter().map(|end| PollFd::new(end, PollFlags::IN)));
        match poll(&mut files, timeout) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
        if is_disconnected(&files[0]) {
            return Some(Gone::Reader);
        }
        let has_ended = files.get(1).is_some_and(|end| !end.revents().is_empty());
        if has_ended || parent.is_some_and(|parent| getppid() != Some(parent)) {
            return Some(Gone::Parent);
        }
    }
}

/// A descriptor that becomes readable when the process ends, on systems that have one.
fn end_descriptor(process: Pid) -> Option<OwnedFd> {
    #[cfg(target_os = "linux")]
    return rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()).ok();
    #[cfg(not(target_os = "linux"))]
    None
}

/// Writes all of the text. Does not use the standard library's stdout, which ignores writes to a closed descriptor.
pub(crate) fn write(text: &str) -> io::Result<()> {
    let mut left = text.as_bytes();
    while !left.is_empty() {
        match rustix::io::write(stdout(), left) {
            Ok(written) => left = &left[written..],
            Err(Errno::INTR) => {}
            // Another process has set stdout to non-blocking.
            Err(Errno::AGAIN) => {
                let stdout = stdout();
                match poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], Some(&WRITE_TIMEOUT)) {
                    Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Waits briefly until the text just written to a pipe has been read. True if it never will be, because the reader is
/// gone.
///
/// True only if that is certain: a reader that has the id relies on the slot.
pub(crate) async fn is_left_unread(stdout: impl AsFd, text: &str) -> bool {
    let stdout = stdout.as_fd();
    let is_pipe = fstat(stdout).is_ok_and(|file| FileType::from_raw_mode(file.st_mode) == FileType::Fifo);
    let (since, mut pause) = (Instant::now(), FIRST_PAUSE);
    // If the pipe holds less than the text, part of it was read.
    while is_pipe && ioctl_fionread(stdout).is_ok_and(|unread| unread >= text.len() as u64) {
        let mut files = [PollFd::from_borrowed_fd(stdout, PollFlags::empty())];
        if poll(&mut files, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok() && is_disconnected(&files[0]) {
            return is_in_pipe(stdout, text.as_bytes()).unwrap_or(false);
        }
        if since.elapsed() >= READ_TIMEOUT {
            return false;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    false
}

/// Whether the text is in a pipe that has no reader. Removes nothing from the pipe: it may contain ids of other
/// processes, which check it as well. `None` if this can't be determined.
#[cfg(target_os = "linux")]
fn is_in_pipe(pipe: BorrowedFd<'_>, text: &[u8]) -> Option<bool> {
    use rustix::fs::{Mode, OFlags, open};
    use rustix::pipe::{SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, tee};

    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let reader = open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let (mut copy, writer) = io::pipe().ok()?;
    let size = fcntl_getpipe_size(pipe).ok()?;
    fcntl_setpipe_size(&writer, size).ok()?;
    let length = tee(&reader, &writer, size, SpliceFlags::NONBLOCK).ok()?;
    drop(writer);
    if ioctl_fionread(pipe).ok()? > length as u64 {
        return None;
    }
    let mut unread = Vec::with_capacity(length);
    copy.read_to_end(&mut unread).ok()?;
    Some(unread.windows(text.len()).any(|part| part == text))
}

#[cfg(not(target_os = "linux"))]
fn is_in_pipe(_pipe: BorrowedFd<'_>, _text: &[u8]) -> Option<bool> {
    None
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::io::{PipeReader, PipeWriter, Write, pipe};

    use super::*;

    /// A pipe with these texts in it.
    fn pipe_with(texts: &[&str]) -> (PipeReader, PipeWriter) {
        let (reader, mut writer) = pipe().expect("create a pipe");
        texts.iter().for_each(|text| writer.write_all(text.as_bytes()).expect("write to the pipe"));
        (reader, writer)
    }

    fn is_left(writer: &PipeWriter) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("create a runtime").block_on(is_left_unread(writer, "mine\n"))
    }

    #[test]
    fn text_not_read_before_the_pipe_closes_is_left_unread() {
        for texts in [&["mine\n"][..], &["before\n", "mine\n"], &["mine\n", "after\n"]] {
            let (reader, writer) = pipe_with(texts);
            drop(reader);
            assert!(is_left(&writer), "{texts:?}");
            assert!(is_left(&writer), "the check does not change the pipe");
        }
    }

    #[test]
    fn text_that_was_read_is_not_left_unread_even_if_more_follows() {
        let (mut reader, writer) = pipe_with(&["mine\n", "other\n"]);
        reader.read_exact(&mut [0; 5]).expect("read from the pipe");
        drop(reader);
        assert!(!is_left(&writer));
    }

    #[test]
    fn partly_read_text_counts_as_read() {
        let (mut reader, writer) = pipe_with(&["mine\n"]);
        reader.read_exact(&mut [0; 2]).expect("read from the pipe");
        drop(reader);
        assert!(!is_left(&writer));
    }

    #[test]
    fn slow_reader_is_not_treated_as_gone() {
        let (_reader, writer) = pipe_with(&["mine\n"]);
        assert!(!is_left(&writer));
    }
}
