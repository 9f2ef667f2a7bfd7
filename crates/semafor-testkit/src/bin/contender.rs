//! A process that contends for slots, on a Redis or on its machine, controlled through its standard input.
//!
//! `contender URL` connects, prints `ready`, and then takes one order per line:
//!
//! | | |
//! |---|---|
//! | `ask BY NAME SLOTS OPTIONS…` | contestant number BY asks for a slot, and holds it until another order |
//! | `release BY` | it releases what it holds, and waits for the answer |
//! | `detach BY` | it detaches what it holds |
//! | `drop BY` | its task is aborted, whether it waits or holds |
//! | `panic BY` | its task panics while it holds |
//! | `load FIRST TASKS ROUNDS NAME SLOTS OPTIONS…` | TASKS contestants from FIRST on acquire and release ROUNDS times |
//! | `stop` | all loads end after their present round |
//! | `tick MILLISECONDS` | from now on it prints `tick NOW` so often: when no tick comes, it has no time to run |
//! | `shutdown` | ends the runtime of all contestants, and not the process |
//! | `quit` | returns from `main` |
//!
//! Options: `weight`, `ttl`, `hb` (heartbeat), `timeout`, and for loads `heaviest` (weights from 1 up to this), `hold`
//! (milliseconds, at most), `pause` (milliseconds between rounds, at most), `drop_after` (milliseconds, at most, after which an
//! acquire is dropped) and `drops` (0: permits are released, which shows whether they were held; else half of them are dropped).
//!
//! Each request is labelled `BY.ROUND`. What the contestants see is written to standard output, one [`Event`] per line, in the
//! order of their times, except for leases that ended before their holder noticed;
//! a line `done …` is the answer to an order that takes time, and `failure …` reports an error.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use semafor::{AcquireError, Home, Loss, NotHeld, Permit, ReleaseError, Semaphore, secs};
use semafor_testkit::history::{Event, Grant, What, now};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

fn main() {
    let url = std::env::args().nth(1).expect("the URL of a home");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let home = runtime.block_on(Home::connect(&url)).expect("it answers");
    let mut contestants =
        Contestants { runtime: Some(runtime), home, tasks: HashMap::new(), is_stopped: Arc::default() };
    print_line("ready");
    for line in io::stdin().lock().lines() {
        let line = line.expect("text");
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["ask", by, name, slots, ref options @ ..] => {
                contestants.ask(number(by), name, number(slots), options);
            }
            ["release", by] => contestants.order(number(by), Order::Release),
            ["detach", by] => contestants.order(number(by), Order::Detach),
            ["panic", by] => contestants.order(number(by), Order::Panic),
            ["drop", by] => contestants.tasks[&number(by)].1.abort(),
            ["load", first, tasks, rounds, name, slots, ref options @ ..] => {
                let load = (number(first), number(tasks), number(rounds));
                contestants.load(load, name, number(slots), options);
            }
            ["stop"] => contestants.is_stopped.store(true, Ordering::Relaxed),
            ["tick", milliseconds] => tick(Duration::from_millis(number(milliseconds))),
            ["shutdown"] => {
                contestants.runtime = None;
                print_line("done shutdown");
            }
            ["quit"] => return,
            _ => panic!("unknown order {line:?}"),
        }
    }
}

fn number<N: FromStr>(word: &str) -> N {
    word.parse().ok().unwrap_or_else(|| panic!("{word:?} is not a number of this type"))
}

/// On a thread of its own: a busy runtime is not a process without time to run.
fn tick(interval: Duration) {
    thread::spawn(move || {
        loop {
            print_with_time(|now| format!("tick {now}"));
            thread::sleep(interval);
        }
    });
}

/// The contestants and their runtime, which is dropped before the home, as in most programs.
struct Contestants {
    runtime: Option<Runtime>,
    home: Home,
    tasks: HashMap<u64, (UnboundedSender<Order>, AbortHandle)>,
    is_stopped: Arc<AtomicBool>,
}

enum Order {
    Release,
    Detach,
    Panic,
}

#[derive(Clone)]
struct Options {
    weight: u32,
    heaviest: Option<u32>,
    ttl: Option<f64>,
    heartbeat: Option<f64>,
    timeout: Option<f64>,
    hold: u64,
    pause: u64,
    drop_after: Option<u64>,
    drops: u64,
}

