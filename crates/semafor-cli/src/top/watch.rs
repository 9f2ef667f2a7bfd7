//! Looks at the home.

use std::sync::Arc;

use semafor::{Home, StatsQuery};

use super::seen::{Look, People, Person, SemaphoreRow};
use crate::exit::Failure;

/// Looks at all names, or into one.
pub(super) async fn look(home: Home, into: Option<Arc<str>>) -> Result<Look, Failure> {
    let Some(name) = into else {
        let stats = home.stats(&StatsQuery::default()).await?;
        return Ok(Look { names: stats.iter().map(SemaphoreRow::from).collect(), people: None });
    };
    let semaphore = home.named(&*name).build()?;
    let one = StatsQuery::default().names([&*name]);
    let (stats, holders, waiters) =
        tokio::try_join!(home.stats(&one), semaphore.holders(), semaphore.waiters())?;
    let people = People {
        holders: holders.iter().map(Person::from).collect(),
        waiters: waiters.iter().map(Person::from).collect(),
    };
    Ok(Look { names: stats.iter().map(SemaphoreRow::from).collect(), people: Some(people) })
}
