//! The Python library asyncio-advanced-semaphores, and asyncio's own semaphore, in an interpreter that xtask has
//! prepared.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::process::{Command, Stdio};

use semafor_benchmarks::{Report, medians};
use serde::Deserialize;

use super::contended::on_one_thread;
use super::single::{SLOTS, leased, ours, uncontended};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/memory.py");

/// What the script prints: nanoseconds per cycle, by peer.
#[derive(Deserialize)]
struct Theirs {
    python: String,
    uncontended: BTreeMap<String, f64>,
    with_ttl: BTreeMap<String, f64>,
    contended: BTreeMap<String, f64>,
}

pub(super) fn measure(report: &mut Report, rounds: usize) {
    let theirs = std::env::var_os("SEMAFOR_BENCH_PYTHON")
        .ok_or("SEMAFOR_BENCH_PYTHON is not set (`cargo xtask bench memory` sets it if it can)".into())
        .and_then(|python| run_script(&python, rounds));
    let theirs = match theirs {
        Ok(theirs) => theirs,
        Err(reason) => return println!("the Python rows are left out: {reason}"),
    };

    let (sem, leased) = (ours(SLOTS), leased());
    let works = [
        ("uncontended acquire+release", uncontended(&sem), theirs.uncontended),
        ("uncontended acquire+release with TTL", uncontended(&leased), theirs.with_ttl),
        // Not two workers, as in the other measurements: an event loop has one thread.
        ("64 tasks, 8 slots, one thread", on_one_thread(64, 8), theirs.contended),
    ];
    for (work, run, peers) in works {
        let (_, ours) = medians(rounds, vec![("ours", run)])[0];
        for (peer, nanos) in peers {
            report.add(work, "ns", ours, &format!("{peer} (Python {})", theirs.python), nanos);
        }
    }
}

fn run_script(python: &OsStr, rounds: usize) -> Result<Theirs, String> {
    let output = Command::new(python)
        .arg(SCRIPT)
        .arg(rounds.to_string())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("can't start Python: {error}"))?;
    if !output.status.success() {
        return Err(format!("the script failed, {}", output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("the script's answer: {error}"))
}
