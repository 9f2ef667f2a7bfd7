use std::panic::Location;
use std::sync::Arc;

use semafor_core::Timestamp;

use crate::Deadlock;
use crate::eventual::GroupKind;
use crate::tasks::WaitOn;

/// The steps of a run. [`to_svg`](Self::to_svg) draws them.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub(crate) steps: Vec<Step>,
}

/// An event of a task.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) at: Timestamp,
    pub(crate) task: u64,
    pub(crate) event: Event,
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Spawned {
        name: Option<Arc<str>>,
    },
    SemaphoreCreated {
        semaphore: u64,
        permits: u32,
        name: Option<Arc<str>>,
    },
    Runs,
    /// The task begins to wait.
    Waits {
        on: Waited,
        at: &'static Location<'static>,
    },
    /// The wait has ended.
    Resumed,
    Acquired {
        semaphore: u64,
        weight: u32,
    },
    Released {
        semaphore: u64,
    },
    Cancelled,
    Deadlock(Arc<Deadlock>),
    Logged(String),
    Ended {
        error: Option<String>,
    },
}

/// What a task waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waited {
    Semaphore(u64),
    Eventual(u64),
    Gather,
    Race,
    Timer,
}

impl Recording {
    pub(crate) fn add(&mut self, at: Timestamp, task: u64, event: Event) {
        // A task that simply keeps running needs no new event.
        let is_old = matches!(event, Event::Runs)
            && self
                .steps
                .iter()
                .rev()
                .find(|step| matches!(step.event, Event::Runs))
                .is_some_and(|last| last.task == task);
        if !is_old {
            self.steps.push(Step { at, task, event });
        }
    }
}

impl Event {
    pub(crate) fn waits(on: &WaitOn, at: &'static Location<'static>) -> Self {
        let on = match on {
            WaitOn::Semaphore { cell, .. } => Waited::Semaphore(cell.number),
            WaitOn::Eventual(cell) => Waited::Eventual(cell.settlement().number),
            WaitOn::Group(group) => match group.kind {
                GroupKind::Gather => Waited::Gather,
                GroupKind::Race => Waited::Race,
            },
            WaitOn::Timer => Waited::Timer,
        };
        Self::Waits { on, at }
    }
}
