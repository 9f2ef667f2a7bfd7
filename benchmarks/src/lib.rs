//! Measures semafor beside its peers: interleaved rounds in one run, medians, ratios.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

/// One line of `target/bench/<area>.json`. The ratio is ours / peer: lower is better.
#[derive(Serialize, Clone, Debug)]
pub struct Row {
    /// What was measured, such as `memory`.
    pub area: &'static str,
    /// The work, such as `uncontended acquire+release`.
    pub work: String,
    /// The unit of the values.
    pub unit: &'static str,
    /// Our median.
    pub ours: f64,
    /// The peer we are compared with.
    pub peer: String,
    /// Their median.
    pub peer_value: f64,
    /// Ours / theirs; nothing where theirs is zero.
    pub ratio: Option<f64>,
}

/// The rows of one area, printed as they come in.
pub struct Report {
    area: &'static str,
    rows: Vec<Row>,
}

impl Report {
    /// An empty report.
    pub fn new(area: &'static str) -> Self {
        println!("{:<44} {:>12} {:<42} {:>12} {:>8}  unit", "work", "ours", "peer", "theirs", "ratio");
        Self { area, rows: Vec::new() }
    }

    /// Adds one comparison.
    pub fn add(&mut self, work: &str, unit: &'static str, ours: f64, peer: &str, peer_value: f64) {
        let ratio = (peer_value > 0.0).then(|| ours / peer_value);
        let shown = ratio.map_or("-".into(), |ratio| format!("{ratio:.3}"));
        println!("{work:<44} {ours:>12.1} {peer:<42} {peer_value:>12.1} {shown:>8}  {unit}");
        self.rows.push(Row {
            area: self.area,
            work: work.into(),
            unit,
            ours: round(ours),
            peer: peer.into(),
            peer_value: round(peer_value),
            ratio: ratio.map(|ratio| (ratio * 10_000.0).round() / 10_000.0),
        });
    }

    /// Measures all in turn, round after round, and adds our value beside that of each peer. The first is ours.
    pub fn compare(&mut self, work: &str, unit: &'static str, rounds: usize, runs: Runs<'_>) {
        let medians = medians(rounds, runs);
        let (_, ours) = medians[0];
        for (peer, value) in &medians[1..] {
            self.add(work, unit, ours, peer, *value);
        }
    }

    /// Writes the rows as a JSON array.
    ///
    /// # Errors
    ///
    /// If the file can't be written.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, serde_json::to_string_pretty(&self.rows)? + "\n")
    }
}

/// Names, and functions that measure once.
pub type Runs<'a> = Vec<(&'a str, Box<dyn FnMut() -> f64 + 'a>)>;

/// The median of each over so many interleaved rounds, after one round to warm up.
pub fn medians<'a>(rounds: usize, mut runs: Runs<'a>) -> Vec<(&'a str, f64)> {
    let mut values = vec![Vec::new(); runs.len()];
    for round in 0..=rounds {
        for (run, values) in runs.iter_mut().zip(&mut values) {
            let value = run.1();
            if round > 0 {
                values.push(value);
            }
        }
    }
    runs.iter().zip(values).map(|((name, _), values)| (*name, median(values))).collect()
}

/// The middle value.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Nanoseconds per iteration of a loop.
pub fn nanos_per(iterations: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / iterations as f64
}

/// How many rounds to measure: `SEMAFOR_BENCH_ROUNDS`, or the benchmark's own number.
pub fn rounds_or(default: usize) -> usize {
    std::env::var("SEMAFOR_BENCH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// Whether to measure this part: all of them, unless `SEMAFOR_BENCH_ONLY` names one.
pub fn is_wanted(part: &str) -> bool {
    std::env::var("SEMAFOR_BENCH_ONLY").ok().is_none_or(|only| only == part)
}

/// On a busy machine everything takes several times as long, and not all in the same proportion.
pub fn print_load(when: &str) {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(f64::NAN);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("load {when}: {load:.1} on {cores} cores");
    if when == "before" && load > 0.5 {
        println!("WARNING: other work is running here; ratios vary widely with it");
    }
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
