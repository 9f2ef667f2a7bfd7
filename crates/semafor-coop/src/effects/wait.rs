use std::cell::RefMut;
use std::panic::Location;
use std::rc::Rc;

use crate::eventual::{Group, GroupKind, Settle, Settlement};
use crate::performing::{Begun, Operation, Performing, Registered};
use crate::state::State;
use crate::tasks::WaitOn;
use crate::waiters::{EntryNumber, Waiter};
use crate::{Awaitable, Ctx, Error, Eventual, Perform, Priority, Result};

/// Waits for a task or promise, and returns its value or its error. Any number of tasks may wait, any number of times.
#[derive(Clone, Copy, Debug)]
pub struct Wait<A>(pub A);

impl<A> Wait<A> {
    /// Resumes with this priority. From the next wait on, the task has its own priority again.
    pub fn priority(self, priority: Priority) -> WaitAt<A> {
        WaitAt { awaited: self.0, priority }
    }
}

/// A [`Wait`] with a priority of its own.
#[derive(Clone, Copy, Debug)]
pub struct WaitAt<A> {
    awaited: A,
    priority: Priority,
}

impl<A: Awaitable> Awaitable for Wait<A> {
    type Value = A::Value;

    fn eventual(&self) -> Eventual<A::Value> {
        self.0.eventual()
    }
}

impl<A: Awaitable> Perform for Wait<A> {
    type Out = A::Value;

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result<A::Value>> {
        Performing::new(
            ctx,
            at,
            Waiting { eventual: self.0.eventual(), priority: None, place: EntryNumber::default() },
        )
    }
}

impl<A: Awaitable> Perform for WaitAt<A> {
    type Out = A::Value;

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result<A::Value>> {
        let (eventual, priority) = (self.awaited.eventual(), Some(self.priority));
        Performing::new(ctx, at, Waiting { eventual, priority, place: EntryNumber::default() })
    }
}

struct Waiting<T> {
    eventual: Eventual<T>,
    priority: Option<Priority>,
    /// Its entry among the waiters.
    place: EntryNumber,
}

/// Marks a value as observed.
///
/// # Errors
///
/// If the value is of another run, or is the result of the task that waits.
fn check(state: &State, cell: &dyn Settle) -> Result {
    let settlement = cell.settlement();
    state.check_run(settlement.run)?;
    settlement.is_observed.set(true);
    if settlement.task() == Some(state.current) { Err(Error::WaitsForItself) } else { Ok(()) }
}

impl<T: Clone + 'static> Operation for Waiting<T> {
    type Out = T;

    fn begin(&mut self, mut state: RefMut<'_, State>, _: &Ctx, at: &'static Location<'static>) -> Begun<T> {
        let cell = &self.eventual.cell;
        if let Err(error) = check(&state, &**cell) {
            return Begun::Done(Err(error));
        }
        if cell.settlement.is_settled.get() {
            // Cloning the value runs user code.
            drop(state);
            return Begun::Done(self.outcome());
        }
        let waiter = Waiter::Task(state.current, self.priority);
        self.place = cell.settlement.waiters.borrow_mut().push(waiter);
        Begun::Wait(state.register_wait(WaitOn::Eventual(cell.clone()), at))
    }

    fn is_done(&mut self, _: &mut State, _: &'static Location<'static>) -> bool {
        self.eventual.cell.settlement.is_settled.get()
    }

    fn outcome(&mut self) -> Result<T> {
        self.eventual.cell.outcome().unwrap_or(Err(Error::ForeignHandle))
    }

    fn withdraw(&mut self, _: &mut State) {
        self.eventual.cell.settlement.waiters.borrow_mut().remove(self.place);
    }
}

/// Waits for all of its arguments, and returns their values in the same order. Arguments are tasks, promises, and
/// [`Wait`]s for them. The same one may appear twice.
///
/// Fails with the first failure, at once. The other tasks continue.
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
        Performing::new(ctx, at, Gathering(Members { members, group: None, decided_by: None }))
    }
}

