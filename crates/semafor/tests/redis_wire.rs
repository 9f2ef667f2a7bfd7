//! The wire contract: processes that use the Python library `asyncio-advanced-semaphores` share semaphores with ours.
//!
//! Each scenario always runs with a [recording](wire) of the library; and then with the library itself, if
//! `SEMAFOR_WIRE_PYTHON` names an interpreter that has it. `cargo xtask test` sets that variable, or prints why it does
//! not. If it is set, an interpreter that does not work is a failure.

mod wire;

use std::sync::Arc;
use std::time::Duration;

use semafor::{AcquireError, BuildError, Home, Loss, NotHeld, Permit, ReleaseError, Semaphore, StatsQuery};
use semafor_testkit::by_hand::{in_line, until};
use semafor_testkit::history::now as stamp;
use semafor_testkit::redis::{Keyspace, Monitor, Observed, RedisServer, until_seen};

use wire::{Contender, Peer, PeerKind};

macro_rules! scenarios {
    ($($scenario:ident),* $(,)?) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $scenario() {
            for kind_of_peer in PeerKind::all() {
                println!("{}, with the {kind_of_peer:?}", stringify!($scenario));
                scenario::$scenario(Fixture::set(kind_of_peer).await).await;
            }
        }
    )* };
}

scenarios! {
    the_library_does_what_was_recorded,
    keys_have_the_documented_types_and_scores,
    an_expiry_is_only_ever_extended,
    mixed_clients_never_hold_more_than_the_slots,
    our_release_serves_a_waiter_of_theirs,
    their_release_serves_a_waiter_of_ours_before_the_next_heartbeat,
    their_release_is_noticed_even_if_they_got_the_slot_while_we_waited,
    a_waiter_of_theirs_that_gives_up_is_passed_over,
    a_holder_of_theirs_that_expires_makes_room_for_ours,
    a_waiter_of_ours_may_be_served_by_their_script,
    holder_of_ours_that_their_script_removes_as_dead_leaves_no_trace,
    both_libraries_share_one_line,
    each_side_sees_the_other_in_its_statistics,
    weight_is_collected_beside_python_clients,
    weight_is_collected_if_their_scripts_serve_it_in_parts,
    a_different_number_of_slots_is_reported,
    a_holder_of_theirs_can_be_evicted,
}

const NAME: &str = "shared";

/// The server, the home and the peers of a scenario.
struct Fixture {
    peer: Arc<Peer>,
    home: Home,
    keys: Keyspace,
    server: RedisServer,
}

impl Fixture {
    async fn set(kind_of_peer: PeerKind) -> Self {
        let server = RedisServer::start();
        let home = Home::connect(&server.url()).await.expect("it answers");
        let (keys, peer) = (Keyspace::of(&server, NAME), Peer::at(&server, kind_of_peer));
        Self { peer, home, keys, server }
    }

    fn semaphore(&self, slots: u32) -> Semaphore {
        self.home.named(NAME).slots(slots).build().expect("a valid name")
    }

    fn contender(&self, slots: u32) -> Contender {
        self.peer.contender(NAME, slots)
    }

    /// Puts a waiter of the Python library in line, and returns its id.
    async fn in_line(&self, contender: &Contender) -> String {
        let before = self.keys.members("waiting");
        contender.asks();
        until_seen("it is in line", || {
            self.keys.members("waiting").into_iter().find(|member| !before.contains(member))
        })
        .await
    }

    /// The last waiter in line.
    fn last_in_line(&self) -> String {
        self.keys.members("waiting").pop().expect("a waiter is in line")
    }

    /// Repeats `play` until it ran once without a heartbeat of ours in between, so that no heartbeat caused the
    /// outcome.
    async fn without_heartbeat(&self, what: &str, mut play: impl AsyncFnMut(&Semaphore)) {
        let bystanders = self.home.named("bystanders").slots(1).build().expect("a valid name");
        let _held = bystanders.acquire().await.expect("it is free");
        let _waits = in_line(&bystanders, bystanders.acquire()).await;
        let keys = Keyspace::of(&self.server, "bystanders");
        let id = keys.members("waiting").remove(0);
        let semaphore = self.semaphore(1);
        for _ in 0..6 {
            let before = keys.score("waiting_heartbeat", &id);
            play(&semaphore).await;
            if keys.score("waiting_heartbeat", &id) == before {
                return;
            }
        }
        panic!("{what}: but only with a heartbeat");
    }
}

