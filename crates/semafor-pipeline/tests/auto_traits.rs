//! Which types can be sent to other threads and shared between them.

use std::sync::Arc;

use semafor_pipeline::{
    CancellationToken, Failure, Level, Live, MemoryGuard, Metrics, Outcome, Pipeline, Rate, StoppedBy,
    SystemMemory, produced,
};

fn sent<T: Send>(value: T) -> T {
    value
}

#[test]
fn everything_public_is_send_and_sync() {
    fn both<T: Send + Sync>() {}
    both::<Pipeline<String>>();
    both::<Outcome<String, String>>();
    both::<Failure<String>>();
    both::<(Live, Metrics, StoppedBy)>();
    both::<(MemoryGuard, Level, SystemMemory, Rate)>();
    both::<CancellationToken>();
}

#[tokio::test]
async fn a_run_can_be_spawned() {
    let (shared, (send, mut receive)) = (Arc::new(7), tokio::sync::mpsc::channel(1));
    drop(send);
    let items = produced(async move || receive.recv().await);
    let empty = tokio::spawn(Pipeline::new(1).run(items, async |item: u32| Ok::<_, String>(item)));
    assert!(empty.await.unwrap().is_clean());

    let work = async move |item: u32| {
        tokio::task::yield_now().await;
        Ok::<_, String>(item + *shared)
    };
    let run =
        Pipeline::new(2).priority(|item: &u32| *item).rate(Rate::per_second(0)).run(vec![1, 2, 3], work);
    assert!(tokio::spawn(sent(run)).await.unwrap().is_clean());
}

#[tokio::test]
async fn work_may_borrow_and_need_not_be_send() {
    let (seen, text) = (std::cell::RefCell::new(Vec::new()), String::from("borrowed"));
    let outcome = Pipeline::new(2)
        .run(text.bytes(), async |byte| {
            tokio::task::yield_now().await;
            seen.borrow_mut().push(byte);
            Ok::<_, String>(())
        })
        .await;
    assert!(outcome.is_clean());
    let mut seen = seen.into_inner();
    seen.sort_unstable();
    assert_eq!(seen, b"bdeoorrw");
}
