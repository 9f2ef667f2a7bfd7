//! A terminal to run programs in, and to read their screen.
//!
//! The program leads a session of its own, with a real pseudo-terminal as its controlling terminal: it gets Ctrl-C,
//! Ctrl-Z and changes of size as under any other terminal, and a shell in it has job control.

mod picture;

use std::fmt;
use std::fs::{File, read_dir, read_to_string};
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::num::NonZeroU16;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, ioctl_tiocsctty, kill_process, setsid};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::stdio::stdin;
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcgetpgrp, tcsetwinsize};

pub use picture::svg;

/// A test that waits longer than this has failed. Not a measure of speed.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// How often `wait_until` checks again while the screen does not change.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A pseudo-terminal with a program in it.
///
/// Drop kills the program and all processes left in its session.
pub struct Terminal {
    child: Child,
    line: Option<Line>,
    display: Arc<Display>,
}

/// Our end of the pseudo-terminal.
struct Line {
    keyboard: File,
    /// The display closes its end of the line when this is closed.
    _open: PipeWriter,
}

#[derive(Default)]
struct Display {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    parser: vt100::Parser,
    /// True when no process has the terminal open.
    hung_up: bool,
}

impl Terminal {
    /// Starts `command` in a terminal of that size. Its settings for stdin, stdout and stderr are replaced.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn spawn(mut command: Command, rows: u16, cols: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let controller = openpt(flags).expect("there are terminals to be had");
        grantpt(&controller).and_then(|()| unlockpt(&controller)).expect("it is ours");
        let peer = ioctl_tiocgptpeer(&controller, flags).expect("it is unlocked");
        let another = || Stdio::from(peer.try_clone().expect("it can be opened more than once"));
        command.stdin(another()).stdout(another()).stderr(another()).env("TERM", "xterm-256color");
        let lead_session = || {
            setsid()?;
            Ok(ioctl_tiocsctty(stdin())?)
        };
        // SAFETY: two system calls, without allocation or locks.
        unsafe { command.pre_exec(lead_session) };

        let screen = File::from(controller.try_clone().expect("it can be opened more than once"));
        let display = Arc::<Display>::default();
        set_size(&controller, &display, rows, cols);
        let program = command.get_program().to_owned();
        let child = crate::spawner::spawn(command)
            .unwrap_or_else(|error| panic!("{} can't be started: {error}", program.display()));
        let (closed, open) = pipe().expect("there are pipes to be had");
        thread::spawn({
            let display = Arc::clone(&display);
            move || display.show(screen, &closed)
        });
        let line = Line { keyboard: File::from(controller), _open: open };
        Self { child, line: Some(line), display }
    }

    fn keyboard(&self) -> &File {
        &self.line.as_ref().expect("it was not closed").keyboard
    }

    /// Types. Enter is `\r`, Ctrl-C is `\x03`, Escape is `\x1b`.
    ///
    /// # Panics
    ///
    /// If no process has the terminal open.
    pub fn type_in(&self, keys: impl AsRef<[u8]>) {
        self.keyboard().write_all(keys.as_ref()).expect("a process has the terminal open");
    }

    /// The screen now.
    pub fn screen(&self) -> Screen {
        self.display.look().0
    }

    /// The screen as soon as `wanted` is true, which may also check something else.
    ///
    /// # Panics
    ///
    /// If it never is, with the screen as it is.
    #[track_caller]
    pub fn wait_until(&self, what: &str, mut wanted: impl FnMut(&Screen) -> bool) -> Screen {
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            let (screen, hung_up) = self.display.look();
            if wanted(&screen) {
                return screen;
            }
            assert!(!hung_up, "the program has ended, and this never happened: {what}\n{screen}");
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "this never happened: {what}\n{screen}");
            drop(self.display.wait(self.display.state(), POLL_INTERVAL));
        }
    }

    /// Changes its size, and so signals its foreground process.
    pub fn resize(&self, rows: u16, cols: u16) {
        set_size(self.keyboard(), &self.display, rows, cols);
    }

    /// The process that was started, which leads the terminal's session.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The process group in the foreground, which gets Ctrl-C; `None` if there is none.
    pub fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(self.keyboard()).ok()
    }

    /// Sends the process that was started a signal.
    ///
    /// # Panics
    ///
    /// If it was [waited](Self::wait) for.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it is our child");
    }

    /// True if it echoes what is typed and passes it on line by line, as a shell expects.
    ///
    /// # Panics
    ///
    /// If the terminal cannot be asked.
    pub fn is_cooked(&self) -> bool {
        let modes = tcgetattr(self.keyboard()).expect("it is a terminal").local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }

    /// The exit status of the process, as soon as it has ended. Then all its output is on the screen.
    ///
    /// # Panics
    ///
    /// If it does not end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + TIME_LIMIT;
        // The kernel hangs up the terminal when the leader of its session has ended.
        let mut state = self.display.state();
        while !state.hung_up {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "it does not end:\n{}", Screen(state.parser.screen().clone()));
            state = self.display.wait(state, left);
        }
        drop(state);
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end, though its terminal has hung up");
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Closes the terminal, like closing its window, and returns the exit status of its process.
    ///
    /// # Panics
    ///
    /// If it does not end.
    #[track_caller]
    pub fn close(mut self) -> ExitStatus {
        self.line = None;
        self.wait()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let leader = self.pid();
        // It may have ended by itself.
        let _ = self.child.kill();
        // Its process id is not reused as long as its session has other processes.
        members(leader).for_each(|process| {
            let _ = kill_process(process, Signal::KILL);
        });
        let _ = self.child.wait();
    }
}

