//! How an id reaches its reader, and how `acquire` notices that it can't.
//!
//! If the id of a slot is lost, the slot stays held for its whole time to live. So `acquire` gives up as soon as it
//! sees that it can't deliver the id:
//!
//! - the reader has closed the pipe or socket that is our stdout, or the terminal is gone;
//! - the parent has ended, if we are a foreground command of it: in its process group, and ignoring none of the signals that
//!   `nohup`, and `&` in a script, have a command ignore. A command in the background is meant to outlive its parent;
//! - writing fails;
//! - the reader has closed the pipe within a moment after the id was written, and the id is still in it (Linux only).
//!
//! It can't notice that a reader ends later without having read the id, or after it has read it, and it does not know what
//! is read from a file.

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

/// How often to look for the parent where the system does not tell of its end.
const BETWEEN_LOOKS: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// How long a reader may take before there is room for the rest of an id.
const LONGEST_STALL: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// How often to look whether a full pipe has room again.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// How long a reader has to read from a pipe before it is left alone. Most read at once.
const MOMENT: Duration = Duration::from_millis(100);

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

/// The process that the id is for, as far as it is known.
#[derive(Clone, Copy)]
pub(crate) struct Recipient {
    parent: Option<Pid>,
}

impl Recipient {
    /// To be called before this process listens to signals.
    pub(crate) fn of_this_process() -> Self {
        Self { parent: parent_to_watch() }
    }

    /// Waits until the recipient is gone.
    pub(crate) async fn gone(self) -> Gone {
        let (tell, gone) = oneshot::channel();
        let watch = move || {
            if let Some(gone) = wait_until_gone(self.parent) {
                let _ = tell.send(gone);
            }
        };
        // Without a thread, the look before the id is written is all there is.
        let _ = thread::Builder::new().name("recipient".to_owned()).spawn(watch);
        match gone.await {
            Ok(gone) => gone,
            Err(_) => pending().await,
        }
    }

    /// Waits until stdout has room for a short text.
    pub(crate) async fn has_room(self) -> Result<(), Gone> {
        let mut pause = FIRST_PAUSE;
        while !look(self.parent)?.contains(PollFlags::OUT) {
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Ok(())
    }
}

/// The parent, if we are a foreground command of it.
fn parent_to_watch() -> Option<Pid> {
    let parent = getppid()?;
    let is_in_background = [Signal::INT, Signal::QUIT, Signal::HUP].into_iter().any(inherited::is_ignored);
    let is_in_its_group = groups::group_of(parent) == Some(groups::own_group());
    (!is_in_background && is_in_its_group).then_some(parent)
}

/// Polls stdout. An error if its reader or our parent is gone.
fn look(parent: Option<Pid>) -> Result<PollFlags, Gone> {
    if parent.is_some_and(|parent| getppid() != Some(parent)) {
        return Err(Gone::Parent);
    }
    let stdout = stdout();
    let mut files = [PollFd::new(&stdout, PollFlags::OUT)];
    match poll(&mut files, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) if is_cut_off(&files[0]) => Err(Gone::Reader),
        Ok(_) => Ok(files[0].revents()),
        Err(Errno::INTR) => Ok(PollFlags::empty()),
        // Then it is the writing that tells.
        Err(_) => Ok(PollFlags::OUT),
    }
}

fn is_cut_off(stdout: &PollFd<'_>) -> bool {
    stdout.revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// `None` if that can't be found out.
fn wait_until_gone(parent: Option<Pid>) -> Option<Gone> {
    let end = parent.and_then(end_of);
    let timeout = (parent.is_some() && end.is_none()).then_some(&BETWEEN_LOOKS);
    let stdout = stdout();
    loop {
        let mut files = vec![PollFd::new(&stdout, PollFlags::empty())];
        files.extend(end.iter().map(|end| PollFd::new(end, PollFlags::IN)));
        match poll(&mut files, timeout) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
        if is_cut_off(&files[0]) {
            return Some(Gone::Reader);
        }
        let has_ended = files.get(1).is_some_and(|end| !end.revents().is_empty());
        if has_ended || parent.is_some_and(|parent| getppid() != Some(parent)) {
            return Some(Gone::Parent);
        }
    }
}

/// What can be read from once the process has ended, where the system has such a thing.
fn end_of(process: Pid) -> Option<OwnedFd> {
    #[cfg(target_os = "linux")]
    return rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()).ok();
    #[cfg(not(target_os = "linux"))]
    None
}

/// Writes it all. Not through the standard library, which takes a stdout that can't be written to for one that swallows
/// everything.
pub(crate) fn write(text: &str) -> io::Result<()> {
    let mut left = text.as_bytes();
    while !left.is_empty() {
        match rustix::io::write(stdout(), left) {
            Ok(written) => left = &left[written..],
            Err(Errno::INTR) => {}
            // Another process has made stdout non-blocking.
            Err(Errno::AGAIN) => {
                let stdout = stdout();
                match poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], Some(&LONGEST_STALL)) {
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

/// Waits until what was just written to a pipe has been read, for a moment. True if it never will be: its reader is gone.
///
/// True only if that is certain: a reader that has the id relies on the slot.
pub(crate) async fn is_left_unread(stdout: impl AsFd, text: &str) -> bool {
    let stdout = stdout.as_fd();
    let is_pipe = fstat(stdout).is_ok_and(|file| FileType::from_raw_mode(file.st_mode) == FileType::Fifo);
    let (since, mut pause) = (Instant::now(), FIRST_PAUSE);
    // With less than that in the pipe, some of it was read.
    while is_pipe && ioctl_fionread(stdout).is_ok_and(|unread| unread >= text.len() as u64) {
        let mut files = [PollFd::from_borrowed_fd(stdout, PollFlags::empty())];
        if poll(&mut files, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok() && is_cut_off(&files[0]) {
            return is_in_pipe(stdout, text.as_bytes()).unwrap_or(false);
        }
        if since.elapsed() >= MOMENT {
            return false;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    false
}

/// Whether the text is in a pipe that has no reader. Looks without taking anything out: there may be the ids of others in it,
/// who will look as well. `None` if it can't be told.
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

    /// A pipe to which all that was written.
    fn pipe_with(texts: &[&str]) -> (PipeReader, PipeWriter) {
        let (reader, mut writer) = pipe().expect("a pipe can be made");
        texts.iter().for_each(|text| writer.write_all(text.as_bytes()).expect("there is room"));
        (reader, writer)
    }

    fn is_left(writer: &PipeWriter) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("there is a runtime").block_on(is_left_unread(writer, "mine\n"))
    }

    #[test]
    fn text_not_read_before_the_pipe_closes_is_left_unread() {
        for texts in [&["mine\n"][..], &["before\n", "mine\n"], &["mine\n", "after\n"]] {
            let (reader, writer) = pipe_with(texts);
            drop(reader);
            assert!(is_left(&writer), "{texts:?}");
            assert!(is_left(&writer), "looking does not change it");
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
        reader.read_exact(&mut [0; 2]).expect("it is there");
        drop(reader);
        assert!(!is_left(&writer));
    }

    #[test]
    fn slow_reader_is_not_treated_as_gone() {
        let (_reader, writer) = pipe_with(&["mine\n"]);
        assert!(!is_left(&writer));
    }
}
