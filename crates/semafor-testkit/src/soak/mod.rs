//! Real processes share semaphores for hours while all kinds of things go wrong; what they see is checked as they go.
//!
//! A run has four sites: two Redis servers, one of which is never replaced, so that its memory can be watched, and two
//! directories of agents, likewise. At each site several client processes use five semaphores in different ways. A
//! `director` for each site brings about the faults, and a `watch` checks the events of its clients, by the rules
//! of the [`Checker`](crate::history::Checker) and these:
//!
//! - every request is answered, at the latest after some heartbeat intervals;
//! - no client of ours ends by itself, or is silent for a minute;
//! - at the end nothing is left: no key on the server that belongs to a client or never expires, no entry at the agent;
//! - no process that lives as long as the run uses more and more memory or descriptors.

mod client;
mod faults;
mod plot;
mod report;
mod samples;
mod site;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::history::now;
use faults::Fault;
use report::Summary;
use samples::{Role, Roster, Samples};
use site::{Order, Plan};
use watch::{Note, Violation, Watch};

/// By the clock that all processes share, in nanoseconds.
type Time = u64;

const SECOND: Time = 1_000_000_000;
/// The numbers of the contestants of a client, and of those among them that use one name.
const CONTESTANTS: u64 = 1_000;
const CONTESTANTS_OF_NAME: u64 = 100;
/// How many messages may wait for the check. Then clients wait, instead of filling our memory.
const QUEUE: usize = 20_000;
/// The site number of the program itself, in samples.
const NO_SITE: usize = usize::MAX;
/// Until then all requests are answered after the last fault.
const TIME_TO_SETTLE: Duration = Duration::from_secs(90);

/// The programs that take part.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The testkit's `contender`.
    pub contender: PathBuf,
    /// The `semafor` command, which starts agents.
    pub semafor: PathBuf,
    /// A Python with the library `asyncio-advanced-semaphores`.
    pub python: Option<PathBuf>,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Faults follow from it.
    pub seed: u64,
    /// How long faults happen.
    pub length: Duration,
    /// The time between two faults of a site, on average.
    pub pause: Duration,
    /// The time between two samples of memory.
    pub sample_every: Duration,
    /// The time between two lines of progress.
    pub report_every: Duration,
    /// The programs.
    pub programs: Programs,
    /// Where the picture and the numbers go.
    pub folder: PathBuf,
}

enum Message {
    Line { site: usize, client: u64, line: String },
    EndOfOutput { site: usize, client: u64 },
    Note { site: usize, at: Time, note: Note },
    Fault { site: usize, fault: Fault },
}

/// Ctrl-C or SIGTERM.
pub struct Interrupt;

struct Site {
    plan: Plan,
    watch: Watch,
    orders: Sender<Order>,
    director: Option<JoinHandle<Result<(), String>>>,
    faults: BTreeMap<Fault, u64>,
    /// What clients reported as errors, by the first words.
    errors: BTreeMap<String, u64>,
}

struct Soak<'a> {
    settings: &'a Settings,
    started: Instant,
    sites: Vec<Site>,
    messages: Receiver<Message>,
    interrupts: &'a Receiver<Interrupt>,
    roster: Roster,
    samples: Samples,
    next_sample: Instant,
    next_report: Instant,
}

/// Why a run is over before its time.
enum Stop {
    Interrupted,
    Violation { site: Option<usize>, violation: Violation },
}

/// Runs to the end, until a rule is broken, or until it is interrupted. Returns whether all rules were kept.
pub fn run(settings: &Settings, interrupts: &Receiver<Interrupt>) -> bool {
    let python = settings.programs.python.as_ref().map_or("none".into(), |path| path.display().to_string());
    println!(
        "seed {}, {} seconds; agents by {}; Python clients: {python}",
        settings.seed,
        settings.length.as_secs(),
        settings.programs.semafor.display(),
    );
    let (tell, messages) = sync_channel(QUEUE);
    let roster = site::new_roster();
    roster.lock().unwrap_or_else(PoisonError::into_inner).set(
        NO_SITE,
        Role::Checker,
        vec![std::process::id()],
    );
    let plans = site::plans().into_iter().enumerate();
    let sites = plans.map(|(number, plan)| start(number, plan, settings, &tell, &roster)).collect();
    drop(tell);
    let started = Instant::now();
    let mut soak = Soak {
        settings,
        started,
        sites,
        messages,
        interrupts,
        roster,
        samples: Samples::default(),
        next_sample: started + settings.sample_every,
        next_report: started + settings.report_every,
    };
    let stop = soak.run().err();
    soak.end();
    let summary = Summary::of(&soak, stop);
    summary.print();
    if let Err(error) = summary.write(&soak) {
        println!("the results could not be written: {error}");
    }
    summary.is_good()
}

fn start(
    number: usize,
    plan: Plan,
    settings: &Settings,
    tell: &SyncSender<Message>,
    roster: &Roster,
) -> Site {
    let (orders, received) = channel();
    let director = thread::spawn({
        let (plan, tell, roster) = (plan.clone(), tell.clone(), roster.clone());
        let with = (settings.programs.clone(), settings.seed, settings.pause);
        move || site::direct((number, plan), with, tell, &received, roster)
    });
    let (watch, faults, errors) = (Watch::new(site::names()), BTreeMap::new(), BTreeMap::new());
    Site { plan, watch, orders, director: Some(director), faults, errors }
}