/// Makes so many round trips to the server that a waiter that has just joined the line has done all its work on the
/// same connection.
async fn settle(semaphore: &Semaphore) {
    for _ in 0..10 {
        semaphore.stats().await.expect("the home answers");
    }
}

/// The script that pushed to a waiter's list, or the push itself if it was in no script.
fn server_of<'a>(observed: &'a [Observed], list: &str) -> &'a Observed {
    let push = observed.iter().position(|observed| observed.is("RPUSH", list)).expect("it was served");
    match &*observed[push].by {
        "lua" => observed[..push].iter().rfind(|observed| observed.is_script()).expect("a script did it"),
        _ => &observed[push],
    }
}

/// Ours take more keys than theirs.
fn is_ours(observed: &Observed) -> bool {
    observed.is_script() && observed.words[2].parse::<u32>().is_ok_and(|keys| keys > 5)
}

/// How many slots a peer held, and when.
#[derive(Clone, Copy)]
struct Held {
    since: u64,
    until: u64,
    weight: u32,
}

/// The most slots held at once.
fn peak(history: &[Held]) -> u32 {
    let mut changes: Vec<(u64, i64)> = Vec::new();
    for held in history {
        assert!(held.since <= held.until);
        changes.push((held.since, held.weight.into()));
        changes.push((held.until, -i64::from(held.weight)));
    }
    // Of an end and a begin at the same moment, the end comes first.
    changes.sort_unstable();
    let mut now = 0;
    let levels = changes.into_iter().map(|(_, change)| {
        now += change;
        now
    });
    u32::try_from(levels.max().expect("something was held")).expect("nothing ends twice")
}

/// Acquires and releases `rounds` times.
async fn contend(semaphore: Semaphore, weight: u32, rounds: u32) -> Vec<Held> {
    let mut history = Vec::new();
    for _ in 0..rounds {
        let permit = semaphore.acquire().weight(weight).await.expect("its turn comes");
        let since = stamp();
        tokio::task::yield_now().await;
        assert!(!permit.is_lost());
        history.push(Held { since, until: stamp(), weight });
        permit.release().await.expect("it is held");
    }
    history
}

async fn contend_as_peer(mut contender: Contender, rounds: u32) -> Vec<Held> {
    let mut history = Vec::new();
    for _ in 0..rounds {
        let since = contender.acquires().await.since;
        history.push(Held { since, until: contender.releases().await, weight: 1 });
    }
    history
}

fn id_of(permit: &Permit<'_>) -> String {
    permit.id().to_string()
}

mod scenario {
    use super::*;

    /// The commands of the library's scripts, with blanks for the parts that vary, equal the recording.
    pub(super) async fn the_library_does_what_was_recorded(fixture: Fixture) {
        let monitor = Monitor::of(&fixture.server);
        let mut recorded = String::new();
        for has_ttl in [false, true] {
            let contender = fixture.contender(1);
            let mut contender = if has_ttl { contender.with_ttl() } else { contender };
            let id = contender.acquires().await.id;
            let acquired = monitor.so_far(&fixture.server);
            fixture.peer.stats(NAME).await;
            let asked = monitor.so_far(&fixture.server);
            contender.releases().await;
            let released = monitor.so_far(&fixture.server);

            let ttl = if has_ttl { format!(" ttl={}", wire::TTL) } else { String::new() };
            let mut section = |script: &str, observed: &[&Observed]| {
                recorded += &format!("[{script}{ttl}]\n");
                for observed in observed {
                    recorded += &(with_blanks(observed, &id) + "\n");
                }
            };
            let commands = |observed| Vec::from_iter(commands(observed));
            let acquired = commands(&acquired);
            let position = |command: &str| {
                acquired.iter().position(|observed| observed.words[0] == command).expect("it does that")
            };
            let (queued, served) = acquired.split_at(position("ZRANGEBYSCORE"));
            let confirmed = served.iter().position(|observed| observed.words.contains(&"XX".to_owned()));
            let (served, confirmed) = served.split_at(confirmed.expect("it confirms"));
            section("queue", queued);
            section("wake_up_nexts", served);
            section("acquire", confirmed);
            if !has_ttl {
                section("get_acquired_stats", &commands(&asked));
            }
            section("release", &commands(&released));
        }
        let expected = wire::RECORDING.split_once("\n\n").expect("a header, and the rest").1;
        assert!(recorded == expected, "what it does is not what was recorded, but:\n{recorded}");
    }

