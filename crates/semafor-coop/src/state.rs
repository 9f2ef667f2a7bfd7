//! The whole state of a run, as plain data. Nothing here calls user code or drops user values: values to drop are
//! returned to the caller.

use std::collections::BTreeMap;
use std::panic::Location;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semafor_core::{Cancelled, Effects, PermitId, Ticket, Timestamp};

use crate::clock::Time;
use crate::deadlock::{Deadlocks, PendingChecks};
use crate::eventual::{Settle, Settlement};
use crate::external::ExternalCell;
use crate::performing::Registered;
use crate::ready::Ready;
use crate::recording::{Event, Recording};
use crate::report::{Findings, Unreleased};
use crate::schedule::{Chooser, Ranked};
use crate::semaphore::{Hold, SemaphoreCell};
use crate::tasks::{Held, Phase, Program, ROOT, Task, TaskKey, Tasks, Wait, WaitOn};
use crate::timers::{Timer, TimerKey, Timers};
use crate::waiters::Waiter;
use crate::{Clock, Error, Label, Priority, Result};

/// Runs of this process are numbered, so that a handle of one run is refused by another.
static RUNS: AtomicU64 = AtomicU64::new(1);

pub(crate) struct State {
    pub(crate) run: u64,
    pub(crate) now: Timestamp,
    pub(crate) current: TaskKey,
    /// How many shields are around the future that is being polled.
    pub(crate) shields: u32,
    explores: bool,
    is_plain: bool,
    pub(crate) tasks: Tasks,
    pub(crate) ready: Ready,
    pub(crate) timers: Timers,
    numbers: u64,
    pub(crate) time: Time,
    pub(crate) chooser: Chooser,
    pub(crate) trace: Vec<u32>,
    pub(crate) steps_left: u64,
    /// The error that ends the run.
    pub(crate) stopped_by: Option<Error>,
    /// The task that ran last is the first of the ready tasks.
    is_offering: bool,
    effects: Effects<TaskKey, Hold>,
    pub(crate) deadlocks: Deadlocks,
    has_sites: bool,
    pub(crate) pending_checks: Rc<PendingChecks>,
    pub(crate) polls_since_check: usize,
    /// The cost of the last check of all tasks.
    pub(crate) check_cost: usize,
    /// Promises that other threads may complete.
    pub(crate) externals: BTreeMap<u64, Rc<dyn ExternalCell>>,
    pub(crate) findings: Findings,
    pub(crate) recording: Option<Box<Recording>>,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            run: 0,
            now: Timestamp::default(),
            current: TaskKey::NONE,
            shields: 0,
            explores: false,
            is_plain: false,
            tasks: Tasks::default(),
            ready: Ready::default(),
            timers: Timers::default(),
            numbers: 0,
            time: Time::Virtual,
            chooser: Chooser::Fifo,
            trace: Vec::new(),
            steps_left: u64::MAX,
            stopped_by: None,
            is_offering: false,
            effects: Effects::default(),
            deadlocks: Deadlocks::default(),
            has_sites: true,
            pending_checks: Rc::default(),
            polls_since_check: 0,
            check_cost: 0,
            externals: BTreeMap::new(),
            findings: Findings::default(),
            recording: None,
        }
    }

    /// Begins a new run. The previous one must have been cleared.
    pub(crate) fn begin_run(
        &mut self,
        clock: Clock,
        chooser: Chooser,
        deadlocks: Deadlocks,
        most_steps: u64,
        is_recorded: bool,
        has_sites: bool,
    ) {
        self.recording = is_recorded.then(Box::default);
        self.run = RUNS.fetch_add(1, Ordering::Relaxed);
        self.now = Timestamp::default();
        self.explores = chooser.explores();
        self.is_plain = !self.explores && !is_recorded;
        self.numbers = 0;
        self.time = Time::start(clock);
        self.chooser = chooser;
        self.deadlocks = deadlocks;
        self.steps_left = most_steps;
        self.stopped_by = None;
        self.has_sites = has_sites;
        self.pending_checks.reset(deadlocks);
        self.polls_since_check = 0;
        self.check_cost = 0;
    }

    /// Where an effect was performed, unless lines are hidden.
    pub(crate) fn site(&self, at: &'static Location<'static>) -> Option<&'static Location<'static>> {
        self.has_sites.then_some(at)
    }

    /// The next number, of the counter that tasks, promises and semaphores share.
    pub(crate) fn next_number(&mut self) -> u64 {
        let number = self.numbers;
        self.numbers += 1;
        number
    }

    pub(crate) fn elapsed(&mut self) -> Duration {
        if let Some(now) = self.time.read() {
            self.now = self.now.max(now);
        }
        self.now.since(Timestamp::default())
    }

    #[inline]
    pub(crate) fn explores(&self) -> bool {
        self.explores
    }

    /// True if the run neither explores nor records.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain
    }

    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.current != TaskKey::NONE
    }

    #[inline]
    pub(crate) fn current_task(&mut self) -> Option<&mut Task> {
        self.tasks.get_mut(self.current)
    }

    /// The task that runs, as reports name it.
    pub(crate) fn current_label(&self) -> Label {
        self.tasks.get(self.current).map_or(Label { number: None, name: None }, Task::label)
    }

    /// # Errors
    ///
    /// If the handle is not of this run.
    #[inline]
    pub(crate) fn check_run(&self, run: u64) -> Result {
        if run == self.run { Ok(()) } else { Err(Error::ForeignHandle) }
    }

    /// Records an event of the running task.
    #[inline]
    pub(crate) fn record(&mut self, event: impl FnOnce() -> Event) {
        if self.recording.is_some() {
            let number = self.tasks.get(self.current).map_or(ROOT, |task| task.number);
            self.record_for(number, event);
        }
    }

    pub(crate) fn record_for(&mut self, task: u64, event: impl FnOnce() -> Event) {
        if let Some(recording) = &mut self.recording {
            recording.add(self.now, task, event());
        }
    }

    /// Lets another task run first, if there is one. Called only while schedules are explored: then every effect is a
    /// step.
    pub(crate) fn offer_switch(&mut self) -> bool {
        let has_due_timer = self.timers.first().is_some_and(|first| first.at <= self.now);
        let current = self.current;
        let Some(task) = self.tasks.get_mut(current) else { return false };
        let priority = task.priority;
        if !has_due_timer && !self.ready.has_at_least(priority) {
            self.steps_left = self.steps_left.saturating_sub(1);
            // At the limit the task stops here, and the run ends.
            if self.steps_left > 0 {
                return false;
            }
        }
        task.phase = Phase::Ready;
        self.ready.push_front(priority, current);
        self.is_offering = true;
        true
    }

    /// Puts the running task at the end of the queue of its priority, or of `at_most` if that is lower.
    pub(crate) fn requeue(&mut self, at_most: Priority) {
        let current = self.current;
        if let Some(task) = self.tasks.get_mut(current) {
            task.phase = Phase::Ready;
            let priority = task.priority.min(at_most);
            self.ready.push_back(priority, current);
        }
    }

    /// Lets all other tasks of the same priority run before the running task.
    pub(crate) fn yield_to_others(&mut self) {
        if self.explores
            && let Some(task) = self.tasks.get(self.current)
        {
            self.chooser.lower(Ranked::Task(task.number));
        }
        self.requeue(Priority::High);
    }

    #[inline]
    pub(crate) fn wake(&mut self, key: TaskKey) {
        self.wake_at(key, None);
    }

    /// Makes a waiting task ready, with its own priority or with this one.
    #[inline]
    fn wake_at(&mut self, key: TaskKey, priority: Option<Priority>) {
        if let Some(task) = self.tasks.get_mut(key)
            && matches!(task.phase, Phase::Parked | Phase::Running)
        {
            task.phase = Phase::Ready;
            self.ready.push_back(priority.unwrap_or(task.priority), key);
        }
    }

    /// The task that runs next, and its program. `None` if no task can run.
    #[inline]
    pub(crate) fn next_task(&mut self) -> Option<(TaskKey, Program)> {
        loop {
            let key = if self.explores { self.choose_next()? } else { self.ready.pop()? };
            if let Some(task) = self.tasks.get_mut(key)
                && is_ready(task)
                && let Some(program) = task.program.take()
            {
                task.phase = Phase::Running;
                self.current = key;
                self.record(|| Event::Runs);
                return Some((key, program));
            }
        }
    }

    fn choose_next(&mut self) -> Option<TaskKey> {
        loop {
            let tasks = &self.tasks;
            let can_stay = std::mem::take(&mut self.is_offering);
            let mut none = std::collections::VecDeque::new();
            let level = self.ready.first_level().unwrap_or(&mut none);
            let was_empty = level.is_empty();
            // A task that has ended or waits again since it was queued is not an option.
            level.retain(|key| tasks.get(*key).is_some_and(is_ready));
            let due = self.timers.due(self.now);
            let count = level.len() + due.len();
            let choice = match count {
                0 if was_empty => return None,
                0 => continue,
                1 => 0,
                _ => {
                    let ranked = |place| match level.get(place) {
                        Some(key) => Ranked::Task(tasks.get(*key).map_or(ROOT, |task| task.number)),
                        None => Ranked::Timer(due[place - level.len()].number),
                    };
                    match self.chooser.choose(count, ranked, can_stay) {
                        Ok(choice) => {
                            self.trace.push(choice as u32);
                            choice
                        }
                        Err(error) => {
                            self.stopped_by = Some(error);
                            return None;
                        }
                    }
                }
            };
            if choice < level.len() {
                return level.remove(choice);
            }
            let timer = due[choice - level.len()];
            self.fire(timer);
        }
    }

    pub(crate) fn next_timer(&self) -> Option<Timestamp> {
        self.timers.first().map(|first| first.at)
    }

    /// Moves time forward. Timers that are due fire, unless schedules are explored: then the schedule chooses.
    pub(crate) fn advance_to(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        while !self.explores
            && let Some(first) = self.timers.first()
            && first.at <= self.now
        {
            self.fire(first);
        }
    }

    fn fire(&mut self, key: TimerKey) {
        match self.timers.take(key) {
            Some(Timer::Wake(task)) => self.wake(task),
            Some(Timer::Expire(cell)) => {
                cell.gate.borrow_mut().expire(self.now, &mut self.effects);
                self.wake_waiters();
            }
            None => {}
        }
    }

    /// Registers a wait of the running task.
    #[inline]
    pub(crate) fn register_wait(&mut self, on: WaitOn, at: &'static Location<'static>) -> Registered {
        let (current, is_shielded) = (self.current, self.shields > 0);
        if self.recording.is_some() {
            let event = Event::waits(&on, at);
            self.record(|| event);
        }
        let Some(task) = self.tasks.get_mut(current) else {
            return Registered { task: TaskKey::NONE, number: 0, is_interrupted: true };
        };
        task.wait_numbers = task.wait_numbers.wrapping_add(1);
        let number = task.wait_numbers;
        task.waits.push(Wait { number, on, at, is_shielded });
        let is_interrupted = task.deadlock.is_some() || (task.is_cancelled && !is_shielded);
        Registered { task: current, number, is_interrupted }
    }

    #[inline]
    pub(crate) fn unregister_wait(&mut self, wait: Registered) -> Option<Wait> {
        let left = self.tasks.get_mut(wait.task)?.waits.take_last(|other| other.number == wait.number);
        self.record(|| Event::Resumed);
        left
    }

    /// Takes the error that the running task gets at its await point.
    #[inline]
    pub(crate) fn take_interruption(&mut self) -> Option<Error> {
        let is_shielded = self.shields > 0;
        let task = self.current_task()?;
        if let Some(deadlock) = task.deadlock.take() {
            return Some(Error::Deadlock(deadlock));
        }
        let is_due = task.is_cancelled && !is_shielded;
        is_due.then(|| {
            task.is_cancelled = false;
            Error::TaskCancelled
        })
    }

    /// Cancels a task, which gets the error at its await point. A task that has not started ends, and is returned.
    pub(crate) fn cancel(&mut self, key: TaskKey) -> Option<Ended> {
        let task = self.tasks.get_mut(key)?;
        let number = task.number;
        if task.phase == Phase::New {
            self.record_for(number, || Event::Cancelled);
            return self.end(key, Err(Error::TaskCancelled));
        }
        task.is_cancelled = true;
        let is_running = key == self.current;
        self.record_for(number, || Event::Cancelled);
        if !is_running {
            self.interrupt(key);
        }
        None
    }

    /// Wakes a task that was cancelled. It leaves the line at once, and a permit it was granted meanwhile goes to the
    /// next waiter.
    fn interrupt(&mut self, key: TaskKey) {
        let mut tickets = smallvec::SmallVec::<[(Rc<SemaphoreCell>, Ticket); 1]>::new();
        let Some(task) = self.tasks.get(key) else { return };
        let mut is_reached = false;
        for wait in task.waits.iter().filter(|wait| !wait.is_shielded) {
            is_reached = true;
            if let WaitOn::Semaphore { cell, ticket, .. } = &wait.on {
                tickets.push((cell.clone(), *ticket));
            }
        }
        for (cell, ticket) in tickets {
            self.leave_line(&cell, ticket);
        }
        if is_reached {
            self.wake(key);
        }
    }

    /// Removes a task, settles its result and wakes the tasks that waited for it. The caller drops the task.
    pub(crate) fn end(&mut self, key: TaskKey, result: Result) -> Option<Ended> {
        let task = self.tasks.get_mut(key)?;
        let (number, outcome, program) = (task.number, task.outcome.clone(), task.program.take());
        let has_findings = !task.held.is_empty() || matches!(&result, Err(error) if !error.is_cancelled());
        if has_findings && let Some(task) = self.tasks.get(key) {
            let label = task.label();
            for Held { semaphore, permit, weight, at, .. } in task.held.iter().filter(|held| !held.is_signal)
            {
                self.pending_checks.request_all();
                let (task, semaphore, permits, at) = (label.clone(), *semaphore, *weight, self.site(at));
                let unreleased = Unreleased { task, semaphore, permits, at };
                self.findings.add_unreleased(*permit, unreleased);
            }
            if let Err(error) = &result
                && !error.is_cancelled()
                && !error.is_stop()
                && number != ROOT
            {
                self.findings.add_failure(label, error.clone(), outcome.clone());
            }
        }
        if self.recording.is_some() {
            let error = result.as_ref().err().map(ToString::to_string);
            self.record_for(number, || Event::Ended { error });
        }
        self.tasks.vacate(key);
        self.polls_since_check += 1;
        if let Err(error) = result {
            // A task ends once, so no failure was set before.
            let _ = outcome.settlement().failure.set(error);
        }
        self.settle(outcome.settlement());
        Some(Ended { _program: program, _outcome: outcome })
    }

    /// Wakes the waiters of a value that has just been settled. Returns the lowest priority among them.
    pub(crate) fn settle(&mut self, settlement: &Settlement) -> Option<Priority> {
        settlement.is_settled.set(true);
        let mut lowest = None;
        for waiter in settlement.take_waiters().into_waiters() {
            let (key, priority) = match waiter {
                Waiter::Task(key, priority) => (key, priority),
                Waiter::Member(group, member) if group.member_settled(member) => (group.task, None),
                Waiter::Member(..) => continue,
            };
            self.wake_at(key, priority);
            if let Some(task) = self.tasks.get(key) {
                let priority = priority.unwrap_or(task.priority);
                lowest = Some(lowest.map_or(priority, |lowest: Priority| lowest.min(priority)));
            }
        }
        lowest
    }

    /// Records a permit that the running task now holds.
    #[inline]
    pub(crate) fn hold(
        &mut self,
        cell: &SemaphoreCell,
        permit: PermitId,
        weight: u32,
        at: &'static Location<'static>,
    ) {
        if let Some(task) = self.current_task() {
            let (semaphore, is_signal) = (cell.number, cell.is_signal);
            task.held.push(Held { semaphore, permit, weight, is_signal, at });
        }
    }

    /// Releases the permit of this semaphore that the running task acquired last, or else one of another task.
    #[inline]
    pub(crate) fn release(&mut self, cell: &SemaphoreCell) -> Result {
        let own =
            self.current_task().and_then(|task| task.held.take_last(|held| held.semaphore == cell.number));
        let permit = match own {
            Some(held) => held.permit,
            None => self.take_permit_of_another_task(cell).ok_or(Error::ReleasedTooManyTimes)?,
        };
        self.release_permit(cell, permit);
        Ok(())
    }

    #[cold]
    pub(crate) fn take_permit_of_another_task(&mut self, cell: &SemaphoreCell) -> Option<PermitId> {
        let (permit, holder) = cell.next_unguarded()?;
        match self.tasks.get_mut(holder) {
            Some(task) => drop(task.held.take_first(|held| held.permit == permit)),
            // The task ended without releasing the permit, which is released after all.
            None => self.findings.remove_unreleased(cell.number, permit),
        }
        Some(permit)
    }

    /// Releases a permit, which goes to the first waiter.
    #[inline]
    pub(crate) fn release_permit(&mut self, cell: &SemaphoreCell, permit: PermitId) {
        let released = cell.gate.borrow_mut().release(permit, self.now, &mut self.effects);
        if released.is_ok() {
            let semaphore = cell.number;
            self.record(|| Event::Released { semaphore });
        }
        let has_granted = !self.effects.wake.is_empty();
        self.wake_waiters();
        if !has_granted && cell.gate.borrow().waiting() > 0 {
            // Too little for the first waiter, which may have depended on this holder alone.
            self.pending_checks.request_all();
        }
    }

    /// Leaves the line, or releases the permit that was granted meanwhile.
    pub(crate) fn leave_line(&mut self, cell: &SemaphoreCell, ticket: Ticket) {
        let left = cell.gate.borrow_mut().cancel(ticket, self.now, &mut self.effects);
        if matches!(left, Cancelled::Left(_) | Cancelled::HandedOn) {
            self.wake_waiters();
        }
    }

    #[inline]
    pub(crate) fn wake_waiters(&mut self) {
        match self.effects.wake[..] {
            [] => {}
            [task] => {
                self.effects.wake.clear();
                self.wake(task);
            }
            _ => self.wake_several_waiters(),
        }
    }

    /// Happens only if a heavy waiter left the head of the line, or if several timed out.
    #[cold]
    fn wake_several_waiters(&mut self) {
        for task in std::mem::take(&mut self.effects.wake) {
            self.wake(task);
        }
    }

    pub(crate) fn effects(&mut self) -> &mut Effects<TaskKey, Hold> {
        &mut self.effects
    }

    /// Resets the state. Returns the remaining user values, for the caller to drop.
    pub(crate) fn clear(&mut self) -> BTreeMap<u64, Rc<dyn ExternalCell>> {
        self.timers.clear();
        self.ready.clear();
        self.tasks.reset();
        self.trace.clear();
        self.current = TaskKey::NONE;
        self.shields = 0;
        self.is_offering = false;
        self.recording = None;
        std::mem::take(&mut self.externals)
    }
}

/// The remains of a task that ended, for the caller to drop.
pub(crate) struct Ended {
    _program: Option<Program>,
    _outcome: Rc<dyn Settle>,
}

fn is_ready(task: &Task) -> bool {
    matches!(task.phase, Phase::New | Phase::Ready)
}
