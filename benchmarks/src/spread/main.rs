//! The spread of several runs of one benchmark, as a table in Markdown: `bench-spread FILE...`.

use std::process::ExitCode;

use semafor_benchmarks::median;
use serde_json::Value;

fn main() -> ExitCode {
    match table(std::env::args().skip(1)) {
        Ok(table) => {
            print!("{table}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// The rows of all runs with the same work and peer.
struct Comparison {
    work: String,
    peer: String,
    unit: String,
    ours: Vec<f64>,
    theirs: Vec<f64>,
    ratios: Vec<f64>,
}

fn table(files: impl Iterator<Item = String>) -> Result<String, String> {
    let mut comparisons: Vec<Comparison> = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|error| format!("can't read {file}: {error}"))?;
        let rows: Vec<Value> = serde_json::from_str(&text).map_err(|error| format!("{file}: {error}"))?;
        for row in &rows {
            let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            let (work, peer) = (text("work"), text("peer"));
            let at = comparisons.iter().position(|one| one.work == work && one.peer == peer).unwrap_or_else(
                || {
                    let (ours, theirs, ratios) = (Vec::new(), Vec::new(), Vec::new());
                    comparisons.push(Comparison { work, peer, unit: text("unit"), ours, theirs, ratios });
                    comparisons.len() - 1
                },
            );
            let one = &mut comparisons[at];
            one.ours.extend(row["ours"].as_f64());
            one.theirs.extend(row["peer_value"].as_f64());
            one.ratios.extend(row["ratio"].as_f64());
        }
    }
    let mut table = "| work | unit | ours | peer | theirs | ratio |\n|---|---|---|---|---|---|\n".to_owned();
    for one in comparisons {
        let Comparison { work, unit, .. } = &one;
        // Markdown would take it for a tag.
        let peer = if one.peer.contains('<') { format!("`{}`", one.peer) } else { one.peer.clone() };
        let (ours, theirs, ratio) = (spread(&one.ours), spread(&one.theirs), spread(&one.ratios));
        table += &format!("| {work} | {unit} | {ours} | {peer} | {theirs} | {ratio} |\n");
    }
    Ok(table)
}

/// The median, and in brackets the lowest and the highest value if they differ.
fn spread(values: &[f64]) -> String {
    let Some(lowest) = values.iter().copied().reduce(f64::min) else { return "–".into() };
    let highest = values.iter().copied().fold(lowest, f64::max);
    let (middle, lowest, highest) = (show(median(values.to_vec())), show(lowest), show(highest));
    if lowest == highest { middle } else { format!("{middle} ({lowest} to {highest})") }
}

/// Three significant digits, and separators of thousands.
fn show(value: f64) -> String {
    let size = value.abs();
    if size >= 1_000.0 {
        let digits = format!("{value:.0}");
        let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
        return groups.join(",");
    }
    let decimals = match size {
        _ if size >= 100.0 || size == 0.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 0.1 => 2,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_median_between_its_ends() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]), "2.00 (1.00 to 3.00)");
        assert_eq!(spread(&[12_345.6, 12_345.6]), "12,346");
        assert_eq!(spread(&[]), "–");
    }
}
