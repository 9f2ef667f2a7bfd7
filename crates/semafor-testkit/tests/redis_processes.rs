//! Several processes share semaphores on one Redis, and things go wrong: with the processes, with the server, and with
//! the connections between them.
//!
//! Each test says what must hold, and checks it in the history that all processes wrote by one clock, and in what is
//! left in Redis at the end. No test sleeps: it waits for what must happen, and checks what must not happen before a
//! deadline of the server against that deadline.

use std::collections::HashMap;

use semafor::{Home, Semaphore};
use semafor_testkit::history::{Event, Grant, History, Hold, What, now};
use semafor_testkit::redis::{Contender, Proxy, RedisServer, eventually, leftovers};

const NAMESPACE: &str = "processes";
const NAME: &str = "jobs";
/// Short delays between attempts, and long timeouts.
const RETRIES: &str = "namespace=processes&socket_connect_timeout=2&retry_multiplier=0.05&retry_min_delay=0.05\
    &retry_max_delay=0.2&number_of_attempts=40";
/// A short heartbeat, for processes whose death must be noticed.
const SHORT_HEARTBEAT: &str = "hb=1";
/// The number for events without a contestant.
const NO_CONTESTANT: u64 = u64::MAX;

/// One semaphore, the processes that contend for it, and what was done to them.
struct Contest {
    server: RedisServer,
    slots: u32,
    /// Reads the state, and acquires nothing.
    observer: Home,
    contenders: Vec<Contender>,
    notes: Vec<Event>,
}

impl Contest {
    fn new(slots: u32, processes: usize) -> Self {
        Self::on(RedisServer::start(), slots, processes)
    }

    fn on(server: RedisServer, slots: u32, processes: usize) -> Self {
        let observer =
            pollster::block_on(Home::connect(&with_long_timeouts(&server.url()))).expect("it answers");
        let mut contest = Self { server, slots, observer, contenders: Vec::new(), notes: Vec::new() };
        for _ in 0..processes {
            contest.join(&with_long_timeouts(&contest.server.url()));
        }
        contest
    }

    /// Starts one more process. Returns its number.
    fn join(&mut self, url: &str) -> usize {
        self.contenders.push(Contender::start(env!("CARGO_BIN_EXE_contender"), url));
        self.contenders.len() - 1
    }

    fn semaphore(&self) -> Semaphore {
        self.observer.named(NAME).build().expect("valid options")
    }

    fn note(&mut self, by: u64, what: What) {
        self.notes.push(Event::now(by, what));
    }

    fn ask(&self, process: usize, by: u64, options: &str) {
        self.contenders[process].order(&format!("ask {by} {NAME} {} {options}", self.slots));
    }

    /// Waits for the grant.
    #[track_caller]
    fn granted(&self, process: usize, by: u64) -> Grant {
        self.contenders[process].shows(&format!("contestant {by} gets its slot"), |event| match &event.what {
            What::Granted(grant) if event.by == by => Some(grant.clone()),
            _ => None,
        })
    }

    /// Asks, and waits for the grant.
    #[track_caller]
    fn gets(&self, process: usize, by: u64, options: &str) -> Grant {
        self.ask(process, by, options);
        self.granted(process, by)
    }

    /// Asks, and is in line when this returns.
    #[track_caller]
    fn stands_in_line(&mut self, process: usize, by: u64, options: &str) {
        self.ask(process, by, options);
        self.is_in_line(by, true);
        self.note(by, What::Queued);
    }

    /// Returns when the contestant is in line, or is not, as `wanted`.
    #[track_caller]
    fn is_in_line(&self, by: u64, wanted: bool) {
        let label = format!("{by}.0");
        let word = if wanted { "stands" } else { "does not stand" };
        eventually(&format!("contestant {by} {word} in line"), || {
            (self.line().contains(&label) == wanted).then_some(())
        });
    }

    /// The labels of the waiters, in their order.
    fn line(&self) -> Vec<String> {
        let waiters = pollster::block_on(self.semaphore().waiters()).unwrap_or_default();
        waiters.iter().filter_map(|waiter| waiter.label.as_deref().map(str::to_owned)).collect()
    }

    fn release(&self, process: usize, by: u64) {
        self.contenders[process].order(&format!("release {by}"));
    }

    /// Waits for a loss, and returns the reason.
    #[track_caller]
    fn lost(&self, process: usize, by: u64) -> String {
        self.contenders[process].shows(&format!("contestant {by} learns of its loss"), |event| {
            match &event.what {
                What::Lost { why, .. } if event.by == by => Some(why.clone()),
                _ => None,
            }
        })
    }

    /// When the server will remove `id` from that key: the earliest time by our clock.
    #[track_caller]
    fn deadline(&self, key: &str, id: &str) -> u64 {
        self.find_deadline(key, id).unwrap_or_else(|| panic!("{id} is not in {key}"))
    }

