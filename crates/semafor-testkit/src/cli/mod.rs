//! Runs the real `semafor` binary, and checks what its processes leave behind.
//!
//! - [`CommandEnv`]: a home of its own, a scratch folder, and the processes started in them.
//! - [`Process`] and [`Output`]: a command that runs, and the result of one that has ended.
//! - [`Gate`]: blocks the children of `semafor run` until it is opened.
//! - [`census`]: finds processes.

pub mod census;
mod env;
mod gate;
mod output;
mod process;

pub use env::CommandEnv;
pub use gate::Gate;
pub use output::Output;
pub use process::Process;
