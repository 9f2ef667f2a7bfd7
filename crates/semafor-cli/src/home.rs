//! Connects to the home, and maps errors of the library to exit codes.

use semafor::{
    AcquireError, BuildError, Home, HomeError, ReleaseError, RenewError, ResizeError, Semaphore, StatsQuery,
    local,
};

use crate::cli::HomeArgs;
use crate::exit::{Code, Failure};
use crate::output::say;

impl HomeArgs {
    /// False if only this user can read the home.
    pub(crate) fn is_shared(&self) -> bool {
        !local::Config::is_meant_by(&self.url)
    }

    /// Connects to the home.
    pub(crate) async fn connect(&self) -> Result<Home, Failure> {
        if !self.is_shared() {
            return Ok(Home::local(self.agent()?));
        }
        let home = Home::connect(&self.url).await?;
        for warning in home.warnings() {
            say(&format!("warning: {warning}"));
        }
        Ok(home)
    }

    /// The configuration of the local agent. This program is started as the agent if none runs.
    pub(crate) fn agent(&self) -> Result<local::Config, Failure> {
        let config = self.url.parse::<local::Config>()?.on_warning(say);
        Ok(match std::env::current_exe() {
            Ok(this) => config.program(this),
            Err(_) => config,
        })
    }
}

/// The semaphore with this name; an error if it does not exist.
pub(crate) async fn in_use(home: &Home, name: &str) -> Result<(Semaphore, semafor::Stats), Failure> {
    match home.stats(&StatsQuery::default().names([name])).await?.pop() {
        Some(semafor::Stats { error: Some(error), .. }) => Err(error.into()),
        Some(stats) => Ok((home.named(name).build()?, stats)),
        None => {
            Err(Code::Nothing
                .because(format!("no semaphore named {name:?} exists; `semafor status` lists all")))
        }
    }
}

impl From<HomeError> for Failure {
    fn from(error: HomeError) -> Self {
        let code = match error.kind() {
            semafor::HomeErrorKind::InvalidUrl => Code::Usage,
            _ => Code::Unreachable,
        };
        code.because(error.to_string())
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Home(error) => error.into(),
            BuildError::SlotsMismatch { name, live, asked } => Code::Usage.because(format!(
                "{name:?} is in use with {live} slots, not {asked}: use --slots {live}, omit --slots, \
                 or change the number for all users with `semafor resize {name} {asked}`"
            )),
            error => Code::Usage.because(error.to_string()),
        }
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Open(error) => (*error).into(),
            AcquireError::Home(error) => error.into(),
            AcquireError::Busy | AcquireError::TimedOut { .. } => Code::TimedOut.because(error.to_string()),
            AcquireError::LineFull { .. } | AcquireError::Closed | AcquireError::Lost(_) => {
                Code::TimedOut.because(error.to_string())
            }
            error => Code::Usage.because(error.to_string()),
        }
    }
}

impl From<ReleaseError> for Failure {
    fn from(error: ReleaseError) -> Self {
        match error {
            ReleaseError::Home(error) => error.into(),
            error => Code::Nothing.because(error.to_string()),
        }
    }
}

impl From<RenewError> for Failure {
    fn from(error: RenewError) -> Self {
        match error {
            RenewError::Home(error) => error.into(),
            error => Code::Nothing.because(error.to_string()),
        }
    }
}

impl From<ResizeError> for Failure {
    fn from(error: ResizeError) -> Self {
        match error {
            ResizeError::Home(error) => error.into(),
            error => Code::Usage.because(error.to_string()),
        }
    }
}
