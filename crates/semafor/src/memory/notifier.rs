//! Calls wakers and listeners of a loss on behalf of the deadline driver.
//!
//! They are user code, so they may block. The driver must not block: it would hold up every deadline of its registry.
//! It queues them instead, and threads of this file call them. The first thread starts with the first notice, and ends
//! when no notice has come for a while. Another thread starts when no notice was taken for [`STUCK_AFTER`]: then every
//! thread is stuck in a call. So a blocking call holds up only itself, unless [`MAX_THREADS`] calls block at the same
//! time. Of the idle threads, one stays.
//!
//! Invariant: while a notice is queued, an idle thread has been notified, or a thread is in a call and looks at the
//! queue afterwards. The call may take long, so the driver [checks](Notifier::check_stuck) whether the queue moves;
//! after the end of the driver, a thread of this file checks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use semafor_core::Lost;

use super::shared_gate::{Fx, SharedGate, wake};
use super::tag::Tag;
use crate::sync::waiting::{Condvar, Mutex, sleep, spawn};

/// How long all threads may be in a call, with notices queued, before another thread is started. No time passes in a
/// model.
const STUCK_AFTER: Duration = if cfg!(semafor_loom) { Duration::ZERO } else { Duration::from_millis(10) };
/// How long an idle thread stays.
const IDLE: Duration = Duration::from_secs(10);
const MAX_THREADS: usize = 64;

#[derive(Default)]
pub(super) struct Notifier(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    has_notice: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Notice>,
    /// Since when the queue has notices and none was taken.
    stuck_since: Option<Instant>,
    threads: usize,
    /// How many of the threads are in a call.
    calling: usize,
    is_closed: bool,
}

enum Notice {
    Lost(Arc<SharedGate>, Lost<Tag>),
    Wake(Waker),
}

impl Notice {
    fn call(self) {
        match self {
            Self::Lost(gate, lost) => gate.signal_loss(&lost),
            Self::Wake(waker) => wake(waker),
        }
    }
}

impl Notifier {
    /// Queues the wakers and losses in `effects` of `gate` for the threads to call.
    pub(super) fn notify(&self, gate: &Arc<SharedGate>, effects: Fx) {
        // A deadline never leaves an unused waker behind.
        let Fx { lost, wake, unused: _ } = effects;
        if lost.is_empty() && wake.is_empty() {
            return;
        }
        let mut state = self.0.state.lock();
        state.queue.extend(lost.into_iter().map(|lost| Notice::Lost(Arc::clone(gate), lost)));
        state.queue.extend(wake.into_iter().map(Notice::Wake));
        state.stuck_since.get_or_insert_with(Instant::now);
        if state.threads > 0 {
            self.0.has_notice.notify_one();
        } else if !self.0.start(&mut state) {
            // No thread could be started: call them here, although that may delay the driver.
            drop(state);
            self.call_all_here();
        }
    }

    /// Starts or wakes a thread if no notice was taken for [`STUCK_AFTER`]. Returns when to check again, if that may
    /// help.
    pub(super) fn check_stuck(&self) -> Option<Duration> {
        self.0.check_stuck()
    }

    #[cold]
    fn call_all_here(&self) {
        loop {
            let notice = self.0.state.lock().take();
            match notice {
                Some(notice) => notice.call(),
                None => return,
            }
        }
    }
}

/// The threads call what is queued, and end.
impl Drop for Notifier {
    fn drop(&mut self) {
        if Arc::strong_count(&self.0) == 1 {
            // No thread is running, so nothing is queued.
            return;
        }
        let mut state = self.0.state.lock();
        state.is_closed = true;
        let is_busy = !state.queue.is_empty();
        drop(state);
        self.0.has_notice.notify_all();
        if is_busy {
            let shared = Arc::clone(&self.0);
            spawn("semafor-notify", move || {
                while let Some(time) = shared.check_stuck() {
                    sleep(time);
                }
            });
        }
    }
}

impl Shared {
    fn start(self: &Arc<Self>, state: &mut State) -> bool {
        let shared = Arc::clone(self);
        let is_started = spawn("semafor-notify", move || shared.run());
        state.threads += usize::from(is_started);
        is_started
    }

