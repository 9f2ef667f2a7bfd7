//! Who waits for what can't happen any more.
//!
//! The doomed are the largest set of waiting tasks in which everybody waits for others of the set only: for a permit that only
//! they hold, for the end of one of them, for a promise that nobody is left to complete. Who waits for a timer, for
//! another thread, or for a permit with a time limit is never doomed.
//!
//! A task can be doomed only when it or another begins to wait. So each one is looked at when it does
//! ([`State::check_waiting`]): mostly at one or two holders. What would take longer, or comes about in another way, raises
//! a suspicion, and everybody is looked at when that has become cheap in comparison ([`State::check_everybody`]).

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use semafor_core::Holder;

use crate::eventual::{Group, GroupKind, Settle, Source};
use crate::recording::Moment;
use crate::semaphore::{Hold, SemaphoreCell};
use crate::state::State;
use crate::tasks::{Phase, Task, TaskKey, Wait, WaitOn};
use crate::{Error, Label};

/// How many tasks are looked at, at most, when one begins to wait.
const GLANCE: usize = 64;
/// Everybody is looked at after so many polls per task that lives.
const POLLS_PER_TASK: usize = 16;

/// Which deadlocks are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Deadlocks {
    /// None. A run in which nobody can ever go on again ends with the [deadlock](Error::Deadlock) as its result.
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
    /// Where in the program.
    pub at: &'static Location<'static>,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_cycle, self.links.len()) {
            (true, 1) => f.write_str("deadlock: a task waits for itself")?,
            (true, count) => write!(f, "deadlock: {count} tasks wait in a circle")?,
            (false, _) => f.write_str("deadlock: what is waited for can't happen any more")?,
        }
        for Link { task, waits_for, at } in &self.links {
            write!(f, "\n  {task} waits for {waits_for}, at {at}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Deadlock {}

/// Which tasks are taken to be alive, by their place in the arena.
struct Alive(Vec<bool>);

impl Alive {
    fn contains(&self, key: TaskKey) -> bool {
        self.0[key.index()]
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
        let is_able = |key: TaskKey| self.tasks.get(key).is_some_and(|task| task.phase != Phase::Parked);
        task.waits.iter().any(|wait| match &wait.on {
            WaitOn::Timer => true,
            WaitOn::Semaphore { cell, is_timed, .. } => {
                *is_timed
                    || cell.is_signal
                    || cell.gate.borrow().holders().any(|holder| is_able(holder.tag.task))
            }
            WaitOn::Eventual(cell) => match &cell.settlement().source {
                Source::Task(target) => is_able(target.get()),
                _ => !cell.settlement().is_orphaned(),
            },
            WaitOn::Group(_) => false,
        })
    }

    /// Finds out about one task by those it depends on.
    #[cold]
    fn check_from(&mut self, key: TaskKey) {
        let mut seen = vec![key];
        let mut next = 0;
        while let Some(&key) = seen.get(next) {
            next += 1;
            let Some(task) = self.tasks.get(key) else { continue };
            if task.phase != Phase::Parked {
                continue;
            }
            for wait in &task.waits {
                self.for_each_supporter(&wait.on, |supporter| {
                    if seen.len() <= GLANCE && !seen.contains(&supporter) {
                        seen.push(supporter);
                    }
                });
            }
            if seen.len() > GLANCE {
                self.suspicion.set(true);
                return;
            }
        }
        let alive = self.alive_among(&seen);
        if !alive.contains(key) {
            self.report_doomed(key, &alive);
        }
    }

    /// Looks at everybody if there is a suspicion; true if somebody was told.
    pub(crate) fn check_everybody(&mut self) -> bool {
        self.polls_since_check = 0;
        if !self.suspicion.take() || self.deadlocks != Deadlocks::Holders {
            return false;
        }
        let parked: Vec<_> = self.parked().collect();
        let alive = self.alive_among(&parked);
        // Daemons may wait in vain: they end with the run.
        let is_doomed = |key: &TaskKey| !alive.contains(*key);
        let is_missed = |key: &TaskKey| self.tasks.get(*key).is_some_and(|task| !task.is_daemon);
        let Some(doomed) = parked.into_iter().filter(is_doomed).find(is_missed) else { return false };
        self.report_doomed(doomed, &alive);
        // There may be more than one.
        self.suspicion.set(true);
        true
    }

    /// True if everybody should be looked at although somebody can still run.
    #[inline]
    pub(crate) fn is_check_due(&self) -> bool {
        self.polls_since_check > POLLS_PER_TASK * self.tasks.len() && self.suspicion.get()
    }

    /// Nobody can run, and nothing will come: everybody who waits does so in vain.
    pub(crate) fn global_deadlock(&self, root: TaskKey) -> Option<(TaskKey, Arc<Deadlock>)> {
        let alive = Alive(vec![false; self.tasks.width()]);
        let start = self
            .parked()
            .next()
            .map_or(root, |first| if self.tasks.get(root).is_some() { root } else { first });
        self.circle(start, &alive)
    }

    fn parked(&self) -> impl Iterator<Item = TaskKey> {
        self.tasks.iter().filter(|(_, task)| task.phase == Phase::Parked).map(|(key, _)| key)
    }

    fn alive_among(&self, keys: &[TaskKey]) -> Alive {
        let mut alive = Alive(vec![true; self.tasks.width()]);
        for key in keys {
            let is_parked = self.tasks.get(*key).is_some_and(|task| task.phase == Phase::Parked);
            alive.0[key.index()] = !is_parked;
        }
        // Younger tasks come last and are mostly waited for by older ones, so what is alive spreads in few rounds.
        let mut has_changed = true;
        while has_changed {
            has_changed = false;
            for key in keys.iter().rev() {
                if let Some(task) = self.tasks.get(*key)
                    && !alive.contains(*key)
                    && task.waits.iter().any(|wait| !self.is_in_vain(&wait.on, &alive))
                {
                    alive.0[key.index()] = true;
                    has_changed = true;
                }
            }
        }
        alive
    }

    fn is_in_vain(&self, on: &WaitOn, alive: &Alive) -> bool {
        match on {
            WaitOn::Timer => false,
            WaitOn::Semaphore { cell, is_timed, .. } => {
                let gate = cell.gate.borrow();
                let is_served = |holder: Holder<'_, Hold>| match self.tasks.get(holder.tag.task) {
                    Some(_) => alive.contains(holder.tag.task),
                    // Who ended releases nothing; but a guard may have been passed on.
                    None => holder.tag.is_guarded,
                };
                !*is_timed && !cell.is_signal && !gate.holders().any(is_served)
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

    fn is_never_settled(&self, cell: &dyn Settle, alive: &Alive) -> bool {
        match cell.settlement().task() {
            Some(task) => self.tasks.get(task).is_some() && !alive.contains(task),
            None => cell.settlement().is_orphaned(),
        }
    }

    /// Calls with everybody who could end the wait.
    fn for_each_supporter(&self, on: &WaitOn, mut found: impl FnMut(TaskKey)) {
        let mut found_live = |key| {
            if self.tasks.get(key).is_some() {
                found(key);
            }
        };
        match on {
            WaitOn::Timer => {}
            WaitOn::Semaphore { cell, .. } => {
                cell.gate.borrow().holders().for_each(|holder| found_live(holder.tag.task));
            }
            WaitOn::Eventual(cell) => cell.settlement().task().into_iter().for_each(found_live),
            WaitOn::Group(group) => {
                group.members.iter().filter_map(|member| member.settlement().task()).for_each(found_live);
            }
        }
    }

    fn report_doomed(&mut self, start: TaskKey, alive: &Alive) {
        if let Some((victim, deadlock)) = self.circle(start, alive) {
            self.tell(victim, deadlock);
        }
    }

    pub(crate) fn tell(&mut self, victim: TaskKey, deadlock: Arc<Deadlock>) {
        self.findings.deadlocks.push(deadlock.clone());
        if let Some(task) = self.tasks.get_mut(victim) {
            let number = task.number;
            task.deadlock = Some(deadlock.clone());
            self.record_for(number, || Moment::Deadlock(deadlock));
        }
        self.interrupt(victim, true);
    }

    /// From a doomed task to whom it waits for, until that closes a circle or ends where nobody can help. The youngest of the circle
    /// is to be told, or who stands at the end.
    fn circle(&self, start: TaskKey, alive: &Alive) -> Option<(TaskKey, Arc<Deadlock>)> {
        let mut path = vec![start];
        let mut place_on_path = vec![usize::MAX; self.tasks.width()];
        place_on_path[start.index()] = 0;
        let closes_at = loop {
            let Some(next) = self.tasks.get(*path.last()?).and_then(|task| self.to_blame(task, alive)) else {
                break None;
            };
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

    fn to_blame(&self, task: &Task, alive: &Alive) -> Option<TaskKey> {
        let mut to_blame = None;
        for wait in &task.waits {
            self.for_each_supporter(&wait.on, |key| {
                if to_blame.is_none() && !alive.contains(key) {
                    to_blame = Some(key);
                }
            });
        }
        to_blame
    }

    fn link(&self, task: &Task) -> Link {
        // A task that waits for nothing is not in a circle.
        let at = task.waits.first().map_or(Location::caller(), |wait| wait.at);
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
            (None, Some(at)) => format!("a task that has ended, acquired at {at}"),
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
        match settlement.task().and_then(|key| self.tasks.get(key)) {
            Some(task) => format!("the end of {}", task.label()),
            None => format!("promise {}", settlement.number),
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

impl From<Deadlock> for Error {
    fn from(deadlock: Deadlock) -> Self {
        Self::Deadlock(Arc::new(deadlock))
    }
}
