//! Lists holders and waiters, and reads statistics. Changes nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::{Value, cmd};
use semafor_core::{Histogram, Totals};
use serde_json::json;
use tokio::task::JoinSet;

use super::driver::RedisDriver;
use super::keys::{self, Keys};
use super::script::lua;
use super::script::reply::{ReplyReader, span, text};
use super::script::schema::{Info, Record as Field};
use crate::error::{HomeError, HomeErrorKind};
use crate::stats::Who;
use crate::{HolderInfo, PermitId, Stats, StatsQuery, WaiterInfo};

/// Names to ask for at the same time: more would keep the server busy for too long.
const NAMES_AT_ONCE: usize = 100;

/// Details about this process, as JSON, for the lists of holders and waiters.
pub(super) fn process_details(who: Option<&Who>) -> String {
    static HOST: LazyLock<String> =
        LazyLock::new(|| gethostname::gethostname().to_string_lossy().into_owned());
    let mut text = json!({ "host": *HOST, "pid": std::process::id() });
    let Some(who) = who else { return text.to_string() };
    for (key, value) in [("label", &who.label), ("command", &who.command)] {
        if let Some(value) = value {
            text[key] = (&**value).into();
        }
    }
    text.to_string()
}

/// The numbers of one name.
pub(super) struct Snapshot {
    now: f64,
    fields: HashMap<String, String>,
    times: Vec<(String, String)>,
    python_max: u32,
    held: u32,
    holders: usize,
    waiting: usize,
    first_arrival: Option<f64>,
}

impl Snapshot {
    pub(super) fn read(value: Value) -> Result<Self, HomeError> {
        let mut words = ReplyReader::of(value)?;
        Ok(Self {
            now: words.some_seconds()?,
            python_max: words.number()?,
            fields: ReplyReader::pairs(words.next()?)?.into_iter().collect(),
            times: ReplyReader::pairs(words.next()?)?,
            held: words.number()?,
            holders: words.number()?,
            waiting: words.number()?,
            first_arrival: words.seconds()?,
        })
    }

    fn field(&self, field: Info) -> u64 {
        self.fields.get(field.name()).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    pub(super) fn slots(&self) -> u32 {
        match u32::try_from(self.field(Info::Slots)).unwrap_or(u32::MAX) {
            0 => self.python_max,
            slots => slots,
        }
    }

    /// True if the server knows nothing under this name.
    fn is_unknown(&self) -> bool {
        self.slots() == 0 && self.held == 0 && self.waiting == 0
    }

    pub(super) fn is_closed(&self) -> bool {
        self.field(Info::Closed) == 1
    }

    pub(super) fn epoch(&self) -> i64 {
        i64::try_from(self.field(Info::Epoch)).unwrap_or(i64::MAX)
    }

    pub(super) fn is_locked(&self) -> bool {
        self.is_closed() || self.waiting > 0 || self.slots() > 0 && self.held >= self.slots()
    }

    fn histogram(&self, kind: &str, total: Info, max: Info) -> Histogram {
        let nanos = |field| Duration::from_nanos(self.field(field));
        let buckets = self.times.iter().filter_map(|(bucket, count)| {
            Some((bucket.strip_prefix(kind)?.parse().ok()?, count.parse().ok()?))
        });
        Histogram::restore(buckets, nanos(total), nanos(max))
    }

    /// `slots` is used if the server does not know the name yet.
    pub(super) fn into_stats(self, name: Arc<str>, slots: u32) -> Stats {
        let mut totals = Totals::default();
        totals.granted = self.field(Info::Granted);
        totals.released = self.field(Info::Released);
        totals.queued = self.field(Info::Queued);
        totals.expired = self.field(Info::Expired);
        totals.evicted = self.field(Info::Evicted);
        totals.handed_on = self.field(Info::HandedOn);
        totals.timed_out = self.field(Info::TimedOut);
        totals.cancelled = self.field(Info::Cancelled);
        totals.refused = self.field(Info::Refused);
        let mut numbers = semafor_core::Stats::default();
        numbers.slots = if self.slots() == 0 { slots } else { self.slots() };
        numbers.held = self.held;
        numbers.holders = self.holders;
        numbers.waiting = self.waiting;
        numbers.longest_wait =
            self.first_arrival.map_or_else(Default::default, |first| span(self.now - first));
        numbers.totals = totals;
        numbers.waits = self.histogram("wait", Info::WaitTotal, Info::WaitMax);
        numbers.holds = self.histogram("hold", Info::HoldTotal, Info::HoldMax);
        Stats::new(name, numbers)
    }
}

/// The record of a holder or waiter. Clients of other libraries have none.
#[derive(Clone, Default)]
struct Record {
    weight: Option<u32>,
    since: Option<f64>,
    slot: Option<u32>,
    token: Option<u64>,
    label: Option<Arc<str>>,
    command: Option<Arc<str>>,
    host: Option<Arc<str>>,
    pid: Option<u32>,
}

impl Record {
    fn read(text: &str) -> Self {
        let words: Vec<_> = text.splitn(Field::ALL.len(), ' ').collect();
        let word = |field: Field| words.get(field as usize).copied().unwrap_or_default();
        let who: serde_json::Value = serde_json::from_str(word(Field::Who)).unwrap_or_default();
        let text_of = |key: &str| who.get(key).and_then(|value| value.as_str()).map(Arc::from);
        Self {
            weight: word(Field::Weight).parse().ok(),
            since: word(Field::Since).parse().ok(),
            slot: word(Field::Slot).parse().ok(),
            token: word(Field::Token).parse().ok(),
            label: text_of("label"),
            command: text_of("command"),
            host: text_of("host"),
            pid: who.get("pid").and_then(serde_json::Value::as_u64).and_then(|pid| pid.try_into().ok()),
        }
    }
}

/// One page of `lua/list.lua`: some holders or waiters, all at one moment.
struct Page {
    now: f64,
    /// The first in line. Python's scripts may have granted it a part of its weight, and then it is not a holder yet.
    partly_served: String,
    cursor: String,
    last_arrival: String,
    rows: Vec<Row>,
    rest: Vec<String>,
}

struct Row {
    member: String,
    dead_at: Option<f64>,
    /// The end of a holder's lease, or when a waiter arrived, as the server writes it.
    time: String,
    record: Record,
}

impl Row {
    fn time(&self) -> Option<f64> {
        self.time.parse().ok()
    }
}

impl Page {
    fn read(value: Value) -> Result<Self, HomeError> {
        let mut words = ReplyReader::of(value)?;
        let now = words.some_seconds()?;
        let partly_served = keys::id_of(&words.text()?).to_owned();
        let (cursor, last_arrival) = (words.text()?, words.text()?);
        let (mut cells, mut rows) = (words.list()?, Vec::new());
        while let Ok(member) = cells.text() {
            let dead_at = cells.text()?.parse().ok();
            rows.push(Row { member, dead_at, time: cells.text()?, record: Record::read(&cells.text()?) });
        }
        let rest = words.list()?.rest().filter_map(|member| text(member).ok()).collect();
        Ok(Self { now, partly_served, cursor, last_arrival, rows, rest })
    }

