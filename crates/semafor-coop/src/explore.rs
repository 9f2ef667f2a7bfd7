//! Runs a program under many schedules, and returns the simplest one that fails.

use std::fmt;
use std::rc::Rc;

use crate::random::Random;
use crate::schedule::{Chooser, Exhaustive, Pct};
use crate::scheduler::Scheduler;
use crate::state::State;
use crate::{Ctx, Error, Outcome, Result, Runtime, Schedule, Trace};

/// How schedules are searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Search {
    /// At random: see [`Schedule::Random`].
    Random {
        /// The random seed from which each schedule gets its own.
        seed: u64,
    },
    /// By random ranks: see [`Schedule::Pct`].
    Pct {
        /// The random seed from which each schedule gets its own.
        seed: u64,
        /// How often a task falls to the lowest rank in each schedule.
        changes: usize,
    },
    /// All of them, one after the other: for small programs. A program that is found to be
    /// [not deterministic](Error::NotDeterministic), as on the real clock, is reported.
    ///
    /// A program that polls, by yields or by delays of zero, has endless schedules: each has one more poll before the
    /// other tasks run. So the search is never complete, and reaches the [limit of steps](Runtime::most_steps) after
    /// enough schedules.
    Exhaustive {
        /// Only schedules that stop a task that could continue at most so many times. Most bugs need one or two.
        preemptions: Option<usize>,
    },
}

/// Runs a program under many schedules.
///
/// ```
/// use semafor_coop::{Ctx, Explorer, Search};
///
/// let explorer = Explorer::new().search(Search::Exhaustive { preemptions: None });
/// let exploration = explorer.run(async |ctx: Ctx| {
///     let sem = ctx.create_semaphore(1).await?;
///     let other = sem.clone();
///     let task = ctx.spawn(async move |ctx: Ctx| ctx.with_semaphore(&other, async |_| Ok(())).await).await?;
///     ctx.with_semaphore(&sem, async |_| Ok(())).await?;
///     ctx.wait(&task).await
/// });
/// assert!(exploration.is_complete && exploration.failure.is_none());
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it runs a program"]
pub struct Explorer {
    runtime: Runtime,
    search: Search,
    most: u64,
}

impl Default for Explorer {
    fn default() -> Self {
        let runtime = Runtime::new().most_steps(100_000);
        Self { runtime, search: Search::Random { seed: 0 }, most: 10_000 }
    }
}

/// The result of exploring a program.
#[derive(Debug)]
#[non_exhaustive]
pub struct Exploration {
    /// How many schedules were run, up to the one that failed. The runs that simplify it are not counted.
    pub schedules: u64,
    /// True if there are no other schedules.
    pub is_complete: bool,
    /// The first schedule that failed.
    pub failure: Option<Counterexample>,
}

/// A schedule that fails.
#[derive(Debug)]
#[non_exhaustive]
pub struct Counterexample {
    /// What went wrong: the error of the root program or of a task that no task waited for, a permit that was not
    /// released, or a program that is [not deterministic](Error::NotDeterministic).
    pub message: String,
    /// The error. `None` if a task failed that no task waited for, or if a permit was not released.
    pub error: Option<Error>,
    /// The simplest schedule that was found to fail in this way.
    pub trace: Trace,
    /// The schedule that was found first.
    pub found: Trace,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nreplay it with Schedule::Replay(\"{}\".parse()?)", self.message, self.trace)
    }
}

impl Exploration {
    /// For tests: no schedule must have failed.
    ///
    /// # Panics
    ///
    /// If one has, with its error and the trace that replays it.
    #[track_caller]
    pub fn assert_holds(&self) {
        if let Some(failure) = &self.failure {
            panic!("schedule {} of the program fails: {failure}", self.schedules);
        }
    }
}

/// Runs a program under so many random schedules, until one fails. [`Explorer`] has more options.
pub fn explore<T: 'static>(program: impl AsyncFn(Ctx) -> Result<T> + 'static, schedules: u64) -> Exploration {
    Explorer::new().schedules(schedules).run(program)
}