    fn find_deadline(&self, key: &str, id: &str) -> Option<u64> {
        let mut connection = self.server.connection();
        let key = format!("{NAMESPACE}:{key}:{NAME}");
        let score: Option<f64> =
            redis::cmd("ZSCORE").arg(key).arg(id).query(&mut connection).expect("a score");
        let score = score?;
        let before = now();
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut connection).expect("the time");
        let left = score - (seconds as f64 + micros as f64 / 1e6);
        Some(before.saturating_add_signed((left * 1e9) as i64))
    }

    /// Kills the process of a holder, whose slot must go to another holder at that deadline, and not before.
    fn kill_holder(&mut self, process: usize, by: u64, key: &str, id: &str) {
        self.contenders[process].kill();
        let at = self.deadline(key, id);
        self.notes.push(Event { at, by, what: What::Ended(id.to_owned()) });
    }

    /// Records the end of the grants of a killed process, by the server's deadlines, and of its requests.
    fn record_ends_of_killed_process(&mut self, process: usize) {
        let history: History = self.contenders[process].events().into_iter().collect();
        for hold in history.holds().expect("it was consistent") {
            match hold.granted() {
                None if !hold.gave_up() => self.note(hold.by(), What::GaveUp),
                Some((_, grant)) if hold.ended_at().is_none() => {
                    let at = self.find_deadline("semaphore_main", &grant.id).unwrap_or_else(now);
                    let what = What::Ended(grant.id.clone());
                    self.notes.push(Event { at, by: hold.by(), what });
                }
                _ => {}
            }
        }
    }

    fn kill_waiter(&mut self, process: usize, by: u64) {
        self.contenders[process].kill();
        self.note(by, What::GaveUp);
    }

    /// Lets `processes` times `tasks` contestants acquire `rounds` times each. They have started when this returns.
    fn load(&self, tasks: u64, rounds: u32, options: &str) -> u64 {
        for (process, contender) in self.contenders.iter().enumerate() {
            let first = process * 100;
            contender.order(&format!("load {first} {tasks} {rounds} {NAME} {} {options}", self.slots));
        }
        self.grants_reach(1);
        self.contenders.len() as u64 * tasks * u64::from(rounds)
    }

    fn grants(&self) -> usize {
        let events = self.contenders.iter().flat_map(Contender::events);
        events.filter(|event| matches!(event.what, What::Granted(_))).count()
    }

    #[track_caller]
    fn grants_reach(&self, number: usize) {
        eventually(&format!("{number} grants"), || (self.grants() >= number).then_some(()));
    }

    fn is_load_done(&self) -> bool {
        let are_all_answered = |contender: &Contender| {
            let events = contender.events();
            let asked = events.iter().filter(|event| event.what == What::Asked).count();
            let ended = |event: &&Event| matches!(event.what, What::GaveUp | What::Granted(_));
            asked > 0 && events.iter().filter(ended).count() == asked
        };
        self.contenders.iter().all(are_all_answered)
    }

    #[track_caller]
    fn wait_for_load(&self) {
        for (process, contender) in self.contenders.iter().enumerate() {
            contender.has_said(&format!("done load {}", process * 100));
        }
    }

    /// Does `what` again and again while the load goes on, after `pause` grants each time.
    #[track_caller]
    fn while_loaded(&mut self, every: usize, mut what: impl FnMut(&mut Self)) -> usize {
        let mut times = 0;
        while !self.is_load_done() {
            let before = self.grants();
            what(self);
            times += 1;
            eventually("the load goes on", || {
                (self.grants() >= before + every || self.is_load_done()).then_some(())
            });
        }
        times
    }

    /// Kills all connections, and returns how many.
    fn kill_connections(&self) -> u64 {
        let mut connection = self.server.connection();
        // A connection that subscribed to a channel has another type.
        let mut kill = |kind: &str| -> u64 {
            let mut kill = redis::cmd("CLIENT");
            kill.arg("KILL").arg("TYPE").arg(kind).arg("SKIPME").arg("yes");
            kill.query(&mut connection).expect("it kills")
        };
        kill("normal") + kill("pubsub")
    }

    fn history(&self) -> History {
        let seen = self.contenders.iter().flat_map(Contender::events);
        seen.chain(self.notes.iter().cloned()).collect()
    }

    /// Returns when no key holds anything of any process.
    #[track_caller]
    fn wait_until_nothing_is_left(&self) {
        let mut last = Vec::new();
        eventually("nothing is left in Redis", || {
            // This ends what is due, and changes nothing else.
            let _ = pollster::block_on(self.observer.named(NAME).open());
            let left = leftovers(&self.server, NAMESPACE);
            if left != last {
                println!("left in Redis: {left:?}");
                last.clone_from(&left);
            }
            left.is_empty().then_some(())
        });
    }

    /// Checks the history, that nothing is left, and that every grant ended in one way. The processes are gone after
    /// this.
    #[track_caller]
    fn check_at_the_end(&mut self) -> Vec<Hold> {
        self.wait_until_nothing_is_left();
        let stats = pollster::block_on(self.semaphore().stats()).expect("it answers");
        let totals = &stats.totals;
        let ended = totals.released + totals.expired + totals.evicted + totals.handed_on;
        assert_eq!(totals.granted, ended + stats.holders as u64, "every grant ends once: {totals:?}");
        // Then all their output was read.
        self.contenders.iter_mut().for_each(Contender::kill);
        let history = self.history();
        if let Err(contradiction) = history.check(self.slots) {
            panic!("{contradiction}");
        }
        history.holds().expect("it was checked")
    }
}

