//! Checks the events of one semaphore as they come, in bounded memory.
//!
//! The rules:
//!
//! 1. **Bound**: the holders never have more slots than there are. A contestant holds from when it learns of its grant until it
//!    ends it, is told of its loss, its lease ends, or its process dies.
//! 2. **Slot numbers** are below the number of slots, and those of such holders differ.
//! 3. **Ids and fencing tokens** are used once. A token is larger than those of all grants that were known before its request.
//!    With one slot, each token is therefore larger than all before it.
//! 4. **Order**: a waiter that is known to be in line gets a smaller token than every request made later, and than every waiter
//!    that was seen behind it. Only where the lines are shown to the checker.
//! 5. **Nothing is left**: at the end every request is answered and every grant has ended, once.
//!
//! What is excused:
//!
//! - While the rules are [suspended](Checker::suspend), because the server has forgotten grants, only one rule holds: a process
//!   gets no token at or below one that it knew when it asked. Waiters from before the end of the suspension may be overtaken.
//! - A grant that turns out to be lost does not count after the first [disturbance](What::Disturbed) since its request.
//! - The contestants of a process that [stands still](Checker::stands_still) hold nothing until it continues. Waiters that are
//!   [displaced](Checker::displaced) may be overtaken: their process could not keep its place.
//! - Contestants that are [excused](Checker::excuse) do not count against the bound: a client of another library that does not
//!   learn of its loss.
//!
//! A request is dropped from memory when it is over and no rule needs it: grants are kept until many later ones have come, and
//! an id or a token that is used again after that is smaller than the tokens known at its request, which is an error as well.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::{Contradiction, Event, Grant, Hold, What, both, largest_within};

/// Checks events as they come. They have to come in the order of time.
#[derive(Debug)]
pub struct Checker {
    /// The numbers of slots, each with the time from which it holds.
    sizes: Vec<(u64, u32)>,
    /// Which contestants are of one process: blocks of so many numbers.
    per_process: Option<u64>,
    waiting: HashMap<u64, Waiting>,
    /// In the order of granting.
    held: Vec<Held>,
    /// Ids that have ended, until their contestants ask again: they may turn out to have been lost.
    unsettled: HashMap<u64, String>,
    recent: Recent,
    /// The largest token of all grants so far.
    highest: Option<Arc<Hold>>,
    highest_of_process: HashMap<u64, Arc<Hold>>,
    /// How often each contestant has asked.
    asked: HashMap<u64, u32>,
    undecided: Vec<Undecided>,
    standing_still: Vec<Range<u64>>,
    suspended_until: u64,
    counts: Counts,
}

/// What was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Grants.
    pub grants: u64,
    /// Grants that were lost, other than by the end of their leases.
    pub losses: u64,
    /// Grants made while the rules were suspended.
    pub suspended: u64,
    /// Pairs of requests whose order was compared.
    pub ordered: u64,
}

#[derive(Debug)]
struct Waiting {
    hold: Hold,
    /// The largest token known when it asked, and of all that were before it in line.
    floor: Option<Arc<Hold>>,
    /// The largest that its process knew.
    process_floor: Option<Arc<Hold>>,
    /// The smallest token of those that were granted although they came later.
    ceiling: Option<Arc<Hold>>,
    /// The waiters that were seen before it in line.
    ahead: Vec<u64>,
    /// Of the grant that is about to come.
    lease_ends: Option<u64>,
    round: u32,
    is_displaced: bool,
    is_excused: bool,
    was_disturbed: bool,
}

#[derive(Debug)]
struct Held {
    hold: Hold,
    lease_ends: Option<u64>,
    is_excused: bool,
    was_disturbed: bool,
}

/// Grants that contradict each other unless some of them turn out to be lost.
#[derive(Debug)]
struct Undecided {
    slots: u32,
    /// Each with whether it may still turn out to be lost.
    holds: Vec<(Hold, bool)>,
}

/// The last grants.
#[derive(Debug)]
struct Recent {
    most: usize,
    order: VecDeque<Arc<Hold>>,
    by_id: HashMap<String, Arc<Hold>>,
    by_token: HashMap<u64, Arc<Hold>>,
}

