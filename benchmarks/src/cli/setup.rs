//! The setup of all measurements: one directory for all files, and the same environment for every process.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use semafor_testkit::redis::eventually;
use serde_json::Value;
use tempfile::TempDir;

use super::process::{end, is_running};

pub(super) struct Setup {
    folder: TempDir,
    semafor: PathBuf,
    flock: PathBuf,
    sem: Option<PathBuf>,
    /// The command that does nothing.
    nothing: PathBuf,
}

impl Setup {
    pub(super) fn set() -> Self {
        let semafor = std::env::var_os("SEMAFOR_BENCH_COMMAND");
        let semafor = semafor.expect("SEMAFOR_BENCH_COMMAND is set, as `cargo xtask bench cli` does");
        let folder = tempfile::tempdir().expect("a directory for all files");
        let setup = Self {
            semafor: semafor.into(),
            flock: on_path("flock").expect("flock is installed"),
            sem: on_path("sem"),
            nothing: on_path("true").expect("every system has `true`"),
            folder,
        };
        let runtime = setup.file("runtime");
        fs::create_dir(&runtime).expect("the directory is new");
        // Otherwise semafor does not trust it.
        fs::set_permissions(runtime, Permissions::from_mode(0o700)).expect("it is ours");
        fs::create_dir(setup.file("parallel")).expect("the directory is new");
        // Otherwise GNU parallel asks to be cited.
        fs::write(setup.file("parallel/will-cite"), "").expect("it can be written");
        if setup.sem.is_none() {
            println!("left out: GNU sem: not installed (`cargo xtask bench cli` installs it)");
        }
        setup
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A script that all limiters can run. As an argument, GNU sem would pass its text through a shell once more.
    pub(super) fn script(&self, name: &str, text: &str) -> PathBuf {
        let file = self.file(name);
        fs::write(&file, format!("#!/bin/sh\n{text}")).expect("it can be written");
        fs::set_permissions(&file, Permissions::from_mode(0o700)).expect("it is ours");
        file
    }

    /// Runs `program` in the same environment as all others.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("XDG_RUNTIME_DIR", self.file("runtime"));
        command.env("PARALLEL_HOME", self.file("parallel"));
        // The quickest shell, because GNU sem runs everything through one.
        command.env("SHELL", "/bin/sh");
        command.env_remove("SEMAFOR_URL").env_remove("SEMAFOR_NAME");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    pub(super) fn semafor(&self) -> Command {
        self.command(&self.semafor)
    }

    pub(super) fn flock(&self) -> Command {
        self.command(&self.flock)
    }

    pub(super) fn sem(&self) -> Option<Command> {
        self.sem.as_deref().map(|sem| self.command(sem))
    }

    pub(super) fn nothing(&self) -> &Path {
        &self.nothing
    }

    /// The JSON output of `semafor`.
    pub(super) fn ask(&self, words: &[&str]) -> Value {
        let Output { status, stdout, .. } = self
            .semafor()
            .args(words)
            .arg("--json")
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .output()
            .expect("semafor can be started");
        assert!(status.success(), "semafor {words:?}: {status}");
        serde_json::from_slice(&stdout).expect("it answers in JSON")
    }

    /// The process of the agent. An unused agent exits after a while; then a new one is started.
    pub(super) fn agent(&self) -> u32 {
        let started = self.semafor().args(["run", "--"]).arg(&self.nothing).status();
        assert!(started.is_ok_and(|status| status.success()), "semafor run failed");
        self.running_agent().expect("it was needed just now")
    }

    fn running_agent(&self) -> Option<u32> {
        let pid = self.ask(&["agent", "status"])["pid"].as_u64()?;
        Some(u32::try_from(pid).expect("a process id"))
    }

    /// Ends the agent, and returns when it is gone.
    pub(super) fn stop_agent(&self) {
        let Some(agent) = self.running_agent() else { return };
        let stopped = self.semafor().args(["agent", "stop", "--force"]).status();
        assert!(stopped.is_ok_and(|status| status.success()), "semafor agent stop failed");
        eventually("the agent is gone", || (!is_running(agent)).then_some(()));
    }

    /// Leaves nothing behind.
    pub(super) fn clear(self) {
        self.stop_agent();
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        // An agent is left only after a failure. It may be what failed, so it is killed without asking it to stop.
        let runtime = self.file("runtime");
        for agent in serving(&runtime) {
            end(agent);
        }
    }
}

/// The agents of a runtime directory.
fn serving(runtime: &Path) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    let serves = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words);
        words.contains("\0agent\0serve\0") && words.contains(&*runtime.to_string_lossy())
    };
    pids.filter(serves).collect()
}

pub(super) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}
