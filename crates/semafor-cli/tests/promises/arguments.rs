//! The command gets its arguments, files and environment unchanged, byte by byte.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use semafor_testkit::cli::CommandEnv;

pub(crate) fn options_after_the_command_belong_to_the_command(env: &CommandEnv) {
    for (words, printed) in [
        (&["run", "--", "echo", "-n", "--foo"][..], "--foo"),
        (&["run", "echo", "--name", "x"], "--name x\n"),
        (&["run", "--name", "it", "echo", "--slots", "0", "-j"], "--slots 0 -j\n"),
        (&["run", "echo", "--", "-x"], "-- -x\n"),
        (&["run", "--", "echo", "--", "-x"], "-- -x\n"),
        (&["run", "-j2", "-n", "it", "printf", "%s", "--help"], "--help"),
        (&["run", "--", "printf", "[%s]", "", "two words", ""], "[][two words][]"),
    ] {
        assert_eq!(env.run(words).text(), printed, "{words:?}");
    }
}

pub(crate) fn arguments_may_be_invalid_utf8(env: &CommandEnv) {
    let odd = OsStr::from_bytes(b"\xff\xfe caf\xe9 \x01");
    let mut command = env.semafor(["run", "--", "sh", "-c", "printf '%s|%s' \"$1\" \"$ODD\"", "sh"]);
    command.arg(odd).env("ODD", odd);
    let output = env.output_of(command);
    assert_eq!((output.code(), output.stderr.as_str()), (Some(0), ""));
    assert_eq!(output.stdout, [odd.as_bytes(), b"|", odd.as_bytes()].concat());
}

pub(crate) fn program_name_may_be_invalid_utf8(env: &CommandEnv) {
    let name = OsString::from_vec(b"./pr\xf6gram".to_vec());
    std::os::unix::fs::symlink("/bin/echo", env.path(&name)).expect("it can be created");
    let mut command = env.semafor(["run", "--"]);
    command.arg(&name).arg("hello");
    assert_eq!(env.output_of(command).text(), "hello\n");
}

pub(crate) fn all_bytes_pass_from_stdin_to_stdout(env: &CommandEnv) {
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let output = env.output_when_fed(env.semafor(["run", "--", "cat"]), &bytes);
    assert_eq!((output.code(), output.stderr.as_str()), (Some(0), ""));
    assert!(output.stdout == bytes, "{} of {} bytes", output.stdout.len(), bytes.len());
}

pub(crate) fn unread_stdin_is_left_for_the_next_command(env: &CommandEnv) {
    let mut shell = env.program("sh");
    shell.args(["-c", "\"$0\" run -- sh -c 'read line; echo \"<$line>\"'; cat"]).arg(env.binary());
    let output = env.output_when_fed(shell, b"first\nsecond\n");
    assert_eq!(output.text(), "<first>\nsecond\n");
}

pub(crate) fn stderr_contains_only_the_commands_output(env: &CommandEnv) {
    let output = env.run(["run", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!(output.code(), Some(3));
    assert_eq!((output.stdout.as_slice(), output.stderr.as_str()), (&b"out\n"[..], "err\n"));
}

pub(crate) fn open_file_descriptors_are_inherited(env: &CommandEnv) {
    std::fs::write(env.path("seven"), "from the seventh").expect("it can be written");
    let mut shell = env.program("sh");
    shell.args(["-c", "exec 7< seven; \"$0\" run -- sh -c 'cat <&7'"]).arg(env.binary());
    assert_eq!(env.output_of(shell).text(), "from the seventh");
}

pub(crate) fn environment_is_inherited_with_semafor_variables_added(env: &CommandEnv) {
    let mut command = env.semafor(["run", "--name", "it", "--", "env"]);
    command.env("OWN", "kept").env("SEMAFOR_SLOT", "of an outer run");
    let output = env.output_of(command);
    let lines: Vec<&str> = output.text().lines().collect();
    for line in ["OWN=kept", "SEMAFOR_NAME=it", "SEMAFOR_SLOT=0"] {
        assert!(lines.contains(&line), "{line} is missing: {lines:?}");
    }
    let value =
        |name| lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).expect("it is set");
    assert!(value("SEMAFOR_FENCING_TOKEN").parse::<u64>().is_ok());
    assert!(!value("SEMAFOR_ID").is_empty());
}

pub(crate) fn nested_run_does_not_wait_for_itself(env: &CommandEnv) {
    let nested = "\"$0\" run --timeout 0 -- sh -c 'echo $SEMAFOR_NAME in'; echo $SEMAFOR_NAME";
    let mut command = env.semafor(["run", "--name", "outer", "--", "sh", "-c", nested]);
    command.arg(env.binary());
    assert_eq!(env.output_of(command).text(), "default in\nouter\n");
}

pub(crate) fn readers_see_the_end_when_the_command_ends(env: &CommandEnv) {
    // The first command starts the agent, which must not keep the pipe open.
    let mut shell = env.program("sh");
    shell.args(["-c", "\"$0\" run -- echo hello 2>&1 | cat"]).arg(env.binary());
    assert_eq!(env.output_of(shell).text(), "hello\n");
    let mut shell = env.program("sh");
    shell
        .args(["-c", "echo \"<$(\"$0\" run --heartbeat 2s -- sh -c 'echo hello; kill -9 $PPID')>\""])
        .arg(env.binary());
    assert_eq!(env.output_of(shell).stdout, b"<hello>\n");
}
