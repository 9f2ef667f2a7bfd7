//! What this process has one of, and what becomes of it.
//!
//! A child made by `fork` begins a new *life*: it has its own registry and connections, and nothing of what its parent
//! holds. What it has inherited is neither used nor dropped, because the threads are gone that would have to help, and
//! the connections are its parent's.
//!
//! All of this is touched only by threads that have the interpreter, so it is never half done when one of them forks.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;
use pyo3::prelude::*;
use semafor::{Home, HomeError, Registry, Semaphore};

use crate::held;

/// How long an interpreter that ends waits for Redis to hear of it.
pub(crate) const LAST_WAIT: Duration = Duration::from_secs(2);

static LIFE: AtomicU32 = AtomicU32::new(0);
static IS_ENDING: AtomicBool = AtomicBool::new(false);
static STATE: Mutex<Option<State>> = Mutex::new(None);

struct State {
    registry: Registry,
    /// By URL. Kept until the end: a connection is not worth making anew for each semaphore.
    homes: HashMap<String, Home>,
    /// Home and name, by number.
    names: HashMap<(Option<String>, String), u32>,
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
pub(crate) fn life() -> u32 {
    LIFE.load(Ordering::Relaxed)
}

/// True when nothing is to be acquired any more that others would wait for.
pub(crate) fn is_ending() -> bool {
    IS_ENDING.load(Ordering::Relaxed)
}

pub(crate) fn registry() -> Registry {
    with_state(|state| state.registry.clone())
}

/// A number for this semaphore, the same for all handles.
pub(crate) fn number(url: Option<&str>, name: &str) -> u32 {
    let key = (url.map(str::to_owned), name.to_owned());
    with_state(|state| {
        let next = u32::try_from(state.names.len()).unwrap_or(u32::MAX);
        *state.names.entry(key).or_insert(next)
    })
}

/// The home at `url`, connected to if need be.
pub(crate) async fn home(url: &str) -> Result<Home, HomeError> {
    if let Some(home) = with_state(|state| state.homes.get(url).cloned()) {
        return Ok(home);
    }
    let home = Semaphore::connect(url).await?;
    Ok(with_state(|state| state.homes.entry(url.to_owned()).or_insert(home).clone()))
}

/// In a forked child.
#[pyfunction]
pub(crate) fn after_fork() {
    LIFE.fetch_add(1, Ordering::Relaxed);
    std::mem::forget(STATE.lock().take());
    held::after_fork();
    semafor::after_fork();
}

/// Before the interpreter goes: gives back what is held outside of this process, and leaves the lines there.
#[pyfunction]
pub(crate) fn at_exit(py: Python<'_>) {
    IS_ENDING.store(true, Ordering::Relaxed);
    held::give_everything_back(py, Instant::now() + LAST_WAIT);
}