impl Soak<'_> {
    fn run(&mut self) -> Result<(), Stop> {
        let end = self.started + self.settings.length;
        while Instant::now() < end {
            self.step()?;
        }
        self.order(|| Order::Settle);
        println!("no more faults, waiting for the last requests");
        let deadline = Instant::now() + TIME_TO_SETTLE;
        // A client ends its work between two requests: nothing was open for some seconds.
        let mut quiet_since = None;
        loop {
            self.step()?;
            let open = self.sites.iter().enumerate().find_map(|(site, it)| Some((site, it.watch.open()?)));
            match open {
                None => {
                    let since = *quiet_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > Duration::from_secs(3) {
                        break;
                    }
                }
                Some((site, open)) => {
                    quiet_since = None;
                    if Instant::now() >= deadline {
                        let what =
                            format!("this is not over {TIME_TO_SETTLE:?} after the last fault:\n  {open}");
                        return Err(Stop::Violation {
                            site: Some(site),
                            violation: Violation { at: now(), name: None, what },
                        });
                    }
                }
            }
        }
        println!("all requests are answered, looking for what is left");
        self.order(|| Order::Finish);
        while self.sites.iter().any(|site| site.director.is_some()) {
            self.step()?;
        }
        for (number, site) in self.sites.iter_mut().enumerate() {
            let checked = site.watch.check_all();
            checked.map_err(|violation| Stop::Violation { site: Some(number), violation })?;
        }
        Ok(())
    }

    fn order(&self, order: impl Fn() -> Order) {
        // A director that has ended is noticed elsewhere.
        self.sites.iter().for_each(|site| _ = site.orders.send(order()));
    }

    /// Reads what has come, and checks it.
    fn step(&mut self) -> Result<(), Stop> {
        if self.interrupts.try_recv().is_ok() {
            return Err(Stop::Interrupted);
        }
        let until = Instant::now() + Duration::from_millis(100);
        loop {
            match self.messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(message) => self.receive(message),
                Err(RecvTimeoutError::Timeout) => break,
                // All directors have ended.
                Err(RecvTimeoutError::Disconnected) => {
                    thread::sleep(until.saturating_duration_since(Instant::now()));
                    break;
                }
            }
            if Instant::now() >= until {
                break;
            }
        }
        for (number, site) in self.sites.iter_mut().enumerate() {
            let checked = site.watch.check(now()).and_then(|()| site.watch.check_progress(now()));
            checked.map_err(|violation| Stop::Violation { site: Some(number), violation })?;
            if site.director.as_ref().is_some_and(JoinHandle::is_finished)
                && let Some(what) = site.join()
            {
                let violation = Violation { at: now(), name: None, what };
                return Err(Stop::Violation { site: Some(number), violation });
            }
        }
        if Instant::now() >= self.next_sample {
            self.next_sample += self.settings.sample_every;
            self.samples.take(self.started.elapsed().as_secs_f64(), &self.roster);
        }
        if Instant::now() >= self.next_report {
            self.next_report += self.settings.report_every;
            println!("{}", report::progress(self));
        }
        Ok(())
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Line { site, client, line } => {
                let site = &mut self.sites[site];
                if !site.watch.line(client, &line, now())
                    && let Some((_, error)) =
                        line.strip_prefix("failure of ").and_then(|rest| rest.split_once(": "))
                {
                    site.count_error(error);
                }
            }
            Message::EndOfOutput { site, client } => self.sites[site].watch.end_of_output(client),
            Message::Note { site, at, note } => self.sites[site].watch.note(at, note),
            Message::Fault { site, fault } => *self.sites[site].faults.entry(fault).or_default() += 1,
        }
    }

    /// Ends all processes. Directors must not wait for us while they do.
    fn end(&mut self) {
        self.order(|| Order::Abort);
        while self.sites.iter().any(|site| site.director.is_some()) {
            while self.messages.recv_timeout(Duration::from_millis(50)).is_ok() {}
            for site in &mut self.sites {
                if site.director.as_ref().is_some_and(JoinHandle::is_finished) {
                    site.join();
                }
            }
        }
    }
}

impl Site {
    /// Errors that differ only in numbers are of one kind.
    fn count_error(&mut self, error: &str) {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let words = error.split_whitespace().map(|word| if word.starts_with(is_number) { "N" } else { word });
        let words: Vec<_> = words.filter(|word| !word.contains("://")).take(8).collect();
        // Memory stays bounded, whatever the errors say.
        if self.errors.len() < 100 {
            *self.errors.entry(words.join(" ")).or_default() += 1;
        }
    }

    /// What its director has complained about.
    fn join(&mut self) -> Option<String> {
        match self.director.take()?.join() {
            Ok(Ok(())) => None,
            Ok(Err(complaint)) => Some(complaint),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
                Some(format!("the director of the site failed: {text}"))
            }
        }
    }
}
