//! The `semafor` command as its users have it: the real binary, and what its processes leave behind.
//!
//! - [`CommandEnv`]: a home of its own, a scratch folder, and everything that is started in them.
//! - [`Process`] and [`Output`]: a command that runs, and one that has ended.
//! - [`Gate`]: keeps the children of `semafor run` until they are let go.
//! - [`census`]: which processes there are.

pub mod census;
mod env;
mod gate;
mod output;
mod process;

pub use env::CommandEnv;
pub use gate::Gate;
pub use output::Output;
pub use process::Process;
