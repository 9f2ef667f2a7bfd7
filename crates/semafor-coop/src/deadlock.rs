//! Who waits for what can't happen any more.
//!
//! The doomed are the largest set of waiting tasks in which everybody waits for others of the set only: for a permit that only
//! they hold, for the end of one of them, for a promise that nobody is left to complete. Who waits for a timer, for
//! another thread, or for a permit with a time limit is never doomed.
//!
//! A task is doomed when it or another begins to wait, as a rule. So each one is looked at when it does
//! ([`State::check_waiting`]): mostly at one or two holders. What would take longer, or comes about in another way (somebody
//! ends with a permit, drops a promise, or releases less than is waited for), raises a suspicion, and everybody is looked at when
//! that has become cheap in comparison ([`State::check_everybody`]).

use std::fmt;
use std::ops::ControlFlow;
use std::panic::Location;
use std::sync::Arc;

use semafor_core::{Gate, Holder};

use crate::Label;
use crate::eventual::{Group, GroupKind, Settle, Source};
use crate::recording::Moment;
use crate::semaphore::{Hold, SemaphoreCell};
use crate::state::State;
use crate::tasks::{Phase, Task, TaskKey, Wait, WaitOn};

/// How many tasks are looked at, at most, when one begins to wait.
const GLANCE: usize = 64;
/// Everybody is looked at after so many polls per task that lives.
const POLLS_PER_TASK: usize = 16;

/// Which deadlocks are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Deadlocks {
    /// None. A run in which nobody can ever go on again ends with the [deadlock](crate::Error::Deadlock) as its result.
    Off,
    /// Those in which nobody can ever go on again.
    Global,
    /// Those among some tasks, too, while others live on: who acquired a permit is taken to be the one who releases it.
    /// Semaphores that others release are [signals](crate::CreateSemaphore::signal), and say so.
    #[default]
    Holders,
}

/// Tasks that wait for each other, or for something that can't happen any more.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Deadlock {
    /// Each waits for the next one, and the last for the first if it is a cycle.
    pub links: Vec<Link>,
    /// False if the last one waits for something that no task could do.
    pub is_cycle: bool,
}

/// Who waits, for what, and where.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Link {
    /// Who waits.
    pub task: Label,
    /// What for.
    pub waits_for: String,
    /// Where in the program, unless [`hide_sites`](crate::Runtime::hide_sites) was called.
    pub at: Option<&'static Location<'static>>,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_cycle, self.links.len()) {
            (true, 1) => f.write_str("deadlock: a task waits for itself")?,
            (true, count) => write!(f, "deadlock: {count} tasks wait in a circle")?,
            (false, _) => f.write_str("deadlock: what is waited for can't happen any more")?,
        }
        self.links.iter().try_for_each(|link| write!(f, "\n  {link}"))
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, waits_for, at } = self;
        write!(f, "{task} waits for {waits_for}")?;
        at.map_or(Ok(()), |at| write!(f, ", at {at}"))
    }
}

impl std::error::Error for Deadlock {}

/// Which tasks are taken to be alive.
enum Alive {
    /// All but some of these few.
    Among(Vec<(TaskKey, bool)>),
    /// By their place in the arena.
    Everybody(Vec<bool>),
}

impl Alive {
    fn contains(&self, key: TaskKey) -> bool {
        match self {
            Self::Among(few) => {
                few.iter().find(|(other, _)| *other == key).is_none_or(|(_, is_alive)| *is_alive)
            }
            Self::Everybody(alive) => alive[key.index()],
        }
    }

    fn insert(&mut self, key: TaskKey) {
        match self {
            Self::Among(few) => {
                few.iter_mut().filter(|(other, _)| *other == key).for_each(|entry| entry.1 = true);
            }
            Self::Everybody(alive) => alive[key.index()] = true,
        }
    }
}

impl State {
    /// Looks at a task that has just begun to wait, and tells somebody if that is a deadlock.
    #[inline]
    pub(crate) fn check_waiting(&mut self, key: TaskKey) {
        self.polls_since_check += 1;
        if self.deadlocks != Deadlocks::Holders {
            return;
        }
        if self.tasks.get(key).is_some_and(|task| !self.is_clearly_alive(task)) {
            self.check_from(key);
        }
    }

