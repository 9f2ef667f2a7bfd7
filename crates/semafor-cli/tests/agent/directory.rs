//! Unusable directories are refused with an error of one line that says what to do.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};

use semafor_testkit::cli::{CommandEnv, Output};

use crate::env;

/// Runs a command that needs an agent, which can't start. Returns the error.
fn error_mentioning(env: &CommandEnv, mentioned: &str) -> String {
    let output = env.run(["run", "--", "true"]);
    let complaint = output.complaint(69);
    assert!(complaint.contains(mentioned), "{complaint:?} does not mention {mentioned:?}");
    assert!(env.agents().is_empty());
    complaint.to_owned()
}

fn make_private(path: &std::path::Path) {
    fs::DirBuilder::new().mode(0o700).create(path).expect("it can be created");
}

#[test]
fn directory_open_to_other_users_is_refused() {
    let env = env();
    make_private(&env.agent_directory());
    for mode in [0o755, 0o770, 0o701] {
        fs::set_permissions(env.agent_directory(), fs::Permissions::from_mode(mode))
            .expect("this user owns it");
        let complaint = error_mentioning(&env, "chmod 700");
        assert!(complaint.contains(&format!("{mode:03o}")), "{complaint}");
    }
    fs::set_permissions(env.agent_directory(), fs::Permissions::from_mode(0o700)).expect("this user owns it");
}

#[test]
fn symlink_in_place_of_the_directory_is_refused() {
    let env = env();
    make_private(&env.path("elsewhere"));
    symlink(env.path("elsewhere"), env.agent_directory()).expect("it can be created");
    error_mentioning(&env, "is not a folder");
    fs::remove_file(env.agent_directory()).expect("this user owns it");
}

#[test]
fn file_in_place_of_the_directory_is_refused() {
    let env = env();
    fs::write(env.agent_directory(), "").expect("it can be written");
    error_mentioning(&env, "is not a folder");
    fs::remove_file(env.agent_directory()).expect("this user owns it");
}

#[test]
fn file_in_place_of_the_socket_is_replaced() {
    let env = env();
    make_private(&env.agent_directory());
    fs::write(env.agent_directory().join("agent.sock"), "not a socket").expect("it can be written");
    assert_eq!(env.run(["status", "--json"]).text(), "[]\n");
    assert_eq!(env.run(["run", "--", "true"]).text(), "");
}

#[test]
fn directory_in_place_of_the_socket_is_an_error() {
    let env = env();
    make_private(&env.agent_directory());
    fs::create_dir(env.agent_directory().join("agent.sock")).expect("it can be created");
    error_mentioning(&env, "agent.sock");
    fs::remove_dir(env.agent_directory().join("agent.sock")).expect("this user owns it");
}

#[test]
fn path_too_long_for_a_socket_is_an_error() {
    let env = env();
    let long = env.path("x".repeat(100));
    let output = env.run(["run", "--url", &format!("local:{}", long.display()), "--", "true"]);
    assert!(output.complaint(64).contains("too long"), "{output:?}");
}

#[test]
fn directory_that_cannot_be_created_is_an_error() {
    let env = env();
    let output = env.run(["run", "--url", "local:/proc/semafor", "--", "true"]);
    assert!(output.complaint(69).contains("/proc/semafor"), "{output:?}");
    let output = env.run(["run", "--url", "local:/no/such/directory", "--", "true"]);
    assert!(output.complaint(69).contains("/no/such/directory"), "{output:?}");
}

/// Runs `semafor run -- true` with a tmpfs as runtime directory.
fn run_on(env: &CommandEnv, options: &str, before: &str) -> Output {
    let mut command = env.program("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--mount", "sh", "-ec"]);
    command.arg(format!(
        "mount -t tmpfs -o {options} tmpfs \"$XDG_RUNTIME_DIR\"; {before}; exec \"$0\" run -- true"
    ));
    command.arg(env.binary());
    env.output_of(command)
}

#[test]
fn read_only_directory_is_an_error() {
    let env = env();
    let output = run_on(&env, "mode=700", "mount -o remount,ro \"$XDG_RUNTIME_DIR\"");
    let complaint = output.complaint(69);
    assert!(
        complaint.contains("Read-only file system") && complaint.contains("XDG_RUNTIME_DIR"),
        "{complaint}"
    );
    let made = "mkdir -m 700 \"$XDG_RUNTIME_DIR/semafor\"; mount -o remount,ro \"$XDG_RUNTIME_DIR\"";
    let output = run_on(&env, "mode=700", made);
    let complaint = output.complaint(69);
    assert!(complaint.contains("agent.lock: Read-only file system"), "{complaint}");
}

#[test]
fn full_disk_is_an_error() {
    let env = env();
    let directory = "mkdir -m 700 \"$XDG_RUNTIME_DIR/semafor\"";
    let lock = "touch \"$XDG_RUNTIME_DIR/semafor/agent.lock\"";
    for (there, missing) in [
        (":".to_owned(), "/semafor: No space left on device"),
        (directory.to_owned(), "agent.lock: No space left on device"),
        (format!("{directory}; {lock}"), "agent.sock: No space left on device"),
    ] {
        let fill = "while touch \"$(mktemp -u -p \"$XDG_RUNTIME_DIR\")\" 2> /dev/null; do :; done";
        let output = run_on(&env, "mode=700,nr_inodes=6", &format!("{there}; {fill}"));
        assert!(output.complaint(69).contains(missing), "{output:?}");
    }
}

#[test]
fn agent_works_without_a_journal_on_a_full_disk() {
    let env = env();
    let full = "cat /dev/zero > \"$XDG_RUNTIME_DIR/full\" 2> /dev/null || :";
    let stopped = "trap '\"$0\" agent stop' EXIT";
    let output = run_on(&env, "mode=700,size=4k", &format!("{full}; {stopped}; \"$0\" run -- true; exit 0"));
    assert_eq!((output.code(), output.stderr.as_str()), (Some(0), ""), "it works without a journal");
}
