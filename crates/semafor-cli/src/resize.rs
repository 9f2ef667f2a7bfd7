use std::process::ExitCode;

use crate::cli;
use crate::exit::Failure;
use crate::home::in_use;

pub(crate) async fn resize(args: cli::Resize) -> Result<ExitCode, Failure> {
    let home = args.home.connect().await?;
    let (semaphore, _) = in_use(&home, &args.name).await?;
    semaphore.resize(args.slots.on_this_machine()).await?;
    Ok(ExitCode::SUCCESS)
}
