//! Records what contestants saw of one semaphore, and checks whether one semaphore can have produced it.
//!
//! Each event gets the next number of one sequence **while its fact holds**: a grant is recorded after it was received,
//! its end before the slot is released. So a hold in the history is never longer than the real one, and two holds that
//! overlap here did overlap. Every contradiction that [`History::check`] reports has really happened; in return it may
//! miss an overlap too short to be recorded.
//!
//! Processes of one machine have no such sequence, but a clock: their [`Event`]s are stamped with [`now`], written as
//! text, and put into one [`History`]. The process that kills another adds the events of the killed process, such as
//! the end of its grants.
//!
//! [`Checker`] checks events as they come, in bounded memory, and says what the rules are.

mod checker;

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::time::{ClockId, clock_gettime};
use semafor::Permit;

pub use checker::{Checker, Counts};

/// The time by the monotonic clock that all processes of a machine share, in nanoseconds.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Records what contestants see. A clone writes into the same history.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Records>);

#[derive(Default)]
struct Records {
    sequence: AtomicU64,
    contestants: AtomicU64,
    handed_in: Mutex<Vec<Event>>,
}

/// Acquires slots, one at a time, and records the outcomes. Adds its records to the history when dropped.
pub struct Contestant {
    notes: Arc<Records>,
    number: u64,
    events: Vec<Event>,
}

/// A grant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The permit's id.
    pub id: String,
    /// Its slot number. `None` for a client of another library, which has none.
    pub slot: Option<u32>,
    /// Its fencing token. `None` for a client of another library.
    pub token: Option<u64>,
    /// How many slots it holds.
    pub weight: u32,
}

impl Grant {
    /// The grant of `permit`, which has `weight` slots.
    pub fn of(permit: &Permit<'_>, weight: u32) -> Self {
        Self {
            id: permit.id().to_string(),
            slot: Some(permit.slot()),
            token: Some(permit.fencing_token()),
            weight,
        }
    }
}

/// Something that a contestant saw or did. It can be written as one line of text and parsed again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Its place in the sequence of events, or the time on the clock.
    pub at: u64,
    /// Which contestant.
    pub by: u64,
    /// What it was.
    pub what: What,
}

/// What can happen to a contestant.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum What {
    /// It is going to ask for a slot.
    Asked,
    /// It is known to be in line.
    Queued,
    /// It was granted its request.
    Granted(Grant),
    /// It was refused, timed out, or went away.
    GaveUp,
    /// This id is about to end.
    Ended(String),
    /// This id has ended, and not by its holder. The holder may have learned of it only when it released the slot.
    Lost {
        /// The id.
        id: String,
        /// The reason given, in one word.
        why: String,
    },
    /// The lease of this id ends at that time, whether its holder notices or not. It may come right before the grant.
    Leased {
        /// The id.
        id: String,
        /// When it ends, as far as its holder knows.
        ends: u64,
    },
    /// The semaphore has so many slots.
    Resized(u32),
    /// An event after which holders may lose their slots before they know it: a process is stopped, or the server loses
    /// data. Grants requested before it that turn out to be lost no longer count against the bound.
    Disturbed,
}

impl Event {
    /// An event now, by the clock of the machine.
    pub fn now(by: u64, what: What) -> Self {
        Self { at: now(), by, what }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.at, self.by)?;
        match &self.what {
            What::Asked => f.write_str("asked"),
            What::Queued => f.write_str("queued"),
            What::Granted(Grant { id, slot, token, weight }) => {
                write!(f, "granted {id} {} {} {weight}", or_dash(*slot), or_dash(*token))
            }
            What::GaveUp => f.write_str("gave-up"),
            What::Ended(id) => write!(f, "ended {id}"),
            What::Lost { id, why } => write!(f, "lost {id} {why}"),
            What::Leased { id, ends } => write!(f, "leased {id} {ends}"),
            What::Resized(slots) => write!(f, "resized {slots}"),
            What::Disturbed => f.write_str("disturbed"),
        }
    }
}

/// The line is not an [`Event`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoEvent;

impl FromStr for Event {
    type Err = NoEvent;

