//! Values that will be there: of tasks, of promises, of the world outside.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use crate::sync::{AtomicUsize, Ordering};
use crate::tasks::TaskKey;
use crate::visits;
use crate::waiters::{EntryNumber, Waiter, Waiters};
use crate::{Error, Result};

/// A value that will be there: what a [`Task`] returns, or what somebody completes a [`Promise`](crate::Promise) with.
///
/// Anybody may wait for it, any number of times. The value is cloned for each; an error is the same one.
pub struct Eventual<T> {
    pub(crate) cell: Rc<ValueCell<T>>,
}

/// A handle of a spawned task. It works within its run only.
///
/// Dropping it changes nothing: the task runs on. That it failed is reported at the end if nobody ever waited for it.
pub struct Task<T> {
    pub(crate) eventual: Eventual<T>,
}

impl<T> Task<T> {
    /// Its number within the run. Tasks, promises and semaphores are counted together, from 0.
    pub fn id(&self) -> u64 {
        self.eventual.cell.settlement.number
    }

    /// True if it has ended, in whatever way.
    pub fn is_finished(&self) -> bool {
        self.eventual.cell.settlement.is_settled.get()
    }
}

impl<T> Eventual<T> {
    /// True if it has its value, or its error.
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

/// What can be waited for: a [`Task`], an [`Eventual`], a [`Wait`](crate::Wait) for one of them.
pub trait Awaitable {
    /// What it will be.
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
    /// What it settled to, once it has.
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
    /// Somebody waited for it, at some time.
    pub(crate) is_observed: Cell<bool>,
    pub(crate) source: Source,
}

/// Who can settle it.
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

    /// True if nobody is left who could complete it.
    pub(crate) fn is_orphaned(&self) -> bool {
        match &self.source {
            Source::Task(_) => false,
            Source::Promise(writers) => writers.get() == 0,
            Source::External(writers) => writers.load(Ordering::Acquire) == 0,
        }
    }
}

/// A value's cell, whatever the value.
pub(crate) trait Settle {
    fn settlement(&self) -> &Settlement;
}

impl<T> Settle for ValueCell<T> {
    fn settlement(&self) -> &Settlement {
        &self.settlement
    }
}

/// Several to wait for at once. Its task wakes when the group is decided, not with each of them.
pub(crate) struct Group {
    pub(crate) task: TaskKey,
    pub(crate) kind: GroupKind,
    members: Vec<Rc<dyn Settle>>,
    /// Where it stands in the line of each member that was open at first.
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
    /// Of a task that waits from now on, in the line of every member that has not settled.
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

    /// A member settled. True if that decides the group.
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

    /// The members that have not settled. Those that settled one after the other from the first on are not looked at again.
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
