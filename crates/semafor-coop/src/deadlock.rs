//! Finds tasks that wait for something that can't happen any more.
//!
//! The deadlocked tasks are the largest set of waiting tasks in which every task waits only for others of the set: for
//! a permit that only they can release, for the end of one of them, or for a promise that no handle can complete. A
//! task that waits for a timer, for another thread, or for a permit with a timeout is never deadlocked. All other tasks
//! are alive.
//!
//! The difficult question is which task can release a permit. A semaphore has no owner, and a guard can be moved out of
//! sight. So by default ([`Deadlocks::Certain`]) any task that is alive may release a permit, except guards that stay
//! with their task. [`Deadlocks::Holders`] assumes that the task that acquired a permit releases it.
//!
//! A deadlock usually forms when a task begins to wait. So each task is checked then ([`State::check_waiting`]), which
//! mostly visits one or two holders. Other causes request a check for later ([`PendingChecks`]): of the tasks that wait
//! for a promise whose last handle is dropped, or of all tasks, if a task ends with a permit or a release is too small
//! for the first waiter. Requested tasks are checked when no task can run. All tasks are checked when the work since
//! the last such check makes that cheap ([`State::run_pending_checks`]), or before the run sleeps. A check of one task
//! is bounded; a check of all tasks is linear ([`Survey`]).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use semafor_core::{Gate, Holder};

use crate::Label;
use crate::eventual::{Group, GroupKind, Settle, Settlement, Source};
use crate::recording::Event;
use crate::semaphore::{Hold, SemaphoreCell};
use crate::state::State;
use crate::survey::Survey;
use crate::tasks::{Phase, Task, TaskKey, Wait, WaitOn};
use crate::waiters::Waiter;

/// How many tasks are visited, at most, when a task begins to wait.
const MAX_TASKS_PER_CHECK: usize = 64;
/// How many permits, places in line and members of groups are visited, at most, when a task begins to wait.
const MAX_VISITS_PER_CHECK: usize = 4 * MAX_TASKS_PER_CHECK;
/// All tasks are checked after so many polls per task.
const POLLS_PER_TASK: usize = 16;

/// Which deadlocks are reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Deadlocks {
    /// None. A run in which no task can ever run again ends with the [deadlock](crate::Error::Deadlock) as its result.
    Off,
    /// Only those in which no task can ever run again.
    Global,
    /// The global ones, and those that only a cancellation could end although other tasks run: tasks that wait for each
    /// other's end, a promise that no handle can complete, and permits that
    /// [stay with their task](crate::GuardedDemand::stays_with_task).
    ///
    /// Semaphores have no owner, and a [`Permit`](crate::Permit) may be moved to any task. So while a task can run, now
    /// or after a delay, a timeout or a promise of another thread, it may release the permits that others wait for, and
    /// there is no deadlock.
    #[default]
    Certain,
    /// Reports more than [`Certain`](Self::Certain): it assumes that the task that acquired a permit releases it. So
    /// while other tasks run, it also reports tasks that wait for each other's permits, and a wait for a permit of a
    /// task that has ended, unless the permit has a guard.
    ///
    /// It reports a deadlock by mistake if another task would have released later, or if a guard was moved to another
    /// task. Mark semaphores that other tasks release as [signals](crate::CreateSemaphore::signal).
    Holders,
}

/// Checks for later, for causes of deadlocks other than a task that begins to wait.
#[derive(Default)]
pub(crate) struct PendingChecks {
    is_enabled: Cell<bool>,
    /// All tasks must be checked.
    includes_all: Cell<bool>,
    /// Tasks that waited for a value that can no longer be settled.
    tasks_to_check: RefCell<Vec<TaskKey>>,
}

impl PendingChecks {
    pub(crate) fn reset(&self, deadlocks: Deadlocks) {
        self.is_enabled.set(matches!(deadlocks, Deadlocks::Certain | Deadlocks::Holders));
        self.includes_all.set(false);
        self.tasks_to_check.borrow_mut().clear();
    }