    fn from_str(line: &str) -> Result<Self, NoEvent> {
        let words: Vec<_> = line.split(' ').collect();
        let [at, by, rest @ ..] = &words[..] else { return Err(NoEvent) };
        let number = |word: &str| word.parse::<u64>().map_err(|_| NoEvent);
        let small = |word: &str| word.parse::<u32>().map_err(|_| NoEvent);
        let what = match *rest {
            ["asked"] => What::Asked,
            ["queued"] => What::Queued,
            ["granted", id, slot, token, weight] => What::Granted(Grant {
                id: id.to_owned(),
                slot: if slot == "-" { None } else { Some(small(slot)?) },
                token: if token == "-" { None } else { Some(number(token)?) },
                weight: small(weight)?,
            }),
            ["gave-up"] => What::GaveUp,
            ["ended", id] => What::Ended(id.to_owned()),
            ["lost", id, why] => What::Lost { id: id.to_owned(), why: why.to_owned() },
            ["leased", id, ends] => What::Leased { id: id.to_owned(), ends: number(ends)? },
            ["resized", slots] => What::Resized(small(slots)?),
            ["disturbed"] => What::Disturbed,
            _ => return Err(NoEvent),
        };
        Ok(Self { at: number(at)?, by: number(by)?, what })
    }
}

impl Recorder {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more contestant.
    pub fn contestant(&self) -> Contestant {
        let number = self.0.contestants.fetch_add(1, Ordering::Relaxed);
        Contestant { notes: Arc::clone(&self.0), number, events: Vec::new() }
    }

    /// The events recorded so far.
    pub fn history(&self) -> History {
        self.0.handed_in.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl Contestant {
    fn note(&mut self, what: What) {
        let at = self.notes.sequence.fetch_add(1, Ordering::SeqCst);
        self.events.push(Event { at, by: self.number, what });
    }

    /// Records that it is going to ask for a slot.
    pub fn asks(&mut self) {
        self.note(What::Asked);
    }

    /// Records that it is in line.
    pub fn is_in_line(&mut self) {
        self.note(What::Queued);
    }

    /// Records a grant.
    pub fn got(&mut self, grant: Grant) {
        self.note(What::Granted(grant));
    }

    /// Records that it was refused, timed out, or went away.
    pub fn gave_up(&mut self) {
        self.note(What::GaveUp);
    }

    /// Records that it is going to release this id, or to end it in another way.
    pub fn ends(&mut self, id: impl ToString) {
        self.note(What::Ended(id.to_string()));
    }

    /// Records a resize to so many slots: before growing and after shrinking, so that the history always allows what
    /// the semaphore allows.
    pub fn resizes(&mut self, slots: u32) {
        self.note(What::Resized(slots));
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        let mut handed_in = self.notes.handed_in.lock().unwrap_or_else(PoisonError::into_inner);
        handed_in.append(&mut self.events);
    }
}

/// The events of one semaphore, in order.
#[derive(Clone, Debug)]
pub struct History {
    events: Vec<Event>,
}

/// One request and its outcome. Displays with the numbers of its events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hold {
    by: u64,
    asked_at: u64,
    queued_at: Option<u64>,
    granted: Option<(u64, Grant)>,
    ended_at: Option<u64>,
    lost_as: Option<String>,
    gave_up: bool,
}

/// Something that one correct semaphore cannot have done.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Contradiction {
    /// More slots were held at once than there were.
    OverBound {
        /// How many slots there were, at most, since the last of them asked.
        slots: u32,
        /// What was held.
        held: Vec<Hold>,
    },
    /// Two holders had the same slot number at once.
    SlotShared(Box<[Hold; 2]>),
    /// A slot number is not below the number of slots.
    SlotOutOfRange {
        /// How many slots there were, at most, since it asked.
        slots: u32,
        /// The contestant that got it.
        hold: Box<Hold>,
    },
    /// Two grants have the same id.
    IdRepeated(Box<[Hold; 2]>),
    /// Two grants have the same fencing token.
    TokenRepeated(Box<[Hold; 2]>),
    /// The first was granted before the second asked, but has the higher fencing token.
    TokenFell(Box<[Hold; 2]>),
    /// The first was in line before the second asked, but was served after it.
    Overtaken(Box<[Hold; 2]>),
    /// A grant that never ended.
    StillHeld(Box<Hold>),
    /// A request that was neither granted nor given up.
    Unanswered(Box<Hold>),
    /// An id ended that was not held: never granted, or ended before.
    EndedTwice {
        /// The id.
        id: String,
        /// When it ended once more.
        at: u64,
    },
    /// A contestant got an answer without a request, or asked again before the answer.
    OutOfTurn {
        /// Which contestant.
        by: u64,
        /// When.
        at: u64,
    },
}

impl Hold {
    /// The contestant.
    pub fn by(&self) -> u64 {
        self.by
    }

