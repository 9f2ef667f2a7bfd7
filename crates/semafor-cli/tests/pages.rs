//! Help, completions and man pages, which are generated from the definition of the command line.

use std::fs;

use semafor_testkit::cli::CommandEnv;

const COMMANDS: [&str; 13] = [
    "run",
    "acquire",
    "release",
    "renew",
    "status",
    "inspect",
    "resize",
    "evict",
    "top",
    "purge",
    "agent",
    "completions",
    "man",
];

fn env() -> CommandEnv {
    CommandEnv::local(env!("CARGO_BIN_EXE_semafor"))
}

#[test]
fn help_lists_all_commands_and_all_exit_codes() {
    let env = env();
    let output = env.run(["--help"]);
    let help = output.text();
    for command in COMMANDS {
        assert!(help.lines().any(|line| line.trim_start().starts_with(command)), "{command}: {help}");
    }
    for code in ["128+n", "1 ", "64", "69", "74", "75", "76", "126", "127"] {
        assert!(help.lines().any(|line| line.contains(code)), "{code}: {help}");
    }
    for command in COMMANDS {
        assert!(env.run([command, "--help"]).text().contains("Usage: semafor"), "{command}");
    }
    for (command, part) in
        [("run", "passwords"), ("run", "--show-command"), ("acquire", "74"), ("acquire", "parent")]
    {
        assert!(env.run([command, "--help"]).text().contains(part), "{command}: {part}");
    }
    assert!(env.run(["--version"]).text().starts_with("semafor "));
}

#[test]
fn completions_know_every_command() {
    let env = env();
    for shell in ["bash", "zsh", "fish"] {
        let script = env.run(["completions", shell]).text().to_owned();
        for command in COMMANDS {
            assert!(script.contains(command), "{shell} does not know {command}");
        }
        assert!(script.contains("on-lost"), "{shell} does not know the options of run");
    }
}

#[test]
fn bash_completes_with_the_completions() {
    let env = env();
    fs::write(env.path("semafor.bash"), env.run(["completions", "bash"]).text()).expect("it can be written");
    let mut check = env.program("bash");
    check.args(["-n", "semafor.bash"]);
    assert_eq!(env.output_of(check).text(), "");
    let mut complete = env.program("bash");
    complete.args(["--norc", "-c"]).arg(
        "source semafor.bash && COMP_WORDS=(semafor insp) COMP_CWORD=1 && _semafor semafor insp semafor \
         && echo \"${COMPREPLY[*]}\"",
    );
    assert_eq!(env.output_of(complete).text(), "inspect\n");
}

#[test]
fn man_pages_are_written_for_every_command() {
    let env = env();
    fs::create_dir(env.path("man")).expect("it can be created");
    assert_eq!(env.run(["man", "man"]).text(), "");
    for command in COMMANDS {
        let page = env.read(format!("man/semafor-{command}.1"));
        assert!(page.contains(".TH") && page.contains("NAME"), "{command}: {page}");
    }
    assert!(env.read("man/semafor.1").contains("Exit codes"), "the man page has the exit codes");
    assert!(env.run(["man"]).text().contains("Exit codes"));
}

#[test]
fn man_pages_in_a_missing_directory_are_an_error() {
    let env = env();
    let output = env.run(["man", "no/such/directory"]);
    assert!(output.complaint(64).contains("no/such/directory"));
}