impl Checker {
    /// Checks a semaphore of `slots` slots, and keeps the last `most_recent` grants in memory.
    pub fn new(slots: u32, most_recent: usize) -> Self {
        Self {
            sizes: vec![(0, slots)],
            per_process: None,
            waiting: HashMap::new(),
            held: Vec::new(),
            unsettled: HashMap::new(),
            recent: Recent {
                most: most_recent,
                order: VecDeque::new(),
                by_id: HashMap::new(),
                by_token: HashMap::new(),
            },
            highest: None,
            highest_of_process: HashMap::new(),
            asked: HashMap::new(),
            undecided: Vec::new(),
            standing_still: Vec::new(),
            suspended_until: 0,
            counts: Counts::default(),
        }
    }

    /// The same, where each block of so many contestants is one process.
    pub fn of_processes(slots: u32, most_recent: usize, contestants: u64) -> Self {
        Self { per_process: Some(contestants), ..Self::new(slots, most_recent) }
    }

    /// What was checked so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The requests that are not answered and the grants that have not ended.
    pub fn open(&self) -> impl Iterator<Item = &Hold> {
        self.waiting.values().map(|waiting| &waiting.hold).chain(self.held.iter().map(|held| &held.hold))
    }

    /// How many requests, grants and other things are kept in memory.
    pub fn size(&self) -> usize {
        self.waiting.len()
            + self.held.len()
            + self.unsettled.len()
            + self.recent.order.len()
            + self.asked.len()
            + self.highest_of_process.len()
            + self.undecided.len()
            + self.standing_still.len()
    }

    /// The next event.
    ///
    /// # Errors
    ///
    /// The first [`Contradiction`] with the events before it.
    pub fn see(&mut self, event: &Event) -> Result<(), Contradiction> {
        let Event { at, by, what } = event;
        let out_of_turn = Contradiction::OutOfTurn { by: *by, at: *at };
        match what {
            What::Asked => self.asked(*at, *by),
            What::Queued => {
                self.waiting.get_mut(by).ok_or(out_of_turn)?.hold.queued_at = Some(*at);
                Ok(())
            }
            What::Granted(grant) => {
                let waiting = self.waiting.remove(by).ok_or(out_of_turn)?;
                self.granted(*at, waiting, grant)
            }
            What::GaveUp => {
                self.waiting.remove(by).ok_or(out_of_turn)?;
                self.waiting.values_mut().for_each(|other| other.ahead.retain(|ahead| ahead != by));
                Ok(())
            }
            What::Ended(id) => match self.take(id) {
                Some(held) => {
                    // Another contestant may have ended it.
                    self.unsettled.insert(held.hold.by, id.clone());
                    self.end(held, *at);
                    Ok(())
                }
                None => Err(Contradiction::EndedTwice { id: id.clone(), at: *at }),
            },
            What::Leased { id, ends } => {
                if let Some(held) = self.held.iter_mut().find(|held| is_of(&held.hold, id)) {
                    held.lease_ends = Some(*ends);
                } else {
                    self.waiting.get_mut(by).ok_or(out_of_turn)?.lease_ends = Some(*ends);
                }
                Ok(())
            }
            What::Lost { id, why } => {
                if let Some(held) = self.take(id) {
                    self.end(held, *at);
                } else if !self.recent.by_id.contains_key(id) && self.unsettled.get(by) != Some(id) {
                    return Err(out_of_turn);
                }
                if why != "expired" {
                    self.counts.losses += 1;
                }
                self.unsettled.retain(|_, unsettled| unsettled != id);
                self.is_lost(id);
                Ok(())
            }
            What::Resized(slots) => {
                self.sizes.push((*at, *slots));
                Ok(())
            }
            What::Disturbed => {
                self.waiting.values_mut().for_each(|waiting| waiting.was_disturbed = true);
                self.held.iter_mut().for_each(|held| held.was_disturbed = true);
                Ok(())
            }
        }
    }

