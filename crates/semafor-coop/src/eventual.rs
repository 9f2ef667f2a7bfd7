//! Values that settle later: of tasks, of promises, and of promises of other threads.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use crate::sync::{AtomicUsize, Ordering};
use crate::tasks::TaskKey;
use crate::visits;
use crate::waiters::{EntryNumber, Waiter, Waiters};
use crate::{Error, Result};

/// A value that settles later: the result of a [`Task`], or the value of a [`Promise`](crate::Promise).
///
/// Any task may wait for it, any number of times. Each gets a clone of the value, or the same error.
pub struct Eventual<T> {
    pub(crate) cell: Rc<ValueCell<T>>,
}

/// A handle of a spawned task. Valid only within its run.
///
/// Dropping it does not stop the task. If the task fails and no task waited for it, that is reported at the end.
pub struct Task<T> {
    pub(crate) eventual: Eventual<T>,
}

impl<T> Task<T> {
    /// Its number within the run. Tasks, promises and semaphores share one counter, from 0.
    pub fn id(&self) -> u64 {
        self.eventual.cell.settlement.number
    }

    /// True if the task has ended, with a value or an error.
    pub fn is_finished(&self) -> bool {
        self.eventual.cell.settlement.is_settled.get()
    }
}

impl<T> Eventual<T> {
    /// True if it has its value or its error.
    pub fn is_settled(&self) -> bool {
        self.cell.settlement.is_settled.get()
    }
}

impl<T> Clone for Eventual<T> {
    fn clone(&self) -> Self {
        Self { cell: self.cell.clone() }
    }
}

impl<T> Clone for Task<T> {
    fn clone(&self) -> Self {
        Self { eventual: self.eventual.clone() }
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Task({})", self.id())
    }
}

impl<T> fmt::Debug for Eventual<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Eventual({})", self.cell.settlement.number)
    }
}

/// Something to wait for: a [`Task`], an [`Eventual`], or a [`Wait`](crate::Wait) for one of them.
pub trait Awaitable {
    /// The type of the value.
    type Value: Clone + 'static;

    /// What to wait for.
    fn eventual(&self) -> Eventual<Self::Value>;
}

impl<T: Clone + 'static> Awaitable for Eventual<T> {
    type Value = T;

    fn eventual(&self) -> Eventual<T> {
        self.clone()
    }
}

impl<T: Clone + 'static> Awaitable for Task<T> {
    type Value = T;

    fn eventual(&self) -> Eventual<T> {
        self.eventual.clone()
    }
}

impl<A: Awaitable> Awaitable for &A {
    type Value = A::Value;

    fn eventual(&self) -> Eventual<A::Value> {
        (*self).eventual()
    }
}

pub(crate) struct ValueCell<T> {
    pub(crate) settlement: Settlement,
    pub(crate) value: OnceCell<T>,
}

impl<T: Clone> ValueCell<T> {
    /// The value or the error, once it is settled.
    pub(crate) fn outcome(&self) -> Option<Result<T>> {
        if !self.settlement.is_settled.get() {
            return None;
        }
        match (self.settlement.failure.get(), self.value.get()) {
            (Some(error), _) => Some(Err(error.clone())),
            (None, value) => value.cloned().map(Ok),
        }
    }
}

/// The part of a value's cell that does not depend on its type.
pub(crate) struct Settlement {
    pub(crate) run: u64,
    pub(crate) number: u64,
    pub(crate) is_settled: Cell<bool>,
    pub(crate) failure: OnceCell<Error>,
    pub(crate) waiters: RefCell<Waiters>,
    /// A task has waited for it.
    pub(crate) is_observed: Cell<bool>,
    pub(crate) source: Source,
}

/// What can settle a value.
pub(crate) enum Source {
    Task(Cell<TaskKey>),
    /// How many handles could complete the promise.
    Promise(Cell<usize>),
    External(Arc<AtomicUsize>),
}

impl Settlement {
    pub(crate) fn new(run: u64, number: u64, source: Source) -> Self {
        Self {
            run,
            number,
            is_settled: Cell::new(false),
            failure: OnceCell::new(),
            waiters: RefCell::default(),
            is_observed: Cell::new(false),
            source,
        }
    }

