//! Puts what the clients of one site print into the order of time, and checks it.
//!
//! Each client prints its events in order, and a tick every tenth of a second. An event is checked when all clients that run have
//! printed something later. So the order is right even if a pipe is read late. Clients that are stopped are not waited for; what
//! they print later with an earlier time is checked when it comes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::ops::Range;

use super::{CONTESTANTS, CONTESTANTS_OF_NAME, SECOND, Time};
use crate::history::{Checker, Counts, Event, What};

/// A client without a tick for longer than this had no time to run. A holder gives up half a second before it may lose its slot.
const LONGEST_GAP: Time = 4 * SECOND / 10;
/// How long a client may need after it continues until it has noticed what it has lost.
pub(super) const CATCHING_UP: Time = 2 * SECOND;
/// No client may be silent for longer while it runs.
const LONGEST_SILENCE: Time = 60 * SECOND;
/// No request may wait for longer. Those that are held up by faults are served within a few heartbeat intervals.
const LONGEST_WAIT: Time = 150 * SECOND;
/// How many grants of each name are kept in memory.
const RECENT: usize = 300;
/// For the report of a violation.
const KEPT_FOR_REPORT: usize = 15_000;
const KEPT_FAULTS: usize = 100;

/// What a director tells about its site.
#[derive(Clone, Debug)]
pub(super) enum Note {
    /// A client is about to start.
    Starts { client: u64, is_python: bool },
    /// Its process is about to be stopped.
    Stops { client: u64 },
    /// It runs again.
    Continues { client: u64 },
    /// It is about to be killed, or has ended.
    Dies { client: u64 },
    /// From now on waiters of this client, or of all, may lose their places.
    Disturbs { client: Option<u64> },
    /// That is over.
    Calms { client: Option<u64> },
    /// The server forgets grants. Rules are suspended until that time.
    Forgets { until: Time },
    /// A line of waiters, as the home shows it: contestants and rounds.
    Line { name: usize, line: Vec<(u64, u32)> },
    /// A fault, in words.
    Fault { text: String },
}

/// Something that must not happen, and has.
#[derive(Clone, Debug)]
pub(super) struct Violation {
    pub(super) at: Time,
    /// The number of the semaphore.
    pub(super) name: Option<usize>,
    pub(super) what: String,
}

/// The checkers of one site.
pub(super) struct Watch {
    names: Vec<Name>,
    clients: BTreeMap<u64, Client>,
    pending: BinaryHeap<Reverse<Pending>>,
    sequence: u64,
    /// Everything before it was checked.
    checked_until: Time,
    /// How many reasons there are for which waiters of all clients may lose their places.
    disturbances: u32,
    last: VecDeque<(Time, usize, String)>,
    last_faults: VecDeque<(Time, String)>,
    /// Events that came later than events with a later time.
    pub(super) late: u64,
    pub(super) stalls: u64,
    pub(super) python_grants: u64,
}

struct Name {
    name: String,
    checker: Checker,
}

struct Client {
    is_python: bool,
    /// The time of its last line.
    latest: Option<Time>,
    last_tick: Option<Time>,
    /// When its last line came.
    heard_at: Time,
    is_stopped: bool,
    is_dead: bool,
    /// How many reasons there are for which it stands still.
    still: u32,
    /// How many reasons there are for which its waiters may lose their places.
    disturbances: u32,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Pending {
    at: Time,
    sequence: u64,
    what: Item,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Event(u64, Text),
    Still(u64),
    Moves(u64),
    Dies(u64),
    Disturbs(Option<u64>),
    Calms(Option<u64>),
    Forgets(Time),
    Line(usize, Vec<(u64, u32)>),
}

/// An event in a heap that is ordered by other things.
struct Text(Event);

impl PartialEq for Text {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Text {}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

fn contestants(client: u64) -> Range<u64> {
    client * CONTESTANTS..(client + 1) * CONTESTANTS
}

fn client_of(contestant: u64) -> u64 {
    contestant / CONTESTANTS
}

fn name_of(contestant: u64) -> usize {
    usize::try_from(contestant % CONTESTANTS / CONTESTANTS_OF_NAME).unwrap_or(usize::MAX)
}

impl Watch {
    pub(super) fn new(names: impl IntoIterator<Item = (String, u32)>) -> Self {
        let named = |(name, slots)| Name { name, checker: Checker::of_processes(slots, RECENT, CONTESTANTS) };
        Self {
            names: names.into_iter().map(named).collect(),
            clients: BTreeMap::new(),
            pending: BinaryHeap::new(),
            sequence: 0,
            checked_until: 0,
            disturbances: 0,
            last: VecDeque::new(),
            last_faults: VecDeque::new(),
            late: 0,
            stalls: 0,
            python_grants: 0,
        }
    }

