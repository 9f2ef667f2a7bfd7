//! What this process has one of, and what becomes of it.
//!
//! A child made by `fork` begins a new *life*: it has its own registry and connections, and nothing of what its parent
//! holds. What it has inherited is neither used nor dropped, because the threads are gone that would have to help, and
//! the connections are its parent's.
//!
//! All of this is touched only by threads that have the interpreter, so it is never half done when one of them forks.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use pyo3::prelude::*;
use semafor::{Home, HomeError, Registry, local};

use crate::held;

/// How long an interpreter that ends waits for Redis to hear of the next thing that is given back.
pub(crate) const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

static FORK_COUNT: AtomicU32 = AtomicU32::new(0);
static IS_EXITING: AtomicBool = AtomicBool::new(false);
static STATE: Mutex<Option<State>> = Mutex::new(None);

struct State {
    registry: Registry,
    /// By URL. Kept until the end: a connection is not worth making anew for each semaphore.
    homes: HashMap<String, Home>,
    /// By home and name.
    names: HashMap<(Option<String>, String), Arc<NameState>>,
}

/// What all handles to a semaphore share.
pub(crate) struct NameState {
    pub(crate) number: u32,
    /// How many slots it was last opened with.
    slots: AtomicU32,
    /// How often that was another number than before.
    slots_version: AtomicU32,
}

impl NameState {
    pub(crate) fn slots_version(&self) -> u32 {
        self.slots_version.load(Ordering::Relaxed)
    }

    /// It was opened with so many slots. Handles of an earlier slots_version have to be opened anew, to find out whether theirs still
    /// are as many.
    pub(crate) fn record_opened(&self, slots: u32) -> u32 {
        let before = self.slots.swap(slots, Ordering::Relaxed);
        u32::from(before != slots)
            + self.slots_version.fetch_add(u32::from(before != slots), Ordering::Relaxed)
    }
}

fn with_state<R>(work: impl FnOnce(&mut State) -> R) -> R {
    let mut state = STATE.lock();
    work(state.get_or_insert_with(|| State {
        registry: Registry::new(),
        homes: HashMap::new(),
        names: HashMap::new(),
    }))
}

/// Grows with each fork.
pub(crate) fn fork_count() -> u32 {
    FORK_COUNT.load(Ordering::Relaxed)
}

/// True when nothing is to be acquired any more that others would wait for.
pub(crate) fn is_exiting() -> bool {
    IS_EXITING.load(Ordering::Relaxed)
}

pub(crate) fn registry() -> Registry {
    with_state(|state| state.registry.clone())
}

pub(crate) fn name(url: Option<&str>, name: &str) -> Arc<NameState> {
    let key = (url.map(str::to_owned), name.to_owned());
    with_state(|state| {
        if let Some(known) = state.names.get(&key) {
            return Arc::clone(known);
        }
        // Those that nobody uses any more go, each time that as many have come.
        if state.names.len() == state.names.capacity() {
            state.names.retain(|_, name| Arc::strong_count(name) > 1);
            state.names.reserve(state.names.len() + 1);
        }
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = Arc::new(NameState { number, slots: AtomicU32::new(0), slots_version: AtomicU32::new(0) });
        state.names.insert(key, Arc::clone(&name));
        name
    })
}

/// The home at `url`, which connects when it has to. `program` is what starts an agent there.
pub(crate) fn home(url: &str, program: Option<&Path>) -> Result<Home, HomeError> {
    if let Some(home) = with_state(|state| state.homes.get(url).cloned()) {
        return Ok(home);
    }
    let home = if local::Config::is_meant_by(url) {
        let config: local::Config = url.parse()?;
        Home::local(program.into_iter().fold(config, local::Config::program))
    } else {
        Home::redis(url.parse()?)?
    };
    Ok(with_state(|state| state.homes.entry(url.to_owned()).or_insert(home).clone()))
}

/// In a forked child.
#[pyfunction]
pub(crate) fn after_fork() {
    FORK_COUNT.fetch_add(1, Ordering::Relaxed);
    IS_EXITING.store(false, Ordering::Relaxed);
    std::mem::forget(STATE.lock().take());
    held::after_fork();
    semafor::after_fork();
}

/// Before the interpreter goes: gives back what is held outside of this process, and leaves the lines there.
#[pyfunction]
pub(crate) fn at_exit(py: Python<'_>) {
    IS_EXITING.store(true, Ordering::Relaxed);
    held::release_everything(py);
    // What was cancelled or dropped before, and is still on its way.
    let homes = STATE.lock().as_ref().map(|state| state.homes.values().cloned().collect::<Vec<_>>());
    py.detach(|| homes.iter().flatten().for_each(Home::finish_background_work));
}