    /// The commands that read or write the semaphore's keys. Without scripts, transactions and waiting around them, and
    /// without heartbeats, which come at any time.
    fn commands(observed: &[Observed]) -> impl Iterator<Item = &Observed> {
        const AROUND: [&str; 6] = ["BLPOP", "WATCH", "UNWATCH", "ZCOUNT", "ZRANGE", "ECHO"];
        let mut is_heartbeat = false;
        observed.iter().filter(move |observed| {
            if observed.by != "lua" {
                let first_key = observed.words.get(3).filter(|_| observed.is_script());
                is_heartbeat = first_key.is_some_and(|key| key.contains(":semaphore_waiting:"))
                    && observed.words[2] == "3";
            }
            let is_about_keys = observed.words.get(1).is_some_and(|word| word.starts_with("adv-sem:"));
            is_about_keys && !is_heartbeat && !observed.is_script() && !AROUND.contains(&&*observed.words[0])
        })
    }

    fn with_blanks(observed: &Observed, id: &str) -> String {
        const SPANS: [f64; 4] = [0.0, 3.0, 180.0, 2_147_483_637.0];
        let blanked = observed.words.iter().map(|word| {
            if let Ok(time) = word.parse::<f64>()
                && word.contains('.')
            {
                let distance = |span: &&f64| (time - observed.at - **span).abs();
                let span = SPANS.iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap();
                assert!(distance(&span) < 1.5, "{word} is no time that is known");
                return if *span == 0.0 { "<now>".into() } else { format!("<now+{span}>") };
            }
            let word = if observed.words[0] == "SET" && word == "1" { "<slots>" } else { word };
            word.replace(id, "<id>").replace(NAME, "<name>")
        });
        Vec::from_iter(blanked).join(" ")
    }

    pub(super) async fn keys_have_the_documented_types_and_scores(fixture: Fixture) {
        let keys = &fixture.keys;
        let semaphore = fixture.semaphore(2);
        let mut theirs = fixture.contender(2);
        theirs.acquires().await;

        let before = keys.now();
        let held = semaphore.acquire().ttl(Duration::from_secs(60)).await.unwrap();
        let waits = in_line(&semaphore, semaphore.acquire()).await;
        let after = keys.now();
        let mut waits_too = fixture.contender(2);
        let their_place = fixture.in_line(&waits_too).await;

        let is_within = |score: Option<f64>, later: f64| {
            score.is_some_and(|score| (before + later..=after + later).contains(&score))
        };
        let (id, waiting) = (id_of(&held), keys.members("waiting").remove(0));
        for id in [&id, &waiting] {
            assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        }
        // A `ttl` that is shorter than the heartbeat interval counts instead, as in the library.
        assert!(is_within(keys.score("main", &id), 60.0));
        assert!(is_within(keys.score("ttl", &id), 60.0));
        assert!(is_within(keys.score("waiting", &waiting), 0.0));
        assert!(is_within(keys.score("waiting_heartbeat", &waiting), 180.0));
        assert_eq!(keys.members("waiting"), [waiting.clone(), their_place.clone()]);
        assert_eq!(keys.ask::<String>(&["GET", &keys.key("max")]), "2");
        for (kind, expected) in [
            ("main", "zset"),
            ("ttl", "zset"),
            ("max", "string"),
            ("waiting", "zset"),
            ("waiting_heartbeat", "zset"),
        ] {
            assert_eq!(keys.ask::<String>(&["TYPE", &keys.key(kind)]), expected, "{kind}");
        }

        let monitor = Monitor::of(&fixture.server);
        held.release().await.unwrap();
        let served = waits.outcome().await.unwrap();
        let list = keys.notification(&waiting);
        monitor.until("ours is served with a push to its list", |observed| observed.is("RPUSH", &list));
        assert_eq!(id_of(&served), waiting);
        assert_eq!(keys.score("ttl", &id), None);
        assert!(keys.score("main", &waiting).is_some());

        theirs.releases().await;
        assert_eq!(waits_too.granted().await.id, their_place);
        served.release().await.unwrap();
        waits_too.releases().await;
        until(&semaphore, |stats| stats.held == 0).await;
        assert_eq!(keys.notifications(), [""; 0]);
    }

