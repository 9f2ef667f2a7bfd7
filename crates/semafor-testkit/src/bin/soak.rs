//! `cargo xtask soak`: real processes and faults for hours.

use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use semafor::local::Agent;
use semafor_testkit::soak::{Interrupt, Programs, Settings, run};
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "\
soak [--hours H] [--minutes M] [--seconds S] [--seed N] [--semafor PROGRAM] [--python PROGRAM] [--folder PATH]

  --hours, --minutes, --seconds  how long things go wrong, in sum (10 minutes)
  --seed N                       which faults happen; they meet another load in every run (a random number)
  --semafor PROGRAM              the command that starts agents (this program does it itself)
  --python PROGRAM               a Python with asyncio-advanced-semaphores (no Python clients)
  --folder PATH                  where soak.svg and soak.json go (target/soak)
";

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["agent", "start", directory] => return start_agent(directory),
        ["agent", "serve", directory] => return serve(Path::new(directory)),
        ["--help" | "-h" | "help"] => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    match settings(words.into_iter()) {
        Ok(settings) => soak(&settings),
        Err(complaint) => {
            eprintln!("error: {complaint}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn settings(mut words: impl Iterator<Item = String>) -> Result<Settings, String> {
    let this = std::env::current_exe().map_err(|error| format!("this program is not found: {error}"))?;
    let mut seconds = 0;
    let mut seed = None;
    let mut programs = Programs { contender: this.with_file_name("contender"), semafor: this, python: None };
    let mut folder = PathBuf::from("target/soak");
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        let number =
            || value.parse::<u64>().map_err(|_| format!("{word} needs a whole number, not {value:?}"));
        match &*word {
            "--hours" => seconds += number()?.saturating_mul(3_600),
            "--minutes" => seconds += number()?.saturating_mul(60),
            "--seconds" => seconds += number()?,
            "--seed" => seed = Some(number()?),
            "--semafor" => programs.semafor = absolute(value)?,
            "--python" => programs.python = Some(absolute(value)?),
            "--folder" => folder = value.into(),
            _ => return Err(format!("{word} is not known here")),
        }
    }
    let length = Duration::from_secs(if seconds == 0 { 600 } else { seconds });
    let is_short = length < Duration::from_secs(60);
    Ok(Settings {
        seed: seed.unwrap_or_else(|| semafor_testkit::history::now() % 1_000_000),
        length,
        pause: Duration::from_millis(if is_short { 800 } else { 3_000 }),
        sample_every: Duration::from_secs(if is_short { 1 } else { 10 }),
        report_every: Duration::from_secs(if is_short { 5 } else { 60 }),
        programs,
        folder,
    })
}

/// Clients run in another directory.
fn absolute(path: String) -> Result<PathBuf, String> {
    std::path::absolute(&path).map_err(|error| format!("{path}: {error}"))
}

fn soak(settings: &Settings) -> ExitCode {
    let (tell, interrupts) = channel();
    let listener = thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if let Err(error) = listen(&tell) {
            eprintln!("warning: Ctrl-C prints no summary: {error}");
        }
    });
    if let Err(error) = listener {
        eprintln!("warning: Ctrl-C prints no summary: {error}");
    }
    if run(settings, &interrupts) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Reports every Ctrl-C and SIGTERM.
fn listen(tell: &Sender<Interrupt>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if tell.send(Interrupt).is_err() {
                return Ok(());
            }
        }
    })
}

/// As the command `semafor` does it: this process exits when clients can connect.
fn start_agent(directory: &str) -> ExitCode {
    let Ok(this) = std::env::current_exe() else { return ExitCode::FAILURE };
    let mut command = Command::new(this);
    command.args(["agent", "serve", directory]).stdin(Stdio::null()).stdout(Stdio::piped());
    // The client that starts us reads our stderr to its end.
    command.stderr(Stdio::null()).process_group(0);
    let Ok(mut child) = command.spawn() else { return ExitCode::FAILURE };
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        let _ = BufReader::new(out).read_line(&mut line);
    }
    if line.trim() == "ready" { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn serve(directory: &Path) -> ExitCode {
    let agent = match Agent::bind(directory) {
        Ok(agent) => agent,
        // Another process was faster, and its agent will do.
        Err(semafor::local::BindError::AlreadyRunning { .. }) => {
            println!("ready");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    println!("ready");
    match agent.serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
