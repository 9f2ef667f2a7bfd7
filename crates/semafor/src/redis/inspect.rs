//! Who holds, who waits, and how it stands. Nothing is changed by looking.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use redis::{Value, cmd};
use semafor_core::{Histogram, Totals};
use serde_json::json;
use tokio::task::JoinSet;

use super::answer::{Words, span, text};
use super::fleet::Fleet;
use super::keys::{self, Keys};
use super::lua;
use crate::error::HomeError;
use crate::stats::Who;
use crate::{HolderInfo, PermitId, Stats, StatsQuery, WaiterInfo};

/// Names to ask for at once: one trip, and not too long a one for the server.
const AT_ONCE: usize = 100;

/// Who this is, as others will read it.
pub(super) fn who(who: &Who) -> String {
    static HOST: LazyLock<String> =
        LazyLock::new(|| gethostname::gethostname().to_string_lossy().into_owned());
    let mut text = json!({ "host": *HOST, "pid": std::process::id() });
    for (key, value) in [("label", &who.label), ("command", &who.command)] {
        if let Some(value) = value {
            text[key] = (&**value).into();
        }
    }
    if let Some(grace) = who.grace {
        text["grace"] = grace.as_secs_f64().into();
    }
    text.to_string()
}

/// The numbers of one name.
pub(super) struct Card {
    now: f64,
    fields: HashMap<String, String>,
    times: Vec<(String, String)>,
    python_max: u32,
    held: u32,
    holders: usize,
    waiting: usize,
    first_arrival: Option<f64>,
}

impl Card {
    pub(super) fn read(value: Value) -> Result<Self, HomeError> {
        let mut words = Words::of(value)?;
        Ok(Self {
            now: words.some_seconds()?,
            python_max: words.number()?,
            fields: Words::pairs(words.next()?)?.into_iter().collect(),
            times: Words::pairs(words.next()?)?,
            held: words.number()?,
            holders: words.number()?,
            waiting: words.number()?,
            first_arrival: words.seconds()?,
        })
    }

    fn field(&self, name: &str) -> u64 {
        self.fields.get(name).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    pub(super) fn slots(&self) -> u32 {
        match u32::try_from(self.field("limit")).unwrap_or(u32::MAX) {
            0 => self.python_max,
            slots => slots,
        }
    }

    /// True if the server knows nothing under this name.
    fn is_blank(&self) -> bool {
        self.slots() == 0 && self.held == 0 && self.waiting == 0
    }

    pub(super) fn is_closed(&self) -> bool {
        self.field("closed") == 1
    }

    pub(super) fn epoch(&self) -> i64 {
        i64::try_from(self.field("epoch")).unwrap_or(i64::MAX)
    }

    pub(super) fn is_locked(&self) -> bool {
        self.is_closed() || self.waiting > 0 || self.slots() > 0 && self.held >= self.slots()
    }

    fn histogram(&self, kind: &str) -> Histogram {
        let nanos = |field: String| std::time::Duration::from_nanos(self.field(&field));
        let buckets = self.times.iter().filter_map(|(bucket, count)| {
            Some((bucket.strip_prefix(kind)?.parse().ok()?, count.parse().ok()?))
        });
        Histogram::restore(buckets, nanos(format!("{kind}_total")), nanos(format!("{kind}_max")))
    }

    /// `slots` are those to speak of if the server does not know the name yet.
    pub(super) fn into_stats(self, name: Arc<str>, slots: u32) -> Stats {
        let mut totals = Totals::default();
        totals.granted = self.field("granted");
        totals.released = self.field("released");
        totals.queued = self.field("queued");
        totals.expired = self.field("expired");
        totals.evicted = self.field("evicted");
        totals.handed_on = self.field("handed_on");
        totals.timed_out = self.field("timed_out");
        totals.cancelled = self.field("cancelled");
        totals.refused = self.field("refused");
        let mut numbers = semafor_core::Stats::default();
        numbers.capacity = if self.slots() == 0 { slots } else { self.slots() };
        numbers.held = self.held;
        numbers.holders = self.holders;
        numbers.waiting = self.waiting;
        numbers.longest_wait =
            self.first_arrival.map_or_else(Default::default, |first| span(self.now - first));
        numbers.totals = totals;
        numbers.waits = self.histogram("wait");
        numbers.holds = self.histogram("hold");
        Stats::new(name, numbers)
    }
}

/// What is known about somebody who holds or waits. Clients of other libraries leave no record.
#[derive(Default)]
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
        let words: Vec<_> = text.splitn(8, ' ').collect();
        let word = |at: usize| words.get(at).copied().unwrap_or_default();
        let who: serde_json::Value = serde_json::from_str(word(7)).unwrap_or_default();
        let said = |key: &str| who.get(key).and_then(|value| value.as_str()).map(Arc::from);
        Self {
            weight: word(0).parse().ok(),
            since: word(3).parse().ok(),
            slot: word(4).parse().ok(),
            token: word(5).parse().ok(),
            label: said("label"),
            command: said("command"),
            host: said("host"),
            pid: who.get("pid").and_then(serde_json::Value::as_u64).and_then(|pid| pid.try_into().ok()),
        }
    }
}