    /// The common case: one look at who holds what is waited for.
    fn is_clearly_alive(&self, task: &Task) -> bool {
        task.waits.iter().any(|wait| match &wait.on {
            WaitOn::Semaphore { cell, is_timed, .. } => {
                let gate = cell.gate.borrow();
                *is_timed
                    || cell.is_signal
                    || gate.holders().take(GLANCE).any(|holder| self.is_able(holder.tag.task))
            }
            WaitOn::Eventual(cell) => match &cell.settlement().source {
                Source::Task(target) => self.is_able(target.get()),
                _ => !cell.settlement().is_orphaned(),
            },
            WaitOn::Timer => true,
            WaitOn::Group(_) => false,
        })
    }

    /// True of who can run, or will be able to when some time has passed.
    fn is_able(&self, key: TaskKey) -> bool {
        let will_be =
            |wait: &Wait| matches!(wait.on, WaitOn::Timer | WaitOn::Semaphore { is_timed: true, .. });
        self.tasks.get(key).is_some_and(|task| task.phase != Phase::Parked || task.waits.iter().any(will_be))
    }

    /// Finds out about one task by those it depends on.
    #[cold]
    fn check_from(&mut self, key: TaskKey) {
        let mut seen = vec![key];
        let mut next = 0;
        while let Some(&key) = seen.get(next) {
            next += 1;
            let Some(task) = self.tasks.get(key).filter(|task| task.phase == Phase::Parked) else { continue };
            let is_too_much = task.waits.iter().any(|wait| {
                let reached = self.for_each_supporter(key, &wait.on, |supporter| {
                    if !seen.contains(&supporter) {
                        seen.push(supporter);
                    }
                    if seen.len() > GLANCE { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                reached.is_break()
            });
            if is_too_much {
                self.suspicion.set(true);
                return;
            }
        }
        // Those who are needed were found after those who need them.
        seen.reverse();
        let alive = self.alive_among(&seen, Alive::Among(seen.iter().map(|key| (*key, false)).collect()));
        if alive.contains(key) {
            return;
        }
        if self.tasks.get(key).is_some_and(|task| task.is_daemon) {
            // It may wait in vain, unless others do with it.
            return self.suspicion.set(true);
        }
        self.report_doomed(key, &alive);
    }

    /// Looks at everybody if there is a suspicion; true if somebody was told.
    pub(crate) fn check_everybody(&mut self) -> bool {
        if !self.suspicion.take() || self.deadlocks != Deadlocks::Holders {
            return false;
        }
        self.polls_since_check = 0;
        let parked = self.parked_in_order_of_need();
        let mut alive = vec![true; self.tasks.width()];
        parked.iter().for_each(|key| alive[key.index()] = false);
        let alive = self.alive_among(&parked, Alive::Everybody(alive));
        // Daemons may wait in vain: they end with the run.
        let is_doomed = |key: &TaskKey| !alive.contains(*key);
        let is_missed = |key: &TaskKey| self.tasks.get(*key).is_some_and(|task| !task.is_daemon);
        let missed = parked.into_iter().filter(is_doomed).filter(is_missed);
        // Whoever is told, it is by the numbers of tasks, not by their places in the arena.
        let Some(doomed) = missed.min_by_key(|key| self.tasks.get(*key).map(|task| task.number)) else {
            return false;
        };
        self.report_doomed(doomed, &alive);
        // There may be more than one.
        self.suspicion.set(true);
        true
    }

    /// True if looking at everybody takes no longer than what happened since.
    pub(crate) fn is_check_cheap(&self) -> bool {
        self.polls_since_check >= self.tasks.len()
    }

    /// True if everybody should be looked at although somebody can still run.
    #[inline]
    pub(crate) fn is_check_due(&self) -> bool {
        self.polls_since_check > POLLS_PER_TASK * self.tasks.len() && self.suspicion.get()
    }

    /// Nobody can run, and nothing will come: everybody who waits does so in vain.
    pub(crate) fn global_deadlock(&self, root: TaskKey) -> Option<(TaskKey, Arc<Deadlock>)> {
        self.circle(root, &Alive::Everybody(vec![false; self.tasks.width()]))
    }

    /// Everybody who waits, each after those it needs, but for circles: so what is alive spreads in few rounds.
    fn parked_in_order_of_need(&self) -> Vec<TaskKey> {
        let mut order = Vec::new();
        let mut is_seen = vec![false; self.tasks.width()];
        let mut stack: Vec<_> = self.tasks.iter().map(|(key, _)| (key, false)).collect();
        while let Some((key, are_needs_done)) = stack.pop() {
            if are_needs_done {
                order.push(key);
                continue;
            }
            let Some(task) = self.tasks.get(key).filter(|task| task.phase == Phase::Parked) else { continue };
            if std::mem::replace(&mut is_seen[key.index()], true) {
                continue;
            }
            stack.push((key, true));
            for wait in task.waits.iter() {
                let _ = self.for_each_supporter(key, &wait.on, |needed| {
                    if !is_seen[needed.index()] {
                        stack.push((needed, false));
                    }
                    ControlFlow::Continue(())
                });
            }
        }
        order
    }

    /// Of those who are taken for doomed at first, everybody who can be helped by somebody alive is alive as well.
    fn alive_among(&self, keys: &[TaskKey], mut alive: Alive) -> Alive {
        let mut has_changed = true;
        while has_changed {
            has_changed = false;
            for key in keys {
                let can_go_on = |task: &Task| {
                    task.phase != Phase::Parked
                        || task.waits.iter().any(|wait| !self.is_in_vain(*key, &wait.on, &alive))
                };
                if !alive.contains(*key) && self.tasks.get(*key).is_none_or(can_go_on) {
                    alive.insert(*key);
                    has_changed = true;
                }
            }
        }
        alive
    }

    fn is_in_vain(&self, waiting: TaskKey, on: &WaitOn, alive: &Alive) -> bool {
        match on {
            WaitOn::Timer => false,
            WaitOn::Semaphore { cell, is_timed, .. } => {
                let gate = cell.gate.borrow();
                let is_served = |holder: Holder<'_, Hold>| match self.tasks.get(holder.tag.task) {
                    Some(_) => alive.contains(holder.tag.task),
                    // Who ended releases nothing; but a guard may have been passed on.
                    None => holder.tag.is_guarded,
                };
                let is_helped = gate.holders().any(is_served) || self.will_reach_free(waiting, &gate, alive);
                !*is_timed && !cell.is_signal && !is_helped
            }
            WaitOn::Eventual(cell) => self.is_never_settled(&**cell, alive),
            WaitOn::Group(group) => {
                let mut members = group.members.iter().filter(|member| !member.settlement().is_settled.get());
                let is_never = |member: &std::rc::Rc<dyn Settle>| self.is_never_settled(&**member, alive);
                match group.kind {
                    GroupKind::Gather => members.any(is_never),
                    GroupKind::Race => members.all(is_never),
                }
            }
        }
    }

    /// True of who waits for what is free, but stands behind others who wait for more, and all of whom will go on: when their
    /// patience ends, for one.
    fn will_reach_free(&self, waiting: TaskKey, gate: &Gate<TaskKey, Hold>, alive: &Alive) -> bool {
        let free = gate.capacity() - gate.held();
        if free == 0 {
            return false;
        }
        let mut line = gate.waiters();
        let first_in_vain =
            line.find(|waiter| waiter.tag.task == waiting || !alive.contains(waiter.tag.task));
        first_in_vain.is_some_and(|waiter| waiter.tag.task == waiting && waiter.weight <= free)
    }

    fn is_never_settled(&self, cell: &dyn Settle, alive: &Alive) -> bool {
        match cell.settlement().task() {
            Some(task) => self.tasks.get(task).is_some() && !alive.contains(task),
            None => cell.settlement().is_orphaned(),
        }
    }

    /// Calls with everybody who could end the wait, until that is enough.
    fn for_each_supporter(
        &self,
        waiting: TaskKey,
        on: &WaitOn,
        mut found: impl FnMut(TaskKey) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut found_live =
            |key| if self.tasks.get(key).is_some() { found(key) } else { ControlFlow::Continue(()) };
        match on {
            WaitOn::Timer => ControlFlow::Continue(()),
            WaitOn::Semaphore { cell, .. } => {
                let gate = cell.gate.borrow();
                gate.holders().map(|holder| holder.tag.task).try_for_each(&mut found_live)?;
                // Those in front, too, if they keep it from what is free.
                let has_free = gate.held() < gate.capacity();
                let in_front =
                    gate.waiters().map(|waiter| waiter.tag.task).take_while(|task| *task != waiting);
                in_front.take_while(|_| has_free).try_for_each(found_live)
            }
            WaitOn::Eventual(cell) => cell.settlement().task().into_iter().try_for_each(found_live),
            WaitOn::Group(group) => {
                let tasks = group.members.iter().filter_map(|member| member.settlement().task());
                tasks.into_iter().try_for_each(found_live)
            }
        }
    }

    fn report_doomed(&mut self, start: TaskKey, alive: &Alive) {
        if let Some((victim, deadlock)) = self.circle(start, alive) {
            self.tell(victim, deadlock);
        }
    }

    pub(crate) fn tell(&mut self, victim: TaskKey, deadlock: Arc<Deadlock>) {
        self.findings.add_deadlock(deadlock.clone());
        if let Some(task) = self.tasks.get_mut(victim) {
            let number = task.number;
            task.deadlock = Some(deadlock.clone());
            self.record_for(number, || Moment::Deadlock(deadlock));
        }
        // Whatever it awaits beside the one that will hear of it keeps its place in line.
        self.wake(victim);
    }

    /// From a doomed task to whom it waits for, until that closes a circle or ends where nobody can help. The youngest of the circle
    /// is to be told, or who stands at the end.
    fn circle(&self, start: TaskKey, alive: &Alive) -> Option<(TaskKey, Arc<Deadlock>)> {
        let mut path = vec![start];
        let mut place_on_path = vec![usize::MAX; self.tasks.width()];
        place_on_path[start.index()] = 0;
        let closes_at = loop {
            let Some(next) = self.to_blame(*path.last()?, alive) else { break None };
            let place = place_on_path[next.index()];
            if place != usize::MAX {
                break Some(place);
            }
            place_on_path[next.index()] = path.len();
            path.push(next);
        };
        let circle = &path[closes_at.unwrap_or(0)..];
        let number = |key: &TaskKey| self.tasks.get(*key).map(|task| task.number.wrapping_add(1));
        let victim = match closes_at {
            Some(_) => *circle.iter().max_by_key(|key| number(key))?,
            None => *path.last()?,
        };
        let links =
            circle.iter().filter_map(|key| self.tasks.get(*key)).map(|task| self.link(task)).collect();
        Some((victim, Arc::new(Deadlock { links, is_cycle: closes_at.is_some() })))
    }

    fn to_blame(&self, waiting: TaskKey, alive: &Alive) -> Option<TaskKey> {
        let mut to_blame = None;
        for wait in self.tasks.get(waiting)?.waits.iter() {
            let _ = self.for_each_supporter(waiting, &wait.on, |key| {
                if alive.contains(key) {
                    return ControlFlow::Continue(());
                }
                to_blame.get_or_insert(key);
                ControlFlow::Break(())
            });
        }
        to_blame
    }

    pub(crate) fn link(&self, task: &Task) -> Link {
        let at = task.waits.first().and_then(|wait| self.site(wait.at));
        let waits: Vec<_> = task.waits.iter().map(|wait| self.describe(wait)).collect();
        Link { task: task.label(), waits_for: waits.join(" and "), at }
    }

    /// What somebody waits for, in words.
    pub(crate) fn describe(&self, wait: &Wait) -> String {
        match &wait.on {
            WaitOn::Timer => "a timer".into(),
            WaitOn::Semaphore { cell, .. } => format!("{}, held by {}", cell.label(), self.holders_of(cell)),
            WaitOn::Eventual(cell) => self.describe_eventual(&**cell),
            WaitOn::Group(group) => self.describe_group(group),
        }
    }

    fn holders_of(&self, cell: &SemaphoreCell) -> String {
        const NAMED: usize = 3;
        let gate = cell.gate.borrow();
        let name = |holder: Holder<'_, Hold>| match (self.tasks.get(holder.tag.task), holder.tag.at) {
            (Some(task), _) => task.label().to_string(),
            (None, Some(at)) => match self.site(at) {
                Some(at) => format!("a task that has ended, acquired at {at}"),
                None => "a task that has ended".into(),
            },
            (None, None) => "nobody".into(),
        };
        let mut names: Vec<_> = gate.holders().take(NAMED).map(name).collect();
        let more = gate.holders().skip(NAMED).count();
        if more > 0 {
            names.push(format!("{more} more"));
        }
        names.join(", ")
    }

    fn describe_eventual(&self, cell: &dyn Settle) -> String {
        let settlement = cell.settlement();
        let task = settlement.task().and_then(|key| self.tasks.get(key));
        match (task, &settlement.source) {
            (Some(task), _) => format!("the end of {}", task.label()),
            (None, Source::External(_)) => format!("promise {} of another thread", settlement.number),
            (None, _) => format!("promise {}", settlement.number),
        }
    }

    fn describe_group(&self, group: &Group) -> String {
        let mut open = group.members.iter().filter(|member| !member.settlement().is_settled.get());
        let first = open.next().map_or("nothing".into(), |member| self.describe_eventual(&**member));
        match open.count() {
            0 => first,
            more => format!("{first} and {more} more"),
        }
    }
}
