//! An expired lease counts as ended even before the driver thread has ended it.
//!
//! Two semaphores have leases that end at the same moment: the listener of the first finds the other lease overdue.

use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use semafor::{PermitId, Registry, Semaphore, secs};
use semafor_testkit::stepwise::{now, seconds, standing_still};

/// A waker that calls a function.
struct CallOnWake<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for CallOnWake<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn when_woken(does: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(CallOnWake(does)))
}

fn both(registry: &Registry, slots: u32) -> [Semaphore; 2] {
    ["one", "other"].map(|name| registry.named(name).slots(slots).build().unwrap())
}

#[test]
fn release_latest_skips_an_overdue_permit() {
    let (registry, clock) = standing_still();
    let sems = both(&registry, 2);
    let outer = sems.each_ref().map(|sem| now(sem.acquire()).unwrap().detach());
    for sem in &sems {
        now(sem.acquire().ttl(secs(5))).unwrap().detach();
    }
    let released: Arc<Mutex<Vec<Option<PermitId>>>> = Arc::default();
    let line: Vec<_> = (0..2)
        .map(|this| {
            let (other, released) = (sems[1 - this].clone(), Arc::clone(&released));
            let waker = when_woken(move || {
                let answer = now(other.release_latest()).ok();
                released.lock().unwrap().push(answer);
            });
            let mut waiting = Box::pin(sems[this].acquire());
            assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            waiting
        })
        .collect();
    clock.advance(seconds(5));
    let mut released = released.lock().unwrap().clone();
    released.sort();
    let mut outer = outer.map(Some);
    outer.sort();
    assert_eq!(released, outer);
    drop(line);
}

#[test]
fn overdue_lease_does_not_block_opening_its_name_anew() {
    let (registry, clock) = standing_still();
    let sems = both(&registry, 1);
    let permits = sems.each_ref().map(|sem| now(sem.acquire().ttl(secs(5))).unwrap());
    let opened: Arc<Mutex<Vec<bool>>> = Arc::default();
    let listening: Vec<_> = (0..2)
        .map(|this| {
            let (registry, opened) = (registry.clone(), Arc::clone(&opened));
            let other = sems[1 - this].name().to_owned();
            let waker = when_woken(move || {
                let anew = registry.named(&other).slots(7).build();
                opened.lock().unwrap().push(anew.is_ok());
            });
            let mut lost = Box::pin(permits[this].lost());
            assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            lost
        })
        .collect();
    clock.advance(seconds(5));
    assert_eq!(*opened.lock().unwrap(), [true, true]);
    drop(listening);
}

/// Opening a name with an overdue lease first ends that lease. A listener of that end advances the clock until the
/// name, which is unused by then, is dropped. So what `open` read about the name's tokens before is out of date.
#[test]
fn a_name_that_is_dropped_while_it_is_opened_issues_no_fencing_token_twice() {
    let (registry, clock) = standing_still();
    let [one, other] = both(&registry, 1);
    let ends_first = now(one.acquire().ttl(secs(5))).unwrap();
    let overdue = now(other.acquire().ttl(secs(5))).unwrap();
    let (issued, lost) = (overdue.fencing_token(), overdue.lost_signal());
    overdue.detach();
    drop(other);

    let opened: Arc<Mutex<Option<Semaphore>>> = Arc::default();
    let opener = {
        let (registry, opened) = (registry.clone(), Arc::clone(&opened));
        when_woken(move || {
            let anew = registry.named("other").slots(1).build().unwrap();
            *opened.lock().unwrap() = Some(anew);
        })
    };
    let mut first_end = Box::pin(ends_first.lost());
    assert!(first_end.as_mut().poll(&mut Context::from_waker(&opener)).is_pending());
    let dropper = {
        let (registry, clock) = (registry.clone(), clock.clone());
        when_woken(move || {
            clock.advance(seconds(60));
            assert_eq!(registry.len(), 1, "the name is dropped");
        })
    };
    let mut second_end = Box::pin(lost.lost());
    assert!(second_end.as_mut().poll(&mut Context::from_waker(&dropper)).is_pending());

    clock.advance(seconds(5));
    let anew = opened.lock().unwrap().take().expect("it was opened");
    let token = now(anew.acquire()).unwrap().fencing_token();
    assert!(token > issued, "token {token} was issued after token {issued}");
}
