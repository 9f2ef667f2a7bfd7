//! Five tasks, three slots: the first example of the README.

use semafor::{AcquireError, Semaphore, secs};
use tokio::time::{Duration, sleep};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // At most 3 at once. A slot is held for 30 s at most, and a task waits for 5 s at most.
    let sem = Semaphore::memory("images").slots(3).ttl(secs(30)).timeout(secs(5)).build()?;

    let mut tasks = Vec::new();
    for n in 1..=5 {
        let sem = sem.clone();
        tasks.push(tokio::spawn(async move {
            let permit = sem.acquire().label(format!("image {n}")).await?;
            println!("image {n} has slot {} after {:?}", permit.slot(), permit.waited());
            sleep(Duration::from_millis(100)).await;
            Ok::<_, AcquireError>(()) // Drops the permit: its slot goes to the first waiter.
        }));
    }
    for task in tasks {
        task.await??;
    }
    let stats = sem.stats().await?;
    println!("{} grants, longest wait {:?}", stats.totals.granted, stats.waits.max());
    Ok(())
}