    pub(crate) fn request_all(&self) {
        self.includes_all.set(self.is_enabled.get());
    }

    /// Called when no handle is left to settle a value: its waiters may be deadlocked.
    pub(crate) fn request_waiters_of(&self, settlement: &Settlement) {
        if self.is_enabled.get() && !settlement.is_settled.get() {
            let waiters = settlement.waiters.borrow();
            self.tasks_to_check.borrow_mut().extend(waiters.iter().map(Waiter::task));
        }
    }

    /// True if all tasks must be checked.
    pub(crate) fn includes_all(&self) -> bool {
        self.includes_all.get()
    }

    fn has_any(&self) -> bool {
        self.includes_all.get() || !self.tasks_to_check.borrow().is_empty()
    }
}

/// Tasks that wait for each other, or for something that can't happen any more.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Deadlock {
    /// Each task waits for the next one, and the last for the first if it is a cycle.
    pub links: Vec<Link>,
    /// False if the last task waits for something that no task could do.
    pub is_cycle: bool,
}

/// A task, what it waits for, and where.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Link {
    /// The task that waits.
    pub task: Label,
    /// What it waits for.
    pub waits_for: String,
    /// The line where it waits, unless [`hide_sites`](crate::Runtime::hide_sites) was called.
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

/// Which tasks are assumed to be alive.
enum Alive {
    NoTask,
    /// These few, if marked, and all other tasks.
    Among(Vec<(TaskKey, bool)>),
    /// By their place in the arena.
    Surveyed(Vec<bool>),
}

impl Alive {
    fn contains(&self, key: TaskKey) -> bool {
        match self {
            Self::NoTask => false,
            Self::Among(few) => {
                few.iter().find(|(other, _)| *other == key).is_none_or(|(_, is_alive)| *is_alive)
            }
            Self::Surveyed(alive) => alive[key.index()],
        }
    }

    fn insert(&mut self, key: TaskKey) {
        if let Self::Among(few) = self {
            few.iter_mut().filter(|(other, _)| *other == key).for_each(|entry| entry.1 = true);
        }
    }
}

impl State {
    /// Checks a task that has just begun to wait, and reports a deadlock.
    #[inline]
    pub(crate) fn check_waiting(&mut self, key: TaskKey) {
        self.polls_since_check += 1;
        if !matches!(self.deadlocks, Deadlocks::Certain | Deadlocks::Holders) {
            return;
        }
        if self.tasks.get(key).is_some_and(|task| !self.is_clearly_alive(task)) {
            self.check_from(key);
        }
    }

    /// The common case: a holder of the wanted permit can run.
    fn is_clearly_alive(&self, task: &Task) -> bool {
        task.waits.iter().any(|wait| match &wait.on {
            WaitOn::Semaphore { cell, is_timed, .. } => {
                let gate = cell.gate.borrow();
                let any_task_may_release =
                    |hold: &Hold| self.deadlocks == Deadlocks::Certain && !hold.is_bound;
                let may_release =
                    |hold: &Hold| any_task_may_release(hold) || self.can_run_eventually(hold.task);
                *is_timed
                    || cell.is_signal
                    || gate.holders().take(MAX_TASKS_PER_CHECK).any(|holder| may_release(holder.tag))
            }
            WaitOn::Eventual(cell) => match &cell.settlement().source {
                Source::Task(target) => self.can_run_eventually(target.get()),
                _ => !cell.settlement().is_orphaned(),
            },
            WaitOn::Timer => true,
            WaitOn::Group(_) => false,
        })
    }

    /// True if the task can run, now or after some time.
    fn can_run_eventually(&self, key: TaskKey) -> bool {
        let will_run =
            |wait: &Wait| matches!(wait.on, WaitOn::Timer | WaitOn::Semaphore { is_timed: true, .. });
        self.tasks.get(key).is_some_and(|task| task.phase != Phase::Parked || task.waits.iter().any(will_run))
    }

