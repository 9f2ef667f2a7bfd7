//! Nine tasks, three slots: the first example of the README.

use semafor::{Semaphore, secs};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // At most 3 at once, 30 s each, and nobody waits longer than 5 s.
    let sem = Semaphore::memory("images").slots(3).ttl(secs(30)).timeout(secs(5)).build()?;

    let mut tasks = Vec::new();
    for n in 1..=9 {
        let sem = sem.clone();
        tasks.push(tokio::spawn(async move {
            let permit = sem.acquire().label(format!("image {n}")).await?;
            println!("image {n} has slot {} after {:?}", permit.slot(), permit.waited());
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            Ok::<_, semafor::AcquireError>(())
        }));
    }

    tokio::time::sleep(std::time::Duration::from_millis(150)).await;
    for holder in sem.holders().await? {
        println!(
            "  {} holds {} for {:?}",
            holder.label.as_deref().unwrap_or("?"),
            holder.id,
            holder.held_for
        );
    }
    for task in tasks {
        task.await??;
    }
    let stats = sem.stats().await?;
    println!("  {} grants, longest wait {:?}", stats.totals.granted, stats.waits.max());
    Ok(())
}
