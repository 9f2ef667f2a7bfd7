//! Finds every task that is alive, that is, can still continue. Takes time and memory in proportion to the tasks,
//! holders, waiters and group members.
//!
//! Starts with the tasks that can run or that wait for time or another thread, and follows the dependents of each,
//! once. A semaphore is one node between all of its holders and all of its waiters, so pairs of a holder and a waiter
//! are never visited.

use std::collections::HashMap;

use crate::deadlock::Deadlocks;
use crate::eventual::{Group, GroupKind, Settle, Source};
use crate::semaphore::SemaphoreCell;
use crate::state::State;
use crate::tasks::{Phase, TaskKey, WaitOn};
use crate::visits;

/// What becomes possible because a task is alive.
#[derive(Clone, Copy)]
enum Dependent {
    /// The task continues.
    Task(TaskKey),
    /// One more member of the gather settles.
    Gather(usize),
    /// A permit of the semaphore is released.
    Semaphore(usize),
    /// A place in the semaphore's line becomes empty.
    Line(usize),
}

struct Gather {
    task: TaskKey,
    /// How many members are not known to settle.
    open: usize,
}

struct Line {
    /// First to last, with their weights.
    waiters: Vec<(TaskKey, u32)>,
    /// The waiters before this index are alive.
    next: usize,
    free: u32,
    can_get_permit: bool,
}

/// What settles a value.
enum SettledBy {
    Certain,
    /// The end of this task.
    Task(TaskKey),
    /// Any task that is alive may.
    AnyTask,
    Nothing,
}

/// Which tasks can still continue.
pub(crate) struct Survey {
    /// By place in the arena.
    pub(crate) alive: Vec<bool>,
    /// The number of visits.
    pub(crate) cost: usize,
}

impl Survey {
    pub(crate) fn of(state: &State) -> Self {
        let mut surveyor = Surveyor::new(state);
        for (key, task) in state.tasks.iter() {
            if task.phase != Phase::Parked {
                surveyor.mark(key);
            }
            for wait in task.waits.iter() {
                surveyor.add_wait(key, &wait.on);
            }
        }
        surveyor.follow_all();
        Self { alive: surveyor.alive, cost: surveyor.cost }
    }
}

struct Surveyor<'s> {
    state: &'s State,
    cost: usize,
    /// By place in the arena.
    alive: Vec<bool>,
    /// Tasks found alive whose dependents have not been followed yet.
    unfollowed: Vec<TaskKey>,
    /// By place in the arena: the last of the task's `dependents`, each of which has the index of the previous one.
    latest: Vec<Option<usize>>,
    dependents: Vec<(Option<usize>, Dependent)>,
    /// What becomes possible as soon as any task is alive.
    by_any_task: Vec<Dependent>,
    gathers: Vec<Gather>,
    lines: Vec<Line>,
    by_cell: HashMap<*const SemaphoreCell, usize>,
}

impl<'s> Surveyor<'s> {
    fn new(state: &'s State) -> Self {
        let width = state.tasks.width();
        Self {
            state,
            cost: width,
            alive: vec![false; width],
            unfollowed: Vec::new(),
            latest: vec![None; width],
            dependents: Vec::new(),
            by_any_task: Vec::new(),
            gathers: Vec::new(),
            lines: Vec::new(),
            by_cell: HashMap::new(),
        }
    }

    fn count(&mut self, visits: usize) {
        visits::count(visits);
        self.cost += visits;
    }

    fn add_wait(&mut self, task: TaskKey, on: &WaitOn) {
        match on {
            WaitOn::Timer | WaitOn::Semaphore { is_timed: true, .. } => self.mark(task),
            WaitOn::Semaphore { cell, .. } => self.add_semaphore(cell),
            WaitOn::Eventual(cell) => match self.settled_by(&**cell) {
                SettledBy::Certain => self.mark(task),
                SettledBy::Task(target) => self.add(target, Dependent::Task(task)),
                SettledBy::AnyTask => self.by_any_task.push(Dependent::Task(task)),
                SettledBy::Nothing => {}
            },
            WaitOn::Group(group) => self.add_group(task, group),
        }
    }

    fn add_group(&mut self, task: TaskKey, group: &Group) {
        let number = self.gathers.len();
        let (mut open, mut has_certain) = (0, false);
        let dependent = match group.kind {
            GroupKind::Gather => Dependent::Gather(number),
            GroupKind::Race => Dependent::Task(task),
        };
        for member in group.open_members() {
            open += 1;
            self.count(1);
            match self.settled_by(&**member) {
                SettledBy::Certain => {
                    open -= 1;
                    has_certain = true;
                }
                SettledBy::Task(target) => self.add(target, dependent),
                SettledBy::AnyTask => self.by_any_task.push(dependent),
                SettledBy::Nothing => {}
            }
        }
        match group.kind {
            GroupKind::Gather if open > 0 => self.gathers.push(Gather { task, open }),
            GroupKind::Race if !has_certain => {}
            GroupKind::Gather | GroupKind::Race => self.mark(task),
        }
    }