/// With quick retries, and enough time for an answer on a busy machine.
fn with_long_timeouts(url: &str) -> String {
    format!("{url}?{RETRIES}&socket_timeout=5")
}

/// The same, but a missing answer is noticed soon.
fn with_short_timeouts(url: &str) -> String {
    format!("{url}?{RETRIES}&socket_timeout=0.3")
}

fn order_of_grants(holds: &[Hold]) -> Vec<u64> {
    let mut granted: Vec<_> =
        holds.iter().filter_map(|hold| Some((hold.granted()?.1.token, hold.by()))).collect();
    granted.sort_unstable();
    granted.into_iter().map(|(_, by)| by).collect()
}

fn losses(holds: &[Hold]) -> Vec<(u64, &str)> {
    holds.iter().filter_map(|hold| Some((hold.by(), hold.lost_as()?))).collect()
}

/// The one hold of a contestant.
fn hold_of(holds: &[Hold], by: u64) -> &Hold {
    holds.iter().find(|hold| hold.by() == by).expect("it asked")
}

/// Four processes, six tasks in each, weights from 1 to 3: never more than 3 slots are held at once, each slot number
/// by one at a time; waiters get their slots in the order of the server's line; all are served; nothing is left.
#[test]
fn many_processes_share_one_bound_and_one_line() {
    let mut contest = Contest::new(3, 4);
    let expected = contest.load(6, 25, "heaviest=3");
    let mut snapshots = Vec::new();
    contest.while_loaded(1, |contest| snapshots.push(contest.line()));
    contest.wait_for_load();
    let holds = contest.check_at_the_end();
    assert_eq!(holds.iter().filter(|hold| hold.granted().is_some()).count() as u64, expected);
    assert_eq!(losses(&holds), []);

    let mut tokens = HashMap::new();
    let mut rounds: HashMap<u64, u32> = HashMap::new();
    for hold in &holds {
        let round = rounds.entry(hold.by()).or_default();
        tokens.insert(format!("{}.{round}", hold.by()), hold.granted().expect("all were served").1.token);
        *round += 1;
    }
    let longest = snapshots.iter().map(Vec::len).max();
    assert!(longest > Some(1), "a line was seen");
    for line in snapshots {
        let served: Vec<_> = line.iter().map(|label| tokens[label]).collect();
        assert!(served.is_sorted(), "{line:?} were served in another order: {served:?}");
    }
}

/// Waiters are served in their order of arrival, for any process and weight. Here they arrive one after the other.
#[test]
fn processes_are_served_in_order_of_arrival() {
    let mut contest = Contest::new(3, 3);
    contest.gets(0, 0, "weight=3");
    let weights = [1, 3, 2, 1, 2, 3, 1, 1, 1];
    for (by, weight) in (1..).zip(weights) {
        contest.stands_in_line(by as usize % 3, by, &format!("weight={weight}"));
    }
    let labels: Vec<_> = (1..=9).map(|by| format!("{by}.0")).collect();
    assert_eq!(contest.line(), labels);
    for by in 0..=9 {
        contest.granted(by as usize % 3, by);
        contest.release(by as usize % 3, by);
    }
    let holds = contest.check_at_the_end();
    assert_eq!(order_of_grants(&holds), Vec::from_iter(0..=9));
}

/// A holder is killed with -9. Its slot goes to the next waiter when its heartbeat interval is over, and not before.
#[test]
fn killed_holder_loses_its_slot_after_its_heartbeat_interval() {
    let mut contest = Contest::new(1, 2);
    let grant = contest.gets(0, 0, SHORT_HEARTBEAT);
    contest.stands_in_line(1, 1, "");
    contest.kill_holder(0, 0, "semaphore_main", &grant.id);
    contest.granted(1, 1);
    contest.release(1, 1);
    contest.check_at_the_end();
}

/// The same with a slot that has a shorter `ttl`: the end of its lease counts. Detached or not.
#[test]
fn killed_holder_with_a_ttl_keeps_its_slot_until_its_lease_ends() {
    for is_detached in [false, true] {
        let mut contest = Contest::new(1, 2);
        let grant = contest.gets(0, 0, "ttl=1");
        if is_detached {
            contest.contenders[0].order("detach 0");
            contest.contenders[0].has_said(&format!("done detach {}", grant.id));
        }
        contest.stands_in_line(1, 1, "");
        contest.kill_holder(0, 0, "semaphore_ttl", &grant.id);
        contest.granted(1, 1);
        contest.release(1, 1);
        contest.check_at_the_end();
    }
}

/// A detached slot stays held as long as its process lives and its lease lasts. Then it goes to the next waiter.
#[test]
fn detached_slot_ends_with_its_lease() {
    let mut contest = Contest::new(1, 2);
    let grant = contest.gets(0, 0, "ttl=1.5 hb=1");
    contest.contenders[0].order("detach 0");
    contest.stands_in_line(1, 1, "");
    let at = contest.deadline("semaphore_ttl", &grant.id);
    contest.notes.push(Event { at, by: 0, what: What::Ended(grant.id) });
    contest.granted(1, 1);
    contest.release(1, 1);
    contest.check_at_the_end();
}

