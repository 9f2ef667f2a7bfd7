use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::{Gate, Output, Process, census};
use crate::redis::{RedisServer, eventually};

/// In the environment of all processes that are started, to find them again.
const MARK: &str = "SEMAFOR_TESTKIT_ENV";
/// `cargo xtask test` finds the processes of tests by this variable, if it has to end them.
const RUN: &str = "SEMAFOR_TEST_RUN";

/// Where commands are run: with semaphores of their own, in an empty folder.
///
/// At its end everything must be released: no slot is held, no process waits, and no process that was started here, or
/// by such a process, is left. Dropping it panics if that does not happen, unless the test has failed already.
pub struct CommandEnv {
    program: PathBuf,
    home: Home,
    scratch: TempDir,
    mark: String,
}

/// Where the semaphores are.
enum Home {
    /// An agent, whose socket is under this folder.
    Local(TempDir),
    Redis(RedisServer),
}

impl CommandEnv {
    /// With the semaphores of one machine. `program` is the path of the binary: `env!("CARGO_BIN_EXE_semafor")`.
    ///
    /// # Panics
    ///
    /// If folders can't be created. The same holds for all functions here that create one.
    pub fn local(program: &str) -> Self {
        let folder = temporary();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("it is ours");
        Self::new(program, Home::Local(folder))
    }

    /// With the semaphores of a Redis.
    pub fn redis(program: &str) -> Self {
        Self::new(program, Home::Redis(RedisServer::start()))
    }

