//! Which tasks wait for something that can't happen any more.
//!
//! The doomed are the largest set of waiting tasks in which every task waits for others of the set only: for a permit that only
//! they can release, for the end of one of them, for a promise that no handle is left to complete. A task that waits for a timer,
//! for another thread, or for a permit with a time limit is never doomed.
//!
//! Who can release a permit is the question. A semaphore has no owner, and a guard can be moved where it is not seen; so by default
//! ([`Deadlocks::Certain`]) any task that is not doomed may release, but for guards that stay with their task.
//! [`Deadlocks::Holders`] takes the task that acquired for the one that releases.
//!
//! As a rule a task is doomed when it or another begins to wait. So each one is looked at when it does
//! ([`State::check_waiting`]): mostly at one or two holders. What comes about in another way makes suspects ([`PendingChecks`]): the tasks that
//! wait for a promise whose last handle is dropped, or all tasks, if a task ends with a permit or releases less than is waited for.
//! Suspects are looked at when no task can run, and all tasks when that has become cheap in comparison ([`State::run_pending_checks`]), or
//! when the run would sleep. A look at one task is bounded; a look at all tasks is linear ([`Survey`]).

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

/// How many tasks are looked at, at most, when one begins to wait.
const MAX_TASKS_PER_CHECK: usize = 64;
/// How many permits, places in line and members of groups are looked at, at most, when a task begins to wait.
const MAX_VISITS_PER_CHECK: usize = 4 * MAX_TASKS_PER_CHECK;
/// Everybody is looked at after so many polls per task that lives.
const POLLS_PER_TASK: usize = 16;

/// Which deadlocks are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Deadlocks {
    /// None. A run in which no task can ever go on again ends with the [deadlock](crate::Error::Deadlock) as its result.
    Off,
    /// Those in which no task can ever go on again.
    Global,
    /// The global ones; and while other tasks live on, those that nothing but a cancellation could end: tasks that wait for each
    /// other's end, a promise that no handle is left to complete, and permits that
    /// [stay with their task](crate::GuardedDemand::stays_with_task).
    ///
    /// Semaphores have no owner, and a [`Permit`](crate::Permit) may be moved to any task. So as long as a task can run, now or
    /// after a delay, a timeout or a promise of another thread, it may release what others wait for, and that is no deadlock.
    #[default]
    Certain,
    /// A stricter search: the task that acquired a permit is taken to be the one that releases it, so that a circle is found while
    /// other tasks live on.
    ///
    /// It calls a program deadlocked in which another task would have released later, or in which a guard was moved to
    /// another task. Semaphores that other tasks release are [signals](crate::CreateSemaphore::signal), and say so.
    Holders,
}

/// What the check of a task that begins to wait does not see.
#[derive(Default)]
pub(crate) struct PendingChecks {
    is_enabled: Cell<bool>,
    /// Something happened that may concern any task.
    includes_all: Cell<bool>,
    /// Tasks that lost something they waited for.
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

    /// Nothing is left that could settle it: those that wait for it may be doomed.
    pub(crate) fn request_waiters_of(&self, settlement: &Settlement) {
        if self.is_enabled.get() && !settlement.is_settled.get() {
            let waiters = settlement.waiters.borrow();
            self.tasks_to_check.borrow_mut().extend(waiters.iter().map(Waiter::task));
        }
    }

    /// True if all tasks are to be looked at.
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
    NoTask,
    /// All but some of these few.
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
    /// Looks at a task that has just begun to wait, and tells a task if that is a deadlock.
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

    /// The common case: one look at who holds what is waited for.
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

    /// True of who can run, or will be able to when some time has passed.
    fn can_run_eventually(&self, key: TaskKey) -> bool {
        let will_run =
            |wait: &Wait| matches!(wait.on, WaitOn::Timer | WaitOn::Semaphore { is_timed: true, .. });
        self.tasks.get(key).is_some_and(|task| task.phase != Phase::Parked || task.waits.iter().any(will_run))
    }