    /// These waiters are in line, in this order. Each is a contestant and how often it had asked before.
    pub fn see_line(&mut self, at: u64, line: &[(u64, u32)]) {
        let mut ahead = Vec::new();
        for (by, round) in line {
            let Some(waiting) = self.waiting.get_mut(by).filter(|waiting| waiting.round == *round) else {
                continue;
            };
            waiting.hold.queued_at.get_or_insert(at);
            let new: Vec<_> = ahead.iter().filter(|other| !waiting.ahead.contains(other)).copied().collect();
            waiting.ahead.extend(new);
            if !waiting.is_displaced {
                ahead.push(*by);
            }
        }
    }

    /// The server has forgotten grants, or ends them early. Until that time the rules do not hold.
    pub fn suspend(&mut self, until: u64) {
        self.suspended_until = self.suspended_until.max(until);
        self.waiting.values_mut().for_each(|waiting| waiting.is_displaced = true);
    }

    /// The process of these contestants is stopped, or gets no time to run.
    pub fn stands_still(&mut self, contestants: Range<u64>) {
        self.displaced(&contestants);
        self.standing_still.push(contestants);
    }

    /// It has continued, and had enough time to act on what it has missed.
    ///
    /// # Errors
    ///
    /// If what it still holds contradicts the other grants.
    pub fn continues(&mut self, at: u64, contestants: &Range<u64>) -> Result<(), Contradiction> {
        if let Some(found) = self.standing_still.iter().position(|still| still == contestants) {
            self.standing_still.swap_remove(found);
        }
        self.displaced(contestants);
        self.check_held(at)
    }

    /// The present requests of these contestants may lose their places in line.
    pub fn displaced(&mut self, contestants: &Range<u64>) {
        for (by, waiting) in &mut self.waiting {
            waiting.is_displaced |= contestants.contains(by);
        }
    }

    /// It is unknown what came before and after the present request of this contestant.
    pub fn forgive_order(&mut self, by: u64) {
        if let Some(waiting) = self.waiting.get_mut(&by) {
            waiting.floor = None;
            waiting.is_displaced = true;
        }
    }

    /// The present requests and grants of these contestants do not count against the bound.
    pub fn excuse(&mut self, contestants: &Range<u64>) {
        for (by, waiting) in &mut self.waiting {
            waiting.is_excused |= contestants.contains(by);
        }
        for held in &mut self.held {
            held.is_excused |= contestants.contains(&held.hold.by);
        }
    }

    /// The process of these contestants has died: it holds nothing and waits for nothing.
    pub fn dies(&mut self, at: u64, contestants: &Range<u64>) {
        self.waiting.retain(|by, _| !contestants.contains(by));
        self.waiting.values_mut().for_each(|other| other.ahead.retain(|by| !contestants.contains(by)));
        self.asked.retain(|by, _| !contestants.contains(by));
        self.unsettled.retain(|by, _| !contestants.contains(by));
        self.standing_still.retain(|still| still != contestants);
        if let Some(number) = self.per_process {
            self.highest_of_process.remove(&(contestants.start / number));
        }
        let ended: Vec<_> = self.held.extract_if(.., |held| contestants.contains(&held.hold.by)).collect();
        ended.into_iter().for_each(|held| self.end(held, at));
    }

    /// Nothing more will come.
    ///
    /// # Errors
    ///
    /// If a request is not answered, or a grant has not ended.
    pub fn finish(mut self) -> Result<(), Contradiction> {
        for undecided in std::mem::take(&mut self.undecided) {
            let holds: Vec<_> = undecided.holds.iter().map(|(hold, _)| hold).collect();
            if let Some(contradiction) = conflict(&holds, undecided.slots) {
                return Err(contradiction);
            }
        }
        let Some(first) = self.open().min_by_key(|hold| hold.asked_at).cloned() else { return Ok(()) };
        let is_held = first.granted.is_some();
        let first = Box::new(first);
        Err(if is_held { Contradiction::StillHeld(first) } else { Contradiction::Unanswered(first) })
    }

    fn process(&self, by: u64) -> Option<u64> {
        self.per_process.map(|number| by / number)
    }

