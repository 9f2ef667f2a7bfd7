//! A time limit for every test of a run. A run that hangs is ended, and the test that hung is named.
//!
//! libtest reports which tests have been running for a minute, and which have ended. If it runs one test at a time, it
//! reports which test it starts instead. A run that prints nothing for too long hangs somewhere else: then the
//! remaining processes are named.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::processes;
use crate::shell::{Failure, cannot_start, show};

/// Sets another limit, in seconds. `python/tests` reads it, too.
const VARIABLE: &str = "SEMAFOR_TEST_LIMIT_SECONDS";
/// In the environment of all processes of a run, to find them. `semafor-testkit` and `python/tests` use it, too.
const MARK: &str = "SEMAFOR_TEST_RUN";
/// Generous: no test takes as long on the slowest machine.
const PER_TEST: Duration = Duration::from_secs(600);
/// A longer limit counts as this one: later times may be out of range.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// How much longer a run may print nothing than a test may take, so that a hanging test is named first.
const EXTRA_SILENCE: Duration = Duration::from_secs(300);
/// How long to wait for the last output, if another process keeps the pipe open.
const DRAIN_TIME: Duration = Duration::from_secs(2);
/// Only so much of a line is read.
const LONGEST_LINE: usize = 16 * 1024;

#[derive(Clone, Copy)]
pub(crate) struct TimeLimit {
    test: Duration,
    silence: Duration,
}

impl TimeLimit {
    pub(crate) fn from_env() -> Result<Self, Failure> {
        Self::of(std::env::var(VARIABLE).ok())
    }

    fn of(text: Option<String>) -> Result<Self, Failure> {
        let test = match text {
            None => PER_TEST,
            Some(text) => match text.parse() {
                Ok(seconds) if seconds > 0 => Duration::from_secs(seconds).min(LONGEST),
                _ => {
                    return Err(Failure::Usage(format!(
                        "{VARIABLE} is {text:?}, which is not a number of seconds"
                    )));
                }
            },
        };
        Ok(Self { test, silence: test.saturating_add(EXTRA_SILENCE) })
    }

    /// The same for a test that takes so much longer by design.
    pub(crate) fn plus(self, more: Duration) -> Self {
        Self { test: self.test.saturating_add(more), silence: self.silence.saturating_add(more) }
    }

    /// Runs tests to the end, and shows their output. Their stdin is empty.
    pub(crate) fn run(self, command: &mut Command) -> Result<(), String> {
        let mut out = io::stdout();
        self.supervise(command.stderr(Stdio::inherit()), |said| {
            // If our stdout is closed, the tests continue all the same.
            let _ = out.write_all(said).and_then(|()| out.flush());
        })
    }

    /// Runs tests to the end and returns their output, even if they fail.
    pub(crate) fn capture(self, command: &mut Command) -> Result<String, String> {
        let mut all = Vec::new();
        let ended = self.supervise(command.stderr(Stdio::piped()), |said| all.extend_from_slice(said));
        let said = String::from_utf8_lossy(&all).into_owned();
        ended.map_err(|reason| format!("{reason}\n{said}")).map(|()| said)
    }

    fn supervise(self, command: &mut Command, mut pass_on: impl FnMut(&[u8])) -> Result<(), String> {
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let run = format!("{}-{begun}", std::process::id());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).env(MARK, &run);
        let mut child = command.spawn().map_err(|error| cannot_start(command, &error))?;
        let id = child.id();
        let (tell, news) = channel();
        if let Some(stdout) = child.stdout.take() {
            forward(stdout, tell.clone());
        }
        if let Some(stderr) = child.stderr.take() {
            forward(stderr, tell.clone());
        }
        thread::spawn(move || tell.send(Progress::Ended(child.wait())));

        let mut watch = Watch::new(self, Instant::now());
        let ended = loop {
            match news.recv_timeout(watch.deadline().saturating_duration_since(Instant::now())) {
                Ok(Progress::Output(said)) => {
                    pass_on(&said);
                    watch.read_output(&said, Instant::now());
                }
                Ok(Progress::Ended(status)) => {
                    break status.map_err(|error| error.to_string()).and_then(outcome);
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(complaint) = watch.complaint(Instant::now()) {
                        let left = processes::end_all_of(id, &format!("{MARK}={run}"));
                        break Err(format!(
                            "{complaint}. It was ended, with all processes that it had started:{left}"
                        ));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break Err("its exit status is unknown".to_owned()),
            }
        };
        let deadline = Instant::now() + DRAIN_TIME;
        while let Ok(more) = news.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if let Progress::Output(said) = more {
                pass_on(&said);
            }
        }
        ended
    }
}

