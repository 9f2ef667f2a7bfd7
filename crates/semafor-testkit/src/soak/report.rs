//! What a run prints and writes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use super::faults::Fault;
use super::samples::{DESCRIPTOR_MARGIN, Growth, MEMORY_MARGIN, Role, Sample};
use super::site::Kind;
use super::{NO_SITE, SECOND, Soak, Stop, plot};
use crate::history::Counts;

/// Events printed with a violation, at most, and from how long before it.
const PRINTED: usize = 200;
const PRINTED_TIME: u64 = 20 * SECOND;

pub(super) struct Summary {
    seed: u64,
    length: Duration,
    sites: Vec<OfSite>,
    series: Vec<Series>,
    /// Why it ended early.
    stop: Option<Ending>,
}

struct OfSite {
    name: &'static str,
    counts: Counts,
    python_grants: u64,
    late: u64,
    stalls: u64,
    faults: BTreeMap<Fault, u64>,
    errors: BTreeMap<String, u64>,
}

/// The samples of one role.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) samples: Vec<Sample>,
    /// Whether growth of it is a fault.
    is_judged: bool,
    pub(super) is_drawn: bool,
    memory: Option<Growth>,
    descriptors: Option<Growth>,
}

enum Ending {
    Interrupted,
    Violation(String),
}

/// One line about a run that goes on.
pub(super) fn progress(soak: &Soak<'_>) -> String {
    let seconds = soak.started.elapsed().as_secs();
    let mut line = format!("{:02}:{:02}:{:02}  grants", seconds / 3600, seconds / 60 % 60, seconds % 60);
    for site in &soak.sites {
        line += &format!(" {} {}", site.plan.name, site.watch.counts().grants);
    }
    let faults: u64 = soak.sites.iter().flat_map(|site| site.faults.values()).sum();
    line += &format!("  faults {faults}  violations 0  MB");
    for (number, site) in soak.sites.iter().enumerate().filter(|(_, site)| is_lasting(site.plan.faults)) {
        for role in [Role::Server, Role::SteadyClient] {
            if let Some(sample) = soak.samples.last(number, role) {
                let word = if role == Role::Server { "" } else { " client" };
                line += &format!("  {}{word} {:.1}", site.plan.name, sample.rss as f64 / 1024.0);
            }
        }
    }
    if let Some(sample) = soak.samples.last(NO_SITE, Role::Checker) {
        let size: usize = soak.sites.iter().map(|site| site.watch.size()).sum();
        line += &format!("  checker {:.1} ({size} entries)", sample.rss as f64 / 1024.0);
    }
    line
}

/// Whether its server or agent is never replaced.
fn is_lasting(faults: &[Fault]) -> bool {
    !faults.iter().any(|fault| {
        matches!(fault, Fault::ServerRestarted | Fault::DataLost | Fault::Flushed | Fault::AgentKilled)
    })
}

impl Summary {
    pub(super) fn of(soak: &Soak<'_>, stop: Option<Stop>) -> Self {
        let sites = soak.sites.iter().map(|site| OfSite {
            name: site.plan.name,
            counts: site.watch.counts(),
            python_grants: site.watch.python_grants,
            late: site.watch.late,
            stalls: site.watch.stalls,
            faults: site.faults.clone(),
            errors: site.errors.clone(),
        });
        let stop = stop.map(|stop| match stop {
            Stop::Interrupted => Ending::Interrupted,
            Stop::Violation { site, violation } => {
                let mut text = String::new();
                if let Some(site) = site.map(|site| &soak.sites[site]) {
                    text += &format!("site {}, faults and events before it:\n", site.plan.name);
                    let since = violation.at.saturating_sub(PRINTED_TIME);
                    for (at, fault) in
                        site.watch.last_faults().filter(|(at, _)| at + 3 * PRINTED_TIME > violation.at)
                    {
                        text += &format!("  {at} {fault}\n");
                    }
                    let events = site.watch.last_events(violation.name).filter(|(at, _)| *at >= since);
                    let events: Vec<_> = events.collect();
                    for (_, event) in &events[events.len().saturating_sub(PRINTED)..] {
                        text += &format!("  {event}\n");
                    }
                }
                text += &format!("VIOLATION at {}: {}", violation.at, violation.what);
                Ending::Violation(text)
            }
        });
        let series = soak.samples.0.iter().map(|((site, role), samples)| {
            let site = soak.sites.get(*site);
            let name = match (site, role) {
                (None, _) => "checker".to_owned(),
                (Some(site), Role::Server) if site.plan.kind == Kind::Local => site.plan.name.to_owned(),
                (Some(site), Role::Server) => format!("{} server", site.plan.name),
                (Some(site), Role::SteadyClient) => format!("{} client", site.plan.name),
                (Some(site), Role::OtherClients) => format!("{} other clients", site.plan.name),
                (Some(site), _) => format!("{} Python clients", site.plan.name),
            };
            let is_judged = match role {
                Role::Server => site.is_some_and(|site| is_lasting(site.plan.faults)),
                Role::SteadyClient | Role::Checker => true,
                Role::OtherClients | Role::PythonClients => false,
            };
            Series {
                name,
                is_judged,
                is_drawn: is_judged && *role != Role::Checker,
                memory: Growth::of(samples, MEMORY_MARGIN, |sample| sample.rss),
                descriptors: Growth::of(samples, DESCRIPTOR_MARGIN, |sample| sample.descriptors),
                samples: samples.clone(),
            }
        });
        Self {
            seed: soak.settings.seed,
            length: soak.started.elapsed(),
            sites: sites.collect(),
            series: series.collect(),
            stop,
        }
    }