    /// Finds out about one task by those it depends on; true if a task was told.
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
        // Those who are needed were found after those who need them.
        seen.reverse();
        let alive = self.alive_among(&seen);
        if alive.contains(key) {
            return false;
        }
        if self.tasks.get(key).is_some_and(|task| task.is_daemon) {
            // It may wait in vain, unless others do with it.
            self.pending_checks.request_all();
            return false;
        }
        self.report_deadlock_from(key, &alive)
    }

    /// Looks at the suspects, and at all tasks if there is reason to and they may be looked at; true if a task was told.
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
                // They may live on now that one is told.
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

    /// Every task that waits in vain, in order of their numbers. Daemons may wait in vain: they end with the run.
    fn deadlocked(&self, alive: &Alive) -> Vec<TaskKey> {
        let is_deadlocked = |(key, task): &(TaskKey, &Task)| !task.is_daemon && !alive.contains(*key);
        let mut deadlocked: Vec<_> = self.tasks.iter().filter(is_deadlocked).map(|(key, _)| key).collect();
        self.sort_by_number(&mut deadlocked);
        deadlocked
    }

    /// By the numbers of tasks, which depend on nothing but the program; their places in the arena may not.
    fn sort_by_number(&self, keys: &mut [TaskKey]) {
        keys.sort_by_cached_key(|key| self.tasks.get(*key).map(|task| task.number));
    }

    /// How many polls take as long as looking at all tasks.
    fn polls_per_check(&self) -> usize {
        const VISITS_PER_POLL: usize = 8;
        self.tasks.len().max(self.check_cost / VISITS_PER_POLL)
    }

    /// True if looking at all tasks takes no longer than what happened since.
    pub(crate) fn is_check_cheap(&self) -> bool {
        self.polls_since_check >= self.polls_per_check()
    }

    /// True if all tasks should be looked at although a task can still run.
    #[inline]
    pub(crate) fn is_check_due(&self) -> bool {
        self.polls_since_check > POLLS_PER_TASK * self.tasks.len()
            && self.pending_checks.has_any()
            && self.polls_since_check > POLLS_PER_TASK * self.polls_per_check()
    }

    /// For how long to wait for other threads before all tasks are looked at although that is not cheap: about as long as it takes.
    pub(crate) fn pause_before_full_check(&self) -> Duration {
        const LONGEST: Duration = Duration::from_millis(500);
        Duration::from_micros(self.polls_per_check() as u64).min(LONGEST)
    }

    /// No task can run, and no event will come: every waiting task waits in vain.
    pub(crate) fn global_deadlock(&self, root: TaskKey) -> Option<(TaskKey, Arc<Deadlock>)> {
        self.find_cycle(root, &Alive::NoTask)
    }

    /// Of these few tasks, those are alive that a live task can help. All other tasks are taken to be alive.
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

    /// As long as tasks are alive that are not looked at: any of them may do what any task can.
    fn never_ends(&self, waiting: TaskKey, on: &WaitOn, alive: &Alive) -> bool {
        match on {
            WaitOn::Timer => false,
            WaitOn::Semaphore { cell, is_timed, .. } => {
                let gate = cell.gate.borrow();
                let is_lenient = self.deadlocks == Deadlocks::Certain;
                let may_release = |holder: Holder<'_, Hold>| match self.tasks.get(holder.tag.task) {
                    Some(_) if holder.tag.is_bound || !is_lenient => alive.contains(holder.tag.task),
                    // A task that ended releases nothing; but a guard may have been passed on.
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

    /// True of who waits for what is free, but stands behind others who wait for more, and all of whom will go on: when their
    /// timeout ends, for one.
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

    /// Calls with every task that could end the wait, until that is enough. Some of them may have ended.
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
                // Those in front, too, if they keep it from what is free.
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
        // Whatever it awaits beside the one that will hear of it keeps its place in line.
        self.wake(victim);
    }

    /// From a doomed task to whom it waits for, until that closes a circle or ends where nobody can help. The youngest of the circle
    /// is to be told, or who stands at the end.
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
                // Behind that many permits of tasks that ended, it does not matter which task has the next one.
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
