//! The semaphore that limits the removals of all who share it.

use semafor::{BuildError, Semaphore};

use crate::cli::Purge;
use crate::exit::{Code, Failure};
use crate::plain::plain;

/// How many slots it gets from who is the first to use it and says nothing.
const SLOTS: u32 = 128;

/// Opens it. Who says no number takes the name as it is in use.
pub(super) async fn open(args: &Purge, name: &str) -> Result<Semaphore, Failure> {
    let home = args.at.connect().await?;
    let named = |slots: Option<u32>| {
        let root = plain(&args.root.to_string_lossy()).into_owned();
        let named = home.named(name).label("purge").command(format!("semafor purge {root}"));
        match slots {
            Some(slots) => named.slots(slots),
            None => named,
        }
    };
    // No limit is what others have set, here.
    let said = args.deletions().filter(|most| *most > 0);
    let mut opened = named(said).open().await;
    if said.is_none() && matches!(opened, Err(BuildError::SlotsNotSet { .. })) {
        opened = named(Some(SLOTS)).open().await;
        // Somebody else was quicker, with another number.
        if matches!(opened, Err(BuildError::SlotsMismatch { .. })) {
            opened = named(None).open().await;
        }
    }
    opened.map_err(|error| match error {
        BuildError::SlotsMismatch { name, live, asked } => Code::PurgeUsage.because(format!(
            "{name:?} is in use with {live} slots, not {asked}: say --max-concurrency-deletion {live}, leave it out, \
             or change it for everybody with `semafor resize {name} {asked}`"
        )),
        error => error.into(),
    })
}