    /// What was checked, of all names.
    pub(super) fn counts(&self) -> Counts {
        self.names.iter().map(|name| name.checker.counts()).fold(Counts::default(), |sum, next| Counts {
            grants: sum.grants + next.grants,
            losses: sum.losses + next.losses,
            suspended: sum.suspended + next.suspended,
            ordered: sum.ordered + next.ordered,
        })
    }

    /// How many things are kept in memory.
    pub(super) fn size(&self) -> usize {
        let checkers: usize = self.names.iter().map(|name| name.checker.size()).sum();
        checkers + self.pending.len() + self.clients.len()
    }

    /// A line that a client has printed. Returns true if it is an event or a tick.
    pub(super) fn line(&mut self, client: u64, line: &str, now: Time) -> bool {
        let tick = line.strip_prefix("tick ").and_then(|tick| tick.parse::<Time>().ok());
        let event = line.parse::<Event>().ok();
        let Some(known) = self.clients.get_mut(&client) else { return true };
        known.heard_at = now;
        let Some(at) = tick.or(event.as_ref().map(|event| event.at)) else { return false };
        known.latest = known.latest.max(Some(at));
        if let Some(tick) = tick {
            let before = known.last_tick.replace(tick);
            if let Some(before) = before.filter(|before| tick > before + LONGEST_GAP) {
                self.stalls += 1;
                self.push(before, Item::Still(client));
                self.push(tick + CATCHING_UP, Item::Moves(client));
            }
        }
        if let Some(event) = event {
            self.push(at, Item::Event(client, Text(event)));
        }
        true
    }

    /// Nothing more comes from a client that has died.
    pub(super) fn end_of_output(&mut self, client: u64) {
        if let Some(known) = self.clients.get_mut(&client) {
            known.is_dead = true;
        }
    }

    pub(super) fn note(&mut self, at: Time, note: Note) {
        match note {
            Note::Starts { client, is_python } => {
                let started = Client {
                    is_python,
                    latest: None,
                    last_tick: None,
                    heard_at: at,
                    is_stopped: false,
                    is_dead: false,
                    still: 0,
                    disturbances: 0,
                };
                self.clients.insert(client, started);
            }
            Note::Stops { client } => {
                if let Some(known) = self.clients.get_mut(&client) {
                    known.is_stopped = true;
                    known.last_tick = None;
                }
                self.push(at, Item::Still(client));
            }
            Note::Continues { client } => {
                if let Some(known) = self.clients.get_mut(&client) {
                    known.is_stopped = false;
                    known.heard_at = at;
                }
                self.push(at + CATCHING_UP, Item::Moves(client));
            }
            Note::Dies { client } => self.push(at, Item::Dies(client)),
            Note::Disturbs { client } => self.push(at, Item::Disturbs(client)),
            Note::Calms { client } => self.push(at + CATCHING_UP, Item::Calms(client)),
            Note::Forgets { until } => self.push(at, Item::Forgets(until)),
            Note::Line { name, line } => self.push(at, Item::Line(name, line)),
            Note::Fault { text } => {
                if self.last_faults.len() >= KEPT_FAULTS {
                    self.last_faults.pop_front();
                }
                self.last_faults.push_back((at, text));
            }
        }
    }

    /// Up to when nothing more can come, except from clients that are stopped.
    fn complete_until(&self, now: Time) -> Time {
        let waited_for = self.clients.values().filter(|client| !client.is_stopped && !client.is_dead);
        waited_for.filter_map(|client| client.latest).min().unwrap_or(now)
    }

    /// Checks all events that no earlier one can follow.
    pub(super) fn check(&mut self, now: Time) -> Result<(), Violation> {
        let until = self.complete_until(now);
        self.check_until(until)
    }

    /// Checks all that has come.
    pub(super) fn check_all(&mut self) -> Result<(), Violation> {
        self.check_until(Time::MAX)
    }

