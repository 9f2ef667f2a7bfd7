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

/// Starts a task, and gives its handle.
///
/// The new task goes first if its priority is not lower than that of the one who spawns. It performs its effects with the
/// handlers that are in scope here.
pub struct Spawn<P> {
    program: P,
    name: Option<Arc<str>>,
    priority: Priority,
    is_daemon: bool,
}

impl<P> Spawn<P> {
    /// A task that runs this program: an `async fn(Ctx) -> Result<T>`, or a closure that gives such a future.
    pub fn new(program: P) -> Self {
        Self { program, name: None, priority: Priority::Normal, is_daemon: false }
    }

    /// A name for reports and pictures.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// When it runs, among those who could. [`Priority::Normal`] unless told otherwise.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Nobody minds if it has not ended when the run does.
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

/// What a task is from its start.
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

/// A program as the scheduler runs it: it starts when it is polled first, and leaves its value in the cell.
pub(crate) fn program_of<P, F, T>(program: P, ctx: Ctx, cell: Rc<ValueCell<T>>) -> Program
where
    P: FnOnce(Ctx) -> F + 'static,
    F: Future<Output = Result<T>> + 'static,
    T: 'static,
{
    Box::pin(async move {
        let value = program(ctx).await?;
        // It is the only one who sets it.
        let _ = cell.value.set(value);
        Ok(())
    })
}

/// Cancels a task: the effect it waits in fails with [`TaskCancelled`](crate::Error::TaskCancelled).
///
/// What the task does then is up to it: it may clean up, and await while it does; it may even go on. Its result is what it
/// returns. Never waits; does nothing to a task that has ended.
///
/// - A task that has not started never will.
/// - One that is not waiting hears of it when it would next have to. That goes for a task that cancels itself, too.
/// - A permit that it was granted, and has not seen yet, goes to the next in line at once.
/// - Within a [`shield`](Ctx::shield) it hears of it afterwards.
/// - Cancelled again before it has heard of it, it hears of it once; cancelled again while it cleans up, it hears of it again.
///   Cleaning up that must not be interrupted belongs in a shield. Releasing never waits, so it is never interrupted.
/// - If it awaits several effects at once, those in a semaphore's line all fail, and of the others the first to be polled.
/// - Its children live on.
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