/// Arguments for a test program that make it print colours to a pipe.
pub(crate) fn colours() -> &'static [&'static str] {
    if io::stdout().is_terminal() { &["--color", "always"] } else { &[] }
}

enum Progress {
    Output(Vec<u8>),
    Ended(io::Result<ExitStatus>),
}

fn forward(mut from: impl Read + Send + 'static, to: Sender<Progress>) {
    thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if to.send(Progress::Output(buffer[..length].to_vec())).is_err() {
                return;
            }
        }
    });
}

fn outcome(status: ExitStatus) -> Result<(), String> {
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

/// The tests that have been running for long, according to the output of the run.
struct Watch {
    limit: TimeLimit,
    /// Since when.
    slow: BTreeMap<String, Instant>,
    last_word: Instant,
    line: Vec<u8>,
}

impl Watch {
    fn new(limit: TimeLimit, now: Instant) -> Self {
        Self { limit, slow: BTreeMap::new(), last_word: now, line: Vec::new() }
    }

    fn read_output(&mut self, said: &[u8], now: Instant) {
        self.last_word = now;
        for part in said.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() < LONGEST_LINE {
                self.line.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                let line = without_colours(&String::from_utf8_lossy(&std::mem::take(&mut self.line)));
                self.read(line.trim_end(), now);
            }
        }
        let begun = without_colours(&String::from_utf8_lossy(&self.line));
        if let Some((name, _)) = test_of(&begun) {
            self.slow.entry(name.to_owned()).or_insert(now);
        }
    }

    fn read(&mut self, line: &str, now: Instant) {
        if let Some((name, time)) = slow_test(line) {
            self.slow.insert(name.to_owned(), now.checked_sub(time).unwrap_or(now));
        } else if line.starts_with("test result:") || matches!(line, "ok" | "FAILED") {
            // `ok` and `FAILED` are about the only running test, when other output came between its name and its
            // result.
            self.slow.clear();
        } else if test_of(line).is_none_or(|(_, rest)| is_outcome(rest)) {
            let is_about = |name: &str| {
                line.contains(&format!("test {name} ... ")) || line.contains(&format!("test {name} - "))
            };
            self.slow.retain(|name, _| !is_about(name));
        }
    }

    /// When the limit will be exceeded, unless there is more output before.
    fn deadline(&self) -> Instant {
        let tests = self.slow.values().map(|since| *since + self.limit.test);
        tests.chain([self.last_word + self.limit.silence]).min().unwrap_or(self.last_word)
    }

    fn complaint(&self, now: Instant) -> Option<String> {
        let is_hung = |since: &Instant| now.saturating_duration_since(*since) >= self.limit.test;
        let hung: Vec<_> =
            self.slow.iter().filter(|(_, since)| is_hung(since)).map(|(name, _)| name.as_str()).collect();
        if !hung.is_empty() {
            return Some(format!("not ended within {}: {}", show(self.limit.test), hung.join(", ")));
        }
        let is_silent = now.saturating_duration_since(self.last_word) >= self.limit.silence;
        is_silent.then(|| format!("nothing was printed for {}", show(self.limit.silence)))
    }
}

/// Splits a line about one test, `test NAME ... ok`, into its name and the rest. Without the rest, the test has
/// started.
fn test_of(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("test ")?.split_once(" ... ")
}

/// Whether the rest of such a line has the result of the test. Output of its processes may come in between.
fn is_outcome(rest: &str) -> bool {
    let outcomes = ["ok", "FAILED", "ignored"];
    outcomes.iter().any(|outcome| rest.starts_with(outcome) || rest.ends_with(outcome))
}

/// The line of libtest about a slow test: `test NAME has been running for over 60 seconds`.
fn slow_test(line: &str) -> Option<(&str, Duration)> {
    let (test, time) = line.rsplit_once(" has been running for over ")?;
    let seconds = time.strip_suffix(" seconds")?.parse().ok()?;
    Some((test.strip_prefix("test ")?, Duration::from_secs(seconds)))
}