    fn check_until(&mut self, until: Time) -> Result<(), Violation> {
        while let Some(Reverse(next)) = self.pending.peek()
            && next.at <= until
        {
            let Some(Reverse(Pending { at, what, .. })) = self.pending.pop() else { break };
            let is_late = at < self.checked_until;
            self.checked_until = self.checked_until.max(at);
            self.carry_out(at, what, is_late)?;
        }
        if until < Time::MAX {
            self.checked_until = self.checked_until.max(until);
        }
        Ok(())
    }

    fn carry_out(&mut self, at: Time, item: Item, is_late: bool) -> Result<(), Violation> {
        let now = self.checked_until;
        match item {
            Item::Event(client, Text(event)) => return self.event(client, event, is_late),
            Item::Still(client) => self.stand_still(client),
            Item::Moves(client) => return self.move_again(client, now),
            Item::Dies(client) => {
                self.names.iter_mut().for_each(|name| name.checker.dies(at, &contestants(client)));
                self.clients.remove(&client);
            }
            Item::Disturbs(client) => self.disturb(client, true),
            Item::Calms(client) => self.disturb(client, false),
            Item::Forgets(until) => self.names.iter_mut().for_each(|name| name.checker.suspend(until)),
            Item::Line(name, line) => {
                if let Some(name) = self.names.get_mut(name) {
                    name.checker.see_line(now, &line);
                }
            }
        }
        Ok(())
    }

    /// The waiters of this client, or of all, may lose their places: those of now, and those that come while it lasts.
    fn disturb(&mut self, client: Option<u64>, begins: bool) {
        let change = |reasons: &mut u32| {
            *reasons = if begins { *reasons + 1 } else { reasons.saturating_sub(1) };
        };
        if client.is_none() {
            change(&mut self.disturbances);
        }
        for (number, known) in &mut self.clients {
            if client.is_some_and(|only| only != *number) {
                continue;
            }
            if client.is_some() {
                change(&mut known.disturbances);
            }
            for name in &mut self.names {
                name.checker.displaced(&contestants(*number));
                if known.is_python {
                    name.checker.excuse(&contestants(*number));
                }
            }
        }
    }

    fn event(&mut self, client: u64, event: Event, is_late: bool) -> Result<(), Violation> {
        // It has died: what it did in its last moment is over.
        let Some(known) = self.clients.get(&client) else { return Ok(()) };
        self.python_grants += u64::from(known.is_python && matches!(event.what, What::Granted(_)));
        let (by, at) = (event.by, event.at);
        let Some(name) = self.names.get_mut(name_of(by)).filter(|_| client_of(by) == client) else {
            return Err(Violation {
                at,
                name: None,
                what: format!("client {client} printed an unknown contestant: {event}"),
            });
        };
        let text = format!("{}: {event}", name.name);
        self.late += u64::from(is_late);
        let is_asked = event.what == What::Asked;
        let event = if is_late && !is_asked { Event { at: self.checked_until, ..event } } else { event };
        let seen = name.checker.see(&event);
        if is_late && is_asked {
            name.checker.forgive_order(by);
        }
        if is_asked && self.disturbances + known.disturbances + known.still > 0 {
            name.checker.displaced(&(by..by + 1));
            if known.is_python {
                name.checker.excuse(&(by..by + 1));
            }
        }
        let name_number = name_of(by);
        self.keep(at, name_number, text);
        seen.map_err(|what| {
            let name = &self.names[name_number].name;
            Violation { at, name: Some(name_number), what: format!("{name}: {what}") }
        })
    }

    fn stand_still(&mut self, client: u64) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        known.still += 1;
        for name in &mut self.names {
            if known.still == 1 {
                name.checker.stands_still(contestants(client));
            }
            if known.is_python {
                name.checker.excuse(&contestants(client));
            }
        }
    }

    fn move_again(&mut self, client: u64, now: Time) -> Result<(), Violation> {
        let Some(known) = self.clients.get_mut(&client) else { return Ok(()) };
        known.still = known.still.saturating_sub(1);
        for (number, name) in self.names.iter_mut().enumerate() {
            if known.is_python {
                name.checker.excuse(&contestants(client));
            }
            if known.still == 0 {
                let checked = name.checker.continues(now, &contestants(client));
                checked.map_err(|what| {
                    let what = format!("{}: {what}", name.name);
                    Violation { at: now, name: Some(number), what }
                })?;
            }
        }
        Ok(())
    }