    fn settled_by(&self, cell: &dyn Settle) -> SettledBy {
        let settlement = cell.settlement();
        match (&settlement.source, settlement.task()) {
            _ if settlement.is_settled.get() => SettledBy::Certain,
            (_, Some(task)) if self.state.tasks.get(task).is_some() => SettledBy::Task(task),
            (Source::Task(_), _) => SettledBy::Certain,
            _ if settlement.is_orphaned() => SettledBy::Nothing,
            (Source::Promise(_), _) => SettledBy::AnyTask,
            (Source::External(_), _) => SettledBy::Certain,
        }
    }

    fn add_semaphore(&mut self, cell: &std::rc::Rc<SemaphoreCell>) {
        let number = self.lines.len();
        if *self.by_cell.entry(std::rc::Rc::as_ptr(cell)).or_insert(number) != number {
            return;
        }
        let is_lenient = self.state.deadlocks == Deadlocks::Certain;
        let gate = cell.gate.borrow();
        let mut any_task_may_release = cell.is_signal;
        let mut can_get_permit = cell.is_signal && !is_lenient;
        for holder in gate.holders() {
            self.count(1);
            let is_bound = holder.tag.is_bound || !is_lenient;
            match self.state.tasks.get(holder.tag.task) {
                Some(_) if is_bound => self.add(holder.tag.task, Dependent::Semaphore(number)),
                // An ended task releases nothing, but its guard may have been moved to another task.
                None if !is_lenient => can_get_permit |= holder.tag.is_guarded,
                _ => any_task_may_release = true,
            }
        }
        if any_task_may_release {
            self.by_any_task.push(Dependent::Semaphore(number));
        }
        let waiters: Vec<_> = gate.waiters().map(|waiter| (waiter.tag.task, waiter.weight)).collect();
        self.count(waiters.len());
        let free = gate.slots() - gate.held();
        if free > 0 {
            waiters.iter().for_each(|(task, _)| self.add(*task, Dependent::Line(number)));
        }
        self.lines.push(Line { waiters, next: 0, free, can_get_permit: false });
        if can_get_permit {
            self.mark_line(number);
        }
        self.advance_line(number);
    }

    fn add(&mut self, task: TaskKey, dependent: Dependent) {
        let before = self.latest[task.index()].replace(self.dependents.len());
        self.dependents.push((before, dependent));
    }

    fn mark(&mut self, task: TaskKey) {
        if self.state.tasks.get(task).is_some() && !std::mem::replace(&mut self.alive[task.index()], true) {
            self.unfollowed.push(task);
        }
    }

    fn follow_all(&mut self) {
        while let Some(task) = self.unfollowed.pop() {
            for dependent in std::mem::take(&mut self.by_any_task) {
                self.follow(dependent);
            }
            let mut next = self.latest[task.index()].take();
            while let Some((before, dependent)) = next.map(|place| self.dependents[place]) {
                self.follow(dependent);
                next = before;
            }
        }
    }

    fn follow(&mut self, dependent: Dependent) {
        self.count(1);
        match dependent {
            Dependent::Task(task) => self.mark(task),
            Dependent::Semaphore(number) => self.mark_line(number),
            Dependent::Line(number) => self.advance_line(number),
            Dependent::Gather(number) => {
                let gather = &mut self.gathers[number];
                gather.open -= 1;
                if gather.open == 0 {
                    let task = gather.task;
                    self.mark(task);
                }
            }
        }
    }

    /// A permit will be released: all waiters continue.
    fn mark_line(&mut self, number: usize) {
        if !std::mem::replace(&mut self.lines[number].can_get_permit, true) {
            for (task, _) in std::mem::take(&mut self.lines[number].waiters) {
                self.mark(task);
            }
        }
    }

    /// A waiter takes the free permits once all waiters before it continue, for example after their timeout.
    fn advance_line(&mut self, number: usize) {
        loop {
            let line = &mut self.lines[number];
            let Some((task, weight)) = line.waiters.get(line.next).copied() else { break };
            if !self.alive[task.index()] && weight > line.free {
                break;
            }
            line.next += 1;
            self.mark(task);
        }
    }
}
