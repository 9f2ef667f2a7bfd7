//! The semaphore of --fleet-limit, which limits the removals of all purges that share it.

use semafor::{BuildError, Semaphore};

use crate::cli::Purge;
use crate::exit::{Code, Failure};
use crate::plain::plain;

/// The number of slots if the first user of the semaphore sets none.
const DEFAULT_SLOTS: u32 = 128;

/// The command shown in `inspect` and `top`. In a shared home without the directory, whose name may be private.
fn shown(args: &Purge) -> String {
    match args.home.is_shared() && !args.show_command {
        true => "semafor purge".to_owned(),
        false => format!("semafor purge {}", plain(&args.root.to_string_lossy())),
    }
}

/// Opens the semaphore. Without a number of slots in `args`, the number already in use stays.
pub(super) async fn open(args: &Purge, name: &str) -> Result<Semaphore, Failure> {
    let home = args.home.connect().await?;
    let named = |slots: Option<u32>| {
        let named = home.named(name).label("purge").command(shown(args));
        match slots {
            Some(slots) => named.slots(slots),
            None => named,
        }
    };
    // 0 means no limit of our own: the number of slots in use applies.
    let requested = args.deletions().filter(|most| *most > 0);
    let mut opened = named(requested).open().await;
    if requested.is_none() && matches!(opened, Err(BuildError::SlotsNotSet { .. })) {
        opened = named(Some(DEFAULT_SLOTS)).open().await;
        // Another process has created it meanwhile, with another number.
        if matches!(opened, Err(BuildError::SlotsMismatch { .. })) {
            opened = named(None).open().await;
        }
    }
    opened.map_err(|error| match error {
        BuildError::SlotsMismatch { name, live, asked } => Code::PurgeUsage.because(format!(
            "{name:?} is in use with {live} slots, not {asked}: use --max-concurrency-deletion {live}, omit it, \
             or change the number for all users with `semafor resize {name} {asked}`"
        )),
        error => error.into(),
    })
}