/// Everybody there is, as one moment showed them.
struct Roll {
    now: f64,
    holders: Vec<(String, f64)>,
    leases: HashMap<String, f64>,
    line: Vec<(String, f64)>,
    alive: HashMap<String, f64>,
    records: HashMap<String, Record>,
}

impl Roll {
    fn read(value: Value) -> Result<Self, HomeError> {
        let mut words = Words::of(value)?;
        let now = words.some_seconds()?;
        let mut scores = || -> Result<Vec<(String, f64)>, HomeError> {
            let pairs = Words::pairs(words.next()?)?;
            let read =
                pairs.into_iter().map(|(member, score)| (member, score.parse().unwrap_or(f64::INFINITY)));
            Ok(read.collect())
        };
        let holders = scores()?;
        let leases = scores()?.into_iter().collect();
        let line = scores()?;
        let alive = scores()?.into_iter().collect();
        let records = Words::pairs(words.next()?)?;
        let records = records.into_iter().map(|(id, record)| (id, Record::read(&record))).collect();
        Ok(Self { now, holders, leases, line, alive, records })
    }

    /// Who is in the middle of being served a weight, bit by bit, as Python's scripts do it. That is not to hold it yet.
    fn half_served(&self) -> Option<&str> {
        self.line.first().map(|(member, _)| keys::id_of(member))
    }
}

pub(super) fn holders(value: Value) -> Result<Vec<HolderInfo>, HomeError> {
    let mut roll = Roll::read(value)?;
    let half_served = roll.half_served().map(str::to_owned);
    let mut holders = Vec::new();
    for (id, dead_at) in &roll.holders {
        let ends = roll.leases.get(id).copied();
        let is_over = *dead_at <= roll.now || ends.is_some_and(|ends| ends <= roll.now);
        if id.contains('#') || is_over || half_served.as_ref() == Some(id) {
            continue;
        }
        let record = roll.records.remove(id).unwrap_or_default();
        // The Python library writes an end in 68 years for those without any.
        let ends = ends.filter(|ends| ends - roll.now < 1e9);
        holders.push(HolderInfo {
            id: PermitId::remote(id.as_str()),
            slot: record.slot,
            fencing_token: record.token,
            weight: record.weight.unwrap_or(1),
            label: record.label,
            command: record.command,
            host: record.host,
            pid: record.pid,
            held_for: span(roll.now - record.since.unwrap_or(roll.now)),
            expires_in: ends.map(|ends| span(ends - roll.now)),
        });
    }
    holders.sort_by_key(|holder| holder.slot.unwrap_or(u32::MAX));
    Ok(holders)
}

pub(super) fn waiters(value: Value) -> Result<Vec<WaiterInfo>, HomeError> {
    let mut roll = Roll::read(value)?;
    let mut waiters = Vec::new();
    let mut last = None;
    for (member, arrival) in &roll.line {
        // The members of a weight stand together.
        let id = keys::id_of(member);
        let is_counted = last.replace(id) == Some(id);
        if is_counted || roll.alive.get(member).is_none_or(|dead_at| *dead_at <= roll.now) {
            continue;
        }
        let record = roll.records.remove(id).unwrap_or_default();
        waiters.push(WaiterInfo {
            ahead: waiters.len(),
            weight: record.weight.unwrap_or(1),
            label: record.label,
            command: record.command,
            host: record.host,
            pid: record.pid,
            waited_for: span(roll.now - record.since.unwrap_or(*arrival)),
        });
    }
    Ok(waiters)
}

/// Statistics of many names.
pub(super) async fn survey(fleet: &Arc<Fleet>, query: &StatsQuery) -> Result<Vec<Stats>, HomeError> {
    let wanted = query.names.clone();
    let stats = fleet.on_own_thread(move |fleet| async move {
        let names = match wanted {
            Some(names) => BTreeSet::from_iter(names),
            None => all_names(&fleet).await?,
        };
        let mut stats = Vec::with_capacity(names.len());
        for some in Vec::from_iter(names).chunks(AT_ONCE) {
            let mut asked = JoinSet::new();
            for name in some {
                let (fleet, name) = (Arc::clone(&fleet), name.clone());
                asked.spawn(async move {
                    let keys = Keys::new(&fleet.config.namespace, &name);
                    let answered = fleet.link.run(&lua::CARD, &keys, None, |_, _| {}).await?;
                    Card::read(answered.value).map(|card| (name, card))
                });
            }
            for answer in asked.join_all().await {
                let (name, card) = answer?;
                if !card.is_blank() {
                    stats.push(card.into_stats(name.into(), 0));
                }
            }
        }
        Ok(stats)
    });
    Ok(query.pick(stats.await?))
}

async fn all_names(fleet: &Fleet) -> Result<BTreeSet<String>, HomeError> {
    let mut names = BTreeSet::new();
    let namespace = &fleet.config.namespace;
    for pattern in keys::patterns(namespace) {
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000);
            let mut page = Words::of(fleet.link.ask(&scan).await?)?;
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