impl Options {
    fn read(words: &[&str]) -> Self {
        let mut options = Self {
            weight: 1,
            heaviest: None,
            ttl: None,
            heartbeat: None,
            timeout: None,
            hold: 2,
            pause: 0,
            drop_after: None,
            drops: 1,
        };
        for word in words {
            match word.split_once('=').expect("option=value") {
                ("weight", value) => options.weight = number(value),
                ("heaviest", value) => options.heaviest = Some(number(value)),
                ("ttl", value) => options.ttl = Some(number(value)),
                ("hb", value) => options.heartbeat = Some(number(value)),
                ("timeout", value) => options.timeout = Some(number(value)),
                ("hold", value) => options.hold = number(value),
                ("pause", value) => options.pause = number(value),
                ("drop_after", value) => options.drop_after = Some(number(value)),
                ("drops", value) => options.drops = number(value),
                (other, _) => panic!("there is no option {other}"),
            }
        }
        options
    }
}

impl Contestants {
    fn semaphore(&self, name: &str, slots: u32, options: &Options) -> Semaphore {
        let mut builder = self.home.named(name).slots(slots);
        if let Some(ttl) = options.ttl {
            builder = builder.ttl(secs(ttl));
        }
        if let Some(heartbeat) = options.heartbeat {
            builder = builder.heartbeat_max_interval(secs(heartbeat));
        }
        if let Some(timeout) = options.timeout {
            builder = builder.timeout(secs(timeout));
        }
        builder.build().expect("valid options")
    }

    fn order(&self, by: u64, order: Order) {
        self.tasks[&by].0.send(order).unwrap_or_else(|_| panic!("contestant {by} holds nothing"));
    }

    fn ask(&mut self, by: u64, name: &str, slots: u32, options: &[&str]) {
        let options = Options::read(options);
        let semaphore = self.semaphore(name, slots, &options);
        let (give, orders) = unbounded_channel();
        let runtime = self.runtime.as_ref().expect("it was not shut down");
        let task = runtime.spawn(contend(by, semaphore, options.weight, orders));
        self.tasks.insert(by, (give, task.abort_handle()));
    }

    fn load(&self, (first, tasks, rounds): (u64, u64, u32), name: &str, slots: u32, options: &[&str]) {
        let options = Options::read(options);
        let semaphore = self.semaphore(name, slots, &options);
        let is_stopped = Arc::clone(&self.is_stopped);
        self.runtime.as_ref().expect("it was not shut down").spawn(async move {
            let mut contestants = JoinSet::new();
            for by in first..first + tasks {
                contestants.spawn(contend_often(
                    by,
                    semaphore.clone(),
                    rounds,
                    options.clone(),
                    Arc::clone(&is_stopped),
                ));
            }
            contestants.join_all().await;
            print_line(&format!("done load {first}"));
        });
    }
}

/// A request that is not answered yet. Dropping it records that the contestant gave up.
struct PendingRequest {
    by: u64,
    is_answered: bool,
}

impl PendingRequest {
    fn new(by: u64) -> Self {
        print_event(by, What::Asked);
        Self { by, is_answered: false }
    }

    fn answered(
        mut self,
        answer: Result<Permit<'_>, AcquireError>,
        weight: u32,
    ) -> Option<Holding<Permit<'_>>> {
        match answer {
            Ok(permit) => {
                let grant = Grant::of(&permit, weight);
                let ends_at = permit.expires_at().map(|end| {
                    let left = end.saturating_duration_since(Instant::now());
                    now() + u64::try_from(left.as_nanos()).expect("it is not that long")
                });
                let id = grant.id.clone();
                let by = self.by;
                let leased = ends_at.map(|ends| What::Leased { id: id.clone(), ends });
                // First its lease: it may be over when its grant is read.
                let granted_at = print_with_time(|at| {
                    let events = leased.into_iter().chain([What::Granted(grant)]);
                    let lines: Vec<_> = events.map(|what| Event { at, by, what }.to_string()).collect();
                    lines.join("\n")
                });
                self.is_answered = true;
                let ends_at = ends_at.map(|ends| ends.max(granted_at));
                Some(Holding { by, id, ends_at, is_over: false, permit: Some(permit) })
            }
            Err(error) => {
                print_line(&format!("failure of {}: {error}", self.by));
                None
            }
        }
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        if !self.is_answered {
            print_event(self.by, What::GaveUp);
        }
    }
}

/// The permit of a contestant. Its end is recorded before the slot is released, whatever the reason.
struct Holding<P> {
    by: u64,
    id: String,
    /// When it ends, as far as its holder knows.
    ends_at: Option<u64>,
    is_over: bool,
    permit: Option<P>,
}

impl<P> Holding<P> {
    /// Records the end with the present time, or with the end of the lease if that was earlier.
    fn at_the_latest(&self, what: What) {
        print_with_time(|now| {
            let at = self.ends_at.map_or(now, |end| end.min(now));
            Event { at, by: self.by, what }.to_string()
        });
    }

