//! Acquires with the number of slots of the command line, or with the number that the semaphore has.

use semafor::{AcquireError, BuildError};
use semafor_cli::slots::Slots;

use crate::exit::Failure;

/// Why an attempt to acquire failed.
pub(crate) enum Refused {
    Acquire(AcquireError),
    Failure(Failure),
}

impl From<AcquireError> for Refused {
    fn from(error: AcquireError) -> Self {
        Self::Acquire(error)
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// Acquires with the given number of slots. Without one, keeps the current number if the semaphore exists, otherwise
/// creates it with one slot.
pub(crate) async fn acquire_with_slots<T>(
    requested: Option<Slots>,
    mut acquire: impl AsyncFnMut(Option<u32>) -> Result<T, Refused>,
) -> Result<T, Failure> {
    let mut slots = requested.map(Slots::on_this_machine);
    loop {
        let error = match acquire(slots).await {
            Ok(acquired) => return Ok(acquired),
            Err(Refused::Failure(failure)) => return Err(failure),
            Err(Refused::Acquire(error)) => error,
        };
        match &error {
            AcquireError::Open(why) if requested.is_none() => match **why {
                BuildError::SlotsNotSet { .. } => slots = Some(1),
                // Another process has created it meanwhile, with another number.
                BuildError::SlotsMismatch { .. } => slots = None,
                _ => return Err(error.into()),
            },
            _ => return Err(error.into()),
        }
    }
}
