//! The usage examples of the Python library asyncio-advanced-semaphores, in Rust.

use semafor::{Registry, Semaphore, StatsQuery, secs};

type Outcome = Result<(), Box<dyn std::error::Error>>;

async fn do_work() {
    tokio::task::yield_now().await;
}

#[tokio::test]
async fn basic_usage_with_a_guard() -> Outcome {
    let sem = Semaphore::memory("my-resource").slots(5).build()?;
    {
        let _permit = sem.acquire().await?;
        do_work().await;
    }
    assert_eq!(sem.stats().await?.held, 0);
    Ok(())
}

#[tokio::test]
async fn ttl_and_auto_cancel() -> Outcome {
    let sem =
        Semaphore::memory("critical-resource").slots(1).ttl(secs(0.03)).cancel_on_expiry(true).build()?;
    let hanging = sem.run(std::future::pending::<()>()).await;
    assert!(hanging.unwrap_err().is_lost());
    Ok(())
}

#[tokio::test]
async fn instances_of_one_name_share_its_slots() -> Outcome {
    let sem1 = Semaphore::memory("shared").slots(3).build()?;
    let sem2 = Semaphore::memory("shared").slots(3).build()?;
    let _one = sem1.acquire().await?;
    let _two = sem2.acquire().await?;
    let stats = sem1.stats().await?;
    assert_eq!(stats.slots - stats.held, 1);
    Ok(())
}

#[tokio::test]
async fn acquire_timeout() -> Outcome {
    let sem = Semaphore::memory("limited-resource").slots(1).timeout(secs(0.03)).build()?;
    let _permit = sem.acquire().await?;
    assert!(sem.acquire().await.unwrap_err().is_timeout());
    Ok(())
}

#[tokio::test]
async fn monitoring_acquisition_statistics() -> Outcome {
    let sem = Semaphore::memory("monitored").slots(4).build()?;
    let _permit = sem.acquire().await?;
    let lines: Vec<_> = Registry::global()
        .stats(&StatsQuery::default().names(["monitored"]))
        .iter()
        .map(|stat| format!("{}: {}/{} ({:.1}%)", stat.name, stat.held, stat.slots, stat.percent()))
        .collect();
    assert_eq!(lines, ["monitored: 1/4 (25.0%)"]);
    Ok(())
}
