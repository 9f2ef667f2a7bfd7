//! Fault 10: memory must not grow with the tree. Measured in a child process, by the kernel.

use std::process::Command;

use semafor_purge::Purger;
use semafor_testkit::trees;

/// Set in the child: how many directories to purge.
const DIRS: &str = "SEMAFOR_PURGE_TEST_DIRS";
/// The size of the larger tree. Creating a million directories takes about a minute.
const MOST: &str = "SEMAFOR_PURGE_TEST_MOST_DIRS";

/// Runs this test in a child process that purges a tree, and returns its peak memory.
fn peak_kib(dirs: u64) -> u64 {
    let this = std::env::current_exe().unwrap();
    let mut child = Command::new(this);
    child.args(["--exact", "memory_does_not_grow_with_the_tree", "--nocapture"]).env(DIRS, dirs.to_string());
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let peak =
        text.lines().find_map(|line| line.split("peak ").nth(1)).and_then(|peak| peak.trim().parse().ok());
    peak.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}

fn purge_and_print_peak(dirs: u64) {
    let root = trees::spacious();
    // Created by another process, because the memory of this one is measured.
    let made = Command::new("sh")
        .arg("-c")
        .arg(r#"i=0; while [ $i -lt $1 ]; do mkdir -p $(seq -f "$i/%g" 0 98); i=$((i + 1)); done"#)
        .args(["sh", &(dirs / 100).to_string()])
        .current_dir(root.path())
        .status();
    assert!(made.unwrap().success());
    let done = Purger::new(root.path()).purge().unwrap();
    assert_eq!((done.dirs_removed, done.errors), (dirs / 100 * 100, 0));
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("peak {}", peak.trim().trim_end_matches(" kB"));
}

#[test]
fn memory_does_not_grow_with_the_tree() {
    if let Some(dirs) = std::env::var(DIRS).ok().and_then(|dirs| dirs.parse().ok()) {
        return purge_and_print_peak(dirs);
    }
    let most = std::env::var(MOST).ok().and_then(|most| most.parse().ok()).unwrap_or(100_000);
    let (few, many) = (peak_kib(10_000), peak_kib(most));
    assert!(many < few + 4 * 1024, "10,000 directories: {few} KiB; {most}: {many} KiB");
    assert!(many < 16 * 1024, "{most} directories: {many} KiB");
}

#[test]
fn generated_tree_matches_its_description() {
    let root = tempfile::tempdir().unwrap();
    let tree = trees::mixed(root.path(), 100, 3);
    assert_eq!(trees::count(root.path()), (tree.dirs, tree.files));
}
