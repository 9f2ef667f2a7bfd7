//! `semafor purge`, run as a command.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use semafor_testkit::cli::{CommandEnv, Output};
use semafor_testkit::terminal::Terminal;
use semafor_testkit::trees::{self, age, count};
use serde_json::Value;

const DAY: Duration = Duration::from_secs(86_400);

fn env() -> CommandEnv {
    CommandEnv::local(env!("CARGO_BIN_EXE_semafor"))
}

/// The summary of a purge with `--json`, and its exit code.
#[track_caller]
fn summary(output: &Output) -> (Value, i32) {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let summary = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (summary, output.code().unwrap_or(-1))
}

/// A shell that runs `semafor` as `$0`.
fn sh(env: &CommandEnv, script: &str, arguments: &[&str]) -> Output {
    let mut shell = env.program("sh");
    shell.args(["-c", script]).arg(env.binary()).args(arguments);
    env.output_of(shell)
}

#[test]
fn dry_run_reports_what_the_real_run_removes() {
    let env = env();
    let tree = trees::mixed(&env.path("data"), 300, 5);
    let would = env.run(["purge", "--dry-run", "data"]);
    let text = String::from_utf8_lossy(&would.stdout).into_owned();
    let expected =
        format!("Would remove {} empty directories; looked at {} directories", tree.removable, 301);
    assert!(text.starts_with(&expected), "{text}");
    assert!(text.contains("nothing was removed"), "{text}");
    assert_eq!(count(&env.path("data")), (tree.dirs, tree.files));
    let done = env.run(["purge", "data"]);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(text.starts_with(&format!("Removed {} empty directories;", tree.removable)), "{text}");
    assert_eq!(count(&env.path("data")), (tree.dirs - tree.removable, tree.files));
}