    fn check_stuck(self: &Arc<Self>) -> Option<Duration> {
        let mut state = self.state.lock();
        let stuck_for = state.stuck_since?.elapsed();
        if stuck_for < STUCK_AFTER {
            return Some(STUCK_AFTER - stuck_for);
        }
        if state.calling < state.threads {
            self.has_notice.notify_one();
        } else if state.threads < MAX_THREADS {
            // If no thread can be started, the next check tries again.
            self.start(&mut state);
        } else {
            return None;
        }
        state.stuck_since = Some(Instant::now());
        Some(STUCK_AFTER)
    }

    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(notice) = state.take() {
                state.calling += 1;
                drop(state);
                notice.call();
                state = self.state.lock();
                state.calling -= 1;
                continue;
            }
            let another_is_idle = state.threads - state.calling > 1;
            if state.is_closed || another_is_idle {
                break;
            }
            let is_over;
            (state, is_over) = self.has_notice.wait_for(state, IDLE);
            if is_over && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

impl State {
    fn take(&mut self) -> Option<Notice> {
        let notice = self.queue.pop_front();
        self.stuck_since = (!self.queue.is_empty()).then(Instant::now);
        notice
    }
}

#[cfg(all(test, semafor_loom))]
mod loom_models {
    use std::sync::Weak;
    use std::task::Wake;

    use loom::sync::Notify;
    use loom::sync::atomic::{AtomicBool, Ordering};
    use semafor_core::Gate;

    use super::super::clock::Clock;
    use super::*;

    struct Event {
        has_happened: AtomicBool,
        notify: Notify,
    }

    impl Event {
        fn new() -> Arc<Self> {
            Arc::new(Self { has_happened: AtomicBool::new(false), notify: Notify::new() })
        }

        fn happens(&self) {
            self.has_happened.store(true, Ordering::SeqCst);
            self.notify.notify();
        }

        fn wait(&self) {
            while !self.has_happened.load(Ordering::SeqCst) {
                self.notify.wait();
            }
        }
    }

    /// A waker that first waits for one event and then causes another.
    struct Step {
        after: Option<Arc<Event>>,
        done: Arc<Event>,
    }

    impl Wake for Step {
        fn wake(self: Arc<Self>) {
            if let Some(after) = &self.after {
                after.wait();
            }
            self.done.happens();
        }
    }

    fn gate() -> Arc<SharedGate> {
        SharedGate::new("notified", Gate::new(1, 1).unwrap(), Clock::System, Weak::new())
    }

    fn effects(step: Step) -> Fx {
        let mut effects = Fx::default();
        effects.wake.push(Waker::from(Arc::new(step)));
        effects
    }

    #[test]
    fn loom_every_notice_is_called_and_the_thread_ends() {
        loom::model(|| {
            let (notifier, gate) = (Notifier::default(), gate());
            let events = [Event::new(), Event::new()];
            for done in &events {
                notifier.notify(&gate, effects(Step { after: None, done: Arc::clone(done) }));
            }
            events.iter().for_each(|event| event.wait());
            drop(notifier);
        });
    }

    /// The first call returns only after the second one.
    fn block_and_follow(notifier: &Notifier) -> Arc<Event> {
        let (gate, first, second) = (gate(), Event::new(), Event::new());
        let blocking = Step { after: Some(Arc::clone(&second)), done: Arc::clone(&first) };
        notifier.notify(&gate, effects(blocking));
        notifier.notify(&gate, effects(Step { after: None, done: second }));
        first
    }

    /// Every interleaving with few preemptions: all of them take minutes.
    fn bounded() -> loom::model::Builder {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model
    }

    #[test]
    fn loom_notice_behind_a_blocking_call_is_called() {
        bounded().check(|| {
            let notifier = Notifier::default();
            let first = block_and_follow(&notifier);
            while notifier.check_stuck().is_some() {
                loom::thread::yield_now();
            }
            first.wait();
            drop(notifier);
        });
    }

    #[test]
    fn loom_notice_behind_a_blocking_call_is_called_after_the_driver_ended() {
        bounded().check(|| {
            let notifier = Notifier::default();
            let first = block_and_follow(&notifier);
            drop(notifier);
            first.wait();
        });
    }
}

#[cfg(all(test, not(semafor_loom)))]
mod tests {
    use std::sync::mpsc::{self, Sender};
    use std::sync::{Mutex as StdMutex, Weak};
    use std::task::Wake;

    use semafor_core::Gate;

    use super::super::clock::Clock;
    use super::*;

    const A_MINUTE: Duration = Duration::from_secs(60);

    struct CallOnWake<F>(F);

    impl<F: Fn() + Send + Sync + 'static> Wake for CallOnWake<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    fn gate() -> Arc<SharedGate> {
        SharedGate::new("notified", Gate::new(1, 1).unwrap(), Clock::System, Weak::new())
    }

    fn wake_up(call: impl Fn() + Send + Sync + 'static) -> Fx {
        let mut effects = Fx::default();
        effects.wake.push(Waker::from(Arc::new(CallOnWake(call))));
        effects
    }

