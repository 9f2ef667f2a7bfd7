//! `acquire`, `release`, `renew`, `evict`: slots held by an id instead of by a process.

use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::time::Duration;

use rustix::stdio::stdout;
use semafor::{Home, Permit, PermitId, ReleaseError, RenewError, Semaphore};
use serde::Serialize;
use tokio::time::timeout;

use crate::cli::{self, AcquireOptions};
use crate::delivery::{self, Gone, Recipient};
use crate::exit::{Code, Failure};
use crate::output::json;
use crate::{default_slots, inherited, stop_signals};

/// How long to wait for the home to release a slot or to leave the line.
const HOME_TIMEOUT: Duration = Duration::from_secs(5);

/// The output of `acquire --json`. Fields may be added, never removed.
#[derive(Serialize)]
struct Acquired<'a> {
    name: &'a str,
    id: String,
    slot: u32,
    fencing_token: u64,
    waited_seconds: f64,
    ttl_seconds: f64,
}

/// Why an `acquire` ends before its id is printed.
enum EarlyEnd {
    Signal(u8),
    Gone(Gone),
}

impl EarlyEnd {
    async fn of(recipient: Recipient) -> Self {
        tokio::select! {
            biased;
            signal = stop_signals::next() => Self::Signal(signal),
            gone = recipient.gone() => Self::Gone(gone),
        }
    }

    /// The exit code after cleanup. `outcome` says what happened to the request.
    fn exit(self, outcome: &str) -> Result<ExitCode, Failure> {
        match self {
            Self::Signal(signal) => Ok(ExitCode::from(128 + signal)),
            Self::Gone(gone) => Err(undelivered(gone.text(), outcome)),
        }
    }
}

fn undelivered(why: &str, outcome: &str) -> Failure {
    Code::Undelivered.because(format!("can't deliver the id, {why}: {outcome}"))
}

/// Acquires a slot and prints its id. Releases the slot if the id can't be printed or a signal arrives first.
pub(crate) async fn acquire(args: cli::Acquire) -> Result<ExitCode, Failure> {
    if inherited::was_stdout_closed() {
        return Err(undelivered("stdout is closed", "nothing was acquired"));
    }
    let recipient = Recipient::of_this_process();
    let home = args.home.connect().await?;
    let mut early_end = pin!(EarlyEnd::of(recipient));
    let (semaphore, permit) = match wait_for(&home, &args.options, args.ttl, early_end.as_mut()).await? {
        Ok(acquired) => acquired,
        Err(end) => return end.exit("left the line"),
    };
    let acquired = Acquired {
        name: &args.options.name,
        id: permit.id().to_string(),
        slot: permit.slot(),
        fencing_token: permit.fencing_token(),
        waited_seconds: permit.waited().as_secs_f64(),
        ttl_seconds: args.ttl.as_secs_f64(),
    };
    let text = if args.json { json(&acquired)? } else { format!("{}\n", acquired.id) };
    // If stdout is a full pipe, wait until it has room.
    let end = tokio::select! {
        biased;
        end = early_end => Some(end),
        room = recipient.has_room() => room.err().map(EarlyEnd::Gone),
    };
    if let Some(end) = end {
        return end.exit(try_release(permit.release()).await);
    }
    // Detach before writing: once the id is written, its reader may rely on the slot even if this process is killed.
    let id = permit.detach();
    if !args.home.is_shared() {
        // The agent may die before it receives the detach. Its answer to this renewal confirms that it has.
        match semaphore.renew(&id, args.ttl).await {
            Ok(()) => {}
            // The --ttl was very short.
            Err(RenewError::NotHeld(why)) if why.is_expired() => {}
            Err(RenewError::NotHeld(why)) => {
                return Err(Code::Lost.because(format!("the slot was lost before its id was printed: {why}")));
            }
            Err(error) => {
                return Err(undelivered(&error.to_string(), try_release(semaphore.release(&id)).await));
            }
        }
    }
    let why = match delivery::write(&text) {
        Ok(()) if !delivery::is_left_unread(stdout(), &text).await => return Ok(ExitCode::SUCCESS),
        Ok(()) => Gone::Reader.text().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(undelivered(&why, try_release(semaphore.release(&id)).await))
}

/// Releases the slot, and returns the outcome for the error message.
async fn try_release(release: impl Future<Output = Result<(), ReleaseError>>) -> &'static str {
    match timeout(HOME_TIMEOUT, release).await {
        Ok(Ok(()) | Err(ReleaseError::NotHeld(_))) => "the slot was released",
        _ => "the slot could not be released, and stays held until its --ttl is over",
    }
}