/// For tests: runs a program under so many random schedules, none of which must fail.
///
/// ```
/// use semafor_coop::{Ctx, check};
///
/// check(1_000, async |ctx: Ctx| {
///     let sem = ctx.create_semaphore(1).await?;
///     ctx.acquire(&sem).await?;
///     ctx.release(&sem).await
/// });
/// ```
///
/// # Panics
///
/// If a schedule fails, with its error and the trace that replays it.
#[track_caller]
pub fn check<T: 'static>(schedules: u64, program: impl AsyncFn(Ctx) -> Result<T> + 'static) {
    explore(program, schedules).assert_holds();
}

impl Explorer {
    /// Ten thousand random schedules.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how schedules are searched.
    pub fn search(mut self, search: Search) -> Self {
        self.search = search;
        self
    }

    /// Sets how many schedules to run at most.
    pub fn schedules(mut self, most: u64) -> Self {
        self.most = most;
        self
    }

    /// Sets how to run each schedule. By default like [`Runtime::new`], with 100,000 steps at most.
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = runtime;
        self
    }

    /// Runs the program until a schedule fails, or all schedules have run.
    pub fn run<T: 'static>(&self, program: impl AsyncFn(Ctx) -> Result<T> + 'static) -> Exploration {
        let mut runner =
            Runner { runtime: &self.runtime, program: Rc::new(program), scheduler: None, steps: 0 };
        let mut choosers = Choosers::new(self.search);
        let mut schedules = 0;
        let mut is_complete = false;
        while schedules < self.most {
            let Some(chooser) = choosers.next() else {
                is_complete = true;
                break;
            };
            schedules += 1;
            let (outcome, chooser) = runner.run(chooser);
            let steps = outcome.report.trace.choices().count();
            if let Some(failure) = failure_of(outcome, &chooser) {
                let failure = Some(runner.simplify(failure));
                return Exploration { schedules, is_complete, failure };
            }
            choosers.finish(chooser, steps);
        }
        Exploration { schedules, is_complete: is_complete || choosers.is_exhausted(), failure: None }
    }
}

/// Makes the chooser of each schedule.
struct Choosers {
    search: Search,
    random: Random,
    /// The longest run so far.
    steps: usize,
    exhaustive: Option<Exhaustive>,
}

impl Choosers {
    fn new(search: Search) -> Self {
        let (seed, exhaustive) = match search {
            Search::Random { seed } | Search::Pct { seed, .. } => (seed, None),
            Search::Exhaustive { preemptions } => (0, Some(Exhaustive::new(preemptions))),
        };
        Self { search, random: Random::new(seed), steps: 0, exhaustive }
    }

    fn next(&mut self) -> Option<Chooser> {
        Some(match self.search {
            Search::Random { .. } => Chooser::Random(Random::new(self.random.next())),
            Search::Pct { changes, .. } => {
                let steps = if self.steps == 0 { Pct::GUESSED_STEPS } else { self.steps };
                Chooser::Pct(Pct::new(self.random.next(), changes, steps))
            }
            Search::Exhaustive { .. } => Chooser::Exhaustive(self.exhaustive.take()?),
        })
    }

    fn finish(&mut self, chooser: Chooser, steps: usize) {
        self.steps = self.steps.max(steps);
        if let Chooser::Exhaustive(mut search) = chooser {
            self.exhaustive = search.advance().then_some(search);
        }
    }

    fn is_exhausted(&self) -> bool {
        matches!(self.search, Search::Exhaustive { .. }) && self.exhaustive.is_none()
    }
}

/// Runs one program many times.
struct Runner<'r, P> {
    runtime: &'r Runtime,
    program: Rc<P>,
    /// Kept from run to run.
    scheduler: Option<Rc<Scheduler>>,
    /// Of all runs.
    steps: u64,
}