    fn grown(&self) -> impl Iterator<Item = &Series> {
        let grows = |growth: Option<Growth>| growth.is_some_and(|growth| growth.grows);
        self.series
            .iter()
            .filter(move |series| series.is_judged && (grows(series.memory) || grows(series.descriptors)))
    }

    fn violations(&self) -> u32 {
        u32::from(matches!(self.stop, Some(Ending::Violation(_))))
    }

    /// Whether all rules were kept, and nothing has grown.
    pub(super) fn is_good(&self) -> bool {
        self.violations() == 0 && self.grown().next().is_none()
    }

    fn faults(&self) -> BTreeMap<Fault, u64> {
        let mut all = BTreeMap::new();
        for (fault, number) in self.sites.iter().flat_map(|site| &site.faults) {
            *all.entry(*fault).or_default() += number;
        }
        all
    }

    pub(super) fn print(&self) {
        if let Some(Ending::Violation(text)) = &self.stop {
            println!("\n{text}");
        }
        println!("\nseed {}, {} seconds", self.seed, self.length.as_secs());
        println!("\n| site | grants | of Python clients | while suspended | orders compared | losses |");
        println!("|---|---|---|---|---|---|");
        for OfSite { name, counts, python_grants, .. } in &self.sites {
            let Counts { grants, losses, suspended, ordered } = counts;
            println!("| {name} | {grants} | {python_grants} | {suspended} | {ordered} | {losses} |");
        }
        println!("\n| fault | times |\n|---|---|");
        for (fault, times) in self.faults() {
            println!("| {} | {times} |", fault.name());
        }
        println!(
            "\n| process | memory, second quarter | last quarter | descriptors, second quarter | last quarter | grows |"
        );
        println!("|---|---|---|---|---|---|");
        for Series { name, is_judged, memory, descriptors, .. } in &self.series {
            let (Some(memory), Some(descriptors)) = (memory, descriptors) else { continue };
            let verdict = match (is_judged, memory.grows || descriptors.grows) {
                (false, _) => "-",
                (true, false) => "no",
                (true, true) => "YES",
            };
            println!(
                "| {name} | {:.1} MB | {:.1} MB | {} | {} | {verdict} |",
                memory.early as f64 / 1024.0,
                memory.late as f64 / 1024.0,
                descriptors.early,
                descriptors.late,
            );
        }
        println!();
        for site in &self.sites {
            let OfSite { name, late, stalls, .. } = site;
            println!("{name}: {stalls} times a client had no time to run, {late} events came late");
            for (error, times) in &site.errors {
                println!("    {times} times a client reported: {error}");
            }
        }
        let grown: Vec<_> = self.grown().map(|series| &*series.name).collect();
        let ending = if matches!(self.stop, Some(Ending::Interrupted)) { ", interrupted" } else { "" };
        println!(
            "\nviolations: {}, growing processes: {} {}{ending}",
            self.violations(),
            grown.len(),
            grown.join(", ")
        );
        if !self.is_good() {
            println!("the same faults, with another load: cargo xtask soak --seed {}", self.seed);
        }
    }

    /// The numbers and the picture.
    pub(super) fn write(&self, soak: &Soak<'_>) -> io::Result<()> {
        let folder = &soak.settings.folder;
        fs::create_dir_all(folder)?;
        let text = serde_json::to_string_pretty(&self.json()).map_err(io::Error::other)?;
        fs::write(folder.join("soak.json"), text)?;
        fs::write(folder.join("soak.svg"), plot::to_svg(&self.series))?;
        println!("numbers and a picture are in {}", folder.display());
        Ok(())
    }

    fn json(&self) -> Value {
        let sites: Vec<_> = self
            .sites
            .iter()
            .map(|site| {
                let faults: BTreeMap<_, _> =
                    site.faults.iter().map(|(fault, times)| (fault.name(), times)).collect();
                json!({
                    "name": site.name,
                    "grants": site.counts.grants,
                    "python_grants": site.python_grants,
                    "grants_while_suspended": site.counts.suspended,
                    "orders_compared": site.counts.ordered,
                    "losses": site.counts.losses,
                    "stalls": site.stalls,
                    "late_events": site.late,
                    "faults": faults,
                    "errors": site.errors,
                })
            })
            .collect();
        let growth = |growth: Option<Growth>| {
            growth.map(|it| json!({ "second_quarter": it.early, "last_quarter": it.late, "grows": it.grows }))
        };
        let series: Vec<_> = self
            .series
            .iter()
            .map(|series| {
                let samples: Vec<_> =
                    series.samples.iter().map(|it| json!([it.at, it.rss, it.descriptors])).collect();
                json!({
                    "process": series.name,
                    "is_judged": series.is_judged,
                    "memory_kib": growth(series.memory),
                    "descriptors": growth(series.descriptors),
                    "samples": samples,
                })
            })
            .collect();
        let faults: BTreeMap<_, _> =
            self.faults().into_iter().map(|(fault, times)| (fault.name(), times)).collect();
        json!({
            "seed": self.seed,
            "seconds": self.length.as_secs(),
            "interrupted": matches!(self.stop, Some(Ending::Interrupted)),
            "grants": self.sites.iter().map(|site| site.counts.grants).sum::<u64>(),
            "faults": faults,
            "violations": self.violations(),
            "growing": self.grown().map(|series| &series.name).collect::<Vec<_>>(),
            "sites": sites,
            "processes": series,
        })
    }
}
