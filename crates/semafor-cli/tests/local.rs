//! The command with a local agent.

#[macro_use]
mod promises;

use semafor_testkit::cli::CommandEnv;

promises!(CommandEnv::local(env!("CARGO_BIN_EXE_semafor")));

#[test]
fn stopped_holder_keeps_its_slot() {
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

/// This is safe, because only its own user can query the agent.
#[test]
fn whole_command_line_is_shown() {
    let env = CommandEnv::local(env!("CARGO_BIN_EXE_semafor"));
    let gate = env.gate("gate");
    for more in [&[][..], &["--show-command"]] {
        let mut holder = promises::hold(&env, more);
        assert_eq!(env.inspect("it")["holders"][0]["command"], "sh -c ': < gate'");
        let open = gate.open();
        assert_eq!(holder.wait().text(), "");
        drop(open);
    }
}
