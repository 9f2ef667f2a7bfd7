//! `status` and `inspect`: show the state of semaphores.

use std::process::ExitCode;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use semafor::{Histogram, HolderInfo, Stats, StatsQuery, WaiterInfo};
use serde::Serialize;

use crate::cli;
use crate::duration::show;
use crate::exit::Failure;
use crate::home::in_use;
use crate::output::{Align, Table, print, print_json, say};
use crate::plain::plain;

/// One semaphore in the output of `status --json`. Fields may be added, never removed.
#[derive(Serialize)]
struct StatusJson<'a> {
    name: &'a str,
    held: u32,
    #[serde(rename = "capacity")]
    slots: u32,
    percent: f64,
    waiting: usize,
    holders: usize,
    longest_wait_seconds: f64,
    granted: u64,
    released: u64,
    expired: u64,
    evicted: u64,
    timed_out: u64,
    cancelled: u64,
    refused: u64,
    waited_seconds: Times,
    held_seconds: Times,
    /// Why the home can't tell the numbers, if it can't.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Statistics of completed waits or holds.
#[derive(Serialize)]
struct Times {
    count: u64,
    mean: f64,
    p50: f64,
    p99: f64,
    max: f64,
}

impl From<&Histogram> for Times {
    fn from(times: &Histogram) -> Self {
        Self {
            count: times.count(),
            mean: times.mean().as_secs_f64(),
            p50: times.quantile(0.5).as_secs_f64(),
            p99: times.quantile(0.99).as_secs_f64(),
            max: times.max().as_secs_f64(),
        }
    }
}

impl<'a> From<&'a Stats> for StatusJson<'a> {
    fn from(stats: &'a Stats) -> Self {
        let totals = stats.totals;
        Self {
            name: &stats.name,
            held: stats.held,
            slots: stats.slots,
            percent: percent(stats),
            waiting: stats.waiting,
            holders: stats.holders,
            longest_wait_seconds: stats.longest_wait.as_secs_f64(),
            granted: totals.granted,
            released: totals.released,
            expired: totals.expired,
            evicted: totals.evicted,
            timed_out: totals.timed_out,
            cancelled: totals.cancelled,
            refused: totals.refused,
            waited_seconds: Times::from(&stats.waits),
            held_seconds: Times::from(&stats.holds),
            error: stats.error.as_ref().map(ToString::to_string),
        }
    }
}

/// The output of `inspect --json`. Fields may be added, never removed.
#[derive(Serialize)]
struct InspectJson<'a> {
    name: &'a str,
    held: u32,
    #[serde(rename = "capacity")]
    slots: u32,
    percent: f64,
    waiting: usize,
    holders: Vec<Holder<'a>>,
    waiters: Vec<Waiter<'a>>,
}

#[derive(Serialize)]
struct Holder<'a> {
    id: String,
    slot: Option<u32>,
    fencing_token: Option<u64>,
    weight: u32,
    host: Option<&'a str>,
    pid: Option<u32>,
    label: Option<&'a str>,
    command: Option<&'a str>,
    held_seconds: f64,
    expires_in_seconds: Option<f64>,
}

#[derive(Serialize)]
struct Waiter<'a> {
    /// The place in line. 1 is the next to get a slot.
    position: usize,
    weight: u32,
    host: Option<&'a str>,
    pid: Option<u32>,
    label: Option<&'a str>,
    command: Option<&'a str>,
    waited_seconds: f64,
}

impl<'a> From<&'a HolderInfo> for Holder<'a> {
    fn from(holder: &'a HolderInfo) -> Self {
        Self {
            id: holder.id.to_string(),
            slot: holder.slot,
            fencing_token: holder.fencing_token,
            weight: holder.weight,
            host: holder.host.as_deref(),
            pid: holder.pid,
            label: holder.label.as_deref(),
            command: holder.command.as_deref(),
            held_seconds: holder.held_for.as_secs_f64(),
            expires_in_seconds: holder.expires_in.map(|left| left.as_secs_f64()),
        }
    }
}

impl<'a> From<&'a WaiterInfo> for Waiter<'a> {
    fn from(waiter: &'a WaiterInfo) -> Self {
        Self {
            position: waiter.ahead + 1,
            weight: waiter.weight,
            host: waiter.host.as_deref(),
            pid: waiter.pid,
            label: waiter.label.as_deref(),
            command: waiter.command.as_deref(),
            waited_seconds: waiter.waited_for.as_secs_f64(),
        }
    }
}

