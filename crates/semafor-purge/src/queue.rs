//! The queue of jobs for all threads.
//!
//! It is bounded, and no thread waits for room in it: a thread that finds it full does the work itself. So memory is
//! bounded and there is no deadlock. Last in, first out: deeper directories come first, so open directories are
//! finished before new ones are begun.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

pub(crate) struct Queue<Job> {
    state: Mutex<State<Job>>,
    /// Notified when there is a job, and when the queue is closed.
    job_available: Condvar,
    closed: Condvar,
    capacity: usize,
    /// The last known length. Saves taking the lock when there is no room.
    length: AtomicUsize,
}

struct State<Job> {
    jobs: Vec<Job>,
    is_closed: bool,
    sleeping: usize,
    working: usize,
    /// How many threads may work at once.
    allowed: usize,
}

/// How busy the threads are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) queued: usize,
    pub(crate) sleeping: usize,
    pub(crate) working: usize,
}

/// The most jobs that a thread takes at a time.
const MAX_TAKEN: usize = 16;

impl<Job> Queue<Job> {
    pub(crate) fn new(capacity: usize) -> Self {
        let state =
            State { jobs: Vec::new(), is_closed: false, sleeping: 0, working: 0, allowed: usize::MAX };
        Self {
            state: Mutex::new(state),
            job_available: Condvar::new(),
            closed: Condvar::new(),
            capacity,
            length: AtomicUsize::new(0),
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.length.load(Ordering::Relaxed) < self.capacity
    }

    /// Moves as many jobs from the end of `jobs` to the queue as there is room for.
    pub(crate) fn offer(&self, jobs: &mut Vec<Job>) {
        if jobs.is_empty() || !self.has_room() {
            return;
        }
        let mut state = self.state.lock();
        let room = self.capacity.saturating_sub(state.jobs.len());
        let stay = jobs.len().saturating_sub(room);
        let offered = jobs.len() - stay;
        state.jobs.extend(jobs.drain(stay..));
        self.length.store(state.jobs.len(), Ordering::Relaxed);
        let wake = state.sleeping.min(offered);
        drop(state);
        for _ in 0..wake {
            self.job_available.notify_one();
        }
    }

    /// Moves some jobs to `taken`, and waits until there are some. False when the queue is closed.
    pub(crate) fn take(&self, taken: &mut Vec<Job>, before_waiting: impl FnOnce()) -> bool {
        let mut before_waiting = Some(before_waiting);
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return false;
            }
            if !state.jobs.is_empty() && state.working < state.allowed {
                // With many threads and few jobs, one each.
                let share = state.jobs.len() / (2 * (state.working + state.sleeping + 1));
                let from = state.jobs.len() - share.clamp(1, MAX_TAKEN);
                taken.extend(state.jobs.drain(from..));
                self.length.store(state.jobs.len(), Ordering::Relaxed);
                state.working += 1;
                return true;
            }
            if let Some(before_waiting) = before_waiting.take() {
                drop(state);
                before_waiting();
                state = self.state.lock();
                continue;
            }
            state.sleeping += 1;
            self.job_available.wait(&mut state);
            state.sleeping -= 1;
        }
    }

    /// Called when the taken jobs are done.
    pub(crate) fn done(&self) {
        let mut state = self.state.lock();
        state.working -= 1;
        // A thread that was not allowed to work may work now.
        if state.sleeping > 0 && !state.jobs.is_empty() {
            self.job_available.notify_one();
        }
    }

    /// Gives out no more jobs, and drops the queued ones.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let jobs = std::mem::take(&mut state.jobs);
        self.job_available.notify_all();
        self.closed.notify_all();
        drop(state);
        drop(jobs);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Waits until it is closed, at most for `timeout`.
    pub(crate) fn is_closed_within(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.is_closed {
            self.closed.wait_for(&mut state, timeout);
        }
        state.is_closed
    }

    pub(crate) fn demand(&self) -> Demand {
        let state = self.state.lock();
        Demand { queued: state.jobs.len(), sleeping: state.sleeping, working: state.working }
    }

    /// Sets how many threads may work at once. Threads that are working finish their jobs.
    pub(crate) fn allow(&self, workers: usize) {
        let mut state = self.state.lock();
        let is_wider = workers > state.allowed;
        state.allowed = workers.max(1);
        if is_wider {
            self.job_available.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_job_is_taken_first_and_jobs_without_room_stay_with_the_caller() {
        let queue = Queue::new(3);
        let mut jobs = vec![1, 2, 3, 4];
        queue.offer(&mut jobs);
        assert_eq!(jobs, [1]);
        assert!(!queue.has_room());
        let mut taken = Vec::new();
        assert!(queue.take(&mut taken, || unreachable!("there is a job")));
        assert_eq!(taken, [4]);
        queue.offer(&mut jobs);
        assert!(queue.take(&mut taken, || ()));
        assert_eq!(taken, [4, 1]);
    }

    #[test]
    fn closed_queue_gives_no_jobs() {
        let queue = Queue::new(3);
        queue.offer(&mut vec![1]);
        queue.close();
        assert!(!queue.take(&mut Vec::new(), || ()));
        assert!(queue.is_closed_within(Duration::ZERO));
    }

    #[test]
    fn no_more_threads_work_than_allowed() {
        let queue = Queue::new(9);
        queue.offer(&mut vec![1, 2]);
        queue.allow(1);
        assert!(queue.take(&mut Vec::new(), || ()));
        std::thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel();
            let queue = &queue;
            let second = scope
                .spawn(move || queue.take(&mut Vec::new(), || sender.send(()).expect("the receiver exists")));
            receiver.recv().expect("it must wait");
            assert_eq!(queue.demand().queued, 1);
            queue.done();
            assert!(second.join().expect("it does not panic"));
        });
    }
}