    fn asked(&mut self, at: u64, by: u64) -> Result<(), Contradiction> {
        if let Some(id) = self.unsettled.remove(&by) {
            self.is_kept(&id)?;
        }
        let process_floor =
            self.process(by).and_then(|process| self.highest_of_process.get(&process)).map(Arc::clone);
        let round = self.asked.entry(by).or_default();
        let waiting = Waiting {
            hold: Hold {
                by,
                asked_at: at,
                queued_at: None,
                granted: None,
                ended_at: None,
                lost_as: None,
                gave_up: false,
            },
            floor: self.highest.as_ref().map(Arc::clone),
            process_floor,
            ceiling: None,
            ahead: Vec::new(),
            lease_ends: None,
            round: *round,
            is_displaced: at < self.suspended_until,
            is_excused: false,
            was_disturbed: false,
        };
        *round += 1;
        match self.waiting.insert(by, waiting) {
            Some(_) => Err(Contradiction::OutOfTurn { by, at }),
            None => Ok(()),
        }
    }

    fn granted(&mut self, at: u64, waiting: Waiting, grant: &Grant) -> Result<(), Contradiction> {
        let Waiting { mut hold, lease_ends, is_excused, was_disturbed, .. } = waiting;
        hold.granted = Some((at, grant.clone()));
        let hold = Arc::new(hold);
        self.counts.grants += 1;
        self.counts.suspended += u64::from(at < self.suspended_until);
        if let Some(first) = self.recent.by_id.get(&grant.id) {
            return Err(Contradiction::IdRepeated(both(first, &hold)));
        }
        if let Some(slot) = grant.slot {
            let slots = largest_within(&self.sizes, hold.asked_at, at);
            if slot >= slots {
                return Err(Contradiction::SlotOutOfRange { slots, hold: Box::new(Hold::clone(&hold)) });
            }
        }
        let waiting = Waiting { hold: Hold::clone(&hold), ..waiting };
        self.held.push(Held { hold: Hold::clone(&hold), lease_ends, is_excused, was_disturbed });
        self.check_held(at)?;
        self.check_token(at, &waiting, &hold)?;
        self.recent.add(hold);
        Ok(())
    }

    fn check_token(&mut self, at: u64, waiting: &Waiting, hold: &Arc<Hold>) -> Result<(), Contradiction> {
        let Some(token) = hold.token() else { return Ok(()) };
        if let Some(earlier) = waiting.process_floor.as_ref().filter(|floor| floor.token() >= Some(token)) {
            return Err(Contradiction::TokenFell(both(earlier, hold)));
        }
        let is_checked = at >= self.suspended_until;
        if is_checked {
            if let Some(first) = self.recent.by_token.get(&token) {
                return Err(Contradiction::TokenRepeated(both(first, hold)));
            }
            if let Some(earlier) = waiting.floor.as_ref().filter(|floor| floor.token() > Some(token)) {
                let was_granted = earlier.granted.as_ref().is_some_and(|(at, _)| *at < hold.asked_at);
                let pair = both(earlier, hold);
                return Err(if was_granted {
                    Contradiction::TokenFell(pair)
                } else {
                    Contradiction::Overtaken(pair)
                });
            }
            if let Some(later) = waiting.ceiling.as_ref().filter(|ceiling| ceiling.token() < Some(token))
                && !waiting.is_displaced
            {
                return Err(Contradiction::Overtaken(both(hold, later)));
            }
        }

        let place_known_at = hold.queued_at.filter(|_| !waiting.is_displaced);
        for other in self.waiting.values_mut() {
            let was_first = !waiting.is_displaced && other.ahead.contains(&hold.by);
            if was_first || place_known_at.is_some_and(|known_at| known_at < other.hold.asked_at) {
                self.counts.ordered += 1;
                raise(&mut other.floor, hold);
            }
            let is_overtaken = waiting.ahead.contains(&other.hold.by)
                || other.hold.queued_at.is_some_and(|known_at| known_at < hold.asked_at);
            if is_overtaken && !other.is_displaced && is_checked {
                self.counts.ordered += 1;
                if other.ceiling.as_ref().is_none_or(|ceiling| ceiling.token() > Some(token)) {
                    other.ceiling = Some(Arc::clone(hold));
                }
            }
            other.ahead.retain(|by| *by != hold.by);
        }
        raise(&mut self.highest, hold);
        if let Some(process) = self.process(hold.by) {
            let highest = self.highest_of_process.entry(process).or_insert_with(|| Arc::clone(hold));
            if highest.token() < Some(token) {
                *highest = Arc::clone(hold);
            }
        }
        Ok(())
    }

