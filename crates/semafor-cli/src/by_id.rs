//! `acquire`, `release`, `renew`, `evict`: slots held by an id instead of by a process.

use std::process::ExitCode;
use std::time::Duration;

use semafor::{Home, Permit, PermitId, ReleaseError, RenewError};
use serde::Serialize;

use crate::cli::{self, Wanted};
use crate::exit::{Code, Failure};
use crate::output::{print, print_json};
use crate::{slots, stop_signals};

/// What `acquire --json` prints. Fields are only ever added.
#[derive(Serialize)]
struct Acquired<'a> {
    name: &'a str,
    id: String,
    slot: u32,
    fencing_token: u64,
    waited_seconds: f64,
    ttl_seconds: f64,
}

pub(crate) async fn acquire(args: cli::Acquire) -> Result<ExitCode, Failure> {
    let home = args.at.connect().await?;
    let permit = tokio::select! {
        // Its place in line is given back when this is dropped.
        signal = stop_signals::next() => return Ok(ExitCode::from(128 + signal)),
        permit = wait_for(&home, &args.wanted, args.ttl) => permit?,
    };
    let acquired = Acquired {
        name: &args.wanted.name,
        id: permit.id().to_string(),
        slot: permit.slot(),
        fencing_token: permit.fencing_token(),
        waited_seconds: permit.waited().as_secs_f64(),
        ttl_seconds: args.ttl.as_secs_f64(),
    };
    if args.json {
        print_json(&acquired)?;
    } else {
        print(&format!("{}\n", acquired.id))?;
    }
    permit.detach();
    Ok(ExitCode::SUCCESS)
}

async fn wait_for(home: &Home, wanted: &Wanted, ttl: Duration) -> Result<Permit<'static>, Failure> {
    slots::settle(wanted.slots, async |slots| {
        // Nobody gives a sign of life for it: its time to live is all there is.
        let mut builder = home.named(&wanted.name).ttl(ttl).heartbeat_max_interval(ttl);
        if let Some(slots) = slots {
            builder = builder.slots(slots);
        }
        if let Some(label) = &wanted.label {
            builder = builder.label(label.as_str());
        }
        let semaphore = builder.command("semafor acquire").build().map_err(Failure::from)?;
        let mut acquire = semaphore.acquire().weight(wanted.weight);
        if let Some(timeout) = wanted.timeout {
            acquire = acquire.timeout(timeout);
        }
        Ok(acquire.await?.into_owned())
    })
    .await
}

pub(crate) async fn release(held: cli::Held) -> Result<ExitCode, Failure> {
    let (name, id) = named(&held)?;
    let home = held.at.connect().await?;
    match home.named(&name).build()?.release(&id).await {
        Err(ReleaseError::NotHeld(why)) => Err(nothing(&id, &name, &why)),
        released => released.map(|()| ExitCode::SUCCESS).map_err(Failure::from),
    }
}

pub(crate) async fn renew(args: cli::Renew) -> Result<ExitCode, Failure> {
    let (name, id) = named(&args.held)?;
    let home = args.held.at.connect().await?;
    match home.named(&name).heartbeat_max_interval(args.ttl).build()?.renew(&id, args.ttl).await {
        Err(RenewError::NotHeld(why)) => Err(nothing(&id, &name, &why)),
        renewed => renewed.map(|()| ExitCode::SUCCESS).map_err(Failure::from),
    }
}

pub(crate) async fn evict(args: cli::Evict) -> Result<ExitCode, Failure> {
    let id = parse(&args.id)?;
    let home = args.at.connect().await?;
    match home.named(&args.name).build()?.evict(&id).await {
        Err(ReleaseError::NotHeld(why)) => Err(nothing(&id, &args.name, &why)),
        evicted => evicted.map(|()| ExitCode::SUCCESS).map_err(Failure::from),
    }
}

/// `NAME ID`, or `--name NAME ID`.
fn named(held: &cli::Held) -> Result<(String, PermitId), Failure> {
    match (&held.words[..], &held.name) {
        ([name, id], _) => Ok((name.clone(), parse(id)?)),
        ([id], Some(name)) => Ok((name.clone(), parse(id)?)),
        _ => Err(Code::Usage
            .because("of which semaphore? Say its name, and the id that `semafor acquire` printed")),
    }
}

fn parse(id: &str) -> Result<PermitId, Failure> {
    id.parse().map_err(|_| {
        Code::Usage.because(format!(
            "{id:?} is no id: `semafor acquire` prints one, and `semafor inspect NAME` shows those of all holders"
        ))
    })
}

fn nothing(id: &PermitId, name: &str, why: &semafor::NotHeld) -> Failure {
    Code::Nothing.because(format!("{id} holds nothing of {name:?}: {why}"))
}
