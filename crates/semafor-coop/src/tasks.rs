//! The tasks that have not ended, in an arena whose keys go stale when a task ends.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use semafor_core::{PermitId, Ticket};

use crate::eventual::{Group, Settle};
use crate::semaphore::SemaphoreCell;
use crate::small_list::SmallList;
use crate::visits;
use crate::{Deadlock, Result};

/// A task's program, without its type.
pub(crate) type Program = Pin<Box<dyn Future<Output = Result>>>;

/// The number of the root program, which has no task handle.
pub(crate) const ROOT: u64 = u64::MAX;

/// Identifies one task of one run. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TaskKey {
    index: u32,
    generation: u32,
}

impl TaskKey {
    pub(crate) const NONE: Self = Self { index: u32::MAX, generation: 0 };

    /// Its place in the arena, which an earlier task may have used.
    pub(crate) fn index(self) -> usize {
        self.index as usize
    }
}

impl Default for TaskKey {
    fn default() -> Self {
        Self::NONE
    }
}

/// The order in which ready tasks run. Of equal ones, the task that was ready first runs first.
///
/// Priorities order the ready tasks. The line of a semaphore is in order of arrival, regardless of priority.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Priority {
    /// Runs when no other task can.
    Idle,
    /// The priority of the root program.
    #[default]
    Normal,
    /// Runs before the others.
    High,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// In the ready queue, and has never run.
    New,
    /// In the ready queue.
    Ready,
    Running,
    /// Waiting, as its `waits` say.
    Parked,
}

/// A task, from spawn to end.
pub(crate) struct Task {
    /// `None` while it runs.
    pub(crate) program: Option<Program>,
    pub(crate) number: u64,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) priority: Priority,
    pub(crate) is_daemon: bool,
    pub(crate) phase: Phase,
    /// It gets the cancellation or the deadlock at its next await point.
    pub(crate) is_cancelled: bool,
    pub(crate) deadlock: Option<Arc<Deadlock>>,
    /// At most one, unless the task awaits several effects at once.
    pub(crate) waits: SmallList<Wait>,
    pub(crate) wait_numbers: u32,
    /// Permits that are not in a guard.
    pub(crate) held: SmallList<Held>,
    pub(crate) outcome: Rc<dyn Settle>,
}

impl Task {
    pub(crate) fn label(&self) -> Label {
        Label { number: (self.number != ROOT).then_some(self.number), name: self.name.clone() }
    }
}

/// A permit that a task acquired and has to release.
pub(crate) struct Held {
    /// The semaphore's number.
    pub(crate) semaphore: u64,
    pub(crate) permit: PermitId,
    pub(crate) weight: u32,
    /// Other tasks release it.
    pub(crate) is_signal: bool,
    pub(crate) at: &'static Location<'static>,
}

/// What a task waits for, and where in its program.
pub(crate) struct Wait {
    pub(crate) number: u32,
    pub(crate) on: WaitOn,
    pub(crate) at: &'static Location<'static>,
    /// Within a `shield`: cancellation does not reach it.
    pub(crate) is_shielded: bool,
}

pub(crate) enum WaitOn {
    Semaphore { cell: Rc<SemaphoreCell>, ticket: Ticket, is_timed: bool },
    Eventual(Rc<dyn Settle>),
    Group(Rc<Group>),
    Timer,
}

/// The number and name of a task, for reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// Its number; the root program has none.
    pub number: Option<u64>,
    /// Its name, if it was given one.
    pub name: Option<Arc<str>>,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.number, &self.name) {
            (None, _) => f.write_str("root"),
            (Some(number), None) => write!(f, "task {number}"),
            (Some(number), Some(name)) => write!(f, "{name} (task {number})"),
        }
    }
}

#[derive(Default)]
pub(crate) struct Tasks {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    generation: u32,
    task: Option<Task>,
}

impl Tasks {
    pub(crate) fn insert(&mut self, task: Task) -> TaskKey {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.slots.push(Slot { generation: 0, task: None });
                self.slots.len() as u32 - 1
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.task = Some(task);
        TaskKey { index, generation: slot.generation }
    }

    pub(crate) fn get(&self, key: TaskKey) -> Option<&Task> {
        visits::count(1);
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.task.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: TaskKey) -> Option<&mut Task> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.task.as_mut() } else { None }
    }

    /// Frees the place of a task that ended. The caller keeps its program and outcome, so no user value is dropped
    /// here.
    pub(crate) fn vacate(&mut self, key: TaskKey) {
        if let Some(slot) = self.slots.get_mut(key.index as usize)
            && slot.generation == key.generation
        {
            slot.task = None;
            self.retire(key.index);
        }
    }

    pub(crate) fn remove(&mut self, key: TaskKey) -> Option<Task> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let task = slot.task.take()?;
        self.retire(key.index);
        Some(task)
    }

    /// Makes the keys of the task stale. A place that has run out of generations is not used again.
    fn retire(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(index);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// All tasks that have not ended, by place in the arena.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TaskKey, &Task)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, slot)| {
            visits::count(1);
            Some((TaskKey { index: index as u32, generation: slot.generation }, slot.task.as_ref()?))
        })
    }

    /// The number of places: more than the largest index in use.
    pub(crate) fn width(&self) -> usize {
        self.slots.len()
    }

    /// Empties the arena, and keeps its memory unless the run was large.
    pub(crate) fn reset(&mut self) {
        const KEPT_SLOTS: usize = 1024;
        if self.slots.len() > KEPT_SLOTS {
            *self = Self::default();
        } else {
            self.slots.clear();
            self.free.clear();
        }
    }
}