    /// Rules 1 and 2, for all that is held now.
    fn check_held(&mut self, at: u64) -> Result<(), Contradiction> {
        if at < self.suspended_until {
            return Ok(());
        }
        let counts = |held: &&Held| {
            !held.is_excused
                && held.lease_ends.is_none_or(|ends| ends > at)
                && !self.standing_still.iter().any(|still| still.contains(&held.hold.by))
        };
        let counting: Vec<_> = self.held.iter().filter(counts).collect();
        // The last of them to be granted found all others there, and that was after each of them had asked.
        let all_asked_at = counting.iter().map(|held| held.hold.asked_at).max().unwrap_or(at);
        let slots = largest_within(&self.sizes, all_asked_at, at);
        let all: Vec<_> = counting.iter().map(|held| &held.hold).collect();
        let Some(contradiction) = conflict(&all, slots) else { return Ok(()) };
        let certain: Vec<_> =
            counting.iter().filter(|held| !held.was_disturbed).map(|held| &held.hold).collect();
        if certain.len() == all.len() {
            return Err(contradiction);
        }
        if let Some(contradiction) = conflict(&certain, slots) {
            return Err(contradiction);
        }
        let holds = counting.iter().map(|held| (held.hold.clone(), held.was_disturbed)).collect();
        self.undecided.push(Undecided { slots, holds });
        Ok(())
    }

    fn take(&mut self, id: &str) -> Option<Held> {
        let found = self.held.iter().position(|held| is_of(&held.hold, id))?;
        Some(self.held.remove(found))
    }

    fn end(&mut self, mut held: Held, at: u64) {
        held.hold.ended_at = Some(at);
        let id = held.hold.granted.as_ref().map(|(_, grant)| &*grant.id);
        for (hold, _) in self.undecided.iter_mut().flat_map(|undecided| &mut undecided.holds) {
            if id.is_some_and(|id| is_of(hold, id)) {
                hold.ended_at = Some(at);
            }
        }
    }

    /// It does not count after all.
    fn is_lost(&mut self, id: &str) {
        self.undecided.retain_mut(|undecided| {
            undecided.holds.retain(|(hold, may_be_lost)| !(*may_be_lost && is_of(hold, id)));
            let holds: Vec<_> = undecided.holds.iter().map(|(hold, _)| hold).collect();
            conflict(&holds, undecided.slots).is_some()
        });
    }

    /// It was not lost.
    fn is_kept(&mut self, id: &str) -> Result<(), Contradiction> {
        for undecided in &mut self.undecided {
            for (hold, may_be_lost) in &mut undecided.holds {
                *may_be_lost &= !is_of(hold, id);
            }
            let certain = undecided.holds.iter().filter(|(_, may_be_lost)| !may_be_lost);
            let certain: Vec<_> = certain.map(|(hold, _)| hold).collect();
            if let Some(contradiction) = conflict(&certain, undecided.slots) {
                return Err(contradiction);
            }
        }
        Ok(())
    }
}

impl Recent {
    fn add(&mut self, hold: Arc<Hold>) {
        if self.order.len() >= self.most
            && let Some(oldest) = self.order.pop_front()
            && let Some((_, grant)) = &oldest.granted
        {
            self.by_id.remove(&grant.id);
            // Under another rule the same token may have come again.
            if let Some(token) = grant.token
                && self.by_token.get(&token).is_some_and(|hold| Arc::ptr_eq(hold, &oldest))
            {
                self.by_token.remove(&token);
            }
        }
        if let Some((_, grant)) = &hold.granted {
            self.by_id.insert(grant.id.clone(), Arc::clone(&hold));
            if let Some(token) = grant.token {
                self.by_token.insert(token, Arc::clone(&hold));
            }
        }
        self.order.push_back(hold);
    }
}

fn raise(floor: &mut Option<Arc<Hold>>, hold: &Arc<Hold>) {
    if floor.as_ref().is_none_or(|floor| floor.token() < hold.token()) {
        *floor = Some(Arc::clone(hold));
    }
}

fn is_of(hold: &Hold, id: &str) -> bool {
    hold.granted.as_ref().is_some_and(|(_, grant)| grant.id == id)
}