/// A waiter is killed with -9. It is passed over once its heartbeat interval is over, and the next is served.
#[test]
fn a_killed_waiter_is_passed_over() {
    let mut contest = Contest::new(1, 3);
    contest.gets(0, 0, "");
    contest.stands_in_line(1, 1, SHORT_HEARTBEAT);
    contest.stands_in_line(2, 2, "");
    contest.kill_waiter(1, 1);
    contest.is_in_line(1, false);
    contest.release(0, 0);
    contest.granted(2, 2);
    contest.release(2, 2);
    contest.check_at_the_end();
}

/// A waiter dies at the moment its slot is granted, and never sees the grant. The slot goes to the next waiter when the
/// grace for this is over: 10 seconds, or its heartbeat interval if that is shorter.
#[test]
fn a_slot_granted_to_a_dead_waiter_moves_on() {
    for heartbeat in ["hb=1", "hb=180"] {
        let mut contest = Contest::new(1, 3);
        contest.gets(0, 0, "");
        contest.stands_in_line(1, 1, heartbeat);
        contest.stands_in_line(2, 2, "");
        contest.contenders[1].pause();
        contest.release(0, 0);
        contest.is_in_line(1, false);
        contest.kill_waiter(1, 1);
        // Sooner than the time limit of any wait here.
        contest.granted(2, 2);
        contest.release(2, 2);
        contest.check_at_the_end();
    }
}

/// A holder is stopped for longer than its heartbeat interval: the next waiter gets its slot. When it continues, it is
/// notified that it has lost the slot, and its release does not affect the new holder.
///
/// Until it is notified it may count on the slot: that is what fencing tokens are for, and the new holder's is higher.
#[test]
fn a_holder_that_was_stopped_too_long_has_lost_its_slot() {
    let mut contest = Contest::new(1, 3);
    contest.gets(0, 0, SHORT_HEARTBEAT);
    contest.stands_in_line(1, 1, "");
    contest.note(NO_CONTESTANT, What::Disturbed);
    contest.contenders[0].pause();
    contest.granted(1, 1);
    contest.stands_in_line(2, 2, "");
    contest.contenders[0].resume();
    let why = contest.lost(0, 0);
    assert!(matches!(&*why, "vanished" | "out-of-touch"), "{why}");
    contest.release(0, 0);
    contest.contenders[0].has_said("done release 0");
    // The third would get it now.
    assert_eq!(contest.line(), ["2.0"]);
    contest.release(1, 1);
    contest.granted(2, 2);
    contest.release(2, 2);
    let holds = contest.check_at_the_end();
    assert_eq!(order_of_grants(&holds), [0, 1, 2]);
    assert_eq!(losses(&holds), [(0, &*why)]);
}

/// A waiter is stopped for longer than its heartbeat interval, so that it is no longer in line. When it continues, it
/// returns to its place.
#[test]
fn a_waiter_that_was_stopped_too_long_returns_to_its_place() {
    let mut contest = Contest::new(1, 3);
    contest.gets(0, 0, "");
    contest.stands_in_line(1, 1, SHORT_HEARTBEAT);
    contest.stands_in_line(2, 2, "");
    contest.contenders[1].pause();
    contest.is_in_line(1, false);
    contest.contenders[1].resume();
    contest.is_in_line(1, true);
    assert_eq!(contest.line(), ["1.0", "2.0"]);
    for by in [0, 1, 2] {
        contest.granted(by as usize, by);
        contest.release(by as usize, by);
    }
    let holds = contest.check_at_the_end();
    assert_eq!(order_of_grants(&holds), [0, 1, 2]);
    assert_eq!(losses(&holds), []);
}

/// A waiter is granted its slot while it is stopped, and is stopped for so long that the slot goes to the next. When it
/// continues, it does not use that grant: it returns to the line, and is served in the end.
#[test]
fn waiter_ignores_an_outdated_grant_from_while_it_was_stopped() {
    let mut contest = Contest::new(1, 3);
    contest.gets(0, 0, "");
    contest.ask(1, 1, SHORT_HEARTBEAT);
    contest.is_in_line(1, true);
    contest.stands_in_line(2, 2, "");
    contest.contenders[1].pause();
    contest.release(0, 0);
    contest.granted(2, 2);
    contest.contenders[1].resume();
    contest.is_in_line(1, true);
    contest.release(2, 2);
    contest.granted(1, 1);
    contest.release(1, 1);
    let holds = contest.check_at_the_end();
    assert_eq!(order_of_grants(&holds), [0, 2, 1]);
    assert_eq!(losses(&holds), []);
}

