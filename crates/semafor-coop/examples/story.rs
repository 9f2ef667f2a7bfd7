//! A deadlock that a first look does not show: found, simplified, replayed, and drawn.
//!
//! `cargo run -p semafor-coop --example story [PICTURE.svg]`

use semafor_coop::{CreateSemaphore, Ctx, Result, Runtime, Schedule, Semaphore, Spawn, explore};

async fn transfer(ctx: Ctx, from: Semaphore, to: Semaphore) -> Result {
    ctx.acquire(&from).await?;
    ctx.acquire(&to).await?;
    ctx.log("transferred").await?;
    ctx.release(&to).await?;
    ctx.release(&from).await
}

async fn bank(ctx: Ctx) -> Result {
    let savings = ctx.perform(CreateSemaphore::new(1).name("savings")).await?;
    let current = ctx.perform(CreateSemaphore::new(1).name("current")).await?;
    let (a, b) = (savings.clone(), current.clone());
    let deposit = ctx.perform(Spawn::new(move |ctx| transfer(ctx, a, b)).name("deposit")).await?;
    let withdrawal =
        ctx.perform(Spawn::new(move |ctx| transfer(ctx, current, savings)).name("withdrawal")).await?;
    ctx.gather([deposit, withdrawal]).await?;
    Ok(())
}

fn main() -> std::io::Result<()> {
    println!("first come, first served: {:?}", Runtime::new().run(bank).result);

    let exploration = explore(bank, 10_000);
    let Some(failure) = exploration.failure else { return Ok(()) };
    println!("\nschedule {} of 10000: {failure}", exploration.schedules);

    let replayed = Runtime::new().schedule(Schedule::Replay(failure.trace)).record().run(bank);
    println!("\nreplayed: {}", replayed.result.is_err());
    if let Some(picture) = std::env::args_os().nth(1)
        && let Some(recording) = replayed.report.recording
    {
        std::fs::write(picture, recording.to_svg())?;
    }
    Ok(())
}
