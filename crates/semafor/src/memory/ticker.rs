//! A clock that costs one load to read. A thread updates it, and runs only while readings are frequent.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use semafor_core::Timestamp;

use super::clock::system_now;

const TICK: Duration = Duration::from_millis(1);
/// So many precise readings within `BUSY_WITHIN` start the ticker.
const BUSY_READINGS: u64 = 256;
const BUSY_WITHIN: Duration = Duration::from_millis(25);
/// After so many ticks the ticker checks whether at least half of them were read.
const REVIEW_TICKS: u32 = 64;

const ASLEEP: u64 = 0;

static TICKED: AtomicU64 = AtomicU64::new(ASLEEP);
static WAS_READ: AtomicBool = AtomicBool::new(false);

/// The time, at most a millisecond or two late unless the ticker thread gets no processor time.
#[inline]
pub(super) fn read() -> Timestamp {
    let ticked = TICKED.load(Ordering::Relaxed);
    if ticked == ASLEEP {
        return read_precisely();
    }
    if !WAS_READ.load(Ordering::Relaxed) {
        WAS_READ.store(true, Ordering::Relaxed);
    }
    Timestamp::from_nanos(ticked)
}

#[cold]
fn read_precisely() -> Timestamp {
    static READINGS: AtomicU64 = AtomicU64::new(0);
    static WINDOW_START: AtomicU64 = AtomicU64::new(0);

    let now = system_now();
    // Racing threads may lose counts: an estimate of the rate is enough.
    let readings = READINGS.load(Ordering::Relaxed) + 1;
    READINGS.store(readings, Ordering::Relaxed);
    if readings.is_multiple_of(BUSY_READINGS) {
        let start = Timestamp::from_nanos(WINDOW_START.swap(now.as_nanos(), Ordering::Relaxed));
        if now.since(start) <= BUSY_WITHIN && start != Timestamp::default() {
            wake_ticker();
        }
    }
    now
}

fn wake_ticker() {
    static TICKER: OnceLock<Option<Thread>> = OnceLock::new();
    let ticker = TICKER.get_or_init(|| {
        let thread = std::thread::Builder::new().name("semafor-ticker".into()).spawn(run);
        // Without a ticker every reading stays precise: slower, but correct.
        thread.ok().map(|handle| handle.thread().clone())
    });
    if let Some(ticker) = ticker {
        ticker.unpark();
    }
}

/// A forked child has no ticker thread, so the value would never change. Every reading is precise there.
pub(crate) fn after_fork() {
    TICKED.store(ASLEEP, Ordering::Relaxed);
}

fn run() {
    loop {
        std::thread::park();
        loop {
            let mut read = 0;
            for _ in 0..REVIEW_TICKS {
                TICKED.store(system_now().as_nanos().max(1), Ordering::Relaxed);
                std::thread::sleep(TICK);
                read += u32::from(WAS_READ.swap(false, Ordering::Relaxed));
            }
            if read < REVIEW_TICKS / 2 {
                break;
            }
        }
        TICKED.store(ASLEEP, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_never_ahead_of_the_precise_clock() {
        for _ in 0..100_000 {
            let rough = read();
            assert!(rough <= system_now());
        }
    }
}