    /// When it asked.
    pub fn asked_at(&self) -> u64 {
        self.asked_at
    }

    /// The grant, and when the contestant knew of it.
    pub fn granted(&self) -> Option<&(u64, Grant)> {
        self.granted.as_ref()
    }

    /// When it ended.
    pub fn ended_at(&self) -> Option<u64> {
        self.ended_at
    }

    /// True if it was given up without a grant.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Why it was lost, if it was.
    pub fn lost_as(&self) -> Option<&str> {
        self.lost_as.as_deref()
    }

    fn token(&self) -> Option<u64> {
        self.granted.as_ref().and_then(|(_, grant)| grant.token)
    }
}

impl FromIterator<Event> for History {
    fn from_iter<T: IntoIterator<Item = Event>>(events: T) -> Self {
        let mut events: Vec<_> = events.into_iter().collect();
        events.sort_by_key(|event| event.at);
        Self { events }
    }
}

impl History {
    /// How many grants there were.
    pub fn grants(&self) -> usize {
        self.events.iter().filter(|event| matches!(event.what, What::Granted(_))).count()
    }

    /// Checks that one semaphore of `slots` slots can have done this:
    ///
    /// - **bound**: no more slots held than there are, with all resizes, except where a [disturbance](What::Disturbed)
    ///   allows it;
    /// - **slots**: numbers below the number of slots, no two live holders with the same;
    /// - **ids** never repeated;
    /// - **fencing tokens** never repeated, and growing from each grant to every request made after it;
    /// - **order**: a waiter in line is served before every later request;
    /// - **nothing left**: every request is answered, every grant ends, and ends once.
    ///
    /// # Errors
    ///
    /// The first [`Contradiction`] found, with the events that contradict each other.
    pub fn check(&self, slots: u32) -> Result<(), Contradiction> {
        let mut checker = Checker::new(slots, usize::MAX);
        self.events.iter().try_for_each(|event| checker.see(event))?;
        checker.finish()
    }

    /// Puts the events of each request together, in the order of asking.
    ///
    /// # Errors
    ///
    /// If the events contradict each other.
    pub fn holds(&self) -> Result<Vec<Hold>, Contradiction> {
        let mut holds: Vec<Hold> = Vec::new();
        let mut unanswered: HashMap<u64, usize> = HashMap::new();
        let mut by_id: HashMap<&str, usize> = HashMap::new();
        for Event { at, by, what } in &self.events {
            let out_of_turn = Contradiction::OutOfTurn { by: *by, at: *at };
            match what {
                What::Asked => {
                    if unanswered.insert(*by, holds.len()).is_some() {
                        return Err(out_of_turn);
                    }
                    holds.push(Hold {
                        by: *by,
                        asked_at: *at,
                        queued_at: None,
                        granted: None,
                        ended_at: None,
                        lost_as: None,
                        gave_up: false,
                    });
                }
                What::Queued => {
                    let index = *unanswered.get(by).ok_or(out_of_turn)?;
                    holds[index].queued_at = Some(*at);
                }
                What::Granted(grant) => {
                    let index = unanswered.remove(by).ok_or(out_of_turn)?;
                    holds[index].granted = Some((*at, grant.clone()));
                    if let Some(first) = by_id.insert(&grant.id, index) {
                        return Err(Contradiction::IdRepeated(both(&holds[first], &holds[index])));
                    }
                }
                What::GaveUp => {
                    let index = unanswered.remove(by).ok_or(out_of_turn)?;
                    holds[index].gave_up = true;
                }
                What::Ended(id) => {
                    let held = by_id.get(id.as_str()).map(|index| &mut holds[*index].ended_at);
                    match held {
                        Some(ended_at @ None) => *ended_at = Some(*at),
                        _ => return Err(Contradiction::EndedTwice { id: id.clone(), at: *at }),
                    }
                }
                What::Lost { id, why } => {
                    let index = *by_id.get(id.as_str()).ok_or(out_of_turn)?;
                    holds[index].ended_at.get_or_insert(*at);
                    holds[index].lost_as.get_or_insert_with(|| why.clone());
                }
                What::Leased { .. } | What::Resized(_) | What::Disturbed => {}
            }
        }
        Ok(holds)
    }
}

fn both(first: &Hold, second: &Hold) -> Box<[Hold; 2]> {
    Box::new([first.clone(), second.clone()])
}

