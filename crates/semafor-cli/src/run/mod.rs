//! `semafor run`: wait for a slot, run a command, and behave as if the command had been started directly.
//!
//! - The command ends: the slot is released at once, and this process exits with the command's exit code.
//! - The slot is lost: the command gets SIGTERM, then SIGKILL, before another holder can get the slot ([`time_left`]).
//! - This process is killed: the [`guardian`] kills the command before the slot is released.

mod child;
mod command;
mod guardian;
mod process_tree;
#[cfg_attr(not(target_os = "linux"), path = "no_processes.rs")]
mod processes;
mod signals;
mod system;
mod terminal;
mod time_left;
mod waiting;

use std::pin::pin;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use semafor::{Permit, ReleaseError};
use tokio::select;
use tokio::time::{sleep, timeout};

use self::child::{Child, ChildExit, Placement, StateChange};
use self::guardian::Guardian;
use self::process_tree::ProcessTree;
use self::signals::Signals;
use self::terminal::Terminal;
use self::time_left::{Loss, TimeLeft};
use crate::cli::{OnLost, Run};
use crate::exit::{Code, Failure};
use crate::output::say;

/// How long to wait for the home to release the slot. Without an answer the slot is released later.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait for killed processes to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) async fn run(args: Run) -> Result<ExitCode, Failure> {
    command::check(&args.command[0])?;
    let mut signals = Signals::listen()?;
    let permit = select! {
        biased;
        permit = wait(&args) => permit?,
        signal = signals.next_fatal() => {
            let is_typed = Terminal::controlling().is_some_and(|terminal| terminal.is_ours());
            return Ok(exit_code_for(signal.as_raw(), is_typed));
        }
    };
    let (ending, guardian) = run_with_permit(&permit, &args, &mut signals).await;
    // It ends while the slot is being released.
    guardian.iter().for_each(Guardian::dismiss);
    // Otherwise there is nothing to release, or the home does not answer.
    if !permit.is_lost() && !matches!(ending, Ok(Ending::Lost(Loss::HomeSilent))) {
        release(permit, &args).await;
    }
    drop(guardian);
    match ending? {
        Ending::Lost(_) => Ok(Code::Lost.into()),
        Ending::Exited(ChildExit::Exited(code), _) => Ok(code.into()),
        Ending::Exited(ChildExit::Killed(signal), is_typed) => Ok(exit_code_for(signal, is_typed)),
    }
}

async fn wait(args: &Run) -> Result<Permit<'static>, Failure> {
    let home = args.home.connect().await?;
    waiting::for_slot(&home, args).await
}

/// 128+n. After a Ctrl-C this process dies by SIGINT instead, because only that ends a loop of the shell.
fn exit_code_for(signal: i32, is_typed: bool) -> ExitCode {
    if is_typed && signal == Signal::INT.as_raw() {
        signals::die_by(Signal::INT);
    }
    u8::try_from(signal + 128).unwrap_or(u8::MAX).into()
}

/// How a run ended.
enum Ending {
    /// The command ended. The flag is true if it was in the foreground, so a Ctrl-C may have ended it.
    Exited(ChildExit, bool),
    Lost(Loss),
}

async fn run_with_permit(
    permit: &Permit<'static>,
    args: &Run,
    signals: &mut Signals,
) -> (Result<Ending, Failure>, Option<Guardian>) {
    let program = &args.command[0];
    let mut command = Command::new(program);
    command
        .args(&args.command[1..])
        .env("SEMAFOR_NAME", &args.options.name)
        .env("SEMAFOR_SLOT", permit.slot().to_string())
        .env("SEMAFOR_ID", permit.id().to_string())
        .env("SEMAFOR_FENCING_TOKEN", permit.fencing_token().to_string());
    let time_left = TimeLeft::of(permit, args);
    if let Some(loss) = time_left.has_ended().await {
        say_lost(args, &loss, "the command was not started");
        return (Ok(Ending::Lost(loss)), None);
    }
    let (placement, tree) = (Placement::choose(), ProcessTree::new());
    // Without a guardian, the death of this process still kills the command on Linux, but not its descendants.
    let guardian = Guardian::start(tree).ok();
    let spawned = Child::spawn(command, placement, tree, signals);
    if let (Ok(child), Some(guardian)) = (&spawned, &guardian) {
        guardian.set_child(child.pid(), child.has_own_group());
    }
    let ending = match spawned {
        Ok(mut child) => Ok(supervise(&mut child, signals, &time_left, args).await),
        Err(error) => Err(command::start_failure(program, &error)),
    };
    (ending, guardian)
}

