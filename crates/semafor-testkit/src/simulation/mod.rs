//! Whole fleets in one thread: production clients, a network and a server that runs the production scripts, under a clock that
//! the simulation holds. Everything follows from one seed, so a failure can be repeated, and made smaller.
//!
//! The rules that every run has to keep are at the top of [`rules`].

mod faults;
mod network;
mod process;
mod queue;
pub mod redis;
pub mod rules;
mod shrink;
mod timeline;
mod world;

use std::time::Duration;

use semafor::redis::Config;

use crate::random::Random;

pub use faults::Fault;
pub use rules::Violation;
pub use shrink::shrink;
pub use timeline::to_svg;

/// Microseconds of simulated time.
pub type Time = u64;

/// One second.
pub const SECOND: Time = 1_000_000;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Everything that happens at random follows from it.
    pub seed: u64,
    /// How many processes there are at once.
    pub processes: usize,
    /// How many users each of them has, each of which wants one thing at a time.
    pub users: usize,
    /// The slots of each name.
    pub slots: Vec<u32>,
    /// How long users act and faults happen. After that, everything has to settle.
    pub length: Time,
    /// How long a holder counts as alive after a heartbeat.
    pub heartbeat: Duration,
    /// How long users pause between two acquires, on average.
    pub pause: Time,
    /// How long users hold slots, on average.
    pub hold: Time,
    /// On average.
    pub time_between_faults: Time,
    /// Whether the server may forget grants.
    pub may_lose_grants: bool,
    /// How wrong clocks may go, in millionths.
    pub drift: u64,
    /// What happens, instead of what follows from the seed.
    pub faults: Option<Vec<(Time, Fault)>>,
    /// How the clients connect.
    pub config: Config,
    /// Whether to note every event, for a picture.
    pub is_recorded: bool,
}

impl Settings {
    /// A fleet whose shape follows from the seed.
    ///
    /// # Panics
    ///
    /// Never: the URL is valid.
    pub fn of_seed(seed: u64, processes: usize) -> Self {
        let mut random = Random::stream(seed, 0);
        let names = random.between(1, 3) as usize;
        let slots = (0..names).map(|_| random.between(1, 4) as u32).collect();
        let is_long = random.percent(15);
        let heartbeat =
            Duration::from_secs(if is_long { random.between(20, 45) } else { random.between(3, 12) });
        Self {
            seed,
            processes,
            users: if random.percent(15) { random.between(4, 8) } else { random.between(1, 3) } as usize,
            slots,
            length: 120 * SECOND,
            heartbeat,
            pause: random.between(SECOND / 10, 20 * SECOND),
            hold: random.between(SECOND / 20, 4 * SECOND),
            // Some rules hold only after a time without faults.
            time_between_faults: if random.percent(20) {
                random.between(20 * SECOND, 60 * SECOND)
            } else {
                random.between(SECOND / 2, 10 * SECOND)
            },
            may_lose_grants: random.percent(50),
            drift: 400,
            faults: None,
            config: "redis://simulated/?namespace=sim".parse().expect("a valid URL"),
            is_recorded: false,
        }
    }

    /// The faults of the run.
    pub fn faults(&self) -> Vec<(Time, Fault)> {
        self.faults.clone().unwrap_or_else(|| faults::schedule(self))
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How long it took in the simulation.
    pub simulated: Time,
    /// Grants that users learned of.
    pub grants: u64,
    /// Things that went wrong.
    pub faults: u64,
    /// Scripts that the server ran.
    pub scripts: u64,
    /// The first rule that was broken.
    pub violation: Option<Violation>,
    /// What happened, if it was to be recorded.
    pub events: Vec<Event>,
    /// All grants, if they were to be recorded.
    pub holds: Vec<rules::Held>,
}

/// Something that happened, for people who read a failure.
#[derive(Clone, Debug)]
pub struct Event {
    /// When.
    pub at: Time,
    /// In which process; `None` for the server.
    pub process: Option<usize>,
    /// What.
    pub text: String,
    /// A message that arrived: when and where it was sent.
    pub sent: Option<(Time, Option<usize>)>,
}

/// Runs a simulation to its end, or until a rule is broken.
pub fn run(settings: &Settings) -> Outcome {
    world::World::new(settings).run()
}
