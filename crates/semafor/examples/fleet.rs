//! Three slots shared by many machines, on the Redis of this machine.

use semafor::{Home, secs};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // At most 3 at once in the whole fleet. Start this on as many machines, and as often, as you like.
    let fleet = Home::connect("redis://127.0.0.1/?namespace=my-app").await?;
    let sem = fleet.named("images").slots(3).ttl(secs(30)).timeout(secs(60)).open().await?;

    let permit = sem.acquire().label("resize").await?;
    println!("slot {}, fencing token {}", permit.slot(), permit.fencing_token());
    for holder in sem.holders().await? {
        let (host, pid) = (holder.host.as_deref().unwrap_or("?"), holder.pid.unwrap_or(0));
        println!("  {} is held by {host}, process {pid}, for {:?}", holder.id, holder.held_for);
    }

    // Stops where it awaits if the slot is lost: time is up, evicted, or Redis out of reach for too long.
    permit.run(tokio::time::sleep(std::time::Duration::from_secs(1))).await?;
    println!("  {} grants so far, {} waiting", sem.stats().await?.totals.granted, sem.stats().await?.waiting);
    Ok(())
}
