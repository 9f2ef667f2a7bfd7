//! Runs a program, poll by poll.

use std::cell::{Cell, OnceCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::deadlock::Deadlocks;
use crate::effects::{Spawned, program_of};
use crate::eventual::{Settlement, Source, ValueCell};
use crate::recording::Event;
use crate::report::Findings;
use crate::schedule::Chooser;
use crate::scheduler::{Scheduler, drop_ignoring_panic};
use crate::stall::StallWatch;
use crate::state::State;
use crate::tasks::{Phase, Program, ROOT, Task, TaskKey};
use crate::{
    Abandoned, Clock, Ctx, Error, Lull, Outcome, Priority, Recording, Report, Result, Schedule, Stall,
};

/// Runs a program with the default settings: virtual time, first come first served. [`Runtime`] also returns a report.
///
/// # Errors
///
/// The error of the program.
pub fn run<P, F, T>(program: P) -> Result<T>
where
    P: FnOnce(Ctx) -> F + 'static,
    F: Future<Output = Result<T>> + 'static,
    T: 'static,
{
    Runtime::new().run(program).result
}

/// How to run a program.
///
/// ```
/// use semafor_coop::{Clock, Ctx, Runtime};
///
/// let outcome = Runtime::new().clock(Clock::Virtual).run(async |ctx: Ctx| {
///     ctx.delay(3600.0).await?;
///     ctx.log("an hour later").await
/// });
/// assert!(outcome.result.is_ok());
/// assert_eq!(outcome.report.log[0].to_string(), "3600.000 root: an hour later");
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it runs a program"]
pub struct Runtime {
    pub(crate) clock: Clock,
    schedule: Schedule,
    pub(crate) deadlocks: Deadlocks,
    is_recorded: bool,
    has_sites: bool,
    pause: fn(&Lull<'_>) -> Result,
    most_steps: Option<u64>,
    stall_watch: StallWatch,
}

impl Default for Runtime {
    fn default() -> Self {
        Self {
            clock: Clock::default(),
            schedule: Schedule::default(),
            deadlocks: Deadlocks::default(),
            is_recorded: false,
            has_sites: true,
            most_steps: None,
            stall_watch: StallWatch::default(),
            pause: |lull| {
                lull.wait();
                Ok(())
            },
        }
    }
}

impl Runtime {
    /// Virtual time, first come first served, deadlock detection on, nothing recorded.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets how the next task is chosen.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// Sets which deadlocks are reported.
    pub fn deadlocks(mut self, deadlocks: Deadlocks) -> Self {
        self.deadlocks = deadlocks;
        self
    }

    /// Records the steps of the run, for a [picture](Recording::to_svg).
    pub fn record(mut self) -> Self {
        self.is_recorded = true;
        self
    }

    /// Leaves lines of Rust out of deadlocks and reports. For programs in another language, whose lines are unknown
    /// here.
    pub fn hide_sites(mut self) -> Self {
        self.has_sites = false;
        self
    }

    /// Sets the function that waits while no task can run. For a thread that does other work meanwhile. An error of the
    /// function ends the run.
    pub fn pause(mut self, pause: fn(&Lull<'_>) -> Result) -> Self {
        self.pause = pause;
        self
    }

    /// Ends the run with [`Error::TooManySteps`] if it has not ended after so many [steps](Running::step). While
    /// schedules are [explored](Schedule), every effect is a step.
    ///
    /// For programs that may run forever without a deadlock: those that poll, or that catch a deadlock and repeat the
    /// same wait.
    pub fn most_steps(mut self, most: u64) -> Self {
        self.most_steps = Some(most);
        self
    }

    /// How long all tasks may wait for [other threads](crate::ExternalPromise), in real time, before that is reported
    /// as a [stall](Stall); it is reported again after each further span. 30 seconds by default.
    pub fn stall_after(mut self, every: Duration) -> Self {
        self.stall_watch.every = every;
        self
    }

    /// Sets a function that is called with each stall while it lasts. The [report](Report::stalls) has the stalls, too,
    /// but only after the run.
    pub fn on_stall(mut self, listener: impl Fn(&Stall) + Send + Sync + 'static) -> Self {
        self.stall_watch.listener = Some(Arc::new(listener));
        self
    }

    /// Runs a program to its end.
    pub fn run<P, F, T>(&self, program: P) -> Outcome<T>
    where
        P: FnOnce(Ctx) -> F + 'static,
        F: Future<Output = Result<T>> + 'static,
        T: 'static,
    {
        self.start(program).finish()
    }

    /// Starts a program, to be run step by step. Dropping the [`Running`] drops all of its tasks.
    pub fn start<P, F, T>(&self, program: P) -> Running<T>
    where
        P: FnOnce(Ctx) -> F + 'static,
        F: Future<Output = Result<T>> + 'static,
        T: 'static,
    {
        let scheduler = Rc::new(Scheduler::new(State::new()));
        self.start_on(scheduler, Chooser::new(&self.schedule), program)
    }

    pub(crate) fn start_on<P, F, T>(
        &self,
        scheduler: Rc<Scheduler>,
        chooser: Chooser,
        program: P,
    ) -> Running<T>
    where
        P: FnOnce(Ctx) -> F + 'static,
        F: Future<Output = Result<T>> + 'static,
        T: 'static,
    {
        let mut state = scheduler.borrow();
        let most_steps = self.most_steps.unwrap_or(u64::MAX);
        state.begin_run(self.clock, chooser, self.deadlocks, most_steps, self.is_recorded, self.has_sites);
        let cell = Rc::new(ValueCell {
            settlement: Settlement::new(state.run, ROOT, Source::Task(Cell::default())),
            value: OnceCell::new(),
        });
        let spawned = Spawned { number: ROOT, name: None, priority: Priority::Normal, is_daemon: false };
        let ctx = Ctx { scheduler: scheduler.clone(), scope: None };
        state.record_for(ROOT, || Event::Spawned { name: None });
        let root = state.spawn(spawned, program_of(program, ctx, cell.clone()), cell.clone());
        drop(state);
        let stall_watch = self.stall_watch.clone();
        Running { scheduler, root, cell, pause: self.pause, most_steps, stall_watch, is_closed: false }
    }
}

/// A run in progress.
pub struct Running<T> {
    scheduler: Rc<Scheduler>,
    root: TaskKey,
    cell: Rc<ValueCell<T>>,
    pause: fn(&Lull<'_>) -> Result,
    most_steps: u64,
    stall_watch: StallWatch,
    is_closed: bool,
}

impl<T> Running<T> {
    /// Runs one task until it waits. If no task can run, lets time pass. False once the root program has ended.
    pub fn step(&mut self) -> bool {
        if self.cell.settlement.is_settled.get() {
            return false;
        }
        self.receive_external();
        let mut state = self.scheduler.borrow();
        let Some(steps_left) = state.steps_left.checked_sub(1) else {
            drop(state);
            self.stop(Error::TooManySteps(self.most_steps));
            return false;
        };
        state.steps_left = steps_left;
        if let Some(now) = state.time.read() {
            state.advance_to(now);
        }
        match state.next_task() {
            Some((key, program)) => {
                drop(state);
                self.poll(key, program);
            }
            None => {
                let stop = state.stopped_by.take();
                drop(state);
                match stop {
                    Some(error) => self.stop(error),
                    None => self.idle(),
                }
            }
        }
        true
    }

    /// Runs the program to its end.
    pub fn finish(mut self) -> Outcome<T> {
        while self.step() {}
        self.close()
    }

    /// Like [`finish`](Self::finish). Also returns the chooser, the number of steps, and the scheduler, to be used
    /// again, unless it has another owner.
    pub(crate) fn finish_and_keep(mut self) -> (Outcome<T>, Chooser, u64, Option<Rc<Scheduler>>) {
        while self.step() {}
        let outcome = self.close();
        let mut state = self.scheduler.borrow();
        let chooser = std::mem::replace(&mut state.chooser, Chooser::Fifo);
        let steps = self.most_steps - state.steps_left;
        drop(state);
        let scheduler = self.scheduler.clone();
        drop(self);
        let is_free = Rc::strong_count(&scheduler) == 1 && Arc::strong_count(&scheduler.inbox) == 1;
        (outcome, chooser, steps, is_free.then_some(scheduler))
    }

    #[inline]
    fn poll(&self, key: TaskKey, mut program: Program) {
        let mut context = Context::from_waker(Waker::noop());
        let poll = catch_unwind(AssertUnwindSafe(|| program.as_mut().poll(&mut context)));
        let result = match poll {
            Ok(Poll::Pending) => {
                // A statement of its own, so that the borrow ends before the program is dropped.
                let stuck = self.scheduler.borrow().park(key, program);
                let Some(stuck) = stuck else { return };
                drop_ignoring_panic(stuck);
                Err(Error::NotAnEffect)
            }
            Ok(Poll::Ready(result)) => {
                drop_ignoring_panic(program);
                result
            }
            Err(panic) => {
                drop_ignoring_panic(program);
                Err(Error::panicked(&*panic))
            }
        };
        let stop = result.as_ref().err().filter(|error| error.is_stop()).cloned();
        let mut state = self.scheduler.borrow();
        state.shields = 0;
        let ended = state.end(key, result);
        let seen = state.findings.take_observed();
        state.current = TaskKey::NONE;
        drop(state);
        drop_ignoring_panic((ended, seen));
        if let Some(error) = stop {
            self.stop(error);
        }
    }

    fn receive_external(&self) {
        while let Some(number) = self.scheduler.inbox.take() {
            let mut state = self.scheduler.borrow();
            let Some(receiver) = state.externals.remove(&number) else { continue };
            if receiver.receive() {
                state.settle(receiver.settlement());
            } else if receiver.settlement().is_orphaned() {
                state.pending_checks.request_waiters_of(receiver.settlement());
            } else {
                state.externals.insert(number, receiver.clone());
            }
            drop(state);
            drop_ignoring_panic(receiver);
        }
    }

    /// No task can run: moves time, waits for another thread, or reports a deadlock.
    fn idle(&self) {
        let mut state = self.scheduler.borrow();
        let has_timer = state.next_timer().is_some();
        let waits_for_other_threads = !has_timer && state.waits_for_other_threads();
        let may_check_all = state.is_check_cheap();
        if waits_for_other_threads && state.polls_since_check > 0 {
            // A task that waits for another thread may be deadlocked nevertheless.
            state.pending_checks.request_all();
        }
        if state.run_pending_checks(may_check_all) {
            return;
        }
        match (state.next_timer(), state.time.read()) {
            (Some(at), None) => state.advance_to(at),
            (Some(at), Some(now)) => {
                let (longest, short) = (at.since(now), state.pause_before_full_check());
                let must_check_first = state.pending_checks.includes_all() && short < longest;
                drop(state);
                if !must_check_first {
                    self.pause(longest);
                } else if !self.pause(short) {
                    self.check_before_sleep();
                }
            }
            (None, _) if waits_for_other_threads && state.pending_checks.includes_all() => {
                let short = state.pause_before_full_check();
                drop(state);
                if !self.pause(short) {
                    self.check_before_sleep();
                }
            }
            (None, _) if waits_for_other_threads => {
                drop(state);
                self.stall_watch.sleep(&self.scheduler, |longest| self.pause(longest));
            }
            (None, _) => self.report_deadlock(state),
        }
    }

    /// Checks all tasks, whatever it costs: the run is about to sleep, which would never end if no other thread can
    /// help.
    fn check_before_sleep(&self) {
        self.scheduler.borrow().run_pending_checks(true);
    }

    /// True if the run must continue: the inbox has entries, or the run was stopped.
    fn pause(&self, longest: Duration) -> bool {
        let inbox = &self.scheduler.inbox;
        if let Err(error) = (self.pause)(&Lull { inbox, longest }) {
            self.stop(error);
            return true;
        }
        inbox.has_any()
    }

    /// Ends the root program, and the run with it.
    fn stop(&self, error: Error) {
        let ended = self.scheduler.borrow().end(self.root, Err(error));
        drop_ignoring_panic(ended);
    }

    fn report_deadlock(&self, mut state: std::cell::RefMut<'_, State>) {
        let Some((victim, deadlock)) = state.global_deadlock(self.root) else { return };
        if state.deadlocks != Deadlocks::Off {
            return state.deliver_deadlock(victim, deadlock);
        }
        state.findings.add_deadlock(deadlock.clone());
        drop(state);
        self.stop(Error::Deadlock(deadlock));
    }

    /// Drops the remaining tasks and makes the report.
    fn close(&mut self) -> Outcome<T> {
        self.is_closed = true;
        let mut state = self.scheduler.borrow();
        let elapsed = state.elapsed();
        state.note_abandoned();
        let left: Vec<_> = state.tasks.iter().map(|(key, _)| key).collect();
        drop(state);
        for key in left {
            let task = self.scheduler.borrow().tasks.remove(key);
            drop_ignoring_panic(task);
        }
        let mut state = self.scheduler.borrow();
        let mut findings = std::mem::take(&mut state.findings);
        let trace = std::mem::take(&mut state.trace);
        let recording = state.recording.take();
        let cleared = state.clear();
        drop(state);
        drop_ignoring_panic(cleared);

        let unobserved = findings.take_unobserved();
        let unreleased = findings.take_unreleased();
        let Findings { log, deadlocks, stalls, abandoned, .. } = findings;
        let recording = recording.map(|recording: Box<Recording>| *recording);
        let trace = trace.into();
        let report =
            Report { elapsed, log, deadlocks, stalls, unreleased, unobserved, abandoned, trace, recording };
        Outcome { result: self.take_result(), report }
    }

    fn take_result(&mut self) -> Result<T> {
        let settlement = Settlement::new(0, ROOT, Source::Task(Cell::default()));
        let empty = Rc::new(ValueCell { settlement, value: OnceCell::new() });
        match Rc::try_unwrap(std::mem::replace(&mut self.cell, empty)) {
            Ok(ValueCell { value, settlement }) => {
                match (value.into_inner(), settlement.failure.into_inner()) {
                    (Some(value), None) => Ok(value),
                    (_, Some(error)) => Err(error),
                    (None, None) => Err(Error::TaskCancelled),
                }
            }
            Err(shared) => Err(shared.settlement.failure.get().cloned().unwrap_or(Error::ForeignHandle)),
        }
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        if !self.is_closed {
            drop_ignoring_panic(self.close());
        }
    }
}

impl State {
    /// Suspends the task that ran. Returns its program if nothing could ever wake it.
    #[inline]
    fn park(&mut self, key: TaskKey, program: Program) -> Option<Program> {
        let task = self.tasks.get_mut(key)?;
        if task.phase == Phase::Running {
            if task.waits.is_empty() {
                return Some(program);
            }
            task.phase = Phase::Parked;
            task.program = Some(program);
            self.check_waiting(key);
        } else {
            task.program = Some(program);
        }
        self.current = TaskKey::NONE;
        if self.is_check_due() {
            self.run_pending_checks(true);
        }
        None
    }

    /// True if a task waits for an external promise that can still be completed.
    fn waits_for_other_threads(&self) -> bool {
        self.externals.values().any(|external| {
            let settlement = external.settlement();
            !settlement.is_orphaned() && !settlement.waiters.borrow().is_empty()
        })
    }

    fn note_abandoned(&mut self) {
        let mut abandoned: Vec<_> = self.tasks.iter().filter(|(_, task)| !task.is_daemon).collect();
        abandoned.sort_by_key(|(_, task)| task.number);
        let describe = |task: &Task| Abandoned {
            task: task.label(),
            waiting_for: (task.phase == Phase::Parked)
                .then(|| task.waits.first().map(|wait| self.describe(wait)))
                .flatten(),
            was_started: task.phase != Phase::New,
        };
        self.findings.abandoned = abandoned.into_iter().map(|(_, task)| describe(task)).collect();
    }
}
