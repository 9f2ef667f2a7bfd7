//! The command with the semaphores of one machine.

#[macro_use]
mod promises;

use semafor_testkit::cli::CommandEnv;

promises!(CommandEnv::local(env!("CARGO_BIN_EXE_semafor")));

#[test]
fn a_stopped_holder_keeps_its_slot() {
    let env = CommandEnv::local(env!("CARGO_BIN_EXE_semafor"));
    let gate = env.gate("gate");
    let mut holder = promises::hold(&env, &["--heartbeat", "100ms"]);
    holder.pause();
    let output = env.run(["run", "--name", "it", "--timeout", "500ms", "--", "true"]);
    assert!(output.complaint(75).contains(&format!("pid {}", holder.pid())), "{output:?}");
    holder.resume();
    let _open = gate.open();
    assert_eq!(holder.wait().text(), "");
}