/// The contradiction between grants that are held at once, if there is one.
fn conflict(holds: &[&Hold], slots: u32) -> Option<Contradiction> {
    let grants = || holds.iter().filter_map(|hold| Some((*hold, &hold.granted.as_ref()?.1)));
    for (number, (hold, grant)) in grants().enumerate() {
        let twin = grants().take(number).find(|(_, other)| grant.slot.is_some() && other.slot == grant.slot);
        if let Some((first, _)) = twin {
            return Some(Contradiction::SlotShared(both(first, hold)));
        }
    }
    let weight: u64 = grants().map(|(_, grant)| u64::from(grant.weight)).sum();
    let held = || grants().map(|(hold, _)| hold.clone()).collect();
    (weight > u64::from(slots)).then(|| Contradiction::OverBound { slots, held: held() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processes of ten contestants each.
    const PROCESSES: [Range<u64>; 2] = [0..10, 10..20];

    fn checker(slots: u32) -> Checker {
        Checker::of_processes(slots, 100, 10)
    }

    /// Shows these events, and returns the first contradiction.
    fn sees(checker: &mut Checker, lines: &[&str]) -> Result<(), Contradiction> {
        lines.iter().try_for_each(|line| checker.see(&line.parse().expect("an event")))
    }

    #[test]
    fn possible_events_pass() {
        let mut checker = checker(1);
        let lines = ["1 1 asked", "2 11 asked", "3 1 granted a 0 5 1", "4 1 ended a", "5 11 granted b 0 6 1"];
        assert_eq!(sees(&mut checker, &lines), Ok(()));
        assert_eq!(sees(&mut checker, &["6 11 ended b"]), Ok(()));
        assert_eq!(checker.finish(), Ok(()));
    }

    #[test]
    fn more_weight_than_slots_is_found() {
        let mut checker = checker(3);
        let lines = ["1 1 asked", "2 11 asked", "3 1 granted a 0 5 2", "4 11 granted b 1 6 2"];
        assert!(matches!(sees(&mut checker, &lines), Err(Contradiction::OverBound { slots: 3, .. })));
    }

    #[test]
    fn clients_without_slot_numbers_count_against_the_bound() {
        let lines = ["1 1 asked", "2 11 asked", "3 1 granted a - - 1", "4 11 granted b 0 6 1"];
        assert!(matches!(sees(&mut checker(1), &lines), Err(Contradiction::OverBound { slots: 1, .. })));
        assert_eq!(sees(&mut checker(2), &lines), Ok(()));
        let mut excused = checker(1);
        sees(&mut excused, &lines[..3]).expect("nothing is wrong yet");
        excused.excuse(&PROCESSES[0]);
        assert_eq!(sees(&mut excused, &lines[3..]), Ok(()));
    }

    #[test]
    fn repeated_slot_number_is_found() {
        let lines = ["1 1 asked", "2 11 asked", "3 1 granted a 0 5 1", "4 11 granted b 0 6 1"];
        assert!(matches!(sees(&mut checker(2), &lines), Err(Contradiction::SlotShared(_))));
        let lines = ["1 1 asked", "3 1 granted a 2 5 1"];
        assert!(matches!(sees(&mut checker(2), &lines), Err(Contradiction::SlotOutOfRange { slots: 2, .. })));
    }

    #[test]
    fn repeated_token_is_found() {
        let lines = ["1 1 asked", "2 11 asked", "3 1 granted a 0 5 1", "4 11 granted b 1 5 1"];
        assert!(matches!(sees(&mut checker(2), &lines), Err(Contradiction::TokenRepeated(_))));
    }

    #[test]
    fn falling_token_is_found() {
        let lines = ["1 1 asked", "2 1 granted a 0 5 1", "3 11 asked", "4 11 granted b 1 4 1"];
        assert!(matches!(sees(&mut checker(2), &lines), Err(Contradiction::TokenFell(_))));
        let concurrent = ["1 1 asked", "2 11 asked", "3 1 granted a 0 5 1", "4 11 granted b 1 4 1"];
        assert_eq!(sees(&mut checker(2), &concurrent), Ok(()));
    }

    #[test]
    fn repeated_id_is_found() {
        let lines = ["1 1 asked", "2 1 granted a 0 5 1", "3 1 ended a", "4 1 asked", "5 1 granted a 0 6 1"];
        assert!(matches!(sees(&mut checker(2), &lines), Err(Contradiction::IdRepeated(_))));
    }

    #[test]
    fn wrong_order_among_waiters_of_one_line_is_found() {
        let asked = ["1 1 asked", "2 11 asked"];
        let first_last = ["4 11 granted b 0 6 1", "5 11 ended b", "6 1 granted a 0 7 1"];
        let mut seen = checker(1);
        sees(&mut seen, &asked).expect("nothing is wrong yet");
        seen.see_line(3, &[(1, 0), (11, 0)]);
        assert!(matches!(sees(&mut seen, &first_last), Err(Contradiction::Overtaken(_))));
        // The tokens tell the order, not the times at which their holders learned of them.
        let late = ["4 11 granted b 0 6 1", "5 11 ended b", "6 1 granted a 0 5 1"];
        let mut seen = checker(1);
        sees(&mut seen, &asked).expect("nothing is wrong yet");
        seen.see_line(3, &[(1, 0), (11, 0)]);
        assert_eq!(sees(&mut seen, &late), Ok(()));
        assert!(seen.counts().ordered > 0);
        // The line of an earlier request says nothing.
        let mut other = checker(1);
        sees(&mut other, &asked).expect("nothing is wrong yet");
        other.see_line(3, &[(1, 7), (11, 0)]);
        assert_eq!(sees(&mut other, &first_last), Ok(()));
    }

    #[test]
    fn newcomer_that_overtakes_a_line_is_found() {
        let mut seen = checker(1);
        sees(&mut seen, &["1 1 asked"]).expect("nothing is wrong yet");
        seen.see_line(2, &[(1, 0)]);
        let newcomer = ["3 11 asked", "4 11 granted b 0 6 1", "5 11 ended b", "6 1 granted a 0 7 1"];
        assert!(matches!(sees(&mut seen, &newcomer), Err(Contradiction::Overtaken(_))));
    }

    #[test]
    fn displaced_waiter_may_be_overtaken() {
        for is_still in [true, false] {
            let mut seen = checker(1);
            sees(&mut seen, &["1 1 asked", "2 11 asked"]).expect("nothing is wrong yet");
            seen.see_line(3, &[(1, 0), (11, 0)]);
            if is_still {
                seen.stands_still(PROCESSES[0].clone());
            } else {
                seen.displaced(&PROCESSES[0]);
            }
            let overtaken = ["4 11 granted b 0 6 1", "5 11 ended b", "6 1 granted a 0 7 1"];
            assert_eq!(sees(&mut seen, &overtaken), Ok(()));
        }
    }

    #[test]
    fn process_that_stands_still_holds_nothing_until_it_continues() {
        let mut checker = checker(1);
        sees(&mut checker, &["1 1 asked", "2 1 granted a 0 5 1"]).expect("nothing is wrong yet");
        checker.stands_still(PROCESSES[0].clone());
        assert_eq!(sees(&mut checker, &["3 11 asked", "4 11 granted b 0 6 1"]), Ok(()));
        assert!(matches!(checker.continues(5, &PROCESSES[0]), Err(Contradiction::SlotShared(_))));
    }

    #[test]
    fn process_that_was_told_of_its_loss_may_continue() {
        let mut checker = checker(1);
        sees(&mut checker, &["1 1 asked", "2 1 granted a 0 5 1"]).expect("nothing is wrong yet");
        checker.stands_still(PROCESSES[0].clone());
        sees(&mut checker, &["3 11 asked", "4 11 granted b 0 6 1", "5 1 lost a vanished"])
            .expect("nothing is wrong yet");
        assert_eq!(checker.continues(6, &PROCESSES[0]), Ok(()));
        assert_eq!(checker.counts().losses, 1);
    }

    #[test]
    fn holder_counts_until_its_lease_ends() {
        let with_lease_until = |ends: u64| {
            let leased = format!("2 1 leased a {ends}");
            sees(
                &mut checker(1),
                &["1 1 asked", "2 1 granted a 0 5 1", &leased, "3 11 asked", "10 11 granted b 0 6 1"],
            )
        };
        assert_eq!(with_lease_until(10), Ok(()));
        assert!(matches!(with_lease_until(11), Err(Contradiction::SlotShared(_))));
    }

    #[test]
    fn grant_whose_lease_is_over_when_it_is_read_does_not_count() {
        let with_lease_until = |ends: u64| {
            let leased = format!("10 1 leased a {ends}");
            let lines = ["1 1 asked", "3 11 asked", "9 11 granted b 0 6 1", &leased, "10 1 granted a 0 5 1"];
            sees(&mut checker(1), &lines)
        };
        assert_eq!(with_lease_until(10), Ok(()));
        assert!(matches!(with_lease_until(11), Err(Contradiction::SlotShared(_))));
    }

    #[test]
    fn killed_process_holds_nothing_and_waits_for_nothing() {
        let mut checker = checker(1);
        sees(&mut checker, &["1 1 asked", "2 2 asked", "3 1 granted a 0 5 1"]).expect("nothing is wrong yet");
        checker.dies(4, &PROCESSES[0]);
        sees(&mut checker, &["5 11 asked", "6 11 granted b 0 6 1", "7 11 ended b"]).expect("it is possible");
        assert_eq!(checker.finish(), Ok(()));
    }

    #[test]
    fn suspension_excuses_all_but_tokens_that_the_process_knew() {
        let mut checker = checker(1);
        sees(&mut checker, &["1 1 asked", "2 1 granted a 0 5 1"]).expect("nothing is wrong yet");
        checker.suspend(10);
        sees(&mut checker, &["3 11 asked", "4 11 granted b 0 5 1"]).expect("it is suspended");
        let known = sees(&mut checker, &["5 2 asked", "6 2 granted c 0 4 1"]);
        assert!(matches!(known, Err(Contradiction::TokenFell(_))));
    }

    #[test]
    fn holders_from_before_a_suspension_count_after_it() {
        let mut checker = checker(1);
        sees(&mut checker, &["1 1 asked", "2 1 granted a 0 5 1"]).expect("nothing is wrong yet");
        checker.suspend(10);
        sees(&mut checker, &["3 11 asked"]).expect("nothing is wrong yet");
        let late = sees(&mut checker, &["11 11 granted b 0 6 1"]);
        assert!(matches!(late, Err(Contradiction::SlotShared(_))));
    }

    #[test]
    fn leftovers_are_found_at_the_end() {
        let mut held = checker(1);
        sees(&mut held, &["1 1 asked", "2 1 granted a 0 5 1"]).expect("nothing is wrong yet");
        assert_eq!(held.open().count(), 1);
        assert!(matches!(held.finish(), Err(Contradiction::StillHeld(_))));
        let mut asked = checker(1);
        sees(&mut asked, &["1 1 asked"]).expect("nothing is wrong yet");
        assert!(matches!(asked.finish(), Err(Contradiction::Unanswered(_))));
    }

    #[test]
    fn release_may_turn_out_to_be_lost_long_after_it_began() {
        let mut checker = Checker::of_processes(2, 1, 10);
        let lines = ["1 1 asked", "2 1 granted a 0 5 1", "3 1 ended a", "4 11 asked", "5 11 granted b 0 6 1"];
        sees(&mut checker, &lines).expect("nothing is wrong yet");
        assert_eq!(sees(&mut checker, &["6 1 lost a vanished"]), Ok(()));
        let never_held = sees(&mut checker, &["7 1 lost c vanished"]);
        assert!(matches!(never_held, Err(Contradiction::OutOfTurn { .. })));
    }

    #[test]
    fn memory_is_bounded() {
        let mut checker = checker(1);
        let mut sizes = Vec::new();
        for round in 0..2_000_u64 {
            let (at, by) = (round * 10, round % 5);
            let granted = format!("{} {by} granted id-{round} 0 {round} 1", at + 1);
            let ended = format!("{} {by} ended id-{round}", at + 2);
            sees(&mut checker, &[&format!("{at} {by} asked"), &granted, &ended]).expect("it is possible");
            sizes.push(checker.size());
        }
        assert_eq!(sizes[200], sizes[1_999]);
    }
}