    async fn ask(driver: &RedisDriver, keys: &[String], what: &[&str]) -> Result<Self, HomeError> {
        let script_reply = driver.connection.run(&lua::LIST, keys, |command| {
            command.arg(what);
        });
        Self::read(script_reply.await?.value)
    }

    fn is_last(&self) -> bool {
        self.cursor == "0"
    }
}

/// The holders. One that begins or ends during the listing may be missing; all others are listed once.
pub(super) async fn holders(driver: &RedisDriver, keys: &[String]) -> Result<Vec<HolderInfo>, HomeError> {
    let mut holders = HashMap::new();
    let mut cursor = "0".to_owned();
    loop {
        let mut page = Page::ask(driver, keys, &["holders", &cursor]).await?;
        cursor = std::mem::take(&mut page.cursor);
        note_holders(&mut holders, &page);
        while !page.rest.is_empty() {
            let rest = std::mem::take(&mut page.rest);
            let more: Vec<_> = std::iter::once("those").chain(rest.iter().map(String::as_str)).collect();
            page = Page::ask(driver, keys, &more).await?;
            note_holders(&mut holders, &page);
        }
        if cursor == "0" {
            break;
        }
    }
    let mut holders: Vec<_> = holders.into_values().collect();
    holders.sort_by_key(|holder: &HolderInfo| (holder.slot.unwrap_or(u32::MAX), holder.fencing_token));
    Ok(holders)
}

/// The holders of one page.
pub(super) fn read_holders(value: Value) -> Result<Vec<HolderInfo>, HomeError> {
    let mut holders = HashMap::new();
    note_holders(&mut holders, &Page::read(value)?);
    Ok(holders.into_values().collect())
}

fn note_holders(holders: &mut HashMap<String, HolderInfo>, page: &Page) {
    for row in &page.rows {
        let (id, now, ends) = (&row.member, page.now, row.time());
        let is_over =
            row.dead_at.is_none_or(|dead_at| dead_at <= now) || ends.is_some_and(|ends| ends <= now);
        if id.contains('#') || is_over || page.partly_served == *id {
            continue;
        }
        let record = row.record.clone();
        // For a holder without a lease, the Python library writes an end in 68 years.
        let ends = ends.filter(|ends| ends - now < 1e9);
        let holder = HolderInfo {
            id: PermitId::remote(id.as_str()),
            slot: record.slot,
            fencing_token: record.token,
            weight: record.weight.unwrap_or(1),
            label: record.label,
            command: record.command,
            host: record.host,
            pid: record.pid,
            held_for: span(now - record.since.unwrap_or(now)),
            expires_in: ends.map(|ends| span(ends - now)),
        };
        holders.insert(id.clone(), holder);
    }
}

/// The waiters, in order. One that comes after the first page is left out; one that leaves or is granted a slot during the
/// listing may be missing; all others are listed once.
pub(super) async fn waiters(driver: &RedisDriver, keys: &[String]) -> Result<Vec<WaiterInfo>, HomeError> {
    let mut waiters = Vec::new();
    let mut last: Option<Row> = None;
    let mut last_arrival = String::new();
    loop {
        let (arrival, member) = last.as_ref().map_or(("", ""), |row| (&row.time, &row.member));
        let page = Page::ask(driver, keys, &["waiters", arrival, member, &last_arrival]).await?;
        let (is_last, now) = (page.is_last() || page.rows.is_empty(), page.now);
        last_arrival = page.last_arrival;
        for row in page.rows {
            // The members of a weight stand together.
            let id = keys::id_of(&row.member);
            let is_counted = last.as_ref().is_some_and(|last| keys::id_of(&last.member) == id);
            if !is_counted && row.dead_at.is_some_and(|dead_at| dead_at > now) {
                let (arrival, record) = (row.time().unwrap_or(now), row.record.clone());
                waiters.push(WaiterInfo {
                    ahead: waiters.len(),
                    weight: record.weight.unwrap_or(1),
                    label: record.label,
                    command: record.command,
                    host: record.host,
                    pid: record.pid,
                    waited_for: span(now - record.since.unwrap_or(arrival)),
                });
            }
            last = Some(row);
        }
        if is_last {
            return Ok(waiters);
        }
    }
}

/// Statistics of many names.
pub(super) async fn survey(driver: &Arc<RedisDriver>, query: &StatsQuery) -> Result<Vec<Stats>, HomeError> {
    let wanted = query.names.clone();
    let stats = driver.on_own_thread(move |driver| async move {
        let names = match wanted {
            Some(names) => BTreeSet::from_iter(names),
            None => all_names(&driver).await?,
        };
        let mut stats = Vec::with_capacity(names.len());
        for some in Vec::from_iter(names).chunks(NAMES_AT_ONCE) {
            let mut asked = JoinSet::new();
            for name in some {
                let (driver, name) = (Arc::clone(&driver), name.clone());
                asked.spawn(async move {
                    let keys = Keys::new(&driver.config.namespace, &name);
                    let snapshot = async {
                        let script_reply = driver.connection.run(&lua::SNAPSHOT, &keys.all, |_| {}).await?;
                        Snapshot::read(script_reply.value)
                    };
                    (name, snapshot.await)
                });
            }
            for (name, answer) in asked.join_all().await {
                match answer {
                    Ok(snapshot) if snapshot.is_unknown() => {}
                    Ok(snapshot) => stats.push(snapshot.into_stats(name.into(), 0)),
                    Err(error) if concerns_one_name(&error) => stats.push(Stats::broken(name.into(), error)),
                    Err(error) => return Err(error),
                }
            }
        }
        // Access is denied to every name, so it is a problem of the user, not of one name.
        match stats.first().and_then(|stats: &Stats| stats.error.clone()) {
            Some(error)
                if error.kind() == HomeErrorKind::AccessDenied
                    && stats.iter().all(|stats| stats.error.is_some()) =>
            {
                Err(error)
            }
            _ => Ok(stats),
        }
    });
    Ok(query.pick(stats.await?))
}

/// True if other names may work.
fn concerns_one_name(error: &HomeError) -> bool {
    matches!(error.kind(), HomeErrorKind::WrongType | HomeErrorKind::AccessDenied | HomeErrorKind::Other)
}

async fn all_names(driver: &RedisDriver) -> Result<BTreeSet<String>, HomeError> {
    let mut names = BTreeSet::new();
    let namespace = &driver.config.namespace;
    for pattern in keys::patterns(namespace) {
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000);
            let mut page = ReplyReader::of(driver.connection.ask(&scan).await?)?;
            cursor = page.text()?;
            let found = page.list()?.rest().filter_map(|key| text(key).ok());
            names.extend(found.filter_map(|key| keys::name_of_pattern(namespace, &key).map(str::to_owned)));
            if cursor == "0" {
                break;
            }
        }
    }
    Ok(names)
}
