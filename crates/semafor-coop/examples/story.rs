//! Finds a deadlock that the default order hides, replays it, and draws it into the file given as argument.

use semafor_coop::{CreateSemaphore, Ctx, Result, Runtime, Schedule, Semaphore, Spawn, explore, run};

async fn transfer(ctx: Ctx, from: Semaphore, to: Semaphore) -> Result {
    let _from = ctx.permit(&from).await?;
    let _to = ctx.permit(&to).await?;
    ctx.log("transferred").await
}

async fn bank(ctx: Ctx) -> Result {
    let savings = ctx.perform(CreateSemaphore::new(1).name("savings")).await?;
    let current = ctx.perform(CreateSemaphore::new(1).name("current")).await?;
    let (a, b) = (savings.clone(), current.clone());
    let deposit = ctx.perform(Spawn::new(|ctx| transfer(ctx, a, b)).name("deposit")).await?;
    let withdrawal = Spawn::new(|ctx| transfer(ctx, current, savings)).name("withdrawal");
    let withdrawal = ctx.perform(withdrawal).await?;
    ctx.gather([deposit, withdrawal]).await.map(drop)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    run(bank)?; // Succeeds in the usual order.
    let failure = explore(bank, 10_000).failure.ok_or("nothing found")?;
    println!("{failure}"); // Which task waits for which, and where.
    let again = Runtime::new().schedule(Schedule::Replay(failure.trace)).record().run(bank);
    let picture = again.report.recording.ok_or("nothing recorded")?.to_svg();
    std::fs::write(std::env::args().nth(1).unwrap_or("timeline.svg".into()), picture)?;
    Ok(())
}
