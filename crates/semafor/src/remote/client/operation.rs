use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use semafor_core::NotHeld;

use crate::error::{HomeError, ReleaseError, RenewError};
use crate::remote::call::{Command, EndReason, Key};
use crate::remote::target::Target;

/// An operation on a grant that a user waits for.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) target: Arc<Target>,
    pub(super) kind: OperationKind,
    /// Failed attempts.
    pub(super) attempts: u32,
    /// An earlier attempt may have been carried out.
    pub(super) is_repeat: bool,
    pub(super) progress: Progress,
    pub(super) is_abandoned: bool,
}

#[derive(Debug)]
pub(super) enum Progress {
    Pending(Option<Waker>),
    Done(Result<(), OperationError>),
}

#[derive(Debug)]
pub(super) enum OperationKind {
    /// `lost` says why it was not held any more, if it was lost before the release.
    Release {
        key: Key,
        lost: Option<NotHeld>,
    },
    EndById {
        id: Arc<str>,
        reason: EndReason,
        key: Option<Key>,
    },
    Renew {
        id: Arc<str>,
        ttl: Option<Duration>,
        key: Option<Key>,
    },
}

impl OperationKind {
    pub(super) fn command(&self) -> Command {
        match self {
            Self::Release { key, .. } => Command::Release { key: *key },
            Self::EndById { id, reason, .. } => Command::EndById { id: Arc::clone(id), reason: *reason },
            Self::Renew { id, ttl, .. } => Command::Renew { id: Arc::clone(id), ttl: *ttl },
        }
    }
}

/// Why an operation failed.
#[derive(Clone, PartialEq, Debug)]
pub enum OperationError {
    NotHeld(NotHeld),
    Home(HomeError),
}

impl From<OperationError> for ReleaseError {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::NotHeld(why) => Self::NotHeld(why),
            OperationError::Home(error) => Self::Home(error),
        }
    }
}

impl From<OperationError> for RenewError {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::NotHeld(why) => Self::NotHeld(why),
            OperationError::Home(error) => Self::Home(error),
        }
    }
}