    pub(super) async fn an_expiry_is_only_ever_extended(fixture: Fixture) {
        let keys = &fixture.keys;
        const KINDS: [&str; 5] = ["main", "ttl", "max", "waiting", "waiting_heartbeat"];
        let semaphore = fixture.semaphore(3);
        let held = semaphore.acquire().ttl(Duration::from_secs(1000)).await.unwrap();
        let other = semaphore.acquire().await.unwrap();

        // A Python client with a short `ttl` shortens the expiry for all clients. A heartbeat corrects that.
        let monitor = Monitor::of(&fixture.server);
        let mut shorter = fixture.contender(3).with_ttl();
        shorter.acquires().await;
        let observed = monitor.so_far(&fixture.server);
        for kind in ["main", "ttl"] {
            assert!(
                observed.iter().any(|observed| observed.words[..] == ["EXPIRE", &keys.key(kind), "13"]),
                "{kind}"
            );
        }
        let first = in_line(&semaphore, semaphore.acquire()).await;
        let _second = in_line(&semaphore, semaphore.acquire()).await;
        let _third = in_line(&semaphore, semaphore.acquire()).await;
        until_seen("all is kept for as long as it takes", || {
            let needed = |kind| if kind == "ttl" { 900_000 } else { 180_000 };
            KINDS.iter().all(|kind| keys.expires_in(kind) > needed(*kind)).then_some(())
        })
        .await;

        // From here on no slot is free that the Python scripts could grant: they would set expiries, too.
        shorter.releases().await;
        let _granted = first.outcome().await.unwrap();

        // A Python client without a `ttl` leaves a very long expiry. Our scripts do not shorten it.
        for kind in KINDS {
            keys.ask::<()>(&["EXPIRE", &keys.key(kind), "2147483647"]);
        }
        held.renew(Duration::from_secs(50)).await.unwrap();
        monitor.so_far(&fixture.server);
        let id = id_of(&other);
        monitor.until("a heartbeat comes by", |observed| is_ours(observed) && observed.words.contains(&id));
        held.release().await.unwrap();
        for kind in KINDS.into_iter().filter(|kind| *kind != "ttl") {
            assert!(keys.expires_in(kind) > 2_147_400_000_000, "{kind}: {}", keys.expires_in(kind));
        }
    }

    pub(super) async fn mixed_clients_never_hold_more_than_the_slots(fixture: Fixture) {
        const ROUNDS: u32 = 12;
        // Another configuration has a connection of its own, like another process.
        let other = format!("{}?max_connections=7", fixture.server.url());
        let other = Home::connect(&other).await.unwrap();
        let mut playing = tokio::task::JoinSet::new();
        for (home, weight) in [(&fixture.home, 1), (&fixture.home, 2), (&other, 1), (&other, 3)] {
            let semaphore = home.named(NAME).slots(3).build().unwrap();
            playing.spawn(contend(semaphore, weight, ROUNDS));
        }
        for _ in 0..4 {
            playing.spawn(contend_as_peer(fixture.contender(3), ROUNDS));
        }
        let history = playing.join_all().await.concat();
        assert_eq!(history.len(), 8 * ROUNDS as usize);
        assert_eq!(peak(&history), 3, "all slots were in use at some time, and never more");
        until(&fixture.semaphore(3), |stats| stats.held == 0 && stats.waiting == 0).await;
        assert_eq!(fixture.keys.members("ttl"), [""; 0]);
    }

    pub(super) async fn our_release_serves_a_waiter_of_theirs(fixture: Fixture) {
        let semaphore = fixture.semaphore(1);
        let held = semaphore.acquire().await.unwrap();
        let mut theirs = fixture.contender(1);
        let id = fixture.in_line(&theirs).await;
        let monitor = Monitor::of(&fixture.server);
        held.release().await.unwrap();
        assert_eq!(theirs.granted().await.id, id);
        let observed = monitor.so_far(&fixture.server);
        let by = server_of(&observed, &fixture.keys.notification(&id));
        assert!(is_ours(by), "not ours, but {by:?}");
        theirs.releases().await;
    }

    pub(super) async fn their_release_serves_a_waiter_of_ours_before_the_next_heartbeat(fixture: Fixture) {
        let play = async |semaphore: &Semaphore| {
            let mut theirs = fixture.contender(1);
            theirs.acquires().await;
            let waits = in_line(semaphore, semaphore.acquire()).await;
            settle(semaphore).await;
            theirs.releases().await;
            waits.outcome().await.unwrap().release().await.unwrap();
        };
        fixture.without_heartbeat("a release of theirs is noticed", play).await;
    }

