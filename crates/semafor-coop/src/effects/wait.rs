use std::cell::{Cell, RefMut};
use std::panic::Location;
use std::rc::Rc;

use crate::eventual::{Group, GroupKind, Settle};
use crate::performing::{Begun, Operation, Performing};
use crate::state::State;
use crate::tasks::{TaskKey, WaitOn, Waiter};
use crate::{Awaitable, Ctx, Error, Eventual, Perform, Result};

/// Waits for a task or promise, and gives its value, or fails with its error. Any number may wait, any number of times.
#[derive(Clone, Copy, Debug)]
pub struct Wait<A>(pub A);

impl<A: Awaitable> Awaitable for Wait<A> {
    type Value = A::Value;

    fn eventual(&self) -> Eventual<A::Value> {
        self.0.eventual()
    }
}

impl<A: Awaitable> Perform for Wait<A> {
    type Out = A::Value;

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result<A::Value>> {
        Performing::new(ctx, at, Waiting { eventual: self.0.eventual(), task: TaskKey::NONE })
    }
}

struct Waiting<T> {
    eventual: Eventual<T>,
    task: TaskKey,
}

/// Notes that somebody waits for it.
///
/// # Errors
///
/// If that is of another run, or the end of the very task that waits.
fn check(state: &State, cell: &dyn Settle) -> Result {
    let settlement = cell.settlement();
    state.check_run(settlement.run)?;
    settlement.is_observed.set(true);
    if settlement.task() == Some(state.current) { Err(Error::WaitsForItself) } else { Ok(()) }
}

impl<T: Clone + 'static> Operation for Waiting<T> {
    type Out = T;

    fn begin(&mut self, state: RefMut<'_, State>, _: &Ctx, _: &'static Location<'static>) -> Begun<T> {
        let cell = &self.eventual.cell;
        if let Err(error) = check(&state, &**cell) {
            return Begun::Done(Err(error));
        }
        self.task = state.current;
        // The value's clone is the user's code.
        drop(state);
        if let Some(outcome) = cell.outcome() {
            return Begun::Done(outcome);
        }
        cell.settlement.waiters.borrow_mut().push(Waiter::Task(self.task));
        Begun::Wait(WaitOn::Eventual(cell.clone()))
    }

    fn resume(&mut self, state: RefMut<'_, State>) -> Option<Result<T>> {
        drop(state);
        self.eventual.cell.outcome()
    }

    fn withdraw(&mut self, _: &mut State) {
        let mut waiters = self.eventual.cell.settlement.waiters.borrow_mut();
        let own =
            waiters.iter().position(|waiter| matches!(waiter, Waiter::Task(task) if *task == self.task));
        if let Some(place) = own {
            waiters.remove(place);
        }
    }
}

/// Waits for all of them, and gives their values in the order in which they were named. Takes tasks, promises, and
/// [`Wait`]s for them; the same one twice is fine.
///
/// Fails with the first that fails, at once; the others run on.
#[derive(Clone, Debug)]
pub struct Gather<I>(pub I);

impl<I> Perform for Gather<I>
where
    I: IntoIterator,
    I::Item: Awaitable,
{
    type Out = Vec<<I::Item as Awaitable>::Value>;

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result<Self::Out>> {
        let members = self.0.into_iter().map(|member| member.eventual()).collect();
        Performing::new(ctx, at, Gathering(Members { members, group: None }))
    }
}

/// Waits for the first of them that ends, and gives its value, or fails with its error; the others run on.
///
/// If several have ended already, it is the one that was named first.
#[derive(Clone, Debug)]
pub struct Race<I>(pub I);

impl<I> Perform for Race<I>
where
    I: IntoIterator,
    I::Item: Awaitable,
{
    type Out = <I::Item as Awaitable>::Value;

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result<Self::Out>> {
        let members = self.0.into_iter().map(|member| member.eventual()).collect();
        Performing::new(ctx, at, Racing(Members { members, group: None }))
    }
}

struct Members<T> {
    members: Vec<Eventual<T>>,
    group: Option<Rc<Group>>,
}

impl<T: Clone + 'static> Members<T> {
    fn check(&self, state: &State) -> Result {
        self.members.iter().try_for_each(|member| check(state, &*member.cell))
    }

    fn wait(&mut self, kind: GroupKind, task: TaskKey) -> WaitOn {
        let members: Vec<Rc<dyn Settle>> =
            self.members.iter().map(|member| member.cell.clone() as _).collect();
        let remaining = members.iter().filter(|member| !member.settlement().is_settled.get()).count();
        let group =
            Group { task, kind, members, remaining: Cell::new(remaining), decided_by: Cell::new(None) };
        let group = Rc::new(group);
        group.join_lines();
        self.group = Some(group.clone());
        WaitOn::Group(group)
    }

    fn leave(&mut self) {
        if let Some(group) = self.group.take() {
            group.leave_lines();
        }
    }
}

struct Gathering<T>(Members<T>);

impl<T: Clone + 'static> Gathering<T> {
    fn all(&self) -> Option<Result<Vec<T>>> {
        self.0.members.iter().map(|member| member.cell.outcome()).collect()
    }
}

impl<T: Clone + 'static> Operation for Gathering<T> {
    type Out = Vec<T>;

    fn begin(&mut self, state: RefMut<'_, State>, _: &Ctx, _: &'static Location<'static>) -> Begun<Vec<T>> {
        if let Err(error) = self.0.check(&state) {
            return Begun::Done(Err(error));
        }
        let task = state.current;
        drop(state);
        let failures = self.0.members.iter().filter_map(|member| member.cell.settlement.failure.get());
        if let Some(error) = failures.into_iter().next() {
            return Begun::Done(Err(error.clone()));
        }
        match self.all() {
            Some(values) => Begun::Done(values),
            None => Begun::Wait(self.0.wait(GroupKind::Gather, task)),
        }
    }

    fn resume(&mut self, state: RefMut<'_, State>) -> Option<Result<Vec<T>>> {
        drop(state);
        let group = self.0.group.as_ref()?;
        match group.decided_by.get() {
            Some(failed) => group.members[failed].settlement().failure.get().cloned().map(Err),
            None if group.remaining.get() == 0 => self.all(),
            None => None,
        }
    }

    fn withdraw(&mut self, _: &mut State) {
        self.0.leave();
    }
}

struct Racing<T>(Members<T>);

impl<T: Clone + 'static> Operation for Racing<T> {
    type Out = T;

    fn begin(&mut self, state: RefMut<'_, State>, _: &Ctx, _: &'static Location<'static>) -> Begun<T> {
        if self.0.members.is_empty() {
            return Begun::Done(Err(Error::NothingToRace));
        }
        if let Err(error) = self.0.check(&state) {
            return Begun::Done(Err(error));
        }
        let task = state.current;
        drop(state);
        match self.0.members.iter().find_map(|member| member.cell.outcome()) {
            Some(outcome) => Begun::Done(outcome),
            None => Begun::Wait(self.0.wait(GroupKind::Race, task)),
        }
    }

    fn resume(&mut self, state: RefMut<'_, State>) -> Option<Result<T>> {
        drop(state);
        let winner = self.0.group.as_ref()?.decided_by.get()?;
        self.0.members[winner].cell.outcome()
    }

    fn withdraw(&mut self, _: &mut State) {
        self.0.leave();
    }
}