    /// What does not show in one event: requests that wait too long, and clients that are silent.
    pub(super) fn check_progress(&self, now: Time) -> Result<(), Violation> {
        for (number, name) in self.names.iter().enumerate() {
            let open =
                name.checker.open().filter(|hold| hold.granted().is_none() && self.must_be_served(hold.by()));
            if let Some(hold) = open.min_by_key(|hold| hold.asked_at())
                && hold.asked_at() + LONGEST_WAIT < self.checked_until
            {
                let (name, seconds) = (&name.name, LONGEST_WAIT / SECOND);
                let what = format!("{name}: a request is not answered after {seconds} seconds:\n  {hold}");
                return Err(Violation { at: now, name: Some(number), what });
            }
        }
        for (number, client) in &self.clients {
            let is_expected = !client.is_stopped && !client.is_dead && !client.is_python;
            if is_expected && client.heard_at + LONGEST_SILENCE < now {
                let what = format!("client {number} prints nothing, not even ticks");
                return Err(Violation { at: client.heard_at, name: None, what });
            }
        }
        Ok(())
    }

    /// Clients of the Python library may wait for ever after a fault.
    fn must_be_served(&self, contestant: u64) -> bool {
        self.clients.get(&client_of(contestant)).is_some_and(|client| !client.is_python)
    }

    /// The first request or grant that is not over.
    pub(super) fn open(&self) -> Option<String> {
        let mut open = self.names.iter().flat_map(|name| name.checker.open().map(move |hold| (name, hold)));
        open.find(|(_, hold)| self.must_be_served(hold.by()))
            .map(|(name, hold)| format!("{}: {hold}", name.name))
    }

    fn push(&mut self, at: Time, what: Item) {
        self.sequence += 1;
        self.pending.push(Reverse(Pending { at, sequence: self.sequence, what }));
    }

    fn keep(&mut self, at: Time, name: usize, text: String) {
        if self.last.len() >= KEPT_FOR_REPORT {
            self.last.pop_front();
        }
        self.last.push_back((at, name, text));
    }

    /// The last faults.
    pub(super) fn last_faults(&self) -> impl Iterator<Item = (Time, &str)> {
        self.last_faults.iter().map(|(at, text)| (*at, &**text))
    }

