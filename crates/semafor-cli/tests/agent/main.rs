//! The agent: the process that manages the semaphores of one user on a machine.

mod death;
mod directory;
mod invalid_clients;
mod lifecycle;
mod restart;

use semafor_testkit::cli::CommandEnv;

fn env() -> CommandEnv {
    CommandEnv::local(env!("CARGO_BIN_EXE_semafor"))
}

/// Starts an agent, and returns its pid.
fn agent(env: &CommandEnv) -> u32 {
    assert_eq!(env.run(["run", "--", "true"]).text(), "");
    let agents = env.agents();
    assert_eq!(agents.len(), 1, "{agents:?}");
    agents[0]
}
