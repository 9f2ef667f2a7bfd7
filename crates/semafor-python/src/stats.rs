//! Holders, waiters and statistics as plain tuples, of which Python makes its objects.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use semafor::{HolderInfo, Stats, StatsQuery, WaiterInfo};

use crate::call::Call;
use crate::{errors, process};

type Text = Option<String>;

/// In the order of `semafor.Holder`.
type Holder = (String, Option<u32>, Option<u64>, u32, Text, Text, Text, Option<u32>, f64, Option<f64>);

/// In the order of `semafor.Waiter`.
type Waiter = (usize, u32, Text, Text, Text, Option<u32>, f64);

pub(crate) fn holder(holder: HolderInfo) -> Holder {
    (
        holder.id.to_string(),
        holder.slot,
        holder.fencing_token,
        holder.weight,
        text(holder.label),
        text(holder.command),
        text(holder.host),
        holder.pid,
        holder.held_for.as_secs_f64(),
        holder.expires_in.map(|left| left.as_secs_f64()),
    )
}

pub(crate) fn waiter(waiter: WaiterInfo) -> Waiter {
    (
        waiter.ahead,
        waiter.weight,
        text(waiter.label),
        text(waiter.command),
        text(waiter.host),
        waiter.pid,
        waiter.waited_for.as_secs_f64(),
    )
}

fn text(text: Option<Arc<str>>) -> Text {
    text.map(|text| text.as_ref().to_owned())
}

/// Name, slots held, slots in total.
type Usage = (String, u32, u32);

/// Slots held and slots in total, the fullest semaphore first. With `names`, all of these that exist; without, at most
/// `limit` semaphores of which a slot is held. Without a URL, the semaphores in memory.
#[pyfunction]
#[pyo3(signature = (url, program, names, limit))]
pub(crate) fn stats(
    url: Option<String>,
    program: Option<PathBuf>,
    names: Option<Vec<String>>,
    limit: usize,
) -> Call {
    Call::drop_on_cancel(async move {
        let query = query(names.as_deref());
        let stats = match url {
            None => process::registry().stats(&query),
            Some(url) => {
                let home = process::home(&url, program.as_deref()).map_err(|error| errors::home(&error))?;
                home.stats(&query).await.map_err(|error| errors::home(&error))?
            }
        };
        // A query for all names leaves out those that can't be read; a query for certain names fails with the reason.
        if let Some(error) = stats.iter().find_map(|stats| stats.error.as_ref()).filter(|_| names.is_some()) {
            return Err(errors::home(error));
        }
        let is_shown = |stats: &&Stats| names.is_some() || stats.held > 0;
        let limit = if names.is_some() { usize::MAX } else { limit };
        let shown = stats.iter().filter(is_shown).take(limit);
        Ok(shown.map(|stats| (stats.name.to_string(), stats.held, stats.slots)).collect::<Vec<Usage>>())
    })
}

fn query(names: Option<&[String]>) -> StatsQuery {
    match names {
        None => StatsQuery::default(),
        Some(names) => StatsQuery::default().names(names),
    }
}