    fn ends(&mut self) {
        if !self.is_over {
            self.is_over = true;
            self.at_the_latest(What::Ended(self.id.clone()));
        }
    }

    fn is_lost(&mut self, why: NotHeld) {
        self.is_over = true;
        let what = What::Lost { id: self.id.clone(), why: word(why).into() };
        if why.is_expired() { self.at_the_latest(what) } else { print_event(self.by, what) }
    }
}

impl Holding<Permit<'_>> {
    async fn release(mut self) {
        let was_lost = self.is_over;
        self.ends();
        let Some(permit) = self.permit.take() else { return };
        match permit.release().await {
            Ok(()) => {}
            Err(ReleaseError::NotHeld(why)) if !was_lost => self.is_lost(why),
            Err(ReleaseError::NotHeld(_)) => {}
            Err(error) => print_line(&format!("failure of {}: {error}", self.by)),
        }
        print_line(&format!("done release {}", self.by));
    }
}

impl<P> Drop for Holding<P> {
    fn drop(&mut self) {
        self.ends();
    }
}

fn word(why: NotHeld) -> &'static str {
    match why {
        NotHeld::Released => "released",
        NotHeld::Lost(Loss::Expired) => "expired",
        NotHeld::Lost(Loss::Evicted) => "evicted",
        NotHeld::Lost(Loss::Vanished) => "vanished",
        NotHeld::Lost(Loss::OutOfTouch) => "out-of-touch",
        _ => "unknown",
    }
}

/// Asks once, and holds the slot until an order.
async fn contend(by: u64, semaphore: Semaphore, weight: u32, mut orders: UnboundedReceiver<Order>) {
    let asking = PendingRequest::new(by);
    let answer = semaphore.acquire().weight(weight).label(label(by, 0)).await;
    let Some(mut holding) = asking.answered(answer, weight) else { return };
    loop {
        let Some(permit) = &holding.permit else { return };
        tokio::select! {
            why = permit.lost(), if !holding.is_over => holding.is_lost(why),
            order = orders.recv() => match order {
                Some(Order::Release) => return holding.release().await,
                Some(Order::Detach) => {
                    // From here on only the server decides when it ends, and the reader of the history must know that.
                    holding.is_over = true;
                    let id = holding.permit.take().map(Permit::detach);
                    return print_line(&format!("done detach {}", id.expect("it is held")));
                }
                // Like a panic, but prints nothing.
                Some(Order::Panic) => std::panic::resume_unwind(Box::new("as ordered")),
                None => return,
            },
        }
    }
}

async fn contend_often(
    by: u64,
    semaphore: Semaphore,
    rounds: u32,
    options: Options,
    is_stopped: Arc<AtomicBool>,
) {
    let mut dice = by.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut roll = move |sides: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % sides
    };
    for round in 0..rounds {
        if is_stopped.load(Ordering::Relaxed) {
            return;
        }
        if options.pause > 0 {
            sleep(Duration::from_micros(roll(options.pause * 1000))).await;
        }
        let weight = options.heaviest.map_or(options.weight, |heaviest| 1 + roll(heaviest.into()) as u32);
        let asking = PendingRequest::new(by);
        let acquire = semaphore.acquire().weight(weight).label(label(by, round));
        let answer = match options.drop_after {
            None => acquire.await,
            Some(drop_after) => {
                match timeout(Duration::from_micros(roll(drop_after * 1000)), acquire).await {
                    Ok(answer) => answer,
                    Err(_) => continue,
                }
            }
        };
        let Some(mut holding) = asking.answered(answer, weight) else { continue };
        let Some(permit) = &holding.permit else { continue };
        tokio::select! {
            why = permit.lost() => holding.is_lost(why),
            () = sleep(Duration::from_micros(roll(options.hold * 1000 + 1))) => {}
        }
        if roll(1 + options.drops) == 0 {
            holding.release().await;
        }
    }
}

/// The contestant and the round of a request, to find it in line.
fn label(by: u64, round: u32) -> String {
    format!("{by}.{round}")
}

fn print_event(by: u64, what: What) {
    print_with_time(|at| Event { at, by, what }.to_string());
}

/// The time, which is returned, is read while no other thread can print, so that lines come in the order of their times.
fn print_with_time(line: impl FnOnce(u64) -> String) -> u64 {
    let mut out = io::stdout().lock();
    let now = now();
    let _ = writeln!(out, "{}", line(now));
    now
}

fn print_line(line: &str) {
    // An error means that the reader is gone.
    let _ = writeln!(io::stdout().lock(), "{line}");
}