/// The largest size in effect at any time from `since` to `at`.
fn largest_within(sizes: &[(u64, u32)], since: u64, at: u64) -> u32 {
    let first = sizes.partition_point(|(from, _)| *from <= since).saturating_sub(1);
    let in_effect = sizes[first..].iter().take_while(|(from, _)| *from <= at);
    in_effect.map(|(_, slots)| *slots).max().unwrap_or(0)
}

fn or_dash(number: Option<impl fmt::Display>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "contestant {} (asked at {}", self.by, self.asked_at)?;
        if let Some(at) = self.queued_at {
            write!(f, ", in line at {at}")?;
        }
        if let Some((at, Grant { id, slot, token, weight })) = &self.granted {
            let (slot, token) = (or_dash(*slot), or_dash(*token));
            write!(f, ", granted at {at}: id {id}, slot {slot}, token {token}, weight {weight}")?;
        }
        if let Some(at) = self.ended_at {
            write!(f, ", ended at {at}")?;
        }
        if let Some(why) = &self.lost_as {
            write!(f, ", lost: {why}")?;
        }
        f.write_str(")")
    }
}

fn contrast(f: &mut fmt::Formatter<'_>, what: &str, [first, second]: &[Hold; 2]) -> fmt::Result {
    write!(f, "{what}:\n  {first}\n  {second}")
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OverBound { slots, held } => {
                write!(f, "more was held at once than the {slots} slots there were:")?;
                held.iter().try_for_each(|hold| write!(f, "\n  {hold}"))
            }
            Self::SlotOutOfRange { slots, hold } => {
                write!(f, "the slot number is not below the {slots} slots there were:\n  {hold}")
            }
            Self::SlotShared(pair) => contrast(f, "two held the same slot at once", pair),
            Self::IdRepeated(pair) => contrast(f, "an id was used twice", pair),
            Self::TokenRepeated(pair) => contrast(f, "a fencing token was used twice", pair),
            Self::TokenFell(pair) => contrast(f, "a later grant has a lower fencing token", pair),
            Self::Overtaken(pair) => {
                contrast(f, "the first was in line before the second asked, but served after it", pair)
            }
            Self::StillHeld(hold) => write!(f, "a grant never ended:\n  {hold}"),
            Self::Unanswered(hold) => write!(f, "a request was never answered:\n  {hold}"),
            Self::EndedTwice { id, at } => write!(f, "id {id} ended at {at}, but was not held then"),
            Self::OutOfTurn { by, at } => {
                write!(f, "contestant {by} asked again, or was answered, out of turn at {at}")
            }
        }
    }
}

