use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// One handle of a named semaphore, and what its home has agreed to. All clones of a handle share it.
#[derive(Debug)]
pub struct Target {
    pub name: Arc<str>,
    /// Unique in this process.
    pub number: u64,
    /// The number of slots that was asked for; `None` for the current number.
    pub asked_slots: Option<u32>,
    pub max_waiting: Option<usize>,
    /// How long a holder or waiter counts as alive after a heartbeat.
    pub heartbeat: Duration,
    /// The keys of its data on the server, in the engine's order.
    pub keys: Arc<[String]>,
    /// The number of slots that was asked for; later, the last number that the server reported. 0: the current number.
    slots: AtomicU32,
    is_open: AtomicBool,
    epoch: AtomicI64,
}

impl Target {
    pub fn new(
        name: &str,
        asked_slots: Option<u32>,
        max_waiting: Option<usize>,
        heartbeat: Duration,
        keys: impl Into<Arc<[String]>>,
    ) -> Self {
        static HANDLES: AtomicU64 = AtomicU64::new(1);
        Self {
            name: name.into(),
            number: HANDLES.fetch_add(1, Ordering::Relaxed),
            asked_slots,
            max_waiting,
            heartbeat,
            keys: keys.into(),
            slots: AtomicU32::new(asked_slots.unwrap_or(0)),
            is_open: AtomicBool::new(false),
            epoch: AtomicI64::new(-1),
        }
    }

    pub fn slots(&self) -> u32 {
        self.slots.load(Ordering::Relaxed)
    }

    /// True once the server has agreed to the number of slots. A different number then means a resize, not a mistake.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Counts how often the name was opened again after a close. Negative until the server has reported it.
    pub fn epoch(&self) -> i64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// The server has opened it.
    pub fn note_open(&self, slots: u32, epoch: i64) {
        self.epoch.store(epoch, Ordering::Relaxed);
        self.note_slots(slots);
    }

    pub fn note_slots(&self, slots: u32) {
        self.ask_for(slots);
        self.note_agreed();
    }

    /// The number to ask for when it is opened.
    pub fn ask_for(&self, slots: u32) {
        self.slots.store(slots, Ordering::Relaxed);
    }

    pub fn note_agreed(&self) {
        self.is_open.store(true, Ordering::Release);
    }
}