/// A process is killed with -9 under load, while it holds some slots and waits for others. The other processes wait for
/// its slots until its heartbeat interval is over, and are all served then.
#[test]
fn load_continues_after_one_process_is_killed() {
    let mut contest = Contest::new(3, 3);
    contest.load(4, 60, "heaviest=2 hb=1");
    contest.grants_reach(30);
    contest.contenders[0].kill();
    contest.record_ends_of_killed_process(0);
    for process in [1, 2] {
        contest.contenders[process].has_said(&format!("done load {}", process * 100));
    }
    let holds = contest.check_at_the_end();
    let of_survivors = holds.iter().filter(|hold| hold.by() >= 100);
    assert_eq!(of_survivors.filter(|hold| hold.granted().is_some()).count(), 2 * 4 * 60);
}

/// A process is repeatedly stopped under load for longer than the heartbeat interval. Its slots may have other holders
/// before it is notified; for everything else the bound holds, and all requests are served, those of the stopped
/// process included.
#[test]
fn load_continues_while_one_process_is_stopped_and_resumed() {
    let mut contest = Contest::new(3, 3);
    let expected = contest.load(4, 60, "heaviest=2 hb=1 drops=0");
    for grants in [50, 150, 250] {
        contest.grants_reach(grants);
        contest.note(NO_CONTESTANT, What::Disturbed);
        contest.contenders[0].pause();
        let pid = contest.contenders[0].pid();
        eventually("nothing is left of the stopped one", || {
            let semaphore = contest.semaphore();
            let holders = pollster::block_on(semaphore.holders()).unwrap();
            let waiters = pollster::block_on(semaphore.waiters()).unwrap();
            let mut pids =
                holders.iter().map(|holder| holder.pid).chain(waiters.iter().map(|waiter| waiter.pid));
            pids.all(|found| found != Some(pid)).then_some(())
        });
        contest.contenders[0].resume();
    }
    contest.wait_for_load();
    let holds = contest.check_at_the_end();
    assert_eq!(holds.iter().filter(|hold| hold.granted().is_some()).count() as u64, expected);
}

/// All connections are killed again and again: no holder loses its slot, no more slots are held than there are, all are
/// served.
#[test]
fn killed_connections_are_not_noticed_by_holders_and_waiters() {
    let mut contest = Contest::new(2, 3);
    let expected = contest.load(4, 60, "heaviest=2");
    let mut killed = 0;
    contest.while_loaded(20, |contest| killed += contest.kill_connections());
    contest.wait_for_load();
    assert!(killed > 3, "{killed} connections were killed");
    let holds = contest.check_at_the_end();
    assert_eq!(holds.iter().filter(|hold| hold.granted().is_some()).count() as u64, expected);
    assert_eq!(losses(&holds), []);
}

/// Redis is killed with -9 and comes up again with its saved data, which is everything that it had answered. No holder
/// loses its slot, no more slots are held than there are, all requests are served.
#[test]
fn a_restart_of_a_durable_server_is_survived() {
    let server = RedisServer::with(&[("appendonly", "yes"), ("appendfsync", "always")]);
    let mut contest = Contest::on(server, 2, 3);
    let expected = contest.load(4, 60, "heaviest=2");
    let restarts = contest.while_loaded(60, |contest| {
        contest.server.kill();
        contest.server.start_again();
    });
    contest.wait_for_load();
    assert!(restarts > 1);
    let holds = contest.check_at_the_end();
    assert_eq!(holds.iter().filter(|hold| hold.granted().is_some()).count() as u64, expected);
    assert_eq!(losses(&holds), []);
}

/// Redis is paused for longer than the heartbeat interval. Holders are notified that they may have lost their slots
/// before it continues, and so before it can grant them to others.
#[test]
fn holders_are_notified_while_the_server_is_paused() {
    let mut contest = Contest::new(1, 2);
    contest.gets(0, 0, SHORT_HEARTBEAT);
    contest.stands_in_line(1, 1, "");
    contest.server.pause();
    assert_eq!(contest.lost(0, 0), "out-of-touch");
    contest.server.resume();
    // It need not release anything: the server ends the grant because its heartbeat is missing.
    contest.granted(1, 1);
    contest.release(1, 1);
    contest.release(0, 0);
    let holds = contest.check_at_the_end();
    assert_eq!(losses(&holds), [(0, "out-of-touch")]);
}

/// Acquires time out while the server is paused: they fail in time, that is before it continues. When it continues,
/// nothing of them is left.
#[test]
fn acquires_that_time_out_while_the_server_is_paused_leave_nothing() {
    let mut contest = Contest::new(1, 2);
    contest.gets(0, 0, "");
    contest.server.pause();
    for by in 1..=20 {
        contest.ask(by as usize % 2, by, "timeout=0.2");
    }
    for by in 1..=20 {
        contest.contenders[by as usize % 2].shows(&format!("contestant {by} gives up"), |event| {
            (event.by == by && event.what == What::GaveUp).then_some(())
        });
    }
    contest.server.resume();
    contest.release(0, 0);
    contest.check_at_the_end();
}