    pub(super) async fn their_release_is_noticed_even_if_they_got_the_slot_while_we_waited(fixture: Fixture) {
        let play = async |semaphore: &Semaphore| {
            let held = semaphore.acquire().await.unwrap();
            let mut theirs = fixture.contender(1);
            fixture.in_line(&theirs).await;
            let first = in_line(semaphore, semaphore.acquire()).await;
            let second = in_line(semaphore, semaphore.acquire()).await;
            settle(semaphore).await;
            held.release().await.unwrap();
            theirs.granted().await;
            settle(semaphore).await;
            theirs.releases().await;
            first.outcome().await.unwrap().release().await.unwrap();
            second.outcome().await.unwrap().release().await.unwrap();
        };
        fixture.without_heartbeat("a release of theirs is noticed", play).await;
    }

    pub(super) async fn a_waiter_of_theirs_that_gives_up_is_passed_over(fixture: Fixture) {
        let play = async |semaphore: &Semaphore| {
            let held = semaphore.acquire().await.unwrap();
            let mut theirs = fixture.contender(1);
            fixture.in_line(&theirs).await;
            let waits = in_line(semaphore, semaphore.acquire()).await;
            theirs.gives_up().await;
            held.release().await.unwrap();
            waits.outcome().await.unwrap().release().await.unwrap();
        };
        fixture.without_heartbeat("the next one is served", play).await;
    }

    pub(super) async fn a_holder_of_theirs_that_expires_makes_room_for_ours(fixture: Fixture) {
        let semaphore = fixture.semaphore(1);
        let mut theirs = fixture.contender(1).with_ttl();
        let slot = theirs.acquires().await;
        let ends = fixture.keys.score("ttl", &slot.id).expect("it has a lease");
        let waits = in_line(&semaphore, semaphore.acquire()).await;
        let permit = waits.outcome().await.expect("it gets what has expired");
        assert!(fixture.keys.now() >= ends, "and not before");
        assert_eq!(fixture.keys.members("main"), [id_of(&permit)]);
        assert_eq!(fixture.keys.members("ttl"), [""; 0]);
        // It comes too late, and takes nothing from other holders.
        theirs.releases().await;
        assert_eq!(semaphore.stats().await.unwrap().held, 1);
        assert!(!permit.is_lost());
    }

    pub(super) async fn a_waiter_of_ours_may_be_served_by_their_script(fixture: Fixture) {
        let play = async |semaphore: &Semaphore| {
            let mut theirs = fixture.contender(1);
            theirs.acquires().await;
            let waits = in_line(semaphore, semaphore.acquire()).await;
            settle(semaphore).await;
            let id = fixture.last_in_line();
            let monitor = Monitor::of(&fixture.server);
            theirs.releases_and_serves().await;
            let permit = waits.outcome().await.expect("it was served");
            let observed = monitor.so_far(&fixture.server);
            let by = server_of(&observed, &fixture.keys.notification(&id));
            assert!(!is_ours(by), "not theirs, but {by:?}");

            // It is a holder like any other of ours.
            assert_eq!((id_of(&permit), permit.slot()), (id.clone(), 0));
            assert!(permit.fencing_token() > 0 && !permit.is_lost());
            let holders = semaphore.holders().await.unwrap();
            assert_eq!((holders.len(), holders[0].slot), (1, Some(0)));
            assert_eq!(fixture.keys.notifications(), [""; 0], "what was confirmed is not left to be popped");
            permit.release().await.unwrap();
        };
        fixture.without_heartbeat("it is told that it was served", play).await;
    }

    pub(super) async fn holder_of_ours_that_their_script_removes_as_dead_leaves_no_trace(fixture: Fixture) {
        let play = async |semaphore: &Semaphore| {
            let before = semaphore.stats().await.unwrap().totals.expired;
            let lost = semaphore.acquire().await.unwrap();
            fixture.keys.ask::<()>(&["ZREM", &fixture.keys.key("main"), &id_of(&lost)]);
            let mut theirs = fixture.contender(1);
            theirs.acquires().await;
            let released = lost.release().await;
            assert_eq!(released, Err(ReleaseError::NotHeld(NotHeld::Lost(Loss::Vanished))));
            assert_eq!(semaphore.stats().await.unwrap().totals.expired, before + 1);

            // It is not mistaken for the present holder, a Python client, whose release notifies no waiter.
            let waits = in_line(semaphore, semaphore.acquire()).await;
            settle(semaphore).await;
            theirs.releases().await;
            let permit = waits.outcome().await.unwrap();
            assert_eq!(permit.slot(), 0);
            permit.release().await.unwrap();
        };
        fixture.without_heartbeat("a release of theirs is noticed", play).await;
    }