#[test]
fn summary_has_the_documented_keys() {
    let env = env();
    fs::create_dir_all(env.path("data/a/b")).unwrap();
    fs::write(env.path("data/old"), "12345").unwrap();
    age(&env.path("data/old"), 40 * DAY);
    let output = env.run(["purge", "--json", "--older-than", "30d", "data"]);
    let (summary, code) = summary(&output);
    let keys: Vec<_> = summary.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = [
        "event",
        "dry_run",
        "dirs_scanned",
        "dirs_removed",
        "files_scanned",
        "files_removed",
        "bytes_freed",
        "dirs_changed",
        "files_changed",
        "errors",
        "errors_by_kind",
        "peak_memory_bytes",
        "backpressure_events",
        "stopped_by",
        "elapsed_seconds",
    ];
    expected.sort_unstable();
    let mut keys = keys;
    keys.sort_unstable();
    assert_eq!(keys, expected);
    for (key, value) in [
        ("event", Value::from("summary")),
        ("dry_run", false.into()),
        ("dirs_scanned", 3.into()),
        ("dirs_removed", 2.into()),
        ("files_scanned", 1.into()),
        ("files_removed", 1.into()),
        ("bytes_freed", 5.into()),
        ("dirs_changed", 0.into()),
        ("files_changed", 0.into()),
        ("errors", 0.into()),
        ("errors_by_kind", serde_json::json!({})),
        ("stopped_by", "completed".into()),
    ] {
        assert_eq!(summary[key], value, "{key}");
    }
    assert!(summary["peak_memory_bytes"].as_u64().unwrap() > 100_000);
    assert!(summary["elapsed_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(code, 0);
}

#[test]
fn paths_are_printed_as_they_are() {
    let env = env();
    fs::create_dir_all(env.path("data/a/b")).unwrap();
    let output = env.run(["purge", "--dry-run", "--print", "data"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "data/a/b\ndata/a\n");
    assert!(output.stderr.contains("Would remove 2"), "{}", output.stderr);
}

#[test]
fn summary_is_a_json_line_without_a_terminal() {
    let env = env();
    fs::create_dir_all(env.path("data/a")).unwrap();
    let output = env.run(["purge", "data"]);
    let report: Value = serde_json::from_str(output.stderr.lines().last().unwrap()).unwrap();
    assert_eq!((&report["event"], &report["dirs_removed"]), (&"summary".into(), &1.into()));
    assert_eq!(env.run(["purge", "--quiet", "data"]).stderr, "");
    assert_eq!(env.run(["purge", "--json", "data"]).stderr, "", "with --json it is on stdout");
}

#[test]
fn progress_line_is_shown_on_a_terminal() {
    let env = env();
    let tree = trees::flat(&env.path("data"), 60);
    let mut terminal = Terminal::spawn(env.semafor(["purge", "--rate", "60", "data"]), 24, 100);
    terminal.wait_until("there is a bar", |screen| screen.contains("removed of") && screen.contains("/s"));
    let report = format!("Removed {} empty directories", tree.removable);
    let screen = terminal.wait_until("it is done", |screen| screen.contains(&report));
    assert!(!screen.contains("removed of"), "the bar is gone at the end");
    assert_eq!(terminal.wait().code(), Some(0));
}

#[test]
fn files_rewritten_during_the_wait_for_the_rate_stay_and_are_counted() {
    let env = env();
    fs::create_dir(env.path("data")).unwrap();
    let files: Vec<_> = (0..20).map(|number| env.path(format!("data/{number}"))).collect();
    for file in &files {
        fs::write(file, "old").unwrap();
        age(file, 40 * DAY);
    }
    let mut purge = env.start(["purge", "--older-than", "30d", "--rate", "5", "data"]);
    env.until("it has removed something", |_| files.iter().any(|file| !file.exists()));
    let rewritten: Vec<_> = files
        .iter()
        .filter(|file| {
            let opened = fs::File::options().write(true).truncate(true).open(file);
            opened.is_ok_and(|mut file| file.write_all(b"precious").is_ok())
        })
        .collect();
    let output = purge.wait();
    let lost = rewritten.iter().filter(|file| !file.exists()).count();
    let left = files.iter().filter(|file| file.exists()).count();
    assert!(lost <= 1, "{lost} of {} new files were removed: {output:?}", rewritten.len());
    assert!(rewritten.len() > 2, "{} were rewritten in time", rewritten.len());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report: Value = serde_json::from_str(output.stderr.lines().last().unwrap()).unwrap();
    assert_eq!((report["files_removed"].as_u64(), output.code()), (Some(20 - left as u64), Some(0)));
    let changed = report["files_changed"].as_u64().unwrap();
    assert!((1..=left as u64).contains(&changed), "{report}");
    assert!(text.contains("changed or moved during the purge"), "{text}");
}

// Exit codes

#[test]
fn invalid_command_line_exits_with_2() {
    let env = env();
    fs::write(env.path("file"), "").unwrap();
    for (arguments, words) in [
        (&["purge"][..], "DIR"),
        (&["purge", "--nonsense", "."], "--nonsense"),
        (&["purge", "missing"], "missing"),
        (&["purge", "file"], "file"),
        (&["purge", "--older-than", "soon", "."], "soon"),
        (&["purge", "--older-than", "0", "."], "longer than zero"),
        (&["purge", "--older-than", "30", "."], "needs a unit: 30d"),
        (&["purge", "--exclude", "[a", "."], "[a"),
        (&["purge", "--keep-dirs", "."], "--older-than"),
        (&["purge", "--fleet-limit", "x", "--url", "nonsense:", "."], "not the URL"),
    ] {
        let output = env.run(arguments);
        assert!(output.complaint(2).contains(words), "{arguments:?}: {output:?}");
    }
}

#[test]
fn reached_limit_exits_with_3() {
    let env = env();
    trees::flat(&env.path("data"), 30);
    let (report, code) = summary(&env.run(["purge", "--json", "--max-empty-dirs-to-delete", "10", "data"]));
    assert_eq!((&report["stopped_by"], &report["dirs_removed"], code), (&"limit".into(), &10.into(), 3));
    let (report, code) = summary(&env.run(["purge", "--json", "--max-empty-dirs-to-delete", "20", "data"]));
    assert_eq!((&report["stopped_by"], &report["dirs_removed"], code), (&"completed".into(), &20.into(), 0));
}

#[test]
fn used_up_memory_exits_with_3() {
    let env = env();
    trees::flat(&env.path("data"), 3000);
    // The process uses more than 1 MB.
    let output = env.run(["purge", "--json", "--memory-limit-mb", "1", "--rate", "1000", "data"]);
    let (report, code) = summary(&output);
    assert_eq!((&report["stopped_by"], code), (&"breaker".into(), 3));
}

#[test]
fn signals_exit_with_130_and_143_and_a_summary() {
    for (signal, expected) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let env = env();
        let tree = trees::flat(&env.path("data"), 2000);
        let mut purge = env.start_command(env.listening(["purge", "--json", "--rate", "50", "data"]));
        let dirs = |env: &CommandEnv| fs::read_dir(env.path("data")).unwrap().count() as u64;
        env.until("it has removed something", |env| dirs(env) < tree.dirs);
        purge.signal(signal);
        let (report, code) = summary(&purge.wait());
        assert_eq!((&report["stopped_by"], code), (&"signal".into(), expected));
        let left = count(&env.path("data")).0;
        assert_eq!(
            report["dirs_removed"].as_u64(),
            Some(tree.dirs - left),
            "the summary counts what was removed"
        );
        assert!(left > 0);
    }
}

/// As with `nohup`, or `&` in a script.
#[test]
fn ignored_signals_do_not_end_the_purge() {
    let env = env();
    let tree = trees::flat(&env.path("data"), 100);
    let mut command = env.program("env");
    command.args(["--ignore-signal=HUP", "--ignore-signal=INT"]).arg(env.binary());
    command.args(["purge", "--json", "--rate", "50", "data"]);
    let mut purge = env.start_command(command);
    let dirs = |env: &CommandEnv| fs::read_dir(env.path("data")).unwrap().count() as u64;
    env.until("it has removed something", |env| dirs(env) < tree.dirs);
    purge.signal(Signal::HUP);
    purge.signal(Signal::INT);
    let (report, code) = summary(&purge.wait());
    assert_eq!((&report["stopped_by"], code), (&"completed".into(), 0));
}

/// Runs it as a user other than root, because root ignores permissions.
fn as_another_user(env: &CommandEnv, arguments: &[&str]) -> Output {
    // That user may not be able to enter the build directory.
    let directory = directory_of_another_user();
    let binary = directory.path().join("semafor");
    // Copied by `cp`: if this process wrote it, other children might have it open for a moment, and it could not be
    // run.
    assert!(Command::new("cp").arg(env.binary()).arg(&binary).status().unwrap().success());
    fs::set_permissions(env.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = env.program(binary);
    command.args(arguments);
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    env.output_of(command)
}

/// A directory that the user can write to.
fn directory_of_another_user() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    directory
}

fn give_to_another_user(path: &Path) {
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(path, Some(65_534), Some(65_534)).unwrap();
    }
}

#[test]
fn denied_entries_are_errors_and_the_rest_is_removed() {
    let env = env();
    let directory = directory_of_another_user();
    let path = |name: &str| directory.path().join(name);
    for directory in ["sealed/inner", "unreadable/inner", "free/inner", "empty-unreadable"] {
        fs::create_dir_all(path(directory)).unwrap();
    }
    for directory in ["sealed/inner", "sealed", "unreadable", "free/inner", "free", "empty-unreadable"] {
        give_to_another_user(&path(directory));
    }
    fs::set_permissions(path("sealed"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(path("unreadable"), fs::Permissions::from_mode(0o300)).unwrap();
    fs::set_permissions(path("empty-unreadable"), fs::Permissions::from_mode(0o300)).unwrap();
    let root = directory.path().to_str().unwrap();
    let outcomes = ["--dry-run", "--quiet"].map(|option| {
        let output = as_another_user(&env, &["purge", "--json", option, root]);
        let (report, code) = summary(&output);
        (code, report["dirs_removed"].clone(), report["errors"].clone(), report["errors_by_kind"].clone())
    });
    let kinds = serde_json::json!({ "permission_denied": 3 });
    assert_eq!(outcomes[0], (1, 2.into(), 3.into(), kinds));
    assert_eq!(outcomes[1], outcomes[0], "a dry run reports the same errors");
    assert!(path("sealed/inner").exists() && !path("free").exists());
    for directory in ["sealed", "unreadable", "empty-unreadable"] {
        fs::set_permissions(path(directory), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn entries_of_other_users_in_a_sticky_directory_stay() {
    if !rustix::process::geteuid().is_root() {
        return; // Only root can give files to another user.
    }
    let env = env();
    let directory = directory_of_another_user();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::create_dir(directory.path().join("roots")).unwrap();
    fs::create_dir(directory.path().join("theirs")).unwrap();
    give_to_another_user(&directory.path().join("theirs"));
    for option in ["--dry-run", "--quiet"] {
        let output = as_another_user(&env, &["purge", "--json", option, directory.path().to_str().unwrap()]);
        let (report, code) = summary(&output);
        assert_eq!((&report["dirs_removed"], &report["errors"], code), (&1.into(), &1.into(), 1), "{option}");
    }
    assert!(directory.path().join("roots").exists());
}

// File systems

/// Runs a script in its own mount namespace. `None` where that is not allowed.
fn with_mounts(env: &CommandEnv, script: &str) -> Option<Output> {
    let unshare = |script: &str| {
        let mut shell = env.program("unshare");
        shell.arg("--mount");
        if !rustix::process::geteuid().is_root() {
            shell.arg("--map-root-user");
        }
        shell.args(["sh", "-ec", script]).arg(env.binary());
        env.output_of(shell)
    };
    if unshare("mkdir -p probe; mount -t tmpfs none probe").code() != Some(0) {
        eprintln!("not checked: nothing can be mounted here");
        return None;
    }
    Some(unshare(script))
}

#[test]
fn mounts_are_entered_only_with_cross_file_systems() {
    let env = env();
    let script = r#"
        mkdir -p data/mounted data/bound data/plain/x elsewhere/empty
        mount -t tmpfs none data/mounted
        mkdir -p data/mounted/inner/deep
        mount --bind elsewhere data/bound
        "$0" purge --json --dry-run data
        "$0" purge --json data
        test -d data/mounted/inner/deep
        test -d elsewhere/empty
        test ! -e data/plain
        "$0" purge --json --dry-run --cross-file-systems data
        "$0" purge --json --cross-file-systems data
        test ! -e data/mounted/inner
        test ! -e elsewhere/empty
        test -d data/mounted
    "#;
    let Some(output) = with_mounts(&env, script) else { return };
    let report: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let counts: Vec<_> =
        report.iter().map(|report| (report["dirs_removed"].as_u64(), report["errors"].as_u64())).collect();
    let (within, beyond) = ((Some(2), Some(0)), (Some(3), Some(0)));
    assert_eq!(counts, [within, within, beyond, beyond], "{output:?}");
    assert_eq!(output.code(), Some(0), "{output:?}");
}

/// A file that is a mount point can't be removed. The dry run knows it, and it is not an error.
#[test]
fn file_that_is_a_mount_point_stays() {
    let env = env();
    let script = r#"
        mkdir data
        touch -d '40 days ago' data/old data/mounted elsewhere
        mount --bind elsewhere data/mounted
        "$0" purge --json --older-than 30d --dry-run data
        "$0" purge --json --older-than 30d data
        test -e data/mounted
        test ! -e data/old
    "#;
    let Some(output) = with_mounts(&env, script) else { return };
    let report: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let counts: Vec<_> =
        report.iter().map(|report| (report["files_removed"].as_u64(), report["errors"].as_u64())).collect();
    assert_eq!(counts, [(Some(1), Some(0)); 2], "{output:?}");
    assert_eq!(output.code(), Some(0), "{output:?}");
}

#[test]
fn system_directory_is_refused_by_any_path() {
    let env = env();
    symlink("/etc", env.path("link")).unwrap();
    for root in ["/", "/etc", "link", "link/.", "/usr/lib"] {
        let output = env.run(["purge", "--dry-run", root]);
        let complaint = output.complaint(2);
        assert!(complaint.contains("belongs to the system") && complaint.contains("--force"), "{complaint}");
    }
    assert_eq!(env.run(["purge", "--dry-run", "--force", "--max-depth", "1", "link"]).code(), Some(0));
}

#[test]
fn bind_mount_of_a_system_directory_is_refused() {
    let env = env();
    let script = r#"mkdir data; mount --bind /etc data; "$0" purge --dry-run data || echo $?"#;
    let Some(output) = with_mounts(&env, script) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2\n", "{output:?}");
}

// Open files

#[test]
fn chain_of_3000_levels_needs_few_open_files() {
    for limit in ["1024", "64", "24"] {
        let env = env();
        let tree = trees::chain(&env.path("data"), 3000);
        let (report, code) = summary(&sh(&env, r#"ulimit -n $1; exec "$0" purge --json data"#, &[limit]));
        assert_eq!((report["dirs_removed"].as_u64(), code), (Some(tree.removable), 0), "{limit}");
    }
}

#[test]
fn wide_tree_needs_few_open_files() {
    let env = env();
    for limit in ["256", "32"] {
        let tree = trees::mixed(&env.path(limit), 3000, 10);
        let script = r#"ulimit -n $1; exec "$0" purge --json $1"#;
        let (report, code) = summary(&sh(&env, script, &[limit]));
        assert_eq!((report["dirs_removed"].as_u64(), code), (Some(tree.removable), 0), "{limit}: {report}");
    }
}

// Options of efspurge

#[test]
fn command_line_of_efspurge_works() {
    let env = env();
    fs::create_dir_all(env.path("data/a")).unwrap();
    fs::create_dir_all(env.path("data/empty")).unwrap();
    fs::write(env.path("data/a/old"), "x").unwrap();
    fs::write(env.path("data/new"), "x").unwrap();
    age(&env.path("data/a/old"), 40 * DAY);
    // Without --remove-empty-dirs, efspurge removes only files.
    let words = "--max-concurrency-scanning 1000 --max-concurrency-deletion 1000 --max-concurrent-subdirs 100 \
                 --memory-limit-mb 800 --task-batch-size 5000 --log-level INFO --max-age-days 30.5";
    let run = |more: &[&str]| {
        let words: Vec<_> = ["purge", "data", "--json"].into_iter().chain(words.split_whitespace()).collect();
        summary(&env.run([&words, more].concat()))
    };
    let (report, code) = run(&["--dry-run"]);
    assert_eq!((&report["files_removed"], &report["dirs_removed"], code), (&1.into(), &0.into(), 0));
    let (report, code) = run(&["--remove-empty-dirs", "--max-empty-dirs-to-delete", "500"]);
    assert_eq!((&report["files_removed"], &report["dirs_removed"], code), (&1.into(), &2.into(), 0));
    assert!(env.path("data/new").exists());
}

#[test]
fn environment_of_efspurge_works_and_flags_override_it() {
    let env = env();
    trees::flat(&env.path("data"), 20);
    fs::write(env.path("data/old"), "x").unwrap();
    age(&env.path("data/old"), 40 * DAY);
    let run = |more: &[&str], variables: &[(&str, &str)]| {
        let mut command: Command = env.semafor(["purge", "--json", "--dry-run", "data"]);
        command.args(more).envs(variables.iter().copied());
        summary(&env.output_of(command)).0
    };
    let report = run(&[], &[("EFSPURGE_MAX_EMPTY_DIRS_TO_DELETE", "7")]);
    assert_eq!(report["dirs_removed"], 7);
    let report = run(&["--max-empty-dirs-to-delete", "9"], &[("EFSPURGE_MAX_EMPTY_DIRS_TO_DELETE", "7")]);
    assert_eq!(report["dirs_removed"], 9);
    let days = ("EFSPURGE_MAX_AGE_DAYS", "30");
    assert_eq!(run(&[], &[days])["dirs_removed"], 0, "files only");
    for yes in ["1", "true", "yes"] {
        let report = run(&[], &[days, ("EFSPURGE_REMOVE_EMPTY_DIRS", yes)]);
        assert_eq!((&report["files_removed"], &report["dirs_removed"]), (&1.into(), &20.into()), "{yes}");
    }
    let rest = [
        ("EFSPURGE_MAX_CONCURRENCY", "10"),
        ("EFSPURGE_MAX_CONCURRENCY_SCANNING", "10"),
        ("EFSPURGE_MAX_CONCURRENCY_DELETION", "10"),
        ("EFSPURGE_MEMORY_LIMIT_MB", "0"),
        ("EFSPURGE_TASK_BATCH_SIZE", "5000"),
        ("EFSPURGE_LOG_LEVEL", "DEBUG"),
        ("EFSPURGE_MAX_CONCURRENT_SUBDIRS", "100"),
    ];
    assert_eq!(run(&[], &rest)["dirs_removed"], 20);
}

// Fleet limit

#[test]
fn purges_of_a_fleet_share_the_slots() {
    let env = env();
    let tree = trees::fan(&env.path("data"), 2000, 10);
    let words = ["purge", "--json", "--fleet-limit", "removals", "--max-concurrency-deletion", "2", "data"];
    let gate = env.gate("gate");
    let mut holder =
        env.start(["run", "--name", "removals", "-j", "2", "-w", "2", "--", "sh", "-c", ": < gate"]);
    env.until_holders("removals", 1);
    let mut purges = [env.start(words), env.start(words)];
    env.until("both wait", |env| env.status("removals")["waiting"].as_u64() >= Some(2));
    assert_eq!(count(&env.path("data")).0, tree.dirs, "nothing is removed without a slot");
    let _open = gate.open();
    assert_eq!(holder.wait().code(), Some(0));
    let report = purges.each_mut().map(|purge| summary(&purge.wait()));
    let removed: u64 = report.iter().filter_map(|(report, _)| report["dirs_removed"].as_u64()).sum();
    assert_eq!((removed, report.map(|(_, code)| code)), (tree.removable, [0, 0]));
}

#[test]
fn fleet_limit_with_different_slots_exits_with_2() {
    let env = env();
    let gate = env.gate("gate");
    let mut holder = env.start(["run", "--name", "removals", "-j", "3", "--", "sh", "-c", ": < gate"]);
    env.until_holders("removals", 1);
    fs::create_dir_all(env.path("data/a")).unwrap();
    let fleet = ["purge", "--json", "--fleet-limit", "removals", "data"];
    let output = env.run([&fleet[..], &["--max-concurrency-deletion", "5"]].concat());
    assert!(output.complaint(2).contains("3 slots, not 5"), "{output:?}");
    assert_eq!(summary(&env.run(fleet)).0["dirs_removed"], 1, "without a number, the current one applies");
    let _open = gate.open();
    holder.wait();
}

#[test]
fn help_shows_the_dry_run_first() {
    let help = env().run(["purge", "--help"]).text().to_owned();
    let examples = help.split("Examples:").nth(1).unwrap();
    assert!(examples.trim_start().starts_with("semafor purge --dry-run"), "{examples}");
    for word in ["130,143", "--older-than", "--fleet-limit", "EFSPURGE_MEMORY_LIMIT_MB", "stopped_by"] {
        assert!(help.contains(word), "{word}");
    }
    assert!(!help.contains("--task-batch-size"));
}
