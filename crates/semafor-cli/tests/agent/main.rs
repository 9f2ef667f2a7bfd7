//! The process that keeps the semaphores of one machine.

mod death;
mod directory;
mod invalid_clients;
mod lifecycle;
mod restart;

use semafor_testkit::cli::CommandEnv;

fn env() -> CommandEnv {
    CommandEnv::local(env!("CARGO_BIN_EXE_semafor"))
}

/// Has an agent started, and says which process it is.
fn agent(env: &CommandEnv) -> u32 {
    assert_eq!(env.run(["run", "--", "true"]).text(), "");
    let agents = env.agents();
    assert_eq!(agents.len(), 1, "{agents:?}");
    agents[0]
}