    fn sends(sender: &Sender<()>) -> Fx {
        let sender = sender.clone();
        wake_up(move || sender.send(()).unwrap())
    }

    /// A call that lasts until the sender is dropped.
    fn blocks() -> (Fx, Sender<()>) {
        let (end, until) = mpsc::channel::<()>();
        let until = StdMutex::new(until);
        (wake_up(move || assert!(until.lock().unwrap().recv().is_err())), end)
    }

    #[test]
    fn calls_that_return_at_once_share_one_thread() {
        let (notifier, gate) = (Notifier::default(), gate());
        let (sender, receiver) = mpsc::channel();
        for _ in 0..1_000 {
            notifier.notify(&gate, sends(&sender));
            receiver.recv_timeout(A_MINUTE).unwrap();
        }
        assert_eq!(notifier.0.state.lock().threads, 1);
    }

    #[test]
    fn notice_behind_a_blocking_call_gets_exactly_one_more_thread() {
        let (notifier, gate) = (Notifier::default(), gate());
        let (blocking, end) = blocks();
        let (sender, receiver) = mpsc::channel();
        notifier.notify(&gate, blocking);
        notifier.notify(&gate, sends(&sender));
        while receiver.try_recv().is_err() {
            notifier.check_stuck();
            std::thread::yield_now();
        }
        for _ in 0..100 {
            notifier.notify(&gate, sends(&sender));
            receiver.recv_timeout(A_MINUTE).unwrap();
        }
        assert_eq!(notifier.0.state.lock().threads, 2);
        drop(end);
    }

    #[test]
    fn threads_end_with_the_notifier_once_the_queue_is_empty() {
        let (notifier, gate) = (Notifier::default(), gate());
        let shared = Arc::downgrade(&notifier.0);
        let (blocking, end) = blocks();
        let (sender, receiver) = mpsc::channel();
        notifier.notify(&gate, blocking);
        notifier.notify(&gate, sends(&sender));
        drop(notifier);
        drop(end);
        receiver.recv_timeout(A_MINUTE).unwrap();
        let start = Instant::now();
        while shared.strong_count() > 0 {
            assert!(start.elapsed() < A_MINUTE, "its threads do not end");
            std::thread::yield_now();
        }
    }

    /// Calls `check_stuck`, as the driver does, until `is_done`.
    #[track_caller]
    fn check_stuck_until(notifier: &Notifier, is_done: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_done() {
            assert!(start.elapsed() < A_MINUTE, "not done after a minute");
            notifier.check_stuck();
            std::thread::yield_now();
        }
    }

    #[test]
    fn extra_threads_end_although_notices_continue() {
        let (notifier, gate) = (Notifier::default(), gate());
        let (sender, receiver) = mpsc::channel();
        let mut ends = Vec::new();
        for _ in 0..8 {
            let (blocking, end) = blocks();
            notifier.notify(&gate, blocking);
            ends.push(end);
        }
        check_stuck_until(&notifier, || notifier.0.state.lock().calling == 8);
        drop(ends);
        let start = Instant::now();
        while notifier.0.state.lock().threads > 1 {
            assert!(start.elapsed() < A_MINUTE, "{} threads do not end", notifier.0.state.lock().threads);
            notifier.notify(&gate, sends(&sender));
            receiver.recv_timeout(A_MINUTE).unwrap();
        }
    }

    /// Then the driver has ended, too, and no longer checks whether all threads are stuck.
    #[test]
    fn notice_behind_a_blocking_call_is_called_although_the_notifier_is_dropped() {
        let (notifier, gate) = (Notifier::default(), gate());
        let (first, first_end) = blocks();
        let (second, second_end) = blocks();
        let (sender, receiver) = mpsc::channel();
        for effects in [first, second, sends(&sender)] {
            notifier.notify(&gate, effects);
        }
        drop(notifier);
        receiver.recv_timeout(A_MINUTE).expect("it is not held up");
        drop((first_end, second_end));
    }

    /// Dropping the payload of a waker's panic may panic, too.
    #[test]
    fn notice_is_called_although_earlier_wakers_panicked() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                // Unlike `panic!`, it prints nothing.
                std::panic::resume_unwind(Box::new("the payload of a panic panicked"));
            }
        }
        let (notifier, gate) = (Notifier::default(), gate());
        let (sender, receiver) = mpsc::channel();
        for _ in 0..2 * MAX_THREADS {
            notifier.notify(&gate, wake_up(|| std::panic::resume_unwind(Box::new(Bomb))));
        }
        notifier.notify(&gate, sends(&sender));
        check_stuck_until(&notifier, || receiver.try_recv().is_ok());
    }
}