/// Waits until the child has ended, and ends it if the slot is lost.
async fn supervise(child: &mut Child, signals: &mut Signals, time_left: &TimeLeft<'_>, args: &Run) -> Ending {
    match wait_for_exit(child, signals, time_left, args).await {
        Ok(exit) => Ending::Exited(exit, child.is_in_foreground()),
        Err(loss) => {
            say_lost(args, &loss, "ending the command");
            if !end_command(child, signals, time_left.kill_at()).await {
                say("some processes of the command could not be ended");
            }
            Ending::Lost(loss)
        }
    }
}

/// Waits until the child has ended. An error if the slot is lost and the child must be ended.
async fn wait_for_exit(
    child: &mut Child,
    signals: &mut Signals,
    time_left: &TimeLeft<'_>,
    args: &Run,
) -> Result<ChildExit, Loss> {
    let mut lost = pin!(time_left.ended());
    let mut is_lost = false;
    loop {
        let continues = match child.state_change() {
            Some(StateChange::Ended(exit)) => return Ok(exit),
            Some(StateChange::Stopped(signal)) => child.stop_this_process_too(signal),
            None => select! {
                biased;
                loss = &mut lost, if !is_lost => {
                    if args.on_lost == OnLost::Kill {
                        return Err(loss);
                    }
                    is_lost = true;
                    say_lost(args, &loss, "the command continues without it");
                    false
                }
                signal = signals.next() => match signal {
                    Signal::CHILD => false,
                    Signal::CONT => true,
                    signal => {
                        child.forward(signal);
                        false
                    }
                },
            },
        };
        if continues {
            // It may have been stopped for long: check the slot first.
            if args.on_lost == OnLost::Kill
                && let Some(loss) = time_left.has_ended().await
            {
                return Err(loss);
            }
            child.resume();
        }
    }
}

fn say_lost(args: &Run, loss: &Loss, what_now: &str) {
    say(&format!("lost the slot of {:?}: {loss}; {what_now}", args.options.name));
}

/// Sends SIGTERM to the child's process tree, and SIGKILL from `kill_at` on. False if some processes did not end.
async fn end_command(child: &mut Child, signals: &mut Signals, kill_at: Instant) -> bool {
    let tree = child.tree();
    if Instant::now() < kill_at {
        tree.signal(Signal::TERM);
        // A stopped process handles SIGTERM only after SIGCONT.
        tree.signal(Signal::CONT);
    }
    let mut pause = Duration::from_millis(2);
    let mut has_ended = false;
    loop {
        has_ended |= matches!(child.state_change(), Some(StateChange::Ended(_)));
        if has_ended && tree.is_gone() {
            return true;
        }
        let now = Instant::now();
        if now >= kill_at {
            tree.signal(Signal::KILL);
        }
        if now >= kill_at + KILL_TIMEOUT {
            return false;
        }
        select! {
            signal = signals.next() => if signal != Signal::CHILD { child.forward(signal) },
            () = sleep(pause.min(kill_at.saturating_duration_since(now).max(Duration::from_millis(2)))) => {}
        }
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

async fn release(permit: Permit<'static>, args: &Run) {
    let why = match timeout(RELEASE_TIMEOUT, permit.release()).await {
        Ok(Ok(()) | Err(ReleaseError::NotHeld(_))) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the agent or the Redis server does not answer".to_owned(),
    };
    say(&format!("could not release the slot of {:?}, it is released later: {why}", args.options.name));
}
