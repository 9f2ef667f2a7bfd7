//! The state of this process: its registry, its homes and the names in use. Forks and the exit of the interpreter.
//!
//! A forked child has its own registry and connections, and holds none of its parent's slots. It neither uses nor drops
//! what it inherits: the threads that a drop needs do not exist in the child, and the connections belong to the parent.
//! Objects keep the [`fork_count`] of the process that made them, to recognise their own process.
//!
//! Only attached threads touch this state, so no change is half done when one of them forks.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use pyo3::prelude::*;
use semafor::{Home, HomeError, Registry, local, redis};

use crate::{errors, held};

/// How long an exiting interpreter waits for the next reply of a home, and an interrupted thread for its call to end.
pub(crate) const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

static FORK_COUNT: AtomicU32 = AtomicU32::new(0);
static IS_EXITING: AtomicBool = AtomicBool::new(false);
static STATE: Mutex<Option<State>> = Mutex::new(None);

struct State {
    registry: Registry,
    /// By URL. Kept until the process ends, so that semaphores share connections.
    homes: HashMap<String, Home>,
    /// By home and name.
    names: HashMap<(Option<String>, String), Arc<NameState>>,
}

/// The state that all handles of a semaphore share.
pub(crate) struct NameState {
    pub(crate) number: u32,
    /// The number of slots it was last opened with.
    slots: AtomicU32,
    /// How often `slots` has changed.
    slots_version: AtomicU32,
}

impl NameState {
    pub(crate) fn slots_version(&self) -> u32 {
        self.slots_version.load(Ordering::Relaxed)
    }

    /// Records that the name was resized for all handles. They stay current.
    pub(crate) fn record_resized(&self, slots: u32) {
        self.slots.store(slots, Ordering::Relaxed);
    }

    /// Records that the name was opened with so many slots. Returns the version, which grows if the number changed.
    /// Handles of an earlier version are opened again, which checks their number of slots.
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

/// How many forks lie between the first process and this one.
pub(crate) fn fork_count() -> u32 {
    FORK_COUNT.load(Ordering::Relaxed)
}

/// True once the interpreter exits: then no slots may be acquired outside this process.
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
        // Removes unused names each time the number of names has doubled.
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

/// Returns the home at `url`, which connects at first use. `program` starts the agent of a local home.
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

/// Raises ValueError if `url` is not the URL of a Redis. Connects to nothing.
#[pyfunction]
pub(crate) fn check_redis_url(url: &str) -> PyResult<()> {
    url.parse::<redis::Config>().map(drop).map_err(|error| errors::home(&error))
}

/// Called in a forked child.
#[pyfunction]
pub(crate) fn after_fork() {
    FORK_COUNT.fetch_add(1, Ordering::Relaxed);
    IS_EXITING.store(false, Ordering::Relaxed);
    std::mem::forget(STATE.lock().take());
    held::after_fork();
    semafor::after_fork();
}

/// Called before the interpreter exits: releases all slots outside this process, and leaves all lines there.
#[pyfunction]
pub(crate) fn at_exit(py: Python<'_>) {
    IS_EXITING.store(true, Ordering::Relaxed);
    held::release_everything(py);
    // Waits for releases of slots that were dropped or cancelled before.
    let homes = STATE.lock().as_ref().map(|state| state.homes.values().cloned().collect::<Vec<_>>());
    py.detach(|| homes.iter().flatten().for_each(Home::finish_background_work));
}