/// Waits for the first of its arguments that ends, and returns its value or its error. The other tasks continue.
///
/// If several have ended already, the first argument among them wins.
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
        Performing::new(ctx, at, Racing(Members { members, group: None, decided_by: None }))
    }
}

struct Members<T> {
    members: Vec<Eventual<T>>,
    group: Option<Rc<Group>>,
    decided_by: Option<usize>,
}

impl<T: Clone + 'static> Members<T> {
    fn check(&self, state: &State) -> Result {
        self.members.iter().try_for_each(|member| check(state, &*member.cell))
    }

    fn wait(&mut self, kind: GroupKind, state: &mut State, at: &'static Location<'static>) -> Registered {
        let task = state.current;
        let members: Vec<Rc<dyn Settle>> =
            self.members.iter().map(|member| member.cell.clone() as _).collect();
        let group = Group::wait(task, kind, members);
        self.group = Some(group.clone());
        state.register_wait(WaitOn::Group(group), at)
    }

    fn is_decided(&mut self) -> bool {
        let Some(group) = &self.group else { return false };
        self.decided_by = group.decided_by();
        group.is_decided()
    }

    fn is_settled(&self) -> bool {
        self.members.iter().all(|member| member.cell.settlement.is_settled.get())
    }

    fn leave(&mut self) {
        if let Some(group) = self.group.take() {
            group.leave_lines();
        }
    }
}

struct Gathering<T>(Members<T>);

impl<T: Clone + 'static> Operation for Gathering<T> {
    type Out = Vec<T>;

    fn begin(
        &mut self,
        mut state: RefMut<'_, State>,
        _: &Ctx,
        at: &'static Location<'static>,
    ) -> Begun<Vec<T>> {
        if let Err(error) = self.0.check(&state) {
            return Begun::Done(Err(error));
        }
        let mut settlements = self.0.members.iter().map(|member| &member.cell.settlement);
        self.0.decided_by = settlements.position(Settlement::has_failed);
        if self.0.decided_by.is_some() || self.0.is_settled() {
            drop(state);
            return Begun::Done(self.outcome());
        }
        Begun::Wait(self.0.wait(GroupKind::Gather, &mut state, at))
    }

    fn is_done(&mut self, _: &mut State, _: &'static Location<'static>) -> bool {
        self.0.is_decided()
    }

    fn outcome(&mut self) -> Result<Vec<T>> {
        let outcome = |member: &Eventual<T>| member.cell.outcome().unwrap_or(Err(Error::ForeignHandle));
        match self.0.decided_by {
            Some(failed) => outcome(&self.0.members[failed]).map(|_| Vec::new()),
            None => self.0.members.iter().map(outcome).collect(),
        }
    }

    fn withdraw(&mut self, _: &mut State) {
        self.0.leave();
    }
}

struct Racing<T>(Members<T>);

impl<T: Clone + 'static> Operation for Racing<T> {
    type Out = T;

    fn begin(&mut self, mut state: RefMut<'_, State>, _: &Ctx, at: &'static Location<'static>) -> Begun<T> {
        if self.0.members.is_empty() {
            return Begun::Done(Err(Error::NothingToRace));
        }
        if let Err(error) = self.0.check(&state) {
            return Begun::Done(Err(error));
        }
        let mut settlements = self.0.members.iter().map(|member| &member.cell.settlement);
        self.0.decided_by = settlements.position(|settlement| settlement.is_settled.get());
        if self.0.decided_by.is_some() {
            drop(state);
            return Begun::Done(self.outcome());
        }
        Begun::Wait(self.0.wait(GroupKind::Race, &mut state, at))
    }

    fn is_done(&mut self, _: &mut State, _: &'static Location<'static>) -> bool {
        self.0.is_decided()
    }

    fn outcome(&mut self) -> Result<T> {
        let winner = self.0.decided_by.and_then(|winner| self.0.members[winner].cell.outcome());
        winner.unwrap_or(Err(Error::NothingToRace))
    }

    fn withdraw(&mut self, _: &mut State) {
        self.0.leave();
    }
}