/// The processes in the session of that leader. A shell that is killed does not signal its background jobs.
fn members(leader: Pid) -> impl Iterator<Item = Pid> {
    let processes = read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    ids.filter_map(Pid::from_raw).filter(move |process| session(*process) == Some(leader))
}

/// Not with `getsid`: rustix panics if the answer is 0, as it is for kernel threads.
fn session(process: Pid) -> Option<Pid> {
    let stat = read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Its name, in parentheses, may contain any character. State, parent, group and session follow.
    let (_, numbers) = stat.rsplit_once(')')?;
    // A process that ends meanwhile has the session -1.
    Pid::from_raw(numbers.split_whitespace().nth(3)?.parse().ok().filter(|number| *number > 0)?)
}

impl Display {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) -> (Screen, bool) {
        let state = self.state();
        (Screen(state.parser.screen().clone()), state.hung_up)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, timeout: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Reads until the terminal is hung up, which gives an error, or closed.
    fn show(&self, mut written: File, closed: &PipeReader) {
        let mut bytes = [0; 4096];
        while is_next(&written, closed)
            && let Ok(count @ 1..) = written.read(&mut bytes)
        {
            self.state().parser.process(&bytes[..count]);
            self.changed.notify_all();
        }
        drop(written);
        self.state().hung_up = true;
        self.changed.notify_all();
    }
}

/// True if there is something to read next; false if it was closed.
fn is_next(written: &File, closed: &PipeReader) -> bool {
    let mut both = [PollFd::new(written, PollFlags::IN), PollFd::new(closed, PollFlags::IN)];
    loop {
        match poll(&mut both, None) {
            Ok(_) => return both[1].revents().is_empty(),
            Err(Errno::INTR) => {}
            Err(error) => panic!("the terminal cannot be asked: {error}"),
        }
    }
}

fn set_size(terminal: &impl AsFd, display: &Display, rows: u16, cols: u16) {
    let size = |count| NonZeroU16::new(count).expect("a terminal has rows and columns");
    display.state().parser.screen_mut().set_size(size(rows), size(cols));
    display.changed.notify_all();
    let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("it is a terminal");
}

/// The screen of a terminal at one moment.
#[derive(Clone)]
pub struct Screen(vt100::Screen);

impl Screen {
    /// The text, line by line, as wide as the screen.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let (_, cols) = self.0.size();
        self.0.rows(0, cols.get())
    }

    /// True if some line has this text in it.
    pub fn contains(&self, text: &str) -> bool {
        self.lines().any(|line| line.contains(text))
    }

    /// The first line that has this text in it.
    pub fn line_with(&self, text: &str) -> Option<String> {
        self.lines().find(|line| line.contains(text))
    }

    /// True while a full-screen program shows its own screen instead of the shell's.
    pub fn is_alternate(&self) -> bool {
        self.0.alternate_screen()
    }

    /// True if the cursor is visible.
    pub fn shows_cursor(&self) -> bool {
        !self.0.hide_cursor()
    }

    /// The characters with their colours.
    pub fn cells(&self) -> &vt100::Screen {
        &self.0
    }
}