impl std::error::Error for Contradiction {}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(slot: u32, token: u64) -> Grant {
        Grant { id: format!("id-{token}"), slot: Some(slot), token: Some(token), weight: 1 }
    }

    /// A history of two contestants that both ask first.
    fn two(tell: impl FnOnce(&mut Contestant, &mut Contestant)) -> History {
        let recorder = Recorder::new();
        let (mut a, mut b) = (recorder.contestant(), recorder.contestant());
        a.asks();
        b.asks();
        tell(&mut a, &mut b);
        drop((a, b));
        recorder.history()
    }

    fn one(tell: impl FnOnce(&mut Contestant)) -> History {
        let recorder = Recorder::new();
        tell(&mut recorder.contestant());
        recorder.history()
    }

    fn says(history: &History, slots: u32) -> String {
        history.check(slots).expect_err("a contradiction").to_string()
    }

    #[test]
    fn possible_history_passes() {
        let history = two(|a, b| {
            a.got(grant(0, 1));
            b.is_in_line();
            a.ends("id-1");
            b.got(grant(0, 2));
            a.asks();
            a.gave_up();
            b.ends("id-2");
        });
        assert_eq!(history.check(1), Ok(()));
        assert_eq!(history.grants(), 2);
    }

    #[test]
    fn two_holders_of_one_slot_are_a_contradiction() {
        let history = two(|a, b| {
            a.got(grant(0, 1));
            b.got(grant(0, 2));
        });
        assert!(matches!(history.check(2), Err(Contradiction::SlotShared(..))));
        assert_eq!(
            says(&history, 2),
            "two held the same slot at once:\n  \
             contestant 0 (asked at 0, granted at 2: id id-1, slot 0, token 1, weight 1)\n  \
             contestant 1 (asked at 1, granted at 3: id id-2, slot 0, token 2, weight 1)"
        );
    }

    #[test]
    fn more_weight_than_slots_is_a_contradiction() {
        let history = two(|a, b| {
            a.got(Grant { weight: 2, ..grant(0, 1) });
            b.got(Grant { weight: 2, ..grant(1, 2) });
            a.ends("id-1");
            b.ends("id-2");
        });
        assert_eq!(history.check(4), Ok(()));
        assert!(
            matches!(history.check(3), Err(Contradiction::OverBound { slots: 3, held }) if held.len() == 2)
        );
        assert!(says(&history, 3).starts_with("more was held at once than the 3 slots there were:"));
    }

    #[test]
    fn the_bound_follows_a_resize() {
        let resized = |first: u32, second: u32| {
            let recorder = Recorder::new();
            let (mut a, mut b) = (recorder.contestant(), recorder.contestant());
            a.asks();
            a.got(grant(0, 1));
            a.resizes(first);
            a.resizes(second);
            b.asks();
            b.got(grant(1, 2));
            a.ends("id-1");
            b.ends("id-2");
            drop((a, b));
            recorder.history()
        };
        assert_eq!(resized(1, 2).check(1), Ok(()));
        let shrunk = resized(2, 1).check(1);
        assert!(matches!(shrunk, Err(Contradiction::SlotOutOfRange { slots: 1, .. })), "{shrunk:?}");
    }

    #[test]
    fn no_grant_while_more_slots_are_held_than_after_a_shrink() {
        let recorder = Recorder::new();
        let [mut a, mut b, mut c] = [(); 3].map(|()| recorder.contestant());
        for (contestant, slot) in [(&mut a, 1), (&mut b, 2)] {
            contestant.asks();
            contestant.got(grant(slot, slot.into()));
        }
        a.resizes(2);
        a.ends("id-1");
        c.asks();
        c.got(Grant { weight: 2, ..grant(0, 3) });
        drop((a, b, c));
        let over = recorder.history().check(3);
        assert!(matches!(over, Err(Contradiction::OverBound { slots: 2, .. })), "{over:?}");
    }

    #[test]
    fn a_request_from_before_a_shrink_may_be_granted_by_the_old_size() {
        let history = two(|a, b| {
            a.got(grant(0, 1));
            a.resizes(1);
            b.got(grant(1, 2));
            a.ends("id-1");
            b.ends("id-2");
        });
        assert_eq!(history.check(2), Ok(()));
    }

    #[test]
    fn a_slot_number_is_below_the_number_of_slots() {
        let history = one(|a| {
            a.asks();
            a.got(grant(2, 1));
            a.ends("id-1");
        });
        assert_eq!(history.check(3), Ok(()));
        assert!(matches!(history.check(2), Err(Contradiction::SlotOutOfRange { slots: 2, .. })));
    }

    #[test]
    fn an_id_is_never_used_again() {
        let history = one(|a| {
            for token in [1, 2] {
                a.asks();
                a.got(Grant { id: "same".into(), ..grant(0, token) });
                a.ends("same");
            }
        });
        assert!(matches!(history.check(1), Err(Contradiction::IdRepeated(..))));
        assert!(says(&history, 1).starts_with("an id was used twice:"));
    }

    #[test]
    fn a_token_is_never_used_again() {
        let history = two(|a, b| {
            a.got(grant(0, 1));
            b.got(Grant { id: "other".into(), ..grant(1, 1) });
            a.ends("id-1");
            b.ends("other");
        });
        assert!(matches!(history.check(2), Err(Contradiction::TokenRepeated(..))));
    }

    #[test]
    fn tokens_grow_from_a_grant_to_later_requests() {
        let history = one(|a| {
            for token in [2, 1] {
                a.asks();
                a.got(grant(0, token));
                a.ends(format!("id-{token}"));
            }
        });
        assert!(matches!(history.check(1), Err(Contradiction::TokenFell(..))));
        assert!(says(&history, 1).starts_with("a later grant has a lower fencing token:"));
    }

    #[test]
    fn tokens_of_concurrent_requests_may_come_in_any_order() {
        let history = two(|a, b| {
            a.got(grant(0, 2));
            b.got(grant(1, 1));
            a.ends("id-2");
            b.ends("id-1");
        });
        assert_eq!(history.check(2), Ok(()));
    }

    #[test]
    fn a_waiter_in_line_is_not_overtaken() {
        let overtaken_if = |stood_in_line: bool| {
            let recorder = Recorder::new();
            let (mut a, mut b) = (recorder.contestant(), recorder.contestant());
            a.asks();
            if stood_in_line {
                a.is_in_line();
            }
            b.asks();
            b.got(grant(0, 1));
            b.ends("id-1");
            a.got(grant(0, 2));
            a.ends("id-2");
            drop((a, b));
            recorder.history().check(1)
        };
        assert!(matches!(overtaken_if(true), Err(Contradiction::Overtaken(..))));
        assert_eq!(overtaken_if(false), Ok(()), "their order of arrival is unknown");
    }

    #[test]
    fn a_grant_that_never_ends_is_a_leak() {
        let history = one(|a| {
            a.asks();
            a.got(grant(0, 1));
        });
        assert!(matches!(history.check(1), Err(Contradiction::StillHeld(_))));
    }

    #[test]
    fn request_without_an_answer_is_a_contradiction() {
        let history = one(Contestant::asks);
        assert!(matches!(history.check(1), Err(Contradiction::Unanswered(_))));
    }

    #[test]
    fn a_grant_ends_once() {
        let history = one(|a| {
            a.asks();
            a.got(grant(0, 1));
            a.ends("id-1");
            a.ends("id-1");
        });
        assert_eq!(says(&history, 1), "id id-1 ended at 3, but was not held then");
    }

    #[test]
    fn event_is_written_as_text_and_parsed_again() {
        for line in [
            "7 1 asked",
            "7 1 queued",
            "7 1 granted 1f 0 1700000000000001 3",
            "7 1 granted 1f - - 1",
            "7 1 leased 1f 99",
            "7 1 gave-up",
            "7 1 ended 1f",
            "7 1 lost 1f vanished",
            "7 1 resized 4",
            "7 1 disturbed",
        ] {
            assert_eq!(line.parse::<Event>().map(|event| event.to_string()), Ok(line.to_owned()));
        }
        for line in ["", "ready", "7 1", "7 1 ended", "7 one asked", "7 1 granted 1f 0 1"] {
            assert_eq!(line.parse::<Event>(), Err(NoEvent), "{line:?}");
        }
    }

    #[test]
    fn histories_of_several_processes_are_put_together_by_the_clock() {
        let before = now();
        let event = Event::now(0, What::Asked);
        assert!(before <= event.at && event.at <= now());
        let lines = ["4 1 granted b 0 2 1", "1 0 asked", "3 1 asked", "2 0 granted a 0 1 1", "5 0 ended a"];
        let history: History = lines.iter().map(|line| line.parse::<Event>().unwrap()).collect();
        assert!(matches!(history.check(1), Err(Contradiction::SlotShared(..))));
    }

    #[test]
    fn lost_grant_counts_until_its_holder_knows_or_until_a_disturbance() {
        let noticed_late = |between: &str| {
            let lines = ["1 0 asked", "2 0 granted a 0 1 1", between, "5 1 asked", "6 1 granted b 0 2 1"];
            let after = ["7 0 lost a vanished", "8 1 ended b"];
            let events = lines.iter().chain(&after).map(|line| line.parse::<Event>().unwrap());
            events.collect::<History>().check(1)
        };
        assert!(matches!(noticed_late("3 9 resized 1"), Err(Contradiction::SlotShared(..))));
        assert_eq!(noticed_late("3 9 disturbed"), Ok(()));
        // A grant that is not lost still counts.
        let lines = ["1 0 asked", "2 0 granted a 0 1 1", "3 9 disturbed", "4 1 asked", "5 1 granted b 0 2 1"];
        let after = ["6 0 ended a", "7 1 ended b"];
        let events = lines.iter().chain(&after).map(|line| line.parse::<Event>().unwrap());
        assert!(matches!(events.collect::<History>().check(1), Err(Contradiction::SlotShared(..))));
    }

    #[test]
    fn released_grant_may_turn_out_to_be_lost() {
        let lines = ["1 0 asked", "2 0 granted a 0 1 1", "3 0 ended a", "4 0 lost a vanished"];
        let history: History = lines.iter().map(|line| line.parse::<Event>().unwrap()).collect();
        assert_eq!(history.check(1), Ok(()));
        assert_eq!(history.holds().unwrap()[0].lost_as(), Some("vanished"));
    }

    #[test]
    fn answer_without_a_request_is_a_contradiction() {
        let out_of_turn = |history: History| matches!(history.check(1), Err(Contradiction::OutOfTurn { .. }));
        assert!(out_of_turn(one(|a| a.got(grant(0, 1)))));
        assert!(out_of_turn(one(Contestant::gave_up)));
        assert!(out_of_turn(one(Contestant::is_in_line)));
        assert!(out_of_turn(one(|a| {
            a.asks();
            a.asks();
        })));
    }
}
