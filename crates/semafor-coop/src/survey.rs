//! Finds every task that can still go on. Takes time and memory in proportion to the tasks, holders, waiters and group members.
//!
//! Starts with the tasks that can run or wait for time or another thread, and follows what depends on each of them, once. A semaphore
//! is one node between all of its holders and all of its waiters: a pair of a holder and a waiter is never looked at.

use std::collections::HashMap;

use crate::deadlock::Deadlocks;
use crate::effort;
use crate::eventual::{Group, GroupKind, Settle, Source};
use crate::semaphore::SemaphoreCell;
use crate::state::State;
use crate::tasks::{Phase, TaskKey, WaitOn};

/// What may happen because a task is alive.
#[derive(Clone, Copy)]
enum Dependent {
    /// The task goes on.
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
    /// Members that are not known to settle.
    open: usize,
}

struct Line {
    /// First to last, with their weights.
    waiters: Vec<(TaskKey, u32)>,
    /// Every waiter before this one is alive.
    next: usize,
    free: u32,
    is_helped: bool,
}

/// How one member of a group settles.
enum Prospect {
    Sure,
    /// By the end of this task.
    Task(TaskKey),
    /// By any task that is alive.
    Any,
    Never,
}

/// Which tasks can still go on.
pub(crate) struct Survey {
    /// By place in the arena.
    pub(crate) alive: Vec<bool>,
    /// How much there was to look at.
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
                surveyor.look_at(key, &wait.on);
            }
        }
        surveyor.spread();
        Self { alive: surveyor.alive, cost: surveyor.cost }
    }
}

struct Surveyor<'s> {
    state: &'s State,
    cost: usize,
    /// By place in the arena.
    alive: Vec<bool>,
    /// Tasks found alive whose dependents have not been followed yet.
    fresh: Vec<TaskKey>,
    /// By place in the arena: the latest of the task's `dependents`, each of which names the one before.
    latest: Vec<Option<usize>>,
    dependents: Vec<(Option<usize>, Dependent)>,
    /// What any task that is alive may do.
    if_any: Vec<Dependent>,
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
            fresh: Vec::new(),
            latest: vec![None; width],
            dependents: Vec::new(),
            if_any: Vec::new(),
            gathers: Vec::new(),
            lines: Vec::new(),
            by_cell: HashMap::new(),
        }
    }

    fn count(&mut self, looks: usize) {
        effort::count(looks);
        self.cost += looks;
    }

    fn look_at(&mut self, task: TaskKey, on: &WaitOn) {
        match on {
            WaitOn::Timer | WaitOn::Semaphore { is_timed: true, .. } => self.mark(task),
            WaitOn::Semaphore { cell, .. } => self.look_at_semaphore(cell),
            WaitOn::Eventual(cell) => match self.prospect(&**cell) {
                Prospect::Sure => self.mark(task),
                Prospect::Task(target) => self.add(target, Dependent::Task(task)),
                Prospect::Any => self.if_any.push(Dependent::Task(task)),
                Prospect::Never => {}
            },
            WaitOn::Group(group) => self.look_at_group(task, group),
        }
    }

    fn look_at_group(&mut self, task: TaskKey, group: &Group) {
        let number = self.gathers.len();
        let (mut open, mut has_sure) = (0, false);
        let dependent = match group.kind {
            GroupKind::Gather => Dependent::Gather(number),
            GroupKind::Race => Dependent::Task(task),
        };
        for member in group.open_members() {
            open += 1;
            self.count(1);
            match self.prospect(&**member) {
                Prospect::Sure => {
                    open -= 1;
                    has_sure = true;
                }
                Prospect::Task(target) => self.add(target, dependent),
                Prospect::Any => self.if_any.push(dependent),
                Prospect::Never => {}
            }
        }
        match group.kind {
            GroupKind::Gather if open > 0 => self.gathers.push(Gather { task, open }),
            GroupKind::Race if !has_sure => {}
            GroupKind::Gather | GroupKind::Race => self.mark(task),
        }
    }

    fn prospect(&self, cell: &dyn Settle) -> Prospect {
        let settlement = cell.settlement();
        match (&settlement.source, settlement.task()) {
            _ if settlement.is_settled.get() => Prospect::Sure,
            (_, Some(task)) if self.state.tasks.get(task).is_some() => Prospect::Task(task),
            (Source::Task(_), _) => Prospect::Sure,
            _ if settlement.is_orphaned() => Prospect::Never,
            (Source::Promise(_), _) => Prospect::Any,
            (Source::External(_), _) => Prospect::Sure,
        }
    }

    fn look_at_semaphore(&mut self, cell: &std::rc::Rc<SemaphoreCell>) {
        let number = self.lines.len();
        if *self.by_cell.entry(std::rc::Rc::as_ptr(cell)).or_insert(number) != number {
            return;
        }
        let is_lenient = self.state.deadlocks == Deadlocks::Certain;
        let gate = cell.gate.borrow();
        let mut is_anybodys = cell.is_signal;
        let mut is_helped = cell.is_signal && !is_lenient;
        for holder in gate.holders() {
            self.count(1);
            let is_bound = holder.tag.is_bound || !is_lenient;
            match self.state.tasks.get(holder.tag.task) {
                Some(_) if is_bound => self.add(holder.tag.task, Dependent::Semaphore(number)),
                // A task that ended releases nothing; but a guard may have been passed on.
                None if !is_lenient => is_helped |= holder.tag.is_guarded,
                _ => is_anybodys = true,
            }
        }
        if is_anybodys {
            self.if_any.push(Dependent::Semaphore(number));
        }
        let waiters: Vec<_> = gate.waiters().map(|waiter| (waiter.tag.task, waiter.weight)).collect();
        self.count(waiters.len());
        let free = gate.slots() - gate.held();
        if free > 0 {
            waiters.iter().for_each(|(task, _)| self.add(*task, Dependent::Line(number)));
        }
        self.lines.push(Line { waiters, next: 0, free, is_helped: false });
        if is_helped {
            self.help(number);
        }
        self.move_up(number);
    }

    fn add(&mut self, task: TaskKey, dependent: Dependent) {
        let before = self.latest[task.index()].replace(self.dependents.len());
        self.dependents.push((before, dependent));
    }

    fn mark(&mut self, task: TaskKey) {
        if self.state.tasks.get(task).is_some() && !std::mem::replace(&mut self.alive[task.index()], true) {
            self.fresh.push(task);
        }
    }

    fn spread(&mut self) {
        while let Some(task) = self.fresh.pop() {
            for dependent in std::mem::take(&mut self.if_any) {
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
            Dependent::Semaphore(number) => self.help(number),
            Dependent::Line(number) => self.move_up(number),
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

    /// A permit will be released: all waiters go on.
    fn help(&mut self, number: usize) {
        if !std::mem::replace(&mut self.lines[number].is_helped, true) {
            for (task, _) in std::mem::take(&mut self.lines[number].waiters) {
                self.mark(task);
            }
        }
    }

    /// A waiter goes on with what is free, once all waiters in front of it go on: when their time limit ends, for one.
    fn move_up(&mut self, number: usize) {
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
