//! Reports a run that sleeps for long because all tasks wait for other threads.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Link;
use crate::eventual::{Settle, Source};
use crate::scheduler::Scheduler;
use crate::state::State;
use crate::tasks::WaitOn;

/// A time in which no task could run, because all wait for promises of other threads.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// How long it has lasted, in real time.
    pub lasted: Duration,
    /// The tasks that wait for other threads, and where.
    pub waiting: Vec<Link>,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no task could run for {:.3} s", self.lasted.as_secs_f64())?;
        self.waiting.iter().try_for_each(|link| write!(f, "\n  {link}"))
    }
}

type Listener = dyn Fn(&Stall) + Send + Sync;

/// When to report a stall, and the listener to call.
#[derive(Clone)]
pub(crate) struct StallWatch {
    pub(crate) every: Duration,
    pub(crate) listener: Option<Arc<Listener>>,
}

impl Default for StallWatch {
    fn default() -> Self {
        Self { every: Duration::from_secs(30), listener: None }
    }
}

impl fmt::Debug for StallWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StallWatch").field("every", &self.every).finish_non_exhaustive()
    }
}

impl StallWatch {
    /// Sleeps until the run must continue. `pause` sleeps for so long at most, and returns whether it must.
    pub(crate) fn sleep(&self, scheduler: &Scheduler, pause: impl Fn(Duration) -> bool) {
        let every = self.every.max(Duration::from_millis(1));
        let began = Instant::now();
        let mut next = every;
        while !pause(next.saturating_sub(began.elapsed())) {
            if began.elapsed() < next {
                continue;
            }
            let mut state = scheduler.borrow();
            let stall = Stall { lasted: next, waiting: state.tasks_waiting_for_other_threads() };
            state.findings.add_stall(stall.clone(), next == every);
            drop(state);
            next = next.saturating_add(every);
            if let Some(listener) = &self.listener {
                // A listener that panics must not end the run.
                let _ = catch_unwind(AssertUnwindSafe(|| listener(&stall)));
            }
        }
    }
}

impl State {
    fn tasks_waiting_for_other_threads(&self) -> Vec<Link> {
        let is_external = |cell: &dyn Settle| {
            let settlement = cell.settlement();
            !settlement.is_settled.get() && matches!(settlement.source, Source::External(_))
        };
        let waits_for_other_thread = |on: &WaitOn| match on {
            WaitOn::Eventual(cell) => is_external(&**cell),
            WaitOn::Group(group) => group.open_members().any(|member| is_external(&**member)),
            WaitOn::Semaphore { .. } | WaitOn::Timer => false,
        };
        let tasks = self.tasks.iter().map(|(_, task)| task);
        let waiting = tasks.filter(|task| task.waits.iter().any(|wait| waits_for_other_thread(&wait.on)));
        waiting.map(|task| self.link(task)).collect()
    }
}