impl<P, T> Runner<'_, P>
where
    P: AsyncFn(Ctx) -> Result<T> + 'static,
    T: 'static,
{
    fn run(&mut self, chooser: Chooser) -> (Outcome<T>, Chooser) {
        let scheduler = self.scheduler.take().unwrap_or_else(|| Rc::new(Scheduler::new(State::new())));
        let program = self.program.clone();
        let program = async move |ctx| program(ctx).await;
        let running = self.runtime.start_on(scheduler, chooser, program);
        let (outcome, chooser, steps, scheduler) = running.finish_and_keep();
        self.scheduler = scheduler;
        self.steps += steps;
        (outcome, chooser)
    }

    /// Searches a simpler schedule that fails in the same way: fewer switches, earlier.
    fn simplify(&mut self, found: Failure) -> Counterexample {
        const MOST_RUNS: usize = 2_000;
        const MOST_STEPS: u64 = 5_000_000;
        let most_steps = self.steps.saturating_add(MOST_STEPS);
        let mut best = found.trace.clone();
        let mut simplest = None;
        let mut runs = 0;
        let mut is_better = found.can_be_simplified();
        while std::mem::take(&mut is_better) {
            for candidate in simpler_traces(&best) {
                runs += 1;
                if runs > MOST_RUNS || self.steps > most_steps {
                    break;
                }
                let (outcome, chooser) = self.run(Chooser::new(&Schedule::Replay(candidate)));
                let Some(failure) = failure_of(outcome, &chooser) else { continue };
                if failure.is_stop() {
                    return failure.into();
                }
                if failure.is_same_kind_as(&found) && complexity(&failure.trace) < complexity(&best) {
                    best = failure.trace.clone();
                    simplest = Some(failure);
                    is_better = true;
                    break;
                }
            }
        }
        let original = found.trace.clone();
        let Failure { message, error, trace } = simplest.unwrap_or(found);
        Counterexample { message, error, trace, found: original }
    }
}

struct Failure {
    message: String,
    error: Option<Error>,
    trace: Trace,
}

impl Failure {
    fn is_stop(&self) -> bool {
        self.error.as_ref().is_some_and(Error::is_stop)
    }

    /// False if another run would not repeat the failure.
    fn can_be_simplified(&self) -> bool {
        !self.is_stop() && !matches!(self.error, Some(Error::NotDeterministic { .. }))
    }

    fn is_same_kind_as(&self, other: &Self) -> bool {
        let kind = |failure: &Self| failure.error.as_ref().map(std::mem::discriminant);
        kind(self) == kind(other)
    }
}

impl From<Failure> for Counterexample {
    fn from(failure: Failure) -> Self {
        let Failure { message, error, trace } = failure;
        Self { message, error, found: trace.clone(), trace }
    }
}

fn failure_of<T>(outcome: Outcome<T>, chooser: &Chooser) -> Option<Failure> {
    let Outcome { result, report } = outcome;
    let search_error = match chooser {
        Chooser::Exhaustive(search) => search.missing_choices(),
        _ => None,
    };
    match (result.err().or(search_error), report.complaint()) {
        (Some(error), _) => {
            Some(Failure { message: error.to_string(), error: Some(error), trace: report.trace })
        }
        (None, Some(message)) => Some(Failure { message, error: None, trace: report.trace }),
        (None, None) => None,
    }
}

/// The number of switches counts first, because these are what a reader has to understand.
fn complexity(trace: &Trace) -> (usize, usize, u64) {
    let switches = trace.choices().filter(|choice| *choice != 0).count();
    (switches, trace.choices().count(), trace.choices().map(u64::from).sum())
}

fn simpler_traces(trace: &Trace) -> impl Iterator<Item = Trace> + use<> {
    let choices = Vec::from_iter(trace.choices());
    let count = choices.len();
    let cut =
        [0, count / 2, count * 3 / 4, count.saturating_sub(1)].map(|len| choices[..len.min(count)].to_vec());
    let at = move |place: usize, change: fn(&mut Vec<u32>, usize)| {
        let mut changed = choices.clone();
        change(&mut changed, place);
        changed
    };
    let changes: [fn(&mut Vec<u32>, usize); 3] = [
        |choices, place| choices[place] = 0,
        |choices, place| {
            choices.remove(place);
        },
        |choices, place| choices[place] = choices[place].saturating_sub(1),
    ];
    let changed = changes.into_iter().flat_map(move |change| (0..count).map(move |place| (place, change)));
    cut.into_iter().chain(changed.map(move |(place, change)| at(place, change))).map(Trace::from)
}