    pub(crate) fn take_waiters(&self) -> Waiters {
        self.waiters.take()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// The task whose end it is.
    pub(crate) fn task(&self) -> Option<TaskKey> {
        match &self.source {
            Source::Task(key) => Some(key.get()),
            _ => None,
        }
    }

    /// True if no handle is left that could complete it.
    pub(crate) fn is_orphaned(&self) -> bool {
        match &self.source {
            Source::Task(_) => false,
            Source::Promise(writers) => writers.get() == 0,
            Source::External(writers) => writers.load(Ordering::Acquire) == 0,
        }
    }
}

/// A value's cell, without the type of the value.
pub(crate) trait Settle {
    fn settlement(&self) -> &Settlement;
}

impl<T> Settle for ValueCell<T> {
    fn settlement(&self) -> &Settlement {
        &self.settlement
    }
}

/// Several values that a task waits for at once. The task wakes when the group is decided, not for each member.
pub(crate) struct Group {
    pub(crate) task: TaskKey,
    pub(crate) kind: GroupKind,
    members: Vec<Rc<dyn Settle>>,
    /// Its entry among the waiters of each member that was open at first.
    places: RefCell<Vec<EntryNumber>>,
    remaining: Cell<usize>,
    /// All members before this one have settled.
    first_open: Cell<usize>,
    /// The member that decided it: the first to fail, or the winner.
    decided_by: Cell<Option<usize>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupKind {
    Gather,
    Race,
}

impl Group {
    /// Makes the group of a task, and adds it to the waiters of every member that has not settled.
    pub(crate) fn wait(task: TaskKey, kind: GroupKind, members: Vec<Rc<dyn Settle>>) -> Rc<Self> {
        let remaining = members.iter().filter(|member| !member.settlement().is_settled.get()).count();
        let group = Rc::new(Self {
            task,
            kind,
            places: RefCell::new(Vec::with_capacity(members.len())),
            members,
            remaining: Cell::new(remaining),
            first_open: Cell::new(0),
            decided_by: Cell::new(None),
        });
        let mut places = group.places.borrow_mut();
        for (index, member) in group.members.iter().enumerate() {
            let settlement = member.settlement();
            places.push(match settlement.is_settled.get() {
                true => EntryNumber::default(),
                false => settlement.waiters.borrow_mut().push(Waiter::Member(group.clone(), index)),
            });
        }
        drop(places);
        group
    }

    /// Called when a member settles. True if that decides the group.
    pub(crate) fn member_settled(&self, member: usize) -> bool {
        if self.decided_by.get().is_some() {
            return false;
        }
        self.remaining.set(self.remaining.get() - 1);
        let decides = self.kind == GroupKind::Race || self.members[member].settlement().has_failed();
        if decides {
            self.decided_by.set(Some(member));
        }
        decides || self.remaining.get() == 0
    }

    pub(crate) fn decided_by(&self) -> Option<usize> {
        self.decided_by.get()
    }

    /// True if there is nothing left to wait for.
    pub(crate) fn is_decided(&self) -> bool {
        self.decided_by.get().is_some() || self.remaining.get() == 0
    }

    /// How many members have not settled, unless it is decided.
    pub(crate) fn remaining(&self) -> usize {
        self.remaining.get()
    }

    /// The members that have not settled. The settled ones at the start of the list are not visited again.
    pub(crate) fn open_members(&self) -> impl Iterator<Item = &Rc<dyn Settle>> {
        let is_open = |member: &Rc<dyn Settle>| {
            visits::count(1);
            !member.settlement().is_settled.get()
        };
        let settled = self.first_open.get();
        let more = self.members[settled..].iter().take_while(|member| !is_open(member)).count();
        self.first_open.set(settled + more);
        self.members[settled + more..].iter().filter(move |member| is_open(member))
    }

    pub(crate) fn leave_lines(&self) {
        if self.remaining.get() == 0 {
            return;
        }
        for (member, place) in self.members.iter().zip(self.places.take()) {
            let settlement = member.settlement();
            if !settlement.is_settled.get() {
                settlement.waiters.borrow_mut().remove(place);
            }
        }
    }
}
