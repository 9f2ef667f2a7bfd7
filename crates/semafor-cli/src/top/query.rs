//! Asks the home for a snapshot.

use std::sync::Arc;

use semafor::{Home, StatsQuery};

use super::snapshot::{Participant, Participants, SemaphoreRow, Snapshot};
use crate::exit::Failure;

/// The numbers of all semaphores, or of one with its holders and waiters.
pub(super) async fn fetch(home: Home, into: Option<Arc<str>>) -> Result<Snapshot, Failure> {
    let Some(name) = into else {
        let stats = home.stats(&StatsQuery::default()).await?;
        return Ok(Snapshot { names: stats.iter().map(SemaphoreRow::from).collect(), participants: None });
    };
    let semaphore = home.named(&*name).build()?;
    let one = StatsQuery::default().names([&*name]);
    let (stats, holders, waiters) =
        tokio::try_join!(home.stats(&one), semaphore.holders(), semaphore.waiters())?;
    let participants = Participants {
        holders: holders.iter().map(Participant::from).collect(),
        waiters: waiters.iter().map(Participant::from).collect(),
    };
    Ok(Snapshot { names: stats.iter().map(SemaphoreRow::from).collect(), participants: Some(participants) })
}
