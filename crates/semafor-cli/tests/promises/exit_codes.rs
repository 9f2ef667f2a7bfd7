//! The exit code of the command, or of `semafor` if the command did not run.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use semafor_testkit::cli::CommandEnv;

use super::hold;

fn code_of(env: &CommandEnv, script: &str) -> Option<i32> {
    env.run(["run", "--", "sh", "-c", script]).code()
}

pub(crate) fn exit_code_of_the_command_is_passed_on(env: &CommandEnv) {
    for code in [0, 1, 2, 42, 64, 75, 76, 126, 127, 128, 255] {
        assert_eq!(code_of(env, &format!("exit {code}")), Some(code));
    }
}

pub(crate) fn command_ended_by_a_signal_exits_with_128_plus_its_number(env: &CommandEnv) {
    for (signal, number) in [
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("ABRT", 6),
        ("KILL", 9),
        ("SEGV", 11),
        ("PIPE", 13),
        ("TERM", 15),
    ] {
        let script = format!("ulimit -c 0; kill -{signal} $$");
        let output = env.output_of(env.listening(["run", "--", "sh", "-c", &script]));
        assert_eq!(output.code(), Some(128 + number), "{signal}");
    }
}

pub(crate) fn missing_command_exits_with_127(env: &CommandEnv) {
    for program in ["no-such-program", "./no-such-program", "/no/such/program", ""] {
        let output = env.run(["run", "--", program]);
        assert!(output.complaint(127).contains(program), "{output:?}");
    }
}

pub(crate) fn command_that_cannot_run_exits_with_126(env: &CommandEnv) {
    fs::write(env.path("no-program"), "echo hello").expect("it can be written");
    fs::write(env.path("no-interpreter"), "#!/no/such/interpreter\n").expect("it can be written");
    fs::set_permissions(env.path("no-interpreter"), fs::Permissions::from_mode(0o755))
        .expect("this user owns it");
    fs::create_dir(env.path("directory")).expect("it can be created");
    for program in ["./no-program", "./no-interpreter", "./directory", "/etc/passwd"] {
        let output = env.run(["run", "--", program]);
        assert!(output.complaint(126).contains(program), "{output:?}");
    }
}

pub(crate) fn command_that_cannot_run_does_not_wait_in_line(env: &CommandEnv) {
    let gate = env.gate("gate");
    let mut holder = hold(env, &[]);
    env.run(["run", "--name", "it", "--", "no-such-program"]).complaint(127);
    env.run(["run", "--name", "it", "--", "/etc/passwd"]).complaint(126);
    let _open = gate.open();
    assert_eq!(holder.wait().text(), "");
}

pub(crate) fn different_number_of_slots_is_refused_with_both_numbers(env: &CommandEnv) {
    let gate = env.gate("gate");
    let mut holder = hold(env, &["--slots", "3"]);
    let output = env.run(["run", "--name", "it", "--slots", "5", "--", "touch", "never"]);
    let complaint = output.complaint(64);
    assert!(complaint.contains("3 slots") && complaint.contains("not 5"), "{complaint}");
    let output = env.run(["run", "--name", "it", "--weight", "4", "--", "touch", "never"]);
    let complaint = output.complaint(64);
    assert!(complaint.contains("weight 4") && complaint.contains("3 slots"), "{complaint}");
    assert!(!env.path("never").exists());
    assert_eq!(
        env.run(["run", "--name", "it", "--", "true"]).code(),
        Some(0),
        "without --slots, the current number applies"
    );
    let _open = gate.open();
    assert_eq!(holder.wait().text(), "");
}