    fn new(program: &str, home: Home) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}.{count}", std::process::id());
        Self { program: program.into(), home, scratch: temporary(), mark }
    }

    // Commands

    /// Any program, in this environment: it knows where the semaphores are and where programs are found, and nothing
    /// else.
    pub fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env(MARK, &self.mark);
        command.envs(std::env::var_os(RUN).map(|run| (RUN, run)));
        match &self.home {
            Home::Local(folder) => command.env("XDG_RUNTIME_DIR", folder.path()),
            Home::Redis(server) => command.env("SEMAFOR_URL", server.url()),
        };
        command.current_dir(self.scratch.path()).stdin(Stdio::null());
        command
    }

    /// `semafor` with these arguments, to be configured further.
    pub fn semafor<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.program(&self.program);
        command.args(arguments);
        command
    }

    /// The same, for a test of signals: it ignores no signal, wherever the test was started.
    pub fn listening<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        self.program_listening(&self.program, arguments)
    }

    /// Any program, started with no signal ignored.
    pub fn program_listening<A: AsRef<OsStr>>(
        &self,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = self.program("env");
        command.arg("--default-signal").arg(program).args(arguments);
        command
    }

    /// Runs `semafor` to its end.
    ///
    /// # Panics
    ///
    /// If it does not end.
    #[track_caller]
    pub fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Output {
        self.start(arguments).wait()
    }

    /// Starts `semafor`.
    #[track_caller]
    pub fn start<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Process {
        Process::start(self.semafor(arguments))
    }

    /// Runs any command to its end.
    ///
    /// # Panics
    ///
    /// If it does not end.
    #[track_caller]
    pub fn output_of(&self, command: Command) -> Output {
        Process::start(command).wait()
    }

    /// Starts any command.
    #[track_caller]
    pub fn start_command(&self, command: Command) -> Process {
        Process::start(command)
    }

    /// Runs a command to its end, with `input` on its stdin.
    ///
    /// # Panics
    ///
    /// If it does not end.
    #[track_caller]
    pub fn output_when_fed(&self, mut command: Command, input: &[u8]) -> Output {
        command.stdin(Stdio::piped());
        let mut process = Process::start(command);
        let mut stdin = process.stdin().expect("it was asked for");
        thread::scope(|scope| {
            scope.spawn(move || {
                // It need not read to the end.
                let _ = stdin.write_all(input);
            });
            process.wait()
        })
    }

    // Files

    /// The path of the binary.
    pub fn binary(&self) -> &Path {
        &self.program
    }

    /// A path in the folder where commands are run.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// What was written to a file there; nothing if it is missing.
    pub fn read(&self, name: impl AsRef<Path>) -> String {
        fs::read(self.path(name)).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
    }

    /// The lines of a file there.
    pub fn lines(&self, name: impl AsRef<Path>) -> Vec<String> {
        self.read(name).lines().map(str::to_owned).collect()
    }

    /// The lines of a file there, as soon as there are so many.
    ///
    /// # Panics
    ///
    /// If there never are.
    #[track_caller]
    pub fn until_lines(&self, name: &str, count: usize) -> Vec<String> {
        eventually(&format!("{count} lines in {name}"), || {
            Some(self.lines(name)).filter(|lines| lines.len() >= count)
        })
    }

    /// A gate there.
    pub fn gate(&self, name: &str) -> Gate {
        Gate::new(self.path(name))
    }

    /// Where the agent has its socket.
    ///
    /// # Panics
    ///
    /// If the semaphores are on a Redis.
    pub fn agent_directory(&self) -> PathBuf {
        self.runtime_directory().join("semafor")
    }

    /// `XDG_RUNTIME_DIR`.
    ///
    /// # Panics
    ///
    /// If the semaphores are on a Redis.
    pub fn runtime_directory(&self) -> &Path {
        match &self.home {
            Home::Local(folder) => folder.path(),
            Home::Redis(_) => panic!("a Redis has no runtime directory"),
        }
    }

    /// The server, if there is one.
    pub fn server(&self) -> Option<&RedisServer> {
        match &self.home {
            Home::Local(_) => None,
            Home::Redis(server) => Some(server),
        }
    }

    // State

    /// What `status --json` says of a name; `Null` if the name is unused.
    ///
    /// # Panics
    ///
    /// If the command fails.
    #[track_caller]
    pub fn status(&self, name: &str) -> Value {
        let all = self.run(["status", "--json", name]).json();
        all.get(0).cloned().unwrap_or_default()
    }

    /// What `inspect --json` says of a name that is in use.
    ///
    /// # Panics
    ///
    /// If the name is not in use.
    #[track_caller]
    pub fn inspect(&self, name: &str) -> Value {
        self.run(["inspect", "--json", name]).json()
    }

    /// Returns as soon as that name has so many holders.
    ///
    /// # Panics
    ///
    /// If it never has.
    #[track_caller]
    pub fn until_holders(&self, name: &str, count: u64) {
        self.until_count(name, "holders", count);
    }

    /// Returns as soon as that name has so many waiters.
    ///
    /// # Panics
    ///
    /// If it never has.
    #[track_caller]
    pub fn until_waiting(&self, name: &str, count: u64) {
        self.until_count(name, "waiting", count);
    }

    #[track_caller]
    fn until_count(&self, name: &str, field: &str, count: u64) {
        let what = format!("{field} of {name:?}: {count}");
        self.until(&what, |env| env.status(name)[field].as_u64().unwrap_or(0) == count);
    }

    /// Returns as soon as `is_so` is true.
    ///
    /// # Panics
    ///
    /// If it never is.
    #[track_caller]
    pub fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        eventually(what, || is_so(self).then_some(()));
    }

    // Processes

    /// All processes that were started here, directly or indirectly, and have not ended. Not the agent.
    pub fn processes(&self) -> Vec<u32> {
        census::with_variable(&format!("{MARK}={}", self.mark))
    }

    /// The agents that serve here.
    pub fn agents(&self) -> Vec<u32> {
        match &self.home {
            Home::Local(folder) => {
                let directory = folder.path().join("semafor");
                census::with_arguments(&[b"agent", b"serve", directory.as_os_str().as_bytes()])
            }
            Home::Redis(_) => Vec::new(),
        }
    }

    fn assert_nothing_is_left(&self) {
        eventually("nothing is held and no process waits", || {
            let all = self.run(["status", "--json"]).json();
            let is_free = |one: &Value| one["held"] == 0 && one["waiting"] == 0;
            all.as_array().expect("an array").iter().all(is_free).then_some(())
        });
        eventually("no process is left", || {
            let left = self.processes();
            if !left.is_empty() {
                println!(
                    "left: {}",
                    left.iter().map(|pid| census::describe(*pid)).collect::<Vec<_>>().join(", ")
                );
            }
            left.is_empty().then_some(())
        });
        let agents = self.agents();
        if agents.is_empty() {
            return;
        }
        assert_eq!(self.run(["agent", "stop", "--force"]).text(), "");
        for agent in agents {
            eventually("the agent is gone", || (!census::is_alive(agent)).then_some(()));
        }
    }
}

impl Drop for CommandEnv {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.assert_nothing_is_left();
        }
        for pid in self.processes().into_iter().chain(self.agents()) {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

fn temporary() -> TempDir {
    tempfile::Builder::new().prefix("semafor-cli-").tempdir().expect("a temporary directory")
}
