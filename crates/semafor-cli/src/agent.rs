//! `agent`: the process that keeps this user's semaphores on this machine.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use semafor::local::{self, Agent, BindError, Stopped};
use serde_json::json;

use crate::cli::{self, HomeArgs};
use crate::duration::show;
use crate::exit::{Code, Failure};
use crate::output::{print, print_json, say};
use crate::plain::plain;

/// The line that the agent prints when clients can connect.
const READY: &str = "ready";

pub(crate) async fn agent(command: cli::Agent) -> Result<ExitCode, Failure> {
    match command {
        cli::Agent::Status { home, json } => status(&home.home(), json).await,
        cli::Agent::Stop { home, force } => stop(&home.home(), force).await,
        cli::Agent::Start { directory } => start(&directory),
        cli::Agent::Serve { directory } => serve(&directory),
    }
}

async fn status(home: &HomeArgs, json: bool) -> Result<ExitCode, Failure> {
    let Some(agent) = local::status(&home.agent()?).await? else {
        if json {
            print_json(&json!({ "running": false }))?;
        } else {
            print("no agent is running; the next command that needs one starts it\n")?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    if json {
        print_json(&json!({
            "running": true,
            "pid": agent.pid,
            "version": agent.version,
            "directory": agent.directory,
            "uptime_seconds": agent.uptime.as_secs_f64(),
            "clients": agent.clients,
            "names": agent.names,
            "held": agent.held,
            "waiting": agent.waiting,
        }))?;
    } else {
        print(&format!(
            "agent {} (semafor {}) in {}, up for {}: {} clients, {} names, {} held, {} waiting\n",
            agent.pid,
            plain(&agent.version),
            agent.directory.display(),
            show(agent.uptime),
            agent.clients,
            agent.names,
            agent.held,
            agent.waiting,
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn stop(home: &HomeArgs, force: bool) -> Result<ExitCode, Failure> {
    let config = home.agent()?;
    let Some(agent) = local::status(&config).await? else { return Ok(ExitCode::SUCCESS) };
    match local::stop(&config, force).await? {
        Stopped::InUse { held, waiting } => Err(Code::Nothing.because(format!(
            "the agent is in use: {held} held, {waiting} waiting. `semafor agent stop --force` stops it anyway, \
             and holders lose their slots"
        ))),
        _ => {
            wait_for_end(agent.pid).await;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Waits until the process has ended, for 2 seconds at most, so that later commands do not find the old agent.
async fn wait_for_end(pid: u32) {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return };
    for _ in 0..2000 {
        if has_ended(pid) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// True also for a zombie, whose parent has not read its exit code yet.
#[cfg(target_os = "linux")]
fn has_ended(pid: rustix::process::Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // The process name is in parentheses and comes before the state.
    stat.map_or(true, |stat| stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['Z', 'X'])))
}

#[cfg(not(target_os = "linux"))]
fn has_ended(pid: rustix::process::Pid) -> bool {
    rustix::process::test_kill_process(pid).is_err()
}

/// Starts an agent in the background. This process is its parent, and exits once clients can connect to the agent.
fn start(directory: &Path) -> Result<ExitCode, Failure> {
    let this = std::env::current_exe().map_err(|error| cannot("find this program", &error))?;
    let mut command = Command::new(this);
    command.args(["agent", "serve"]).arg(directory).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().map_err(|error| cannot("start the agent", &error))?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        let _ = BufReader::new(out).read_line(&mut line);
    }
    if line.trim() == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait().map_err(|error| cannot("start the agent", &error))?;
    Ok(ExitCode::from(
        status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(Code::Unreachable as u8),
    ))
}

pub(crate) fn serve(directory: &Path) -> Result<ExitCode, Failure> {
    detach_from_caller();
    match Agent::bind(directory) {
        Ok(agent) => {
            agent.warnings().iter().for_each(|warning| say(warning));
            say_ready();
            agent.serve()?;
        }
        Err(BindError::AlreadyRunning { .. }) => say_ready(),
        Err(BindError::Home(error)) => return Err(error.into()),
        Err(error) => return Err(Code::Unreachable.because(error.to_string())),
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells the starting process that clients can connect. Then closes stdout and stderr, so that no reader of them waits
/// for the agent to end.
fn say_ready() {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Detaches from the terminal, session and open files of the starting process: the agent must not keep them open.
fn detach_from_caller() {
    // SAFETY: closes inherited descriptors only: this process has opened none yet.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
    }
    // Fails for the leader of a process group. Then the session stays.
    let _ = rustix::process::setsid();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

fn cannot(what: &str, error: &std::io::Error) -> Failure {
    Code::Unreachable.because(format!("can't {what}: {error}"))
}