/// A holder loses its connection to a server that keeps running. It is notified before its slot is granted again, which
/// happens as soon as its heartbeat interval is over.
#[test]
fn holder_without_a_connection_is_notified_before_its_slot_is_granted_again() {
    let mut contest = Contest::new(1, 1);
    let proxy = Proxy::to(contest.server.port());
    let cut_off = contest.join(&with_short_timeouts(&proxy.url()));
    // Notified a tenth of the interval ahead: a busy machine may be that late.
    contest.gets(cut_off, 0, "hb=3");
    contest.stands_in_line(0, 1, "");
    proxy.swallow_requests();
    contest.granted(0, 1);
    assert_eq!(contest.lost(cut_off, 0), "out-of-touch");
    proxy.forward();
    contest.release(cut_off, 0);
    contest.contenders[cut_off].has_said("done release 0");
    contest.release(0, 1);
    // Without a disturbance, the loss must come before the grant in the history.
    let holds = contest.check_at_the_end();
    assert_eq!(losses(&holds), [(0, "out-of-touch")]);
}

/// The server loses all data. Holders are notified that their slots are lost, without waiting for a heartbeat interval,
/// and waiters return to the line.
#[test]
fn flush_notifies_holders_and_waiters_keep_waiting() {
    let mut contest = Contest::new(2, 3);
    for by in [0, 1] {
        contest.gets(by as usize, by, "hb=180");
    }
    for by in [2, 3] {
        contest.ask(by as usize % 3, by, "hb=180");
        contest.is_in_line(by, true);
    }
    contest.note(NO_CONTESTANT, What::Disturbed);
    contest.server.command(&["FLUSHALL"]);
    for by in [0, 1] {
        assert_eq!(contest.lost(by as usize, by), "vanished");
        contest.release(by as usize, by);
    }
    for by in [2, 3] {
        contest.granted(by as usize % 3, by);
        contest.release(by as usize % 3, by);
    }
    let holds = contest.check_at_the_end();
    assert_eq!(losses(&holds), [(0, "vanished"), (1, "vanished")]);
}

/// The same without waiters: when the holders have ended, the server has no trace of them, and no key without an
/// expiry.
#[test]
fn a_flush_that_only_holders_see_leaves_nothing() {
    let mut contest = Contest::new(2, 1);
    for by in [0, 1] {
        contest.gets(0, by, "");
    }
    contest.note(NO_CONTESTANT, What::Disturbed);
    contest.server.command(&["FLUSHALL"]);
    for by in [0, 1] {
        assert_eq!(contest.lost(0, by), "vanished");
        contest.release(0, by);
        contest.contenders[0].has_said(&format!("done release {by}"));
    }
    contest.check_at_the_end();
}

/// The same repeatedly under load. A holder from before a flush may have lost its slot since, and learns of it by
/// `lost()`, or when it releases. For all others the bound holds, and all requests are served.
#[test]
fn the_bound_holds_for_whatever_is_granted_after_a_flush() {
    let mut contest = Contest::new(2, 3);
    let expected = contest.load(4, 60, "heaviest=2 drops=0");
    let flushes = contest.while_loaded(40, |contest| {
        contest.note(NO_CONTESTANT, What::Disturbed);
        contest.server.command(&["FLUSHALL"]);
    });
    contest.wait_for_load();
    assert!(flushes > 1);
    let holds = contest.check_at_the_end();
    assert_eq!(holds.iter().filter(|hold| hold.granted().is_some()).count() as u64, expected);
    assert!(
        losses(&holds).iter().all(|(_, why)| matches!(*why, "vanished" | "released")),
        "{:?}",
        losses(&holds)
    );
}

/// The server repeatedly loses its cached scripts, without any effect on clients.
#[test]
fn flushed_scripts_are_not_noticed() {
    let mut contest = Contest::new(2, 3);
    let expected = contest.load(4, 60, "heaviest=2");
    let flushes = contest.while_loaded(5, |contest| drop(contest.server.command(&["SCRIPT", "FLUSH"])));
    contest.wait_for_load();
    assert!(flushes > 1);
    let holds = contest.check_at_the_end();
    assert_eq!(holds.iter().filter(|hold| hold.granted().is_some()).count() as u64, expected);
    assert_eq!(losses(&holds), []);
}

/// How a request and its answer can be lost on the way.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// The connection breaks after the request was executed.
    CutAfter,
    /// The connection breaks before that.
    CutBefore,
    /// The request is executed, and the answer is lost.
    NoReply,
    /// The request is lost.
    NoRequest,
}

const FAULTS: [Fault; 4] = [Fault::CutAfter, Fault::CutBefore, Fault::NoReply, Fault::NoRequest];

impl Fault {
    /// Sets it up for the next request with these words in it; or, where the proxy cannot select, for the next request.
    fn set_up(self, proxy: &Proxy, words: &str) {
        match self {
            Self::CutAfter => proxy.cut_after_request(words),
            Self::CutBefore => proxy.cut_before_request(words),
            Self::NoReply => proxy.swallow_replies(),
            Self::NoRequest => proxy.swallow_requests(),
        }
    }

    /// Returns when it has happened. The proxy keeps swallowing.
    #[track_caller]
    fn wait_until_it_happened(self, proxy: &Proxy) {
        match self {
            Self::CutAfter | Self::CutBefore => proxy.wait_until_cut(),
            Self::NoReply | Self::NoRequest => proxy.wait_until_swallowed(),
        }
    }

