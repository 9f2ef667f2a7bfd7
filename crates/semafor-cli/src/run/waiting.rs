//! Waits in line for a slot, and reports the wait.
//!
//! On a terminal the report is one line, updated every second and removed when the slot is granted. Otherwise nothing
//! is printed, except with --verbose.

use std::convert::Infallible;
use std::future::pending;
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use rustix::system::uname;
use semafor::{AcquireError, HolderInfo, Home, HomeError, Permit, Semaphore};
use tokio::select;
use tokio::time::{sleep, timeout};

use super::{command, time_left};
use crate::cli::Run;
use crate::default_slots::{self, Refused};
use crate::duration;
use crate::exit::{Code, Failure};
use crate::live_line::LiveLine;
use crate::output::say;
use crate::plain::plain;

/// Shorter waits are not reported.
const FIRST_REPORT_AFTER: Duration = Duration::from_millis(300);
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How long to ask for the holders after a timeout, for the error message.
const DIAGNOSIS_TIMEOUT: Duration = Duration::from_secs(2);
/// How many holders are listed.
const MAX_NAMED_HOLDERS: usize = 3;

/// Waits for the requested slots.
pub(super) async fn for_slot(home: &Home, args: &Run) -> Result<Permit<'static>, Failure> {
    default_slots::acquire_with_slots(args.options.slots, async |slots| {
        let semaphore = open(home, args, slots)?;
        match in_line(&semaphore, args).await {
            Err(error) if error.is_timeout() || error.is_busy() => {
                Err(Refused::Failure(timed_out(&semaphore, args, error).await))
            }
            outcome => Ok(outcome?),
        }
    })
    .await
}

fn open(home: &Home, args: &Run, slots: Option<u32>) -> Result<Semaphore, Failure> {
    let options = &args.options;
    let mut builder =
        home.named(&options.name).heartbeat_max_interval(args.heartbeat).command(command::shown(args));
    builder = builder.grace(time_left::grace(args));
    if let Some(slots) = slots {
        builder = builder.slots(slots);
    }
    if let Some(lease) = time_left::lease(args) {
        builder = builder.ttl(lease);
    }
    if let Some(label) = &options.label {
        builder = builder.label(label.as_str());
    }
    if let Some(timeout) = options.timeout {
        builder = builder.timeout(timeout);
    }
    Ok(builder.build()?)
}

async fn in_line(semaphore: &Semaphore, args: &Run) -> Result<Permit<'static>, AcquireError> {
    let mut reporter = WaitReporter::of(args);
    let since = Instant::now();
    let permit = select! {
        biased;
        outcome = semaphore.acquire().weight(args.options.weight) => outcome?,
        never = reporter.report(semaphore, since) => match never {},
    };
    if args.verbose {
        let (name, slot) = (semaphore.name(), permit.slot());
        say(&format!("got slot {slot} of {name:?} after {}", duration::show(since.elapsed())));
    }
    Ok(permit.into_owned())
}

/// The error after a timeout. Names the holders.
async fn timed_out(semaphore: &Semaphore, args: &Run, error: AcquireError) -> Failure {
    let name = semaphore.name();
    let within = match args.options.timeout {
        Some(Duration::ZERO) | None => "is free".to_owned(),
        Some(timeout) => format!("was free within {}", duration::show(timeout)),
    };
    let message = match timeout(DIAGNOSIS_TIMEOUT, Snapshot::of(semaphore)).await {
        Ok(Ok(snapshot)) => {
            format!("no slot of {name:?} {within}: {}; {} waiting", snapshot.held(), snapshot.waiting)
        }
        _ => format!("{name:?}: {error}"),
    };
    Code::TimedOut.because(plain(&message))
}

/// The holders and waiters at one moment.
struct Snapshot {
    held: u32,
    slots: u32,
    holders: Vec<HolderInfo>,
    waiting: usize,
    /// Our own place in line.
    ahead: Option<usize>,
}

impl Snapshot {
    async fn of(semaphore: &Semaphore) -> Result<Self, HomeError> {
        let stats = semaphore.stats().await?;
        let (holders, waiters) = (semaphore.holders().await?, semaphore.waiters().await?);
        let (host, pid) = (uname(), std::process::id());
        let host = host.nodename().to_string_lossy();
        let us =
            waiters.iter().find(|waiter| waiter.pid == Some(pid) && waiter.host.as_deref() == Some(&*host));
        let ahead = us.map(|us| us.ahead);
        Ok(Self { held: stats.held, slots: stats.slots, waiting: waiters.len(), holders, ahead })
    }

    fn held(&self) -> String {
        let mut text = format!("{} of {} held", self.held, self.slots);
        for (index, holder) in self.holders.iter().take(MAX_NAMED_HOLDERS).enumerate() {
            text += if index == 0 { " by " } else { ", " };
            text += &describe(holder);
        }
        match self.holders.len().saturating_sub(MAX_NAMED_HOLDERS) {
            0 => text,
            more => text + &format!(" and {more} more"),
        }
    }

    fn place(&self) -> String {
        match self.ahead {
            Some(ahead) => format!("place {} of {}", ahead + 1, self.waiting),
            None => format!("{} in line", self.waiting),
        }
    }
}

/// `build@host (pid 4711, 3m02s: make -j8)`
fn describe(holder: &HolderInfo) -> String {
    let mut text = match (&holder.label, &holder.host) {
        (Some(label), Some(host)) => format!("{label}@{host}"),
        (Some(name), None) | (None, Some(name)) => name.to_string(),
        (None, None) => holder.id.to_string(),
    };
    text += " (";
    if let Some(pid) = holder.pid {
        text += &format!("pid {pid}, ");
    }
    text += &duration::show(holder.held_for);
    if let Some(command) = &holder.command {
        text += &format!(": {command}");
    }
    text + ")"
}

/// Reports the wait on stderr.
struct WaitReporter {
    mode: ReportMode,
    line: LiveLine,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReportMode {
    /// A line that is overwritten on each update.
    Live,
    /// A line that stays, when the wait begins.
    Once,
    Silent,
}

impl WaitReporter {
    fn of(args: &Run) -> Self {
        let mode = match args.verbose {
            true => ReportMode::Once,
            false if !args.quiet && stderr().is_terminal() => ReportMode::Live,
            false => ReportMode::Silent,
        };
        Self { mode, line: LiveLine::default() }
    }

    /// Reports until it is dropped.
    async fn report(&mut self, semaphore: &Semaphore, since: Instant) -> Infallible {
        if self.mode == ReportMode::Silent {
            return pending().await;
        }
        sleep(FIRST_REPORT_AFTER).await;
        loop {
            if let Ok(snapshot) = Snapshot::of(semaphore).await {
                let (name, place, held) = (semaphore.name(), snapshot.place(), snapshot.held());
                if self.mode == ReportMode::Once {
                    say(&format!("waiting for {name:?}, {place}; {held}"));
                    return pending().await;
                }
                let waited = duration::show(since.elapsed());
                self.line.show(&format!("semafor: waiting {waited} for {name:?}, {place}; {held}"));
            }
            sleep(REPORT_INTERVAL).await;
        }
    }
}
