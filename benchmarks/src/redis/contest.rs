//! Measures all contestants in turn, round after round, so that a disturbance affects all of them.

use semafor_benchmarks::Report;

use super::peer::Peer;

/// Into how many turns a round is cut when it is compared with bare trips. The kernel moves server and clients between
/// cores, and a bare trip takes several times as long after one move as after another: both sides must meet the same.
pub(super) const SHORT_TURNS: usize = 20;

/// Fewer samples than this have no 99th percentile.
const FOR_P99: usize = 100;

/// One that does the work. A turn returns how long each time took, in microseconds.
pub(super) struct Contestant<'a> {
    name: String,
    turn: Box<dyn FnMut() -> Result<Vec<f64>, String> + 'a>,
}

impl<'a> Contestant<'a> {
    /// In this process.
    pub(super) fn here(name: &str, mut turn: impl FnMut() -> Vec<f64> + 'a) -> Self {
        Self { name: name.into(), turn: Box::new(move || Ok(turn())) }
    }

    /// In a process of its own, by requests.
    pub(super) fn there(peer: &'a mut Peer, request: &'a str) -> Self {
        let name = peer.name().to_owned();
        Self { name, turn: Box::new(move || peer.ask(request)) }
    }
}

/// The times of all turns of a contestant.
pub(super) struct Times {
    name: String,
    /// In ascending order.
    micros: Vec<f64>,
}

impl Times {
    fn percentile(&self, percent: usize) -> f64 {
        let last = self.micros.len().saturating_sub(1);
        self.micros.get(last * percent / 100).copied().unwrap_or(f64::NAN)
    }
}

/// So many rounds, after one to warm up. A contestant that fails is left out.
pub(super) fn contest(rounds: usize, mut contestants: Vec<Contestant<'_>>) -> Vec<Times> {
    let mut times: Vec<_> =
        contestants.iter().map(|one| Times { name: one.name.clone(), micros: Vec::new() }).collect();
    for round in 0..=rounds {
        let mut at = 0;
        while at < contestants.len() {
            match (contestants[at].turn)() {
                Ok(micros) => {
                    if round > 0 {
                        times[at].micros.extend(micros);
                    }
                    at += 1;
                }
                Err(reason) => {
                    println!("left out: {}: {reason}", contestants.remove(at).name);
                    times.remove(at);
                }
            }
        }
    }
    for one in &mut times {
        one.micros.sort_by(f64::total_cmp);
    }
    times
}

/// Adds the first one's median beside each other's.
pub(super) fn add_medians(report: &mut Report, work: &str, times: &[Times]) {
    add(report, work, 50, 1, times);
}

/// Adds the median and the 99th percentile.
pub(super) fn add_percentiles(report: &mut Report, work: &str, times: &[Times]) {
    add(report, &format!("{work}, p50"), 50, 1, times);
    add(report, &format!("{work}, p99"), 99, FOR_P99, times);
}

fn add(report: &mut Report, work: &str, percent: usize, least: usize, times: &[Times]) {
    let [ours, peers @ ..] = times else { return };
    let has_enough = |one: &&Times| one.micros.len() >= least;
    for peer in peers.iter().filter(|peer| has_enough(peer) && has_enough(&ours)) {
        report.add(work, "µs", ours.percentile(percent), &peer.name, peer.percentile(percent));
    }
}