pub(crate) async fn status(args: cli::Status) -> Result<ExitCode, Failure> {
    let home = args.home.connect().await?;
    let mut query = StatsQuery::default();
    if !args.names.is_empty() {
        query = query.names(args.names.iter().cloned());
    }
    if let Some(limit) = args.limit {
        query = query.limit(limit);
    }
    let all = home.stats(&query).await?;
    if args.json {
        print_json(&all.iter().map(StatusJson::from).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    for error in all.iter().filter_map(|stats| stats.error.as_ref()) {
        say(&error.to_string());
    }
    for name in
        args.names.iter().filter(|name| args.limit.is_none() && all.iter().all(|s| *s.name != ***name))
    {
        say(&format!("no semaphore named {name:?} exists"));
    }
    if all.is_empty() {
        if args.names.is_empty() {
            say("there are no semaphores");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("HELD", Align::Right),
        ("USED", Align::Right),
        ("WAITING", Align::Right),
        ("LONGEST WAIT", Align::Right),
        ("GRANTED", Align::Right),
        ("WAITED p50", Align::Right),
        ("p99", Align::Right),
    ]);
    for stats in &all {
        let (style, usual) = (how_full(stats), Style::new());
        if stats.error.is_some() {
            let mut cells =
                vec![(plain(&stats.name).into_owned(), Style::new().bold()), ("broken".to_owned(), style)];
            cells.resize(8, ("-".to_owned(), usual));
            table.row(cells);
            continue;
        }
        table.row(vec![
            (plain(&stats.name).into_owned(), Style::new().bold()),
            (format!("{}/{}", stats.held, stats.slots), style),
            (format!("{:.0}%", percent(stats)), style),
            (stats.waiting.to_string(), usual),
            (time_or_dash(stats.waiting == 0, stats.longest_wait), usual),
            (stats.totals.granted.to_string(), usual),
            (time_or_dash(stats.waits.count() == 0, stats.waits.quantile(0.5)), usual),
            (time_or_dash(stats.waits.count() == 0, stats.waits.quantile(0.99)), usual),
        ]);
    }
    print(&table.show(0))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn inspect(args: cli::Inspect) -> Result<ExitCode, Failure> {
    let home = args.home.connect().await?;
    let (semaphore, stats) = in_use(&home, &args.name).await?;
    let (holders, waiters) = (semaphore.holders().await?, semaphore.waiters().await?);
    if args.json {
        print_json(&InspectJson {
            name: &stats.name,
            held: stats.held,
            slots: stats.slots,
            percent: percent(&stats),
            waiting: stats.waiting,
            holders: holders.iter().map(Holder::from).collect(),
            waiters: waiters.iter().map(Waiter::from).collect(),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let bold = Style::new().bold();
    let mut text = format!(
        "{bold}{}{bold:#}: {} of {} slots held, {} waiting\n",
        plain(&stats.name),
        stats.held,
        stats.slots,
        stats.waiting
    );
    if !holders.is_empty() {
        text.push_str("\nholders\n");
        text.push_str(&holders_table(&holders).show(2));
    }
    if !waiters.is_empty() {
        text.push_str("\nwaiters\n");
        text.push_str(&waiters_table(&waiters).show(2));
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn holders_table(holders: &[HolderInfo]) -> Table {
    let mut table = Table::new(&[
        ("SLOT", Align::Right),
        ("ID", Align::Left),
        ("HOST", Align::Left),
        ("PID", Align::Right),
        ("HELD FOR", Align::Right),
        ("EXPIRES IN", Align::Right),
        ("LABEL", Align::Left),
        ("COMMAND", Align::Left),
    ]);
    for holder in holders {
        let slot = holder.slot.map_or_else(|| "-".to_owned(), |slot| slot.to_string());
        let slot = if holder.weight > 1 { format!("{slot} ×{}", holder.weight) } else { slot };
        let cells = [
            slot,
            holder.id.to_string(),
            text_or_dash(holder.host.as_deref()),
            holder.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            show(holder.held_for),
            holder.expires_in.map_or_else(|| "-".to_owned(), show),
            text_or_dash(holder.label.as_deref()),
            text_or_dash(holder.command.as_deref()),
        ];
        table.row(cells.into_iter().map(|cell| (cell, Style::new())).collect());
    }
    table
}

fn waiters_table(waiters: &[WaiterInfo]) -> Table {
    let mut table = Table::new(&[
        ("PLACE", Align::Right),
        ("HOST", Align::Left),
        ("PID", Align::Right),
        ("WAITED", Align::Right),
        ("LABEL", Align::Left),
        ("COMMAND", Align::Left),
    ]);
    for waiter in waiters {
        let place = (waiter.ahead + 1).to_string();
        let place = if waiter.weight > 1 { format!("{place} ×{}", waiter.weight) } else { place };
        let cells = [
            place,
            text_or_dash(waiter.host.as_deref()),
            waiter.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            show(waiter.waited_for),
            text_or_dash(waiter.label.as_deref()),
            text_or_dash(waiter.command.as_deref()),
        ];
        table.row(cells.into_iter().map(|cell| (cell, Style::new())).collect());
    }
    table
}

fn text_or_dash(text: Option<&str>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| plain(text).into_owned())
}

fn time_or_dash(is_unknown: bool, time: Duration) -> String {
    if is_unknown { "-".to_owned() } else { show(time) }
}

/// 0 for a name without slots: the home may know only its waiters yet.
fn percent(stats: &Stats) -> f64 {
    if stats.slots == 0 { 0.0 } else { stats.percent() }
}

fn how_full(stats: &Stats) -> Style {
    let colour = match percent(stats) {
        _ if stats.error.is_some() => AnsiColor::Red,
        _ if stats.waiting > 0 => AnsiColor::Red,
        full if full >= 100.0 => AnsiColor::Yellow,
        _ => AnsiColor::Green,
    };
    Style::new().fg_color(Some(colour.into()))
}
