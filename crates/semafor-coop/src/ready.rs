//! The ready tasks of each priority, in the order in which they became ready.

use std::collections::VecDeque;

use crate::Priority;
use crate::tasks::TaskKey;

const LEVELS: usize = Priority::High as usize + 1;

#[derive(Default)]
pub(crate) struct Ready {
    levels: [VecDeque<TaskKey>; LEVELS],
}

impl Ready {
    #[inline]
    pub(crate) fn push_back(&mut self, priority: Priority, task: TaskKey) {
        self.levels[priority as usize].push_back(task);
    }

    pub(crate) fn push_front(&mut self, priority: Priority, task: TaskKey) {
        self.levels[priority as usize].push_front(task);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<TaskKey> {
        self.levels.iter_mut().rev().find_map(VecDeque::pop_front)
    }

    /// The tasks of the highest priority that has any.
    pub(crate) fn first_level(&mut self) -> Option<&mut VecDeque<TaskKey>> {
        self.levels.iter_mut().rev().find(|level| !level.is_empty())
    }

    /// True if a task of this priority or above is ready.
    pub(crate) fn has_at_least(&self, priority: Priority) -> bool {
        self.levels[priority as usize..].iter().any(|level| !level.is_empty())
    }

    pub(crate) fn clear(&mut self) {
        self.levels.iter_mut().for_each(VecDeque::clear);
    }
}
