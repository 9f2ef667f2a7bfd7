use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::{Step, blocks, matches, root, steps};
use crate::cli::CommandEnv;
use crate::redis::RedisServer;
use crate::spawner::spawn;

/// The server that documents speak of.
const REDIS: &str = "redis://db.example/";
/// Printed after each command, before its exit code.
const END: char = '\u{1e}';
const LIMIT: Duration = Duration::from_secs(60);

/// Reads commands, each ended by a NUL, and runs them one after the other. Background jobs are ended at the end.
///
/// `cargo` runs what is built already: the command and the examples of the project.
const PRELUDE: &str = r#"
exec 2>&1
cargo() {
    case "$*" in
        'run --release -- '*) shift 3; semafor "$@" ;;
        'run -p '*' --example '*) example "$@" ;;
        'install --path '* | 'xtask test') ;;
        *) echo "this shell has no 'cargo $*'"; return 1 ;;
    esac
}
example() {
    while [ "$1" != --example ]; do shift; done
    local name=$2
    shift 2
    [ "$1" = -- ] && shift
    "$EXAMPLES/$name" "$@"
}
while IFS= read -r -d '' command; do
    eval "$command" < /dev/null
    printf '\n\036%d\n' $?
done
kill $(jobs -p) 2> /dev/null
wait
"#;

/// A shell that runs the commands of one document.
pub struct Shell {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    redis: Option<RedisServer>,
    hostname: String,
    // Last, because it checks that no process is left.
    _env: CommandEnv,
}

impl Shell {
    /// `program` is the path of the command: `env!("CARGO_BIN_EXE_semafor")`. The examples of the project are in `examples`
    /// beside it.
    fn start(program: &str, needs_redis: bool) -> Self {
        let env = CommandEnv::local(program);
        let folder = env.binary().parent().expect("the command is in a folder").to_owned();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = env.program_listening("bash", ["-c", PRELUDE]);
        command.env("PATH", format!("{}:{path}", folder.display())).env("EXAMPLES", folder.join("examples"));
        command.env("HOME", env.path("")).env("COLUMNS", "120");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = spawn(command).expect("bash can be started");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        // Ends when the last process that has the pipe ends.
        thread::spawn(move || {
            for line in stdout.split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { child, stdin, lines, redis: needs_redis.then(RedisServer::start), hostname, _env: env }
    }

    /// Runs every `console` block of a document.
    ///
    /// # Panics
    ///
    /// If the output of a command is not what the document shows. All such commands are listed.
    pub fn check(program: &str, document: &str) {
        let text = super::read(document);
        let consoles: Vec<_> = blocks(&text).into_iter().filter(|block| block.kind == "console").collect();
        assert!(!consoles.is_empty(), "{document} has no console block");
        for step in consoles.iter().flat_map(steps) {
            prepare_example(program, document, &text, &step.command);
        }
        let mut shell = Self::start(program, text.contains(REDIS));
        let wrong: Vec<_> =
            consoles.iter().flat_map(steps).filter_map(|step| shell.try_step(&step)).collect();
        shell.finish();
        assert!(
            wrong.is_empty(),
            "{document} shows something else than its commands print:\n{}",
            wrong.join("\n")
        );
    }

    /// Says what is wrong with a step, if anything is.
    fn try_step(&mut self, step: &Step) -> Option<String> {
        let asks = ["semafor status", "semafor inspect", "semafor agent status"];
        let until = Instant::now() + LIMIT / 3;
        loop {
            let printed = self.run(&step.command);
            if matches(&step.output, &printed) {
                return None;
            }
            if !asks.iter().any(|command| step.command.starts_with(command)) || Instant::now() > until {
                return Some(format!("line {}: $ {}\n{printed}", step.line, step.command));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn run(&mut self, command: &str) -> String {
        let real = |text: &str| match &self.redis {
            Some(server) => text.replace(REDIS, &format!("{}/", server.url().trim_end_matches('/'))),
            None => text.to_owned(),
        };
        let stdin = self.stdin.as_mut().expect("the shell is running");
        write!(stdin, "{}\0", real(command)).expect("the shell reads");
        let mut output = String::new();
        loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(line) if line.starts_with(END) => break,
                Ok(line) => output.push_str(&format!("{line}\n")),
                Err(RecvTimeoutError::Timeout) => panic!("this does not end: {command}\n{output}"),
                Err(RecvTimeoutError::Disconnected) => panic!("this ended the shell: {command}\n{output}"),
            }
        }
        // The line break before the end is the shell's.
        if output.ends_with('\n') {
            output.pop();
        }
        if let Some(server) = &self.redis {
            output = output.replace(server.url().trim_end_matches('/'), REDIS.trim_end_matches('/'));
        }
        output.replace(&self.hostname, "vm")
    }

    fn finish(mut self) {
        drop(self.stdin.take());
        self.child.wait().expect("it is our child");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An example that a document runs is shown there word for word. It is built if `cargo test` of all crates has not done it.
fn prepare_example(program: &str, document: &str, text: &str, command: &str) {
    let words: Vec<_> = command.split_whitespace().collect();
    let after = |option: &str| words.iter().position(|word| *word == option).and_then(|at| words.get(at + 1));
    let (["cargo", "run", ..], Some(package), Some(example)) = (&*words, after("-p"), after("--example"))
    else {
        return;
    };
    let source = root().join(format!("crates/{package}/examples/{example}.rs"));
    let source = std::fs::read_to_string(source).expect("the example is there");
    let (_title, code) = source.split_once("\n\n").expect("a title, then the code");
    let is_shown =
        ["rust", "rust,no_run"].iter().any(|kind| text.contains(&format!("```{kind}\n{code}```\n")));
    assert!(is_shown, "{document} runs {example} and does not show it:\n{code}");
    if !Path::new(program).with_file_name("examples").join(example).exists() {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["build", "--quiet", "--all-features", "-p", package, "--example", example]);
        let status = cargo.current_dir(root()).status().expect("cargo can be started");
        assert!(status.success(), "{example} can't be built");
    }
}