impl fmt::Display for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().try_for_each(|line| writeln!(f, "│{line}"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use rustix::process::test_kill_process;

    use super::*;
    use crate::redis::eventually;

    /// A program started with no signal ignored, wherever the tests were started (`nohup`, `&`).
    fn listening(program: &str) -> Command {
        let mut command = Command::new("env");
        command.args(["--default-signal", program]);
        command
    }

    fn bash() -> Terminal {
        let mut bash = listening("bash");
        bash.args(["--norc", "--noprofile", "-i"]).env("PS1", "ready> ").env("HISTFILE", "");
        let terminal = Terminal::spawn(bash, 24, 80);
        terminal.wait_until("bash is ready", |screen| screen.contains("ready>"));
        terminal
    }

    #[test]
    fn typed_commands_are_run_and_the_exit_status_is_known() {
        let mut terminal = bash();
        terminal.type_in("echo $((6 * 7)); tty -s && echo 'a terminal'\r");
        terminal.wait_until("it answers", |screen| screen.contains("42") && screen.contains("a terminal"));
        terminal.type_in("exit 7\r");
        assert_eq!(terminal.wait().code(), Some(7));
    }

    #[test]
    fn a_shell_has_job_control() {
        let terminal = bash();
        terminal.type_in("sleep 1000\r");
        let shell = terminal.pid();
        // Not only the forked shell before its `exec`: that may still ignore Ctrl-Z, as the shell does.
        terminal.wait_until("sleep is in the foreground", |_| {
            terminal.foreground().is_some_and(|leader| leader != shell && program(leader) == "sleep")
        });
        terminal.type_in(b"\x1a");
        terminal.wait_until("it is stopped", |screen| screen.contains("Stopped"));
        assert_eq!(terminal.foreground(), Some(shell));
        terminal.type_in("fg\r");
        terminal.wait_until("it goes on", |_| terminal.foreground() != Some(shell));
        terminal.type_in(b"\x03");
        terminal.wait_until("it is interrupted", |_| terminal.foreground() == Some(shell));
    }

    /// The name of the program that a process runs.
    fn program(process: Pid) -> String {
        read_to_string(format!("/proc/{process}/comm")).unwrap_or_default().trim().to_owned()
    }

    #[test]
    fn a_program_knows_the_size() {
        let terminal = bash();
        terminal.type_in("stty size\r");
        terminal.wait_until("it has a size", |screen| screen.contains("24 80"));
        terminal.resize(10, 40);
        terminal.type_in("stty size\r");
        terminal.wait_until("it has another", |screen| screen.contains("10 40"));
    }

    #[test]
    fn a_dropped_terminal_leaves_nothing_behind() {
        let terminal = bash();
        terminal.type_in("sleep 1000 & sleep 1000\r");
        let shell = terminal.pid();
        let mut all = Vec::new();
        terminal.wait_until("both are there", |_| {
            all = members(shell).collect();
            all.len() == 3
        });
        drop(terminal);
        for process in all {
            eventually("it is gone", || test_kill_process(process).err());
        }
    }

    #[test]
    fn a_closed_terminal_hangs_up() {
        let mut command = listening("sh");
        command.args(["-c", "echo ready; exec sleep 1000"]);
        let terminal = Terminal::spawn(command, 5, 20);
        terminal.wait_until("it listens", |screen| screen.contains("ready"));
        assert_eq!(terminal.close().signal(), Some(Signal::HUP.as_raw()));
    }

    #[test]
    #[should_panic(expected = "this never happened: pigs fly")]
    fn panic_message_shows_the_screen() {
        let mut command = Command::new("echo");
        command.arg("no pigs");
        Terminal::spawn(command, 5, 20).wait_until("pigs fly", |screen| screen.contains("pigs fly"));
    }
}