    /// Returns when it has happened and the proxy forwards again.
    #[track_caller]
    fn wait_and_recover(self, proxy: &Proxy) {
        self.wait_until_it_happened(proxy);
        proxy.forward();
    }
}

/// A contest with one process behind a proxy (0) and one without (1), on a server that knows the scripts.
fn behind_proxy(slots: u32) -> (Contest, Proxy) {
    let mut contest = Contest::new(slots, 0);
    let proxy = Proxy::to(contest.server.port());
    contest.join(&with_short_timeouts(&proxy.url()));
    contest.join(&with_long_timeouts(&contest.server.url()));
    contest.gets(1, 90, &format!("weight={slots}"));
    contest.stands_in_line(1, 91, "");
    contest.release(1, 90);
    contest.granted(1, 91);
    contest.release(1, 91);
    contest.contenders[1].has_said("done release 91");
    (contest, proxy)
}

/// An acquire that finds a free slot is lost on the way, there or back. It is repeated, and gets one slot, not two.
#[test]
fn a_lost_acquire_is_repeated_and_counts_once() {
    for fault in FAULTS {
        println!("{fault:?}");
        let (mut contest, proxy) = behind_proxy(2);
        fault.set_up(&proxy, "EVALSHA");
        contest.ask(0, 0, "");
        fault.wait_and_recover(&proxy);
        contest.granted(0, 0);
        let stats = pollster::block_on(contest.semaphore().stats()).unwrap();
        assert_eq!((stats.held, stats.holders, stats.waiting), (1, 1, 0));
        assert_eq!(stats.totals.granted, 3, "two before, one now");
        contest.release(0, 0);
        assert_eq!(losses(&contest.check_at_the_end()), []);
    }
}

/// An acquire that finds no free slot is lost on the way. It is repeated, is in line once, and has the place of its
/// first attempt.
#[test]
fn a_lost_place_in_line_is_found_again() {
    for fault in FAULTS {
        println!("{fault:?}");
        let (mut contest, proxy) = behind_proxy(1);
        contest.gets(1, 1, "");
        fault.set_up(&proxy, "EVALSHA");
        contest.ask(0, 0, "");
        if matches!(fault, Fault::CutAfter | Fault::NoReply) {
            contest.is_in_line(0, true);
            contest.stands_in_line(1, 2, "");
        }
        fault.wait_and_recover(&proxy);
        contest.is_in_line(0, true);
        if matches!(fault, Fault::CutBefore | Fault::NoRequest) {
            contest.stands_in_line(1, 2, "");
        }
        assert_eq!(contest.line(), ["0.0", "2.0"]);
        for (process, by) in [(1, 1), (0, 0), (1, 2)] {
            contest.granted(process, by);
            contest.release(process, by);
        }
        let holds = contest.check_at_the_end();
        assert_eq!(order_of_grants(&holds), [90, 91, 1, 0, 2]);
        assert_eq!(losses(&holds), []);
    }
}

/// A release is lost on the way. It is repeated; its slot is released once, and the release succeeds.
#[test]
fn a_lost_release_is_repeated_and_counts_once() {
    for fault in FAULTS {
        println!("{fault:?}");
        let (mut contest, proxy) = behind_proxy(2);
        contest.gets(0, 0, "");
        contest.gets(1, 1, "");
        fault.set_up(&proxy, "released");
        contest.release(0, 0);
        fault.wait_and_recover(&proxy);
        contest.contenders[0].has_said("done release 0");
        let stats = pollster::block_on(contest.semaphore().stats()).unwrap();
        assert_eq!((stats.held, stats.totals.granted, stats.totals.released), (1, 4, 3));
        contest.release(1, 1);
        assert_eq!(losses(&contest.check_at_the_end()), []);
    }
}

/// Heartbeats of a holder and of a waiter are lost on the way. Others follow, and neither is taken for dead.
#[test]
fn lost_heartbeats_are_replaced_by_the_next() {
    for fault in FAULTS {
        println!("{fault:?}");
        let (mut contest, proxy) = behind_proxy(1);
        // Five times in this, and the next one is in time as well.
        contest.gets(0, 0, "hb=4");
        contest.stands_in_line(0, 1, "hb=4");
        for _ in 0..2 {
            fault.set_up(&proxy, "EVALSHA");
            fault.wait_and_recover(&proxy);
        }
        let (id, _) = (contest.granted(0, 0).id, ());
        let deadline = contest.deadline("semaphore_main", &id);
        eventually("a heartbeat comes through", || {
            (contest.deadline("semaphore_main", &id) > deadline).then_some(())
        });
        contest.release(0, 0);
        contest.granted(0, 1);
        contest.release(0, 1);
        let holds = contest.check_at_the_end();
        assert_eq!(order_of_grants(&holds), [90, 91, 0, 1]);
        assert_eq!(losses(&holds), []);
    }
}