    pub(super) async fn both_libraries_share_one_line(fixture: Fixture) {
        let semaphore = fixture.semaphore(1);
        let held = semaphore.acquire().await.unwrap();
        let mut first = fixture.contender(1);
        fixture.in_line(&first).await;
        let second = in_line(&semaphore, semaphore.acquire()).await;
        let mut third = fixture.contender(1);
        fixture.in_line(&third).await;
        let fourth = in_line(&semaphore, semaphore.acquire()).await;
        let line = fixture.keys.members("waiting");

        let holds = |id: &str| assert_eq!(fixture.keys.members("main"), [id], "in turn, and no other");
        held.release().await.unwrap();
        assert_eq!(first.granted().await.id, line[0]);
        holds(&line[0]);
        first.releases().await;
        let second = second.outcome().await.unwrap();
        assert_eq!(id_of(&second), line[1]);
        holds(&line[1]);
        second.release().await.unwrap();
        assert_eq!(third.granted().await.id, line[2]);
        holds(&line[2]);
        third.releases().await;
        assert_eq!(id_of(&fourth.outcome().await.unwrap()), line[3]);
    }

    pub(super) async fn each_side_sees_the_other_in_its_statistics(fixture: Fixture) {
        let semaphore = fixture.semaphore(2);
        let mut theirs = fixture.contender(2);
        let their_slot = theirs.acquires().await;
        let held = semaphore.acquire().label("ours").await.unwrap();
        let waiting = fixture.contender(2);
        fixture.in_line(&waiting).await;
        let _waits = in_line(&semaphore, semaphore.acquire().label("waits")).await;

        assert_eq!(fixture.peer.stats(NAME).await, Some((2, 2)));
        let stats = semaphore.stats().await.unwrap();
        assert_eq!((stats.slots, stats.held, stats.holders, stats.waiting), (2, 2, 2, 2));
        let all = fixture.home.stats(&StatsQuery::default()).await.unwrap();
        assert!(all.iter().any(|stats| &*stats.name == NAME && stats.held == 2));
        assert!(semaphore.locked().await.unwrap());

        let holders = semaphore.holders().await.unwrap();
        let [ours, theirs] = &holders[..] else { panic!("{holders:?}") };
        assert_eq!(
            (ours.id.to_string(), ours.label.as_deref(), ours.slot),
            (id_of(&held), Some("ours"), Some(0))
        );
        assert_eq!((theirs.id.to_string(), theirs.slot, theirs.weight), (their_slot.id, None, 1));
        assert_eq!((ours.expires_in, theirs.expires_in), (None, None));
        let waiters = semaphore.waiters().await.unwrap();
        let labels: Vec<_> = waiters.iter().map(|waiter| (waiter.ahead, waiter.label.as_deref())).collect();
        assert_eq!(labels, [(0, None), (1, Some("waits"))]);
    }

    pub(super) async fn weight_is_collected_beside_python_clients(fixture: Fixture) {
        let semaphore = fixture.semaphore(2);
        let (mut first, mut second) = (fixture.contender(2), fixture.contender(2));
        first.acquires().await;
        second.acquires().await;
        let heavy = in_line(&semaphore, semaphore.acquire().weight(2)).await;
        let id = fixture.keys.members("waiting").remove(0);
        let mut last = fixture.contender(2);
        let behind = fixture.in_line(&last).await;

        first.releases().await;
        second.releases().await;
        let heavy = heavy.outcome().await.expect("it gets both in the end");
        let parts = fixture.keys.members("main");
        assert!(parts.len() == 2 && parts.iter().all(|part| part.starts_with(&id)), "{parts:?}");
        assert_eq!(fixture.keys.members("waiting"), [&*behind], "no waiter overtakes it");
        let holders = semaphore.holders().await.unwrap();
        assert_eq!((holders.len(), holders[0].weight), (1, 2));
        assert_eq!(fixture.peer.stats(NAME).await, Some((2, 2)));

        heavy.release().await.unwrap();
        assert_eq!(last.granted().await.id, behind);
        last.releases().await;
        until(&semaphore, |stats| stats.held == 0).await;
        assert_eq!(fixture.keys.notifications(), [""; 0]);
    }

