//! `semafor`: limit how many processes run at the same time.

mod agent;
mod by_id;
mod cli;
mod default_slots;
mod delivery;
mod exit;
mod groups;
mod home;
mod inherited;
mod live_line;
mod output;
mod pages;
mod plain;
#[cfg(target_os = "linux")]
mod purge;
mod resize;
mod run;
mod status;
mod stop_signals;
mod top;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use semafor_cli::duration;

use cli::{Cli, Command};
use exit::{Code, Failure};

fn main() -> ExitCode {
    use_one_heap();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return report_parse_error(&error),
    };
    // Before this process opens any file: the agent closes all inherited descriptors.
    if let Command::Agent(cli::Agent::Serve { directory }) = &cli.command {
        return agent::serve(directory).unwrap_or_else(|failure| print_failure(&failure));
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return print_failure(
                &Code::Unreachable.because(format!("can't start the async runtime: {error}")),
            );
        }
    };
    match runtime.block_on(dispatch(cli.command)) {
        Ok(code) => code,
        Err(failure) => print_failure(&failure),
    }
}

/// Uses one malloc arena for all threads: there are only two threads with little to do, and the process starts faster.
fn use_one_heap() {
    // SAFETY: sets a number in the allocator, before there is another thread.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Prints help to stdout, and an error in the command line as one line to stderr.
fn report_parse_error(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return if error.use_stderr() { Code::Usage.into() } else { ExitCode::SUCCESS };
    }
    let is_purge = std::env::args_os().nth(1).is_some_and(|word| word == "purge");
    let (code, help) = match is_purge {
        true => (Code::PurgeUsage, "semafor purge --help"),
        false => (Code::Usage, "semafor --help"),
    };
    let text = error.render().to_string();
    let message = text.split("\n\nUsage:").next().unwrap_or(&text);
    let message = message.split("\n\nFor more information").next().unwrap_or(message);
    let message: Vec<_> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let message = message.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    print_failure(&code.because(format!("{message} (see `{help}`)")))
}

fn print_failure(failure: &Failure) -> ExitCode {
    output::say(&failure.message);
    failure.code.into()
}

async fn dispatch(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(args) => run::run(args).await,
        Command::Acquire(args) => by_id::acquire(args).await,
        Command::Release(held) => by_id::release(held).await,
        Command::Renew(args) => by_id::renew(args).await,
        Command::Evict(args) => by_id::evict(args).await,
        Command::Status(args) => status::status(args).await,
        Command::Inspect(args) => status::inspect(args).await,
        Command::Resize(args) => resize::resize(args).await,
        Command::Top(args) => top::top(args).await,
        #[cfg(target_os = "linux")]
        Command::Purge(args) => purge::purge(*args).await,
        Command::Agent(command) => agent::agent(command).await,
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { directory } => pages::man(directory.as_deref()),
    }
}
