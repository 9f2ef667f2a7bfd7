use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, setsid};

use super::{Output, census};
use crate::redis::eventually;
use crate::spawner::spawn;

/// A command that was started. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdout: File,
    stderr: File,
}

impl Process {
    /// Its output goes to files, so that the test need not read it while it runs. Its stdin is the one of `command`. It
    /// has no terminal, even if the test was started in one: tests that need one use a
    /// [`Terminal`](crate::terminal::Terminal).
    pub(super) fn start(mut command: Command) -> Self {
        let file = || tempfile::tempfile().expect("a file can be made");
        let (stdout, stderr) = (file(), file());
        let another = |file: &File| Stdio::from(file.try_clone().expect("it can be opened more than once"));
        command.stdout(another(&stdout)).stderr(another(&stderr));
        // SAFETY: one system call, without allocation or locks.
        unsafe { command.pre_exec(|| Ok(setsid().map(drop)?)) };
        let program = command.get_program().to_owned();
        let child =
            spawn(command).unwrap_or_else(|error| panic!("{} can't be started: {error}", program.display()));
        Self { child, stdout, stderr }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    ///
    /// If it has been waited for.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is our child");
    }

    /// Stops it with SIGSTOP. It has stopped when this returns.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        eventually("it has stopped", || census::is_stopped(self.pid()).then_some(()));
    }

    /// Continues it after a [pause](Self::pause).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it with SIGKILL, and returns when it is gone. Processes that it started may still run.
    pub fn kill(&mut self) -> Output {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.wait()
    }

    /// True until it has ended.
    pub fn is_running(&self) -> bool {
        census::is_alive(self.pid())
    }

    /// What it has written to stderr so far.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&read(&self.stderr)).into_owned()
    }

    /// Its output and exit status, as soon as it has ended.
    ///
    /// # Panics
    ///
    /// If it does not end.
    #[track_caller]
    pub fn wait(&mut self) -> Output {
        let status = eventually("a command ends", || self.child.try_wait().expect("it is our child"));
        Output::new(status, read(&self.stdout), &read(&self.stderr))
    }

    /// Closes the pipe to its stdin, if there is one.
    pub(super) fn stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads from the beginning. Does not move the position at which the process writes.
fn read(file: &File) -> Vec<u8> {
    let length = file.metadata().map_or(0, |file| file.len());
    let mut bytes = vec![0; usize::try_from(length).expect("it fits into memory")];
    file.read_exact_at(&mut bytes, 0).expect("the file does not shrink");
    bytes
}
