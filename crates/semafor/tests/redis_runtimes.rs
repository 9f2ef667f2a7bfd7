//! The connection lives in the runtime that connected. Whatever that runtime does, no slot is lost or leaked.

mod redis_support;

use std::sync::mpsc;

use redis_support::{connected, in_time};
use semafor::{Home, Permit, secs};
use semafor_testkit::redis::{Keyspace, RedisServer, until_seen};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

/// A runtime that a single task can block.
fn one_worker() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Its only thread blocks for much longer than a heartbeat may stay away.
#[test]
fn a_holder_keeps_its_slot_while_its_runtime_is_blocked() {
    let server = RedisServer::start();
    let keys = Keyspace::of(&server, "it");
    let runtime = one_worker();
    let (_home, permit) = runtime
        .block_on(runtime.spawn({
            let url = server.url();
            async move {
                let home = connected(&url).await;
                let sem = home.named("it").slots(1).heartbeat_max_interval(secs(1)).build().unwrap();
                let permit = sem.acquire().await.unwrap().into_owned();
                (home, permit)
            }
        }))
        .unwrap();
    let id = permit.id().to_string();

    let (unblock, blocked) = mpsc::channel::<()>();
    runtime.spawn(async move { blocked.recv().unwrap() });
    let granted = keys.score("main", &id).expect("it is held");
    // Three intervals later it is still alive, and was never taken for dead in between.
    let other_runtime = Builder::new_current_thread().enable_all().build().unwrap();
    other_runtime.block_on(until_seen("heartbeats go on", || {
        keys.score("main", &id).filter(|score| *score > granted + 3.0)
    }));
    assert!(!permit.is_lost());
    unblock.send(()).unwrap();
    runtime.block_on(in_time(permit.release())).expect("it was held all the time");
    assert!(keys.members("main").is_empty());
}

/// Then its connection lives in another runtime. (Tokio reports the attempt as a panic of its own task.)
#[test]
fn runtime_without_io_is_enough() {
    let server = RedisServer::start();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let used = runtime.spawn(async move {
        let home = connected(&server.url()).await;
        let sem = home.named("it").slots(1).build().unwrap();
        sem.acquire().await.unwrap().release().await
    });
    assert_eq!(runtime.block_on(used).unwrap(), Ok(()));
}

/// The thread that drops it waits until everything dropped is released, and must not block the tasks that do that.
#[test]
fn the_last_handle_can_be_dropped_where_the_connection_lives() {
    let server = RedisServer::start();
    let _held = Held::on(&server);
    let runtime = one_worker();
    let left = runtime.block_on(runtime.spawn(leave_the_line(server.url(), Keyspace::of(&server, "it"))));
    assert_eq!(left.unwrap(), Vec::<String>::new(), "it left the line before the last handle was gone");
}

/// In a local set, no thread can hand its tasks to another.
#[test]
fn the_last_handle_can_be_dropped_in_a_local_set() {
    let server = RedisServer::start();
    let _held = Held::on(&server);
    let runtime = one_worker();
    let keys = Keyspace::of(&server, "it");
    let local = LocalSet::new();
    let left = local.spawn_local(leave_the_line(server.url(), keys));
    let left = local.block_on(&runtime, left);
    assert_eq!(left.unwrap(), Vec::<String>::new(), "it left the line before the last handle was gone");
}

/// Waits in line and leaves it together with the last handle. Returns the waiters left there.
async fn leave_the_line(url: String, keys: Keyspace) -> Vec<String> {
    let home = connected(&url).await;
    let sem = home.named("it").slots(1).build().unwrap();
    drop(home);
    let mut waiting = Box::pin(sem.acquire());
    while sem.stats().await.unwrap().waiting == 0 {
        assert!(polled(waiting.as_mut()).await.is_pending());
    }
    drop(waiting);
    drop(sem);
    keys.members("waiting")
}

/// The only slot, held by a home of its own.
struct Held {
    _permit: Permit<'static>,
    _home: Home,
    _runtime: Runtime,
}

impl Held {
    fn on(server: &RedisServer) -> Self {
        let runtime = one_worker();
        // Another configuration has a connection of its own.
        let url = format!("{}?socket_timeout=29", server.url());
        let (permit, home) = runtime.block_on(async {
            let home = connected(&url).await;
            let sem = home.named("it").slots(1).build().unwrap();
            let permit = sem.acquire().await.unwrap().into_owned();
            (permit, home)
        });
        Self { _permit: permit, _home: home, _runtime: runtime }
    }
}

/// Polls once.
async fn polled<F: Future + Unpin>(mut future: F) -> std::task::Poll<F::Output> {
    std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut future).poll(cx))).await
}

/// The runtime should run a call, and has ended before it starts it.
#[test]
fn call_that_its_runtime_never_starts_is_made_all_the_same() {
    let server = RedisServer::start();
    let keys = Keyspace::of(&server, "it");
    let runtime = one_worker();
    let url = server.url();
    let held = runtime.spawn(async move {
        let home = connected(&url).await;
        let sem = home.named("it").slots(1).build().unwrap();
        let permit = sem.acquire().await.unwrap().into_owned();
        (home, sem, permit)
    });
    let (_home, sem, permit) = runtime.block_on(held).unwrap();

    let handle = runtime.handle().clone();
    drop(runtime);
    let mut released = Box::pin(permit.release());
    {
        let _inside = handle.enter();
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(released.as_mut().poll(&mut cx).is_pending());
    }

    let other_runtime = Builder::new_current_thread().enable_all().build().unwrap();
    other_runtime.block_on(async {
        in_time(released).await.expect("it was held");
        assert!(keys.members("main").is_empty());
        in_time(sem.acquire().into_future()).await.expect("it is free").release().await.unwrap();
    });
}