    /// Checks one task by visiting the tasks it depends on. True if a deadlock was reported.
    #[cold]
    fn check_from(&mut self, key: TaskKey) -> bool {
        let mut seen = vec![key];
        let (mut next, mut visits) = (0, 0);
        while let Some(&key) = seen.get(next) {
            next += 1;
            let Some(task) = self.tasks.get(key).filter(|task| task.phase == Phase::Parked) else { continue };
            let is_over_limit = task.waits.iter().any(|wait| {
                let reached = self.for_each_supporter(key, &wait.on, |supporter| {
                    visits += 1;
                    if !seen.contains(&supporter) && self.tasks.get(supporter).is_some() {
                        seen.push(supporter);
                    }
                    let is_over_limit = seen.len() > MAX_TASKS_PER_CHECK || visits > MAX_VISITS_PER_CHECK;
                    if is_over_limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                reached.is_break()
            });
            if is_over_limit {
                self.pending_checks.request_all();
                return false;
            }
        }
        // A task is found before the tasks it depends on; these must be decided first.
        seen.reverse();
        let alive = self.alive_among(&seen);
        if alive.contains(key) {
            return false;
        }
        if self.tasks.get(key).is_some_and(|task| task.is_daemon) {
            // A daemon may wait forever, but other tasks may be deadlocked with it.
            self.pending_checks.request_all();
            return false;
        }
        self.report_deadlock_from(key, &alive)
    }

    /// Checks the requested tasks, and all tasks if that is requested and `may_check_all`. True if a deadlock was
    /// reported.
    pub(crate) fn run_pending_checks(&mut self, may_check_all: bool) -> bool {
        if !self.pending_checks.has_any() {
            return false;
        }
        let mut tasks_to_check = self.pending_checks.tasks_to_check.take();
        let mut has_reported = false;
        if may_check_all && self.pending_checks.includes_all.take() {
            self.polls_since_check = 0;
            let Survey { alive, cost } = Survey::of(self);
            self.check_cost = cost;
            let alive = Alive::Surveyed(alive);
            let deadlocked = self.deadlocked(&alive);
            if let [first, others @ ..] = &deadlocked[..] {
                has_reported = self.report_deadlock_from(*first, &alive);
                // The error may let the others continue, so each is checked again.
                tasks_to_check.extend(others);
            }
        }
        self.sort_by_number(&mut tasks_to_check);
        tasks_to_check.dedup();
        for task in tasks_to_check {
            has_reported |= self.check_from(task);
        }
        has_reported
    }

    /// The deadlocked tasks in order of their numbers, except daemons, which may wait forever: they end with the run.
    fn deadlocked(&self, alive: &Alive) -> Vec<TaskKey> {
        let is_deadlocked = |(key, task): &(TaskKey, &Task)| !task.is_daemon && !alive.contains(*key);
        let mut deadlocked: Vec<_> = self.tasks.iter().filter(is_deadlocked).map(|(key, _)| key).collect();
        self.sort_by_number(&mut deadlocked);
        deadlocked
    }

    /// Sorts by the numbers of tasks, which depend only on the program; their places in the arena may not.
    fn sort_by_number(&self, keys: &mut [TaskKey]) {
        keys.sort_by_cached_key(|key| self.tasks.get(*key).map(|task| task.number));
    }

    /// How many polls take as long as a check of all tasks.
    fn polls_per_check(&self) -> usize {
        const VISITS_PER_POLL: usize = 8;
        self.tasks.len().max(self.check_cost / VISITS_PER_POLL)
    }

    /// True if a check of all tasks takes no longer than the polls since the last one.
    pub(crate) fn is_check_cheap(&self) -> bool {
        self.polls_since_check >= self.polls_per_check()
    }

    /// True if all tasks should be checked although a task can still run.
    #[inline]
    pub(crate) fn is_check_due(&self) -> bool {
        self.polls_since_check > POLLS_PER_TASK * self.tasks.len()
            && self.pending_checks.has_any()
            && self.polls_since_check > POLLS_PER_TASK * self.polls_per_check()
    }

    /// How long to wait for other threads before a check of all tasks that is not cheap: about as long as it takes.
    pub(crate) fn pause_before_full_check(&self) -> Duration {
        const LONGEST: Duration = Duration::from_millis(500);
        Duration::from_micros(self.polls_per_check() as u64).min(LONGEST)
    }

    /// For when no task can run and no event will come: every waiting task is deadlocked.
    pub(crate) fn global_deadlock(&self, root: TaskKey) -> Option<(TaskKey, Arc<Deadlock>)> {
        self.find_cycle(root, &Alive::NoTask)
    }

    /// Finds which of these tasks are alive. All other tasks are assumed to be alive.
    fn alive_among(&self, keys: &[TaskKey]) -> Alive {
        let mut alive = Alive::Among(keys.iter().map(|key| (*key, false)).collect());
        let mut has_changed = true;
        while has_changed {
            has_changed = false;
            for key in keys {
                let can_go_on = |task: &Task| {
                    task.phase != Phase::Parked
                        || task.waits.iter().any(|wait| !self.never_ends(*key, &wait.on, &alive))
                };
                if !alive.contains(*key) && self.tasks.get(*key).is_none_or(can_go_on) {
                    alive.insert(*key);
                    has_changed = true;
                }
            }
        }
        alive
    }

    /// True if the wait can't end. Assumes that a task that was not visited is alive, and may do whatever any task can.
    fn never_ends(&self, waiting: TaskKey, on: &WaitOn, alive: &Alive) -> bool {
        match on {
            WaitOn::Timer => false,
            WaitOn::Semaphore { cell, is_timed, .. } => {
                let gate = cell.gate.borrow();
                let is_lenient = self.deadlocks == Deadlocks::Certain;
                let may_release = |holder: Holder<'_, Hold>| match self.tasks.get(holder.tag.task) {
                    Some(_) if holder.tag.is_bound || !is_lenient => alive.contains(holder.tag.task),
                    // An ended task releases nothing, but its guard may have been moved to another task.
                    None if !is_lenient => holder.tag.is_guarded,
                    _ => true,
                };
                let can_get_permit = *is_timed
                    || cell.is_signal
                    || gate.holders().any(may_release)
                    || self.will_get_free_permits(waiting, &gate, alive);
                !can_get_permit
            }
            WaitOn::Eventual(cell) => self.is_never_settled(&**cell, alive),
            WaitOn::Group(group) => {
                let mut members = group.open_members();
                let is_never = |member: &std::rc::Rc<dyn Settle>| self.is_never_settled(&**member, alive);
                match group.kind {
                    GroupKind::Gather => members.any(is_never),
                    GroupKind::Race => members.all(is_never),
                }
            }
        }
    }

    /// True if there are enough free permits for a waiter, and all waiters before it, which wait for more, will
    /// continue, for example after their timeout.
    fn will_get_free_permits(&self, waiting: TaskKey, gate: &Gate<TaskKey, Hold>, alive: &Alive) -> bool {
        let free = gate.slots() - gate.held();
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

    /// Calls `found` with every task that could end the wait, until it breaks. Some of these tasks may have ended.
    fn for_each_supporter(
        &self,
        waiting: TaskKey,
        on: &WaitOn,
        mut found: impl FnMut(TaskKey) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match on {
            WaitOn::Timer => ControlFlow::Continue(()),
            WaitOn::Semaphore { cell, .. } => {
                let gate = cell.gate.borrow();
                gate.holders().map(|holder| holder.tag.task).try_for_each(&mut found)?;
                // Also the waiters before it, if they keep it from free permits.
                let has_free = gate.held() < gate.slots();
                let in_front =
                    gate.waiters().map(|waiter| waiter.tag.task).take_while(|task| *task != waiting);
                in_front.take_while(|_| has_free).try_for_each(found)
            }
            WaitOn::Eventual(cell) => cell.settlement().task().into_iter().try_for_each(found),
            WaitOn::Group(group) => {
                let mut tasks = group.open_members().filter_map(|member| member.settlement().task());
                tasks.try_for_each(found)
            }
        }
    }

    fn report_deadlock_from(&mut self, start: TaskKey, alive: &Alive) -> bool {
        let Some((victim, deadlock)) = self.find_cycle(start, alive) else { return false };
        self.deliver_deadlock(victim, deadlock);
        true
    }

    pub(crate) fn deliver_deadlock(&mut self, victim: TaskKey, deadlock: Arc<Deadlock>) {
        self.findings.add_deadlock(deadlock.clone());
        if let Some(task) = self.tasks.get_mut(victim) {
            let number = task.number;
            task.deadlock = Some(deadlock.clone());
            self.record_for(number, || Event::Deadlock(deadlock));
        }
        // One of its effects gets the error; the others keep their places in line.
        self.wake(victim);
    }

    /// Follows from a deadlocked task the tasks that block it, until that closes a cycle or ends. Returns the task that
    /// gets the error: the youngest of the cycle, or the last one.
    fn find_cycle(&self, start: TaskKey, alive: &Alive) -> Option<(TaskKey, Arc<Deadlock>)> {
        let mut path = vec![start];
        let mut place_on_path = HashMap::from([(start, 0)]);
        let cycle_start = loop {
            let Some(next) = self.blocked_by(*path.last()?, alive) else { break None };
            if let Some(place) = place_on_path.insert(next, path.len()) {
                break Some(place);
            }
            path.push(next);
        };
        let cycle = &path[cycle_start.unwrap_or(0)..];
        let number = |key: &TaskKey| self.tasks.get(*key).map(|task| task.number.wrapping_add(1));
        let victim = match cycle_start {
            Some(_) => *cycle.iter().max_by_key(|key| number(key))?,
            None => *path.last()?,
        };
        let links = cycle.iter().filter_map(|key| self.tasks.get(*key)).map(|task| self.link(task)).collect();
        Some((victim, Arc::new(Deadlock { links, is_cycle: cycle_start.is_some() })))
    }

    fn blocked_by(&self, waiting: TaskKey, alive: &Alive) -> Option<TaskKey> {
        let (mut blocked_by, mut visits) = (None, 0);
        for wait in self.tasks.get(waiting)?.waits.iter() {
            let _ = self.for_each_supporter(waiting, &wait.on, |key| {
                visits += 1;
                if self.tasks.get(key).is_some() && !alive.contains(key) {
                    blocked_by.get_or_insert(key);
                }
                // After so many permits of ended tasks, the next holder does not matter.
                let is_enough = blocked_by.is_some() || visits > MAX_VISITS_PER_CHECK;
                if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        }
        blocked_by
    }

    pub(crate) fn link(&self, task: &Task) -> Link {
        let at = task.waits.first().and_then(|wait| self.site(wait.at));
        let waits: Vec<_> = task.waits.iter().map(|wait| self.describe(wait)).collect();
        Link { task: task.label(), waits_for: waits.join(" and "), at }
    }

    /// Describes what a task waits for.
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
            (None, None) => "no task".into(),
        };
        let mut names: Vec<_> = gate.holders().take(NAMED).map(name).collect();
        let more = gate.stats(self.now).holders.saturating_sub(NAMED);
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
        let first = group.open_members().next();
        let first = first.map_or("nothing".into(), |member| self.describe_eventual(&**member));
        match group.remaining().saturating_sub(1) {
            0 => first,
            more => format!("{first} and {more} more"),
        }
    }
}
