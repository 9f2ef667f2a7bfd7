//! Everything that a semaphore in memory can do.

use semafor::{Registry, Semaphore, StatsQuery, secs};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sem = Semaphore::memory("thumbnails").slots(4).ttl(secs(30)).build()?;

    // Options of this acquire alone. Set them before the await.
    let permit = sem.acquire().weight(2).ttl(secs(5)).timeout(secs(1)).label("batch").await?;
    println!("id {}: enough to renew, release or evict it from anywhere", permit.id());
    println!("slot {}: no other live permit has it", permit.slot());
    println!("fencing token {}: grows with every grant of the name", permit.fencing_token());
    permit.renew(secs(60)).await?;
    permit.release().await?; // or drop it: in memory, a drop never blocks; it never leaks

    drop(sem.try_acquire().await?); // does not wait, and does not overtake the line
    drop(sem.acquire().blocking()?); // on a thread without a runtime
    sem.run(async { println!("dropped the moment its slot is lost") }).await?;

    let held = sem.acquire().await?.detach(); // hold by id …
    sem.release(&held).await?; // … and release by id
    println!("again: {}", sem.release(&held).await.unwrap_err());

    let permit = sem.acquire().label("to be evicted").await?;
    sem.evict(&permit.id()).await?;
    println!("lost: {}", permit.lost().await); // or permit.lost_signal()

    sem.resize(8).await?; // when shrinking, holders keep their slots
    let _permit = sem.acquire().label("listed below").await?;
    for holder in sem.holders().await? {
        println!("{:?} holds {}, {:?} left", holder.label, holder.id, holder.expires_in);
    }
    for busy in Registry::global().stats(&StatsQuery::default().limit(10)) {
        let (held, slots, percent) = (busy.held, busy.slots, busy.percent());
        println!("{}: {held}/{slots} ({percent:.0} %), {} waiting", busy.name, busy.waiting);
    }
    Ok(())
}