/// Waits in line for a slot. On an early end, leaves the line.
async fn wait_for(
    home: &Home,
    options: &AcquireOptions,
    ttl: Duration,
    mut early_end: Pin<&mut impl Future<Output = EarlyEnd>>,
) -> Result<Result<(Semaphore, Permit<'static>), EarlyEnd>, Failure> {
    default_slots::acquire_with_slots(options.slots, async |slots| {
        // No process sends heartbeats for this slot: only its lease limits it.
        let mut builder = home.named(&options.name).ttl(ttl).heartbeat_max_interval(ttl);
        if let Some(slots) = slots {
            builder = builder.slots(slots);
        }
        if let Some(label) = &options.label {
            builder = builder.label(label.as_str());
        }
        let semaphore = builder.command("semafor acquire").build().map_err(Failure::from)?;
        let mut acquire = semaphore.acquire().weight(options.weight);
        if let Some(timeout) = options.timeout {
            acquire = acquire.timeout(timeout);
        }
        let outcome = tokio::select! {
            biased;
            end = early_end.as_mut() => Err(end),
            outcome = &mut acquire => Ok(outcome?.into_owned()),
        };
        if outcome.is_err() {
            // If the home does not answer, it removes this waiter later by itself.
            let _ = timeout(HOME_TIMEOUT, acquire.leave()).await;
        }
        Ok(outcome.map(|permit| (semaphore.clone(), permit)))
    })
    .await
}

pub(crate) async fn release(held: cli::Held) -> Result<ExitCode, Failure> {
    let (name, id) = named(&held)?;
    let home = held.home.connect().await?;
    match home.named(&name).build()?.release(&id).await {
        Err(ReleaseError::NotHeld(why)) => Err(holds_nothing(&id, &name, &why)),
        released => released.map(|()| ExitCode::SUCCESS).map_err(Failure::from),
    }
}

pub(crate) async fn renew(args: cli::Renew) -> Result<ExitCode, Failure> {
    let (name, id) = named(&args.held)?;
    let home = args.held.home.connect().await?;
    match home.named(&name).heartbeat_max_interval(args.ttl).build()?.renew(&id, args.ttl).await {
        Err(RenewError::NotHeld(why)) => Err(holds_nothing(&id, &name, &why)),
        renewed => renewed.map(|()| ExitCode::SUCCESS).map_err(Failure::from),
    }
}

pub(crate) async fn evict(args: cli::Evict) -> Result<ExitCode, Failure> {
    let id = parse(&args.id)?;
    let home = args.home.connect().await?;
    match home.named(&args.name).build()?.evict(&id).await {
        Err(ReleaseError::NotHeld(why)) => Err(holds_nothing(&id, &args.name, &why)),
        evicted => evicted.map(|()| ExitCode::SUCCESS).map_err(Failure::from),
    }
}

/// The semaphore and the id, from `NAME ID` or `--name NAME ID`.
fn named(held: &cli::Held) -> Result<(String, PermitId), Failure> {
    match (&held.words[..], &held.name) {
        ([name, id], _) => Ok((name.clone(), parse(id)?)),
        ([id], Some(name)) => Ok((name.clone(), parse(id)?)),
        _ => Err(Code::Usage.because(
            "the name of the semaphore is missing: give NAME and the ID that `semafor acquire` printed",
        )),
    }
}

fn parse(id: &str) -> Result<PermitId, Failure> {
    id.parse().map_err(|_| {
        Code::Usage.because(format!(
            "{id:?} is not an id: `semafor acquire` prints one, and `semafor inspect NAME` shows the ids of all holders"
        ))
    })
}

fn holds_nothing(id: &PermitId, name: &str, why: &semafor::NotHeld) -> Failure {
    Code::Nothing.because(format!("{id} holds no slot of {name:?}: {why}"))
}
