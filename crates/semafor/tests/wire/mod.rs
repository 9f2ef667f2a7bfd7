//! The other client of the keys: the Python library `asyncio-advanced-semaphores`.
//!
//! - [`python`]: the library itself, in a process of its own.
//! - [`recording`]: repeats the recorded commands of the library. It is always available.
//!
//! Both take the same orders and send the same events, so a scenario does not know which of them it uses.

mod python;
mod recording;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use semafor_testkit::redis::RedisServer;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

pub(crate) use recording::{RECORDING, TTL};

/// A test that waits longer than this has failed. Not a measure of speed.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// What acts as the other side of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeerKind {
    Recording,
    Python,
}

impl PeerKind {
    /// Always the recording; and the library itself if `cargo xtask test` has found a Python with it and set
    /// `SEMAFOR_WIRE_PYTHON`. The interpreter named there has to work: no other is searched for.
    pub(crate) fn all() -> Vec<Self> {
        let live = python::interpreter().map(|_| Self::Python);
        [Self::Recording].into_iter().chain(live).collect()
    }
}

/// The other side, at one server.
pub(crate) struct Peer {
    give: Box<dyn Fn(&Value) + Send + Sync>,
    mailboxes: Arc<Mailboxes>,
    hired: AtomicUsize,
}

/// Delivers each event to its contender.
#[derive(Default)]
struct Mailboxes(Mutex<HashMap<String, UnboundedSender<Value>>>);

impl Mailboxes {
    fn open(&self, who: &str) -> UnboundedReceiver<Value> {
        let (sender, mail) = unbounded_channel();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(who.to_owned(), sender);
        mail
    }

    fn deliver(&self, event: Value) {
        let boxes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let who = event["who"].as_str().expect("it has a \"who\"");
        if let Some(sender) = boxes.get(who) {
            // A contender whose scenario has ended no longer receives events.
            let _ = sender.send(event);
        }
    }

    /// No more events are delivered.
    fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Peer {
    pub(crate) fn at(server: &RedisServer, kind_of_peer: PeerKind) -> Arc<Self> {
        let mailboxes = Arc::default();
        let give = match kind_of_peer {
            PeerKind::Recording => recording::start_peer(server, Arc::clone(&mailboxes)),
            PeerKind::Python => python::start_peer(server, Arc::clone(&mailboxes)),
        };
        Arc::new(Self { give, mailboxes, hired: AtomicUsize::new(0) })
    }

    /// A peer that contends for `name` and assumes that many slots.
    pub(crate) fn contender(self: &Arc<Self>, name: &str, slots: u32) -> Contender {
        let who = format!("peer-{}", self.hired.fetch_add(1, Ordering::Relaxed));
        let mail = self.mailboxes.open(&who);
        let settings = json!({ "who": who, "name": name, "value": slots });
        Contender { peer: Arc::clone(self), settings, mail }
    }

    /// Its statistics: slots held, and slots there are.
    pub(crate) async fn stats(self: &Arc<Self>, name: &str) -> Option<(u64, u64)> {
        let mut asker = self.contender(name, 1);
        asker.send_order("stats");
        let stats = asker.next_event("stats").await;
        Some((stats["held"].as_u64()?, stats["slots"].as_u64()?))
    }
}

/// A client of the other side.
pub(crate) struct Contender {
    peer: Arc<Peer>,
    settings: Value,
    mail: UnboundedReceiver<Value>,
}

/// A slot that a contender holds.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) id: String,
    pub(crate) since: u64,
}

impl Contender {
    /// With a `ttl` of [`TTL`].
    pub(crate) fn with_ttl(mut self) -> Self {
        self.settings["ttl"] = json!(TTL);
        self
    }

    fn send_order(&self, what: &str) {
        let mut order = self.settings.clone();
        order["do"] = json!(what);
        (self.peer.give)(&order);
    }

    #[track_caller]
    fn next_event(&mut self, what: &str) -> impl Future<Output = Value> {
        let caller = std::panic::Location::caller();
        async move {
            let event = timeout(TIME_LIMIT, self.mail.recv()).await;
            let event = event.unwrap_or_else(|_| panic!("{caller}: never {what}: {}", self.settings));
            let event = event.unwrap_or_else(|| panic!("{caller}: the other side has ended"));
            assert_eq!(event["event"], what, "{caller}");
            event
        }
    }

    /// Asks for a slot.
    pub(crate) fn asks(&self) {
        self.send_order("acquire");
    }

    /// Returns when its request is granted.
    #[track_caller]
    pub(crate) fn granted(&mut self) -> impl Future<Output = Slot> {
        let told = self.next_event("granted");
        async move {
            let event = told.await;
            let id = event["id"].as_str().expect("it says which").to_owned();
            Slot { id, since: event["at"].as_u64().expect("it says when") }
        }
    }

    /// Asks for a slot, and gets it.
    #[track_caller]
    pub(crate) fn acquires(&mut self) -> impl Future<Output = Slot> {
        self.asks();
        self.granted()
    }

    /// Releases its slot. Returns when it did.
    pub(crate) async fn releases(&mut self) -> u64 {
        self.send_order("release");
        self.next_event("released").await["at"].as_u64().expect("it says when")
    }

    /// Releases its slot, and serves the line itself before any other client does.
    pub(crate) async fn releases_and_serves(&mut self) {
        self.send_order("release_and_wake");
        self.next_event("released").await;
    }

    /// Cancels its request.
    pub(crate) async fn gives_up(&mut self) {
        self.send_order("give_up");
        self.next_event("gave_up").await;
    }
}