/// Removes the escape sequences that libtest prints.
fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        if char != '\x1b' {
            plain.push(char);
        } else if chars.next() == Some('[') {
            chars.by_ref().find(char::is_ascii_alphabetic);
        } else {
            // ESC ( B
            chars.next();
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::shell::{command, probe};

    /// Longer than any test of these waits.
    const LONG: Duration = Duration::from_secs(3600);

    fn limit(test: Duration, silence: Duration) -> TimeLimit {
        TimeLimit { test, silence }
    }

    fn shell(script: &str) -> Command {
        command("sh", &["-c", script])
    }

    /// False if the process has ended, even if its parent has not waited for it.
    fn is_alive(process: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    }

    #[track_caller]
    fn until_dead(process: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while is_alive(process) {
            assert!(Instant::now() < deadline, "{process} is alive");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Prints what a test program with a hanging test prints. It starts processes, one of them in a session of its own,
    /// and a daemon, whose parent has ended.
    const HANGING: &str = "
        sleep 1000 & echo \"started $!\"
        setsid sh -c 'sleep 1000 & sleep 1000; :' & echo \"started $!\"
        setsid sh -c 'sleep 1000 & echo \"started $!\"'
        echo 'test quick ... ok'
        echo 'test hanging::for_ever has been running for over 60 seconds'
        echo 'test slow has been running for over 60 seconds'
        echo 'test slow ... ok'
        wait";

    #[test]
    fn hanging_test_is_named_and_ended_with_all_its_processes() {
        // The limit has passed when libtest reports the test.
        let ended = limit(Duration::from_secs(60), LONG).capture(&mut shell(HANGING));
        let complaint = ended.expect_err("it hung");
        let first = complaint.lines().next().expect("it says something");
        assert!(first.contains("hanging::for_ever") && first.contains("1m00s"), "{complaint}");
        assert!(!first.contains("slow") && !first.contains("quick"), "{complaint}");
        assert!(complaint.contains("sleep 1000"), "what was left is named: {complaint}");
        let started: Vec<_> = complaint.lines().filter_map(|line| line.strip_prefix("started ")).collect();
        assert_eq!(started.len(), 3, "{complaint}");
        started.into_iter().for_each(until_dead);
    }

    /// One test at a time: otherwise libtest reports a slow test only after a minute.
    #[test]
    fn real_hanging_test_is_named() {
        let folder = std::env::temp_dir().join(format!("semafor-xtask-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        let (source, program) = (folder.join("planted.rs"), folder.join("planted"));
        let tests = "#[test] fn a_quick() {}\n#[test] fn b_hanging() { loop { std::thread::park() } }\n";
        fs::write(&source, tests).expect("it can be written");
        crate::shell::run(command("rustc", &["--test", "-o"]).arg(&program).arg(&source))
            .expect("it is Rust");
        let ended =
            limit(Duration::from_secs(3), LONG).capture(&mut command(&program, &["--test-threads", "1"]));
        fs::remove_dir_all(&folder).expect("it is ours");
        let complaint = ended.expect_err("it hung");
        assert!(complaint.starts_with("not ended within 3.0s: b_hanging. "), "{complaint}");
        assert!(complaint.contains("test a_quick ... ok"), "{complaint}");
    }

    #[test]
    fn silent_run_is_ended_and_its_processes_are_named() {
        let ended = limit(LONG, Duration::from_millis(100)).capture(&mut shell("echo here; exec sleep 4321"));
        let complaint = ended.expect_err("it hung");
        assert!(complaint.contains("nothing was printed for 0.1s"), "{complaint}");
        assert!(complaint.contains("sleep 4321") && complaint.ends_with("here\n"), "{complaint}");
    }

    #[test]
    fn output_is_captured_and_failure_is_reported() {
        let said = limit(LONG, LONG).capture(&mut shell("echo out; echo err >&2")).expect("it went well");
        assert!(said.contains("out\n") && said.contains("err\n"), "{said}");
        let complaint = limit(LONG, LONG).capture(&mut shell("echo why; exit 7")).expect_err("it failed");
        assert!(complaint.contains("exit status: 7") && complaint.contains("why"), "{complaint}");
    }

    #[test]
    fn leftover_process_is_not_waited_for() {
        let said = limit(LONG, LONG).capture(&mut shell("sleep 1000 & echo $!")).expect("it went well");
        let left = said.trim();
        assert!(is_alive(left), "the run has not ended it");
        crate::shell::run(&mut command("sh", &["-c", "kill $0", left])).expect("it can be ended");
    }

    #[test]
    fn tests_have_no_input() {
        assert_eq!(limit(LONG, LONG).capture(&mut shell("cat")).as_deref(), Ok(""));
    }

    #[test]
    fn output_of_libtest_is_parsed() {
        let slow = |line| slow_test(line).map(|(name, time)| (name, time.as_secs()));
        assert_eq!(slow("test a::b has been running for over 60 seconds"), Some(("a::b", 60)));
        let documented = "src/lib.rs - Gate::open (line 12)";
        let line = format!("test {documented} has been running for over 60 seconds");
        assert_eq!(slow(&line), Some((documented, 60)));
        assert_eq!(slow("test a::b ... ok"), None);
        assert_eq!(slow("it has been running for over an hour"), None);
    }

    #[test]
    fn ended_test_is_not_reported() {
        let start = Instant::now();
        let long = start + LONG;
        let warning = "test a has been running for over 60 seconds\n";
        for end in [
            "test a ... ok\n",
            "test a ... FAILED\n",
            "test a - should panic ... ok\n",
            "test a ... noise of a process\nok\n",
            "test a ... \x1b[32mok\x1b(B\x1b[m\n",
            "noise test a ... ok\n",
            "ok\n",
            "\x1b[31mFAILED\x1b(B\x1b[m\n",
            "test result: ok. 1 passed\n",
        ] {
            let mut watch = Watch::new(limit(Duration::from_secs(90), LONG * 2), start);
            watch.read_output(warning.as_bytes(), start);
            assert_eq!(watch.deadline(), start + Duration::from_secs(30), "a minute of it is over");
            assert!(watch.complaint(long).is_some_and(|complaint| complaint.contains(": a")));
            // In pieces, as it comes through a pipe.
            end.bytes().for_each(|byte| watch.read_output(&[byte], start));
            assert_eq!(watch.complaint(long), None, "{end:?}");
            assert_eq!(watch.deadline(), start + LONG * 2);
        }
    }

    #[test]
    fn single_test_is_known_by_its_start_line() {
        let start = Instant::now();
        let mut watch = Watch::new(limit(Duration::from_secs(90), LONG), start);
        watch.read_output(b"running 3 tests\ntest a ... ok\ntest b ... ", start);
        assert_eq!(watch.deadline(), start + Duration::from_secs(90));
        watch.read_output(b"noise", start + Duration::from_secs(40));
        watch.read_output(b" of a process\n", start + Duration::from_secs(80));
        let complaint = watch.complaint(start + Duration::from_secs(90));
        assert_eq!(complaint.as_deref(), Some("not ended within 1m30s: b"));
        watch.read_output(b"ok\ntest c ... ", start + Duration::from_secs(80));
        assert_eq!(watch.complaint(start + Duration::from_secs(90)), None);
        assert_eq!(watch.deadline(), start + Duration::from_secs(170));
    }

    #[test]
    fn unfinished_test_is_still_reported() {
        let start = Instant::now();
        let mut watch = Watch::new(limit(Duration::from_secs(90), LONG), start);
        watch.read_output(
            b"test a has been running for over 60 seconds\ntest a::b ... ok\ntest b ... ok\n",
            start,
        );
        watch.read_output(&[b'x'; 3 * LONGEST_LINE], start);
        let complaint = watch.complaint(start + Duration::from_secs(30));
        assert_eq!(complaint.as_deref(), Some("not ended within 1m30s: a"));
    }

    #[test]
    fn very_large_limit_means_no_limit() {
        let limit = TimeLimit::of(Some(u64::MAX.to_string())).ok().expect("it is a number");
        let said = limit.plus(LONG).capture(&mut shell("echo 'test a has been running for over 60 seconds'"));
        assert!(said.expect("it went well").contains("test a"));
    }

    #[test]
    fn invalid_number_of_seconds_is_refused() {
        for text in ["", "0", "-1", "1.5", "ten", "18446744073709551616"] {
            let refused = TimeLimit::of(Some(text.to_owned())).err().expect("it is refused").to_string();
            assert!(refused.contains(VARIABLE) && refused.contains(&format!("{text:?}")), "{refused}");
        }
    }

    /// A hanging test is recognised only by this phrase, so a change of it must be noticed.
    #[test]
    fn libtest_still_reports_slow_tests() {
        let sysroot = probe(&mut command("rustc", &["--print", "sysroot"])).expect("there is a rustc");
        let targets = Path::new(&sysroot).join("lib/rustlib");
        let targets = fs::read_dir(targets).expect("it has libraries").flatten();
        let libraries =
            targets.filter_map(|target| fs::read_dir(target.path().join("lib")).ok()).flatten().flatten();
        let libtest = libraries.map(|file| file.path()).find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.starts_with("libtest-") && name.ends_with(".rlib")
        });
        let code = fs::read(libtest.expect("it has libtest")).expect("it can be read");
        let phrase = b" has been running for over ";
        assert!(code.windows(phrase.len()).any(|part| part == phrase), "libtest uses another phrase now");
    }
}
