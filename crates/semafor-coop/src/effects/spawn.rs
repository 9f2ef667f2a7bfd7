use std::cell::{Cell, OnceCell, RefMut};
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use crate::eventual::{Settle, Settlement, Source, ValueCell};
use crate::performing::{Begun, Operation, Performing};
use crate::recording::Event;
use crate::scheduler::drop_ignoring_panic;
use crate::small_list::SmallList;
use crate::state::State;
use crate::tasks::{self, Phase, Program, TaskKey};
use crate::{Ctx, Error, Eventual, Perform, Priority, Result, Task};

/// Starts a task, and returns its handle.
///
/// The new task runs before its parent goes on, unless its priority is lower. Tasks that were ready earlier still run
/// before both. The new task inherits the handlers in scope.
pub struct Spawn<P> {
    program: P,
    name: Option<Arc<str>>,
    priority: Priority,
    is_daemon: bool,
}

impl<P> Spawn<P> {
    /// A task that runs this program: an `async fn(Ctx) -> Result<T>`, or a closure that returns such a future.
    pub fn new(program: P) -> Self {
        Self { program, name: None, priority: Priority::Normal, is_daemon: false }
    }

    /// A name for reports and pictures.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the priority. [`Priority::Normal`] by default.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Makes it a daemon: it is not reported if it has not ended when the run does.
    pub fn daemon(mut self) -> Self {
        self.is_daemon = true;
        self
    }
}

impl<P, F, T> Perform for Spawn<P>
where
    P: FnOnce(Ctx) -> F + 'static,
    F: Future<Output = Result<T>> + 'static,
    T: 'static,
{
    type Out = Task<T>;

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result<Task<T>>> {
        let Self { program, name, priority, is_daemon } = self;
        Performing::new(ctx, at, Spawning { program: Some(program), name, priority, is_daemon, task: None })
    }
}

struct Spawning<P, T> {
    program: Option<P>,
    name: Option<Arc<str>>,
    priority: Priority,
    is_daemon: bool,
    task: Option<Task<T>>,
}

impl<P, F, T> Operation for Spawning<P, T>
where
    P: FnOnce(Ctx) -> F + 'static,
    F: Future<Output = Result<T>> + 'static,
    T: 'static,
{
    type Out = Task<T>;

    fn begin(
        &mut self,
        mut state: RefMut<'_, State>,
        ctx: &Ctx,
        _: &'static Location<'static>,
    ) -> Begun<Task<T>> {
        let Some(program) = self.program.take() else { return Begun::Switched };
        let number = state.next_number();
        let cell = Rc::new(ValueCell {
            settlement: Settlement::new(state.run, number, Source::Task(Cell::default())),
            value: OnceCell::new(),
        });
        let name = self.name.take();
        state.record_for(number, || Event::Spawned { name: name.clone() });
        let spawned = Spawned { number, name, priority: self.priority, is_daemon: self.is_daemon };
        let program = program_of(program, ctx.clone(), cell.clone());
        state.spawn(spawned, program, cell.clone());
        self.task = Some(Task { eventual: Eventual { cell } });
        state.requeue(Priority::High);
        Begun::Switched
    }

    fn outcome(&mut self) -> Result<Task<T>> {
        self.task.take().ok_or(Error::ForeignHandle)
    }
}

/// The properties of a new task.
pub(crate) struct Spawned {
    pub(crate) number: u64,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) priority: Priority,
    pub(crate) is_daemon: bool,
}

impl State {
    pub(crate) fn spawn(&mut self, spawned: Spawned, program: Program, outcome: Rc<dyn Settle>) -> TaskKey {
        let Spawned { number, name, priority, is_daemon } = spawned;
        let key = self.tasks.insert(tasks::Task {
            program: Some(program),
            number,
            name,
            priority,
            is_daemon,
            phase: Phase::New,
            is_cancelled: false,
            deadlock: None,
            waits: SmallList::default(),
            wait_numbers: 0,
            held: SmallList::default(),
            outcome: outcome.clone(),
        });
        if let Source::Task(own) = &outcome.settlement().source {
            own.set(key);
        }
        self.ready.push_back(priority, key);
        key
    }
}

/// A program as the scheduler runs it: it starts at its first poll, and stores its value in the cell.
pub(crate) fn program_of<P, F, T>(program: P, ctx: Ctx, cell: Rc<ValueCell<T>>) -> Program
where
    P: FnOnce(Ctx) -> F + 'static,
    F: Future<Output = Result<T>> + 'static,
    T: 'static,
{
    Box::pin(async move {
        let value = program(ctx).await?;
        // Set only here, and only once.
        let _ = cell.value.set(value);
        Ok(())
    })
}

/// Cancels a task: the effect it waits in fails with [`TaskCancelled`](crate::Error::TaskCancelled).
///
/// The task may then clean up, and await while it does, or even continue. Its result is what it returns. `Cancel` never
/// waits, and does nothing to a task that has ended.
///
/// - A task that has not started never will.
/// - A task that is not waiting gets the error at its next wait. So does a task that cancels itself.
/// - A permit that the task was granted but has not received goes to the next waiter at once.
/// - Within a [`shield`](Ctx::shield) the task gets the error afterwards.
/// - Several cancels before the task gets the error count as one. A cancel during cleanup interrupts the cleanup; put
///   cleanup that must finish in a shield. Releasing never waits, so it is never interrupted.
/// - If the task awaits several effects at once, all those in a semaphore's line fail, and of the others the first to
///   be polled.
/// - Its children continue.
#[derive(Clone, Copy, Debug)]
pub struct Cancel<'t, T>(pub &'t Task<T>);

impl<T> Perform for Cancel<'_, T> {
    type Out = ();

    fn perform(self, ctx: &Ctx, at: &'static Location<'static>) -> impl Future<Output = Result> {
        Performing::new(ctx, at, self)
    }
}

impl<T> Operation for Cancel<'_, T> {
    type Out = ();

    fn begin(&mut self, mut state: RefMut<'_, State>, _: &Ctx, _: &'static Location<'static>) -> Begun<()> {
        let settlement = &self.0.eventual.cell.settlement;
        let checked = state.check_run(settlement.run);
        let ended = match settlement.task() {
            Some(key) if checked.is_ok() => state.cancel(key),
            _ => None,
        };
        drop(state);
        drop_ignoring_panic(ended);
        Begun::Done(checked)
    }
}