    /// The last events, of this name if one is given.
    pub(super) fn last_events(&self, name: Option<usize>) -> impl Iterator<Item = (Time, &str)> {
        let last = self.last.iter().filter(move |(_, of, _)| name.is_none_or(|name| *of == name));
        last.map(|(at, _, text)| (*at, &**text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two clients on one semaphore of one slot, whose contestants are 1000 and 2000.
    fn watch() -> Watch {
        let mut watch = Watch::new([("one".to_owned(), 1)]);
        watch.note(0, Note::Starts { client: 1, is_python: false });
        watch.note(0, Note::Starts { client: 2, is_python: false });
        watch
    }

    /// Each line comes from the client of its contestant; times are in milliseconds.
    fn prints(watch: &mut Watch, lines: &[&str]) {
        for line in lines {
            let (at, rest) = line.split_once(' ').expect("a time");
            let at = at.parse::<Time>().expect("a time") * SECOND / 1_000;
            match rest.split_once(' ') {
                Some(("tick", client)) => {
                    watch.line(client.parse().expect("a client"), &format!("tick {at}"), at);
                }
                Some((by, _)) => {
                    let client = client_of(by.parse().expect("a contestant"));
                    watch.line(client, &format!("{at} {rest}"), at);
                }
                None => panic!("{line} is no line"),
            }
        }
    }

    /// The violation up to now.
    fn found(watch: &mut Watch) -> Option<String> {
        watch.check(Time::MAX).err().map(|violation| violation.what)
    }

    #[test]
    fn lines_are_checked_in_the_order_of_their_times() {
        let mut watch = watch();
        prints(&mut watch, &["1 tick 1", "2 1000 asked", "3 1000 granted a 0 5 1"]);
        // The pipe of the other client is read first.
        prints(&mut watch, &["1 tick 2", "4 2000 asked", "6 2000 granted b 0 6 1", "7 tick 2"]);
        assert_eq!(found(&mut watch), None);
        prints(&mut watch, &["5 1000 ended a", "8 tick 1"]);
        assert_eq!(found(&mut watch), None);
        assert_eq!(watch.counts().grants, 2);
        assert_eq!(watch.late, 0);
    }

    #[test]
    fn planted_overlap_is_found() {
        let mut watch = watch();
        prints(&mut watch, &["1 1000 asked", "2 1000 granted a 0 5 1", "9 tick 1"]);
        prints(&mut watch, &["3 2000 asked", "4 2000 granted b 0 6 1", "9 tick 2"]);
        let found = found(&mut watch).expect("two hold one slot");
        assert!(found.starts_with("one: two held the same slot at once"), "{found}");
        assert!(watch.last_events(Some(0)).count() >= 4);
    }

    #[test]
    fn client_that_gets_no_time_to_run_holds_nothing_meanwhile() {
        let mut watch = watch();
        prints(
            &mut watch,
            &["0 tick 1", "1 1000 asked", "2 1000 granted a 0 5 1", "3000 1000 lost a vanished"],
        );
        prints(&mut watch, &["3001 tick 1"]);
        prints(&mut watch, &["5 2000 asked", "2000 2000 granted b 0 6 1", "9000 tick 2"]);
        assert_eq!(found(&mut watch), None);
        assert_eq!(watch.stalls, 1);
    }

    #[test]
    fn stopped_client_is_not_waited_for() {
        let mut watch = watch();
        prints(&mut watch, &["1 1000 asked", "2 1000 granted a 0 5 1", "3 tick 1"]);
        watch.note(3 * SECOND / 1_000, Note::Stops { client: 1 });
        prints(&mut watch, &["4 2000 asked", "900 2000 granted b 0 6 1", "901 tick 2"]);
        assert_eq!(found(&mut watch), None);
        assert_eq!(watch.counts().grants, 2);
        // It believes in its slot again, and for longer than it may need to learn of its loss.
        watch.note(SECOND, Note::Continues { client: 1 });
        for at in (1_100..3_500).step_by(300) {
            prints(&mut watch, &[&format!("{at} tick 1"), &format!("{at} tick 2")]);
        }
        let found = found(&mut watch).expect("two hold one slot");
        assert!(found.contains("two held the same slot at once"), "{found}");
    }

    #[test]
    fn killed_client_holds_nothing() {
        let mut watch = watch();
        prints(&mut watch, &["1 1000 asked", "2 1000 granted a 0 5 1"]);
        watch.note(3 * SECOND / 1_000, Note::Dies { client: 1 });
        prints(&mut watch, &["4 2000 asked", "5 2000 granted b 0 6 1", "9 tick 2"]);
        watch.end_of_output(1);
        assert_eq!(found(&mut watch), None);
        assert!(watch.open().is_some_and(|open| open.contains("contestant 2000")));
    }

    #[test]
    fn planted_overtaking_is_found_unless_the_connection_was_disturbed() {
        for is_disturbed in [false, true] {
            let mut watch = watch();
            if is_disturbed {
                watch.note(0, Note::Disturbs { client: Some(1) });
            }
            prints(&mut watch, &["1 1000 asked", "2 2000 asked"]);
            watch.note(3 * SECOND / 1_000, Note::Line { name: 0, line: vec![(1000, 0), (2000, 0)] });
            prints(&mut watch, &["4 2000 granted b 0 6 1", "5 2000 ended b", "6 1000 granted a 0 7 1"]);
            prints(&mut watch, &["9 tick 1", "9 tick 2"]);
            let found = found(&mut watch);
            assert_eq!(found.is_none(), is_disturbed, "{found:?}");
        }
    }

    #[test]
    fn request_that_is_never_answered_is_found() {
        let mut watch = watch();
        prints(&mut watch, &["1 1000 asked", "200000 tick 1", "200000 tick 2"]);
        assert_eq!(found(&mut watch), None);
        let violation = watch.check_progress(200 * SECOND).expect_err("it waits too long");
        assert!(violation.what.contains("a request is not answered"), "{}", violation.what);
    }

    #[test]
    fn silent_client_is_found() {
        let mut watch = watch();
        prints(&mut watch, &["100000 tick 1"]);
        let violation = watch.check_progress(100 * SECOND).expect_err("client 2 is silent");
        assert!(violation.what.contains("client 2 prints nothing"), "{}", violation.what);
    }
}