    pub(super) async fn weight_is_collected_if_their_scripts_serve_it_in_parts(fixture: Fixture) {
        fixture.home.named(NAME).slots(2).open().await.unwrap();
        let semaphore = fixture.semaphore(2);
        let play = async |_: &Semaphore| {
            let (mut first, mut second) = (fixture.contender(2), fixture.contender(2));
            first.acquires().await;
            let second_id = second.acquires().await.id;
            let heavy = in_line(&semaphore, semaphore.acquire().weight(2)).await;
            let id = fixture.keys.members("waiting").remove(0);

            first.releases_and_serves().await;
            let main = fixture.keys.members("main");
            assert!(main.contains(&id) && main.contains(&second_id), "half of it is reserved: {main:?}");
            let stats = semaphore.stats().await.unwrap();
            assert_eq!((stats.held, stats.waiting), (2, 1), "which is not to hold it");
            assert_eq!(semaphore.waiters().await.unwrap().len(), 1);
            assert_eq!(semaphore.holders().await.unwrap().len(), 1);
            let busy = semaphore.try_acquire().await.map(|_| ());
            assert_eq!(busy, Err(AcquireError::Busy));

            second.releases_and_serves().await;
            let heavy = heavy.outcome().await.expect("it gets both in the end");
            assert_eq!(fixture.keys.members("main").len(), 2);
            heavy.release().await.unwrap();
            assert_eq!(fixture.keys.members("main"), [""; 0]);
            assert_eq!(fixture.keys.notifications(), [""; 0]);
        };
        fixture.without_heartbeat("it is told of the last bit", play).await;
    }

    pub(super) async fn a_different_number_of_slots_is_reported(fixture: Fixture) {
        let mut theirs = fixture.contender(3);
        theirs.acquires().await;
        let mismatch = BuildError::SlotsMismatch { name: NAME.into(), live: 3, asked: 2 };
        assert_eq!(fixture.home.named(NAME).slots(2).open().await.map(|_| ()), Err(mismatch.clone()));
        let late = fixture.semaphore(2);
        let refused = late.acquire().await.map(|_| ());
        assert_eq!(refused, Err(AcquireError::Open(Box::new(mismatch.clone()))));
        // A client that gives no number takes theirs.
        let same = fixture.home.named(NAME).build().unwrap();
        let permit = same.acquire().await.unwrap();
        assert_eq!(same.slots().await.unwrap(), 3);
        permit.release().await.unwrap();
        theirs.releases().await;

        // Idle, it may be opened with another number; if a Python client then sets its own, our next client gets an error.
        let two = fixture.home.named(NAME).slots(2).open().await.unwrap();
        drop(two.acquire().await.unwrap());
        until(&two, |stats| stats.held == 0).await;
        theirs.acquires().await;
        assert_eq!(fixture.home.named(NAME).slots(2).open().await.map(|_| ()), Err(mismatch));
        // Whatever number the Python clients use, ours never grant more slots than were agreed on.
        let permit = two.acquire().await.unwrap();
        assert_eq!(two.try_acquire().await.map(|_| ()), Err(AcquireError::Busy));
        permit.release().await.unwrap();
    }

    pub(super) async fn a_holder_of_theirs_can_be_evicted(fixture: Fixture) {
        let semaphore = fixture.semaphore(1);
        let mut theirs = fixture.contender(1);
        theirs.acquires().await;
        let waits = in_line(&semaphore, semaphore.acquire()).await;
        let holder = semaphore.holders().await.unwrap().remove(0);
        semaphore.evict(&holder.id).await.expect("it holds");
        let permit = waits.outcome().await.expect("it was next");
        assert_eq!(fixture.keys.members("main"), [id_of(&permit)]);
        assert_eq!(fixture.keys.members("ttl"), [""; 0]);
        let twice = semaphore.evict(&holder.id).await;
        assert!(matches!(twice, Err(ReleaseError::NotHeld(_))), "{twice:?}");
        // It does not know that it was evicted, and its release takes nothing from others.
        theirs.releases().await;
        assert_eq!(fixture.keys.members("main"), [id_of(&permit)]);
    }
}