/// A waiter's connection is dead when its slot is granted, so the message is lost. It learns of the grant on its next
/// connection, long before the grace is over.
#[test]
fn a_grant_whose_message_was_lost_is_found() {
    for fault in [Fault::NoReply, Fault::NoRequest] {
        println!("{fault:?}");
        let (mut contest, proxy) = behind_proxy(1);
        contest.gets(1, 1, "");
        contest.stands_in_line(0, 0, "hb=20");
        fault.set_up(&proxy, "");
        contest.release(1, 1);
        contest.is_in_line(0, false);
        fault.wait_and_recover(&proxy);
        contest.granted(0, 0);
        contest.release(0, 0);
        let holds = contest.check_at_the_end();
        assert_eq!(losses(&holds), []);
    }
}

/// An acquire is dropped while its request, or the answer to it, is lost. Nothing of it is left: no slot, no place in
/// line.
#[test]
fn an_acquire_dropped_while_the_server_is_silent_leaves_nothing() {
    for fault in FAULTS {
        for is_free in [true, false] {
            println!("{fault:?}, free: {is_free}");
            let (mut contest, proxy) = behind_proxy(1);
            if !is_free {
                contest.gets(1, 1, "");
            }
            fault.set_up(&proxy, "EVALSHA");
            contest.ask(0, 0, "");
            fault.wait_until_it_happened(&proxy);
            contest.contenders[0].order("drop 0");
            contest.contenders[0].shows("contestant 0 goes away", |event| {
                matches!(event.what, What::GaveUp | What::Ended(_)).then_some(())
            });
            proxy.forward();
            if !is_free {
                contest.is_in_line(0, false);
                contest.release(1, 1);
            }
            contest.check_at_the_end();
        }
    }
}

/// Acquires are dropped at random moments, before, while and after their slots are granted. They leave nothing behind,
/// and that at once: far sooner than the heartbeat interval of three minutes.
#[test]
fn acquires_dropped_at_random_moments_leave_nothing() {
    let mut contest = Contest::new(2, 3);
    contest.load(4, 100, "heaviest=2 drop_after=50 hb=180");
    contest.wait_for_load();
    let holds = contest.check_at_the_end();
    assert_eq!(losses(&holds), []);
    let dropped = holds.iter().filter(|hold| hold.granted().is_none()).count();
    assert!(dropped > 0 && dropped < holds.len(), "{dropped} of {} were dropped", holds.len());
}

/// The same while connections are killed: the request and its release go over different connections.
#[test]
fn acquires_dropped_while_connections_are_killed_leave_nothing() {
    let mut contest = Contest::new(2, 3);
    contest.load(4, 100, "heaviest=2 drop_after=50 hb=180");
    contest.while_loaded(10, |contest| _ = contest.kill_connections());
    contest.wait_for_load();
    assert_eq!(losses(&contest.check_at_the_end()), []);
}

/// A process ends its runtime while some of its tasks hold slots and others wait. The process continues, and yet
/// everything is released at once.
#[test]
fn runtime_that_ends_releases_everything() {
    let mut contest = Contest::new(2, 2);
    contest.gets(0, 0, "hb=180");
    contest.gets(1, 1, "hb=180");
    for by in [2, 3, 4] {
        contest.stands_in_line(by as usize % 2, by, "hb=180");
    }
    contest.contenders[0].order("shutdown");
    contest.contenders[0].has_said("done shutdown");
    contest.granted(1, 3);
    contest.release(1, 1);
    contest.release(1, 3);
    let holds = contest.check_at_the_end();
    assert_eq!(order_of_grants(&holds), [0, 1, 3]);
}

/// A task panics while it holds a slot: the slot is released at once.
#[test]
fn panic_releases_the_slot() {
    let mut contest = Contest::new(1, 2);
    contest.gets(0, 0, "hb=180");
    contest.stands_in_line(1, 1, "hb=180");
    contest.contenders[0].order("panic 0");
    contest.granted(1, 1);
    contest.release(1, 1);
    contest.check_at_the_end();
}

/// A process ends right after it has dropped its permits and requests: everything is released at once.
#[test]
fn process_that_ends_releases_everything() {
    let mut contest = Contest::new(1, 2);
    contest.gets(0, 0, "hb=180");
    contest.stands_in_line(0, 1, "hb=180");
    contest.stands_in_line(1, 2, "hb=180");
    contest.contenders[0].order("quit");
    contest.contenders[0].wait();
    contest.granted(1, 2);
    contest.release(1, 2);
    let holds = contest.check_at_the_end();
    assert_eq!(order_of_grants(&holds), [0, 2]);
    assert!(hold_of(&holds, 1).granted().is_none());
}

/// A process returns from `main` under load. Its permits and requests are released at once, and the others continue.
#[test]
fn process_that_ends_under_load_releases_everything() {
    let mut contest = Contest::new(3, 3);
    contest.load(4, 60, "heaviest=2 hb=180");
    contest.grants_reach(60);
    for process in [0, 1] {
        contest.contenders[process].order("quit");
        contest.contenders[process].wait();
    }
    contest.contenders[2].has_said("done load 200");
    let holds = contest.check_at_the_end();
    let of_survivors = holds.iter().filter(|hold| hold.by() >= 200);
    assert_eq!(of_survivors.filter(|hold| hold.granted().is_some()).count(), 4 * 60);
    assert_eq!(losses(&holds), []);
}
