//! asyncio, and doeff where it is installed, in an interpreter that xtask has prepared.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use semafor_benchmarks::{Report, medians};
use serde::Deserialize;

use super::{WORKS, ours};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/coop.py");

/// What the script prints: nanoseconds, by peer and in the order of the works.
#[derive(Deserialize)]
struct Theirs {
    python: String,
    peers: BTreeMap<String, [f64; 3]>,
}

pub(super) fn measure(report: &mut Report, rounds: usize) {
    let theirs = match run_script() {
        Ok(theirs) => theirs,
        Err(reason) => return println!("the Python rows are left out: {reason}"),
    };
    let ours: [fn() -> f64; 3] = [ours::pairs, ours::parked, ours::ping_pong];
    for (place, work) in WORKS.into_iter().enumerate() {
        let (_, nanos) = medians(rounds, vec![("ours", Box::new(ours[place]))])[0];
        for (peer, values) in &theirs.peers {
            report.add(work, "ns", nanos, &format!("{peer} (Python {})", theirs.python), values[place]);
        }
    }
}

fn run_script() -> Result<Theirs, String> {
    let python = std::env::var_os("SEMAFOR_BENCH_PYTHON")
        .ok_or("SEMAFOR_BENCH_PYTHON is not set (`cargo xtask bench coop` sets it if it can)")?;
    let output = Command::new(python).arg(SCRIPT).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("can't start Python: {error}"))?;
    if !output.status.success() {
        return Err(format!("the script failed, {}", output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("the script's answer: {error}"))
}
