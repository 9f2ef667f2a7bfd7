//! Semaphores of a run. [`Gate`] alone decides which waiter gets a permit.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use semafor_core::{Gate, PermitId};

use crate::Ctx;
use crate::tasks::TaskKey;
use crate::visits;

/// An opaque handle of a semaphore of one run, from [`CreateSemaphore`](crate::CreateSemaphore).
///
/// Clones are handles of the same semaphore, which is freed with the last one. Another run
/// [refuses](crate::Error::ForeignHandle) the handle.
#[derive(Clone)]
pub struct Semaphore {
    pub(crate) cell: Rc<SemaphoreCell>,
}

impl Semaphore {
    /// Its number within the run. Tasks, promises and semaphores share one counter, from 0.
    pub fn id(&self) -> u64 {
        self.cell.number
    }

    /// How many permits there are.
    pub fn permits(&self) -> u32 {
        self.cell.gate.borrow().slots()
    }

    /// How many permits are free.
    pub fn available(&self) -> u32 {
        let gate = self.cell.gate.borrow();
        gate.slots() - gate.held()
    }

    /// How many tasks wait in line.
    pub fn waiting(&self) -> usize {
        self.cell.gate.borrow().waiting()
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Semaphore({})", self.id())
    }
}

pub(crate) struct SemaphoreCell {
    pub(crate) run: u64,
    pub(crate) number: u64,
    pub(crate) name: Option<Arc<str>>,
    /// Its permits are released by other tasks than their holders.
    pub(crate) is_signal: bool,
    pub(crate) gate: RefCell<Gate<TaskKey, Hold>>,
    /// Permits that any task may release, as found by the last search. Some may have been released since.
    pub(crate) unguarded: RefCell<VecDeque<PermitId>>,
}

impl SemaphoreCell {
    /// A permit without a guard, and the task that acquired it. Searches all holders only if it knows none.
    pub(crate) fn next_unguarded(&self) -> Option<(PermitId, TaskKey)> {
        let (mut gate, mut known) = (self.gate.borrow_mut(), self.unguarded.borrow_mut());
        let mut next = |known: &mut VecDeque<PermitId>| {
            while let Some(id) = known.pop_front() {
                if let Ok(hold) = gate.tag_mut(id) {
                    return Some((id, hold.task));
                }
            }
            known.extend(
                gate.holders()
                    .inspect(|_| visits::count(1))
                    .filter(|holder| !holder.tag.is_guarded)
                    .map(|holder| holder.id),
            );
            None
        };
        next(&mut known).or_else(|| next(&mut known))
    }

    pub(crate) fn label(&self) -> String {
        match &self.name {
            Some(name) => format!("semaphore {name} (id {})", self.number),
            None => format!("semaphore {}", self.number),
        }
    }
}

/// The holder of a permit.
#[derive(Clone, Copy, Default)]
pub(crate) struct Hold {
    pub(crate) task: TaskKey,
    /// In a [`Permit`], which alone can release it.
    pub(crate) is_guarded: bool,
    /// In a guard that stays with the task, which alone can release it.
    pub(crate) is_bound: bool,
    pub(crate) at: Option<&'static Location<'static>>,
}

/// A permit that is released when it is dropped, however its task ends.
///
/// Releasing never waits, so a cancellation, a panic or the end of the run can't interrupt it.
#[must_use = "a permit that is dropped at once protects nothing"]
pub struct Permit {
    pub(crate) ctx: Ctx,
    pub(crate) semaphore: Semaphore,
    pub(crate) id: PermitId,
}

impl Permit {
    /// Releases the permit, as dropping it does.
    pub fn release(self) {}

    /// The semaphore of the permit.
    pub fn semaphore(&self) -> &Semaphore {
        &self.semaphore
    }

    /// Its slot: a number from 0, below the number of permits, that no other holder has at the same time.
    pub fn slot(&self) -> u32 {
        self.id.slot()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permit({} of {:?})", self.id.slot(), self.semaphore)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.ctx.scheduler.borrow().release_permit(&self.semaphore.cell, self.id);
    }
}
