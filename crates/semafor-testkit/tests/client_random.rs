//! Random things happen to random messages: the promises hold all the time, and in the end nothing is left.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use proptest::prelude::*;
use semafor::__client::{EndReason, Key, Push, TaskKey, Wait};
use semafor_testkit::client::World;

const PROCESSES: usize = 3;
const SLOTS: u32 = 2;

#[derive(Clone, Debug)]
enum Move {
    Acquire {
        by: usize,
        ttl: Option<u64>,
        wait: WaitFor,
    },
    /// The future is dropped, or the guard if there is one.
    Drop {
        by: usize,
        which: usize,
    },
    Release {
        by: usize,
        which: usize,
    },
    Renew {
        by: usize,
        which: usize,
        millis: u64,
    },
    /// The server gets a call.
    Execute {
        by: usize,
    },
    Arrive {
        by: usize,
    },
    Hear {
        by: usize,
    },
    LoseCall {
        by: usize,
    },
    LoseMessage {
        by: usize,
    },
    Cut {
        by: usize,
    },
    Connect {
        by: usize,
    },
    /// The guard is detached.
    Detach {
        by: usize,
        which: usize,
    },
    /// A process ends a holder of any process by its id.
    EndById {
        by: usize,
        whose: usize,
        which: usize,
        is_evicted: bool,
    },
    /// A process renews, or stops limiting, a lease by its id.
    RenewById {
        by: usize,
        whose: usize,
        which: usize,
        millis: Option<u64>,
    },
    /// The server says that all keys are gone. It may be wrong.
    AllForgotten {
        by: usize,
    },
    ForgetLine,
    /// Users look what became of what they asked for.
    Look,
    Advance {
        millis: u64,
    },
}

#[derive(Clone, Copy, Debug)]
enum WaitFor {
    No,
    Millis(u64),
    Ever,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let by = 0..PROCESSES;
    let which = 0..8usize;
    let wait = prop_oneof![
        Just(WaitFor::No),
        (0..4_000u64).prop_map(WaitFor::Millis),
        Just(WaitFor::Ever),
        Just(WaitFor::Ever)
    ];
    let ttl = proptest::option::weighted(0.3, 50..6_000u64);
    let one = prop_oneof![
        4 => (by.clone(), ttl, wait).prop_map(|(by, ttl, wait)| Move::Acquire { by, ttl, wait }),
        3 => (by.clone(), which.clone()).prop_map(|(by, which)| Move::Drop { by, which }),
        2 => (by.clone(), which.clone()).prop_map(|(by, which)| Move::Release { by, which }),
        1 => (by.clone(), which.clone(), 50..8_000u64).prop_map(|(by, which, millis)| Move::Renew { by, which, millis }),
        10 => by.clone().prop_map(|by| Move::Execute { by }),
        10 => by.clone().prop_map(|by| Move::Arrive { by }),
        5 => by.clone().prop_map(|by| Move::Hear { by }),
        2 => by.clone().prop_map(|by| Move::LoseCall { by }),
        1 => by.clone().prop_map(|by| Move::LoseMessage { by }),
        1 => by.clone().prop_map(|by| Move::Cut { by }),
        2 => by.clone().prop_map(|by| Move::Connect { by }),
        2 => (by.clone(), which.clone()).prop_map(|(by, which)| Move::Detach { by, which }),
        1 => (by.clone(), by.clone(), which.clone(), any::<bool>()).prop_map(|(by, whose, which, is_evicted)| {
            Move::EndById { by, whose, which, is_evicted }
        }),
        1 => (by.clone(), by.clone(), which.clone(), proptest::option::of(50..8_000u64))
            .prop_map(|(by, whose, which, millis)| Move::RenewById { by, whose, which, millis }),
        1 => by.clone().prop_map(|by| Move::AllForgotten { by }),
        1 => Just(Move::ForgetLine),
        20 => Just(Move::Look),
        5 => (1..3_000u64).prop_map(|millis| Move::Advance { millis }),
    ];
    proptest::collection::vec(one, 1..150)
}

/// What the users of a process have.
#[derive(Default)]
struct Users {
    asking: Vec<Key>,
    holding: Vec<(Key, Arc<str>)>,
    detached: Vec<(Key, Arc<str>)>,
    operations: Vec<u64>,
}

struct Game {
    world: World,
    users: Vec<Users>,
    /// Other processes have ended, or changed, these by their id: they may believe in them until they hear of it.
    touched: Vec<Arc<str>>,
}

impl Game {
    fn new() -> Self {
        let users = (0..PROCESSES).map(|_| Users::default()).collect();
        Self { world: World::new(PROCESSES, SLOTS), users, touched: Vec::new() }
    }

    fn play(&mut self, next: &Move) {
        let world = &mut self.world;
        match *next {
            Move::Acquire { by, ttl, wait } => {
                let wait = match wait {
                    WaitFor::No => Wait::No,
                    WaitFor::Millis(millis) => Wait::For(Duration::from_millis(millis)),
                    WaitFor::Ever => Wait::Unlimited,
                };
                let key = world.acquire(by, ttl.map(Duration::from_millis), wait);
                self.users[by].asking.push(key);
            }
            Move::Drop { by, which } => self.drop_one(by, which),
            Move::Release { by, which } => {
                let users = &mut self.users[by];
                if which < users.holding.len() {
                    let (key, _) = users.holding.remove(which);
                    users.operations.push(world.with(by, |client, now| client.release(key, now)));
                }
            }
            Move::Renew { by, which, millis } => {
                let target = Arc::clone(&world.processes[by].target);
                let users = &mut self.users[by];
                if let Some((_, id)) = users.holding.get(which) {
                    let ttl = Some(Duration::from_millis(millis));
                    users.operations.push(world.with(by, |client, now| client.renew(&target, id, ttl, now)));
                }
            }
            Move::Execute { by } => drop(world.execute(by)),
            Move::Arrive { by } => drop(world.arrive(by)),
            Move::Hear { by } => drop(world.hear(by)),
            Move::LoseCall { by } => drop(world.lose_next(by)),
            Move::LoseMessage { by } => drop(world.processes[by].pushes.pop_front()),
            Move::Cut { by } => world.cut(by),
            Move::Connect { by } => world.connect(by),
            Move::Detach { by, which } => {
                let users = &mut self.users[by];
                if which < users.holding.len() {
                    let (key, id) = users.holding.remove(which);
                    users.detached.push((key, id));
                    let task = TaskKey::current();
                    world.with(by, |client, now| client.detach(key, task, Some(Box::new("kept")), now));
                }
            }
            Move::EndById { by, whose, which, is_evicted } => {
                let reason = if is_evicted { EndReason::Evicted } else { EndReason::Released };
                if let Some(id) = self.touch(whose, which) {
                    self.end_by_id(by, &id, reason);
                }
            }
            Move::RenewById { by, whose, which, millis } => {
                if let Some(id) = self.touch(whose, which) {
                    let target = Arc::clone(&self.world.processes[by].target);
                    let ttl = millis.map(Duration::from_millis);
                    let renewal = self.world.with(by, |client, now| client.renew(&target, &id, ttl, now));
                    self.users[by].operations.push(renewal);
                }
            }
            Move::AllForgotten { by } => {
                world.with(by, |client, now| client.handle_push(Push::AllForgotten, now));
            }
            Move::Look => self.read(),
            Move::ForgetLine => world.server.forget_line(),
            Move::Advance { millis } => world.advance(Duration::from_millis(millis)),
        }
    }

    /// The id of a holder of `whose`, that something is about to be done to.
    fn touch(&mut self, whose: usize, which: usize) -> Option<Arc<str>> {
        let users = &self.users[whose];
        let id = users.holding.iter().chain(&users.detached).nth(which).map(|(_, id)| Arc::clone(id))?;
        self.touched.push(Arc::clone(&id));
        Some(id)
    }

    fn end_by_id(&mut self, by: usize, id: &str, reason: EndReason) {
        let target = Arc::clone(&self.world.processes[by].target);
        let end = self.world.with(by, |client, now| client.end_by_id(&target, id, reason, now));
        self.users[by].operations.push(end);
    }

    fn drop_one(&mut self, by: usize, which: usize) {
        let users = &mut self.users[by];
        if which < users.asking.len() {
            let key = users.asking.remove(which);
            self.world.with(by, |client, now| client.cancel(key, now));
        } else if which - users.asking.len() < users.holding.len() {
            let (key, _) = users.holding.remove(which - users.asking.len());
            self.world.with(by, |client, now| client.drop_lease(key, now));
        }
    }

    /// Users look what became of what they asked for.
    fn read(&mut self) {
        for by in 0..PROCESSES {
            for key in std::mem::take(&mut self.users[by].asking) {
                match self.world.poll(by, key) {
                    Poll::Pending => self.users[by].asking.push(key),
                    Poll::Ready(Ok(acquired)) => self.users[by].holding.push((key, acquired.id)),
                    Poll::Ready(Err(_)) => {}
                }
            }
            for operation in std::mem::take(&mut self.users[by].operations) {
                let waker = std::task::Waker::noop().clone();
                if self.world.with(by, |client, _| client.poll_operation(operation, waker)).is_pending() {
                    self.users[by].operations.push(operation);
                }
            }
        }
    }

    /// How many believe that they hold a slot.
    fn believers(&self) -> usize {
        let of = |by: usize| {
            let process = &self.world.processes[by];
            let holds = |(key, id): &&(Key, Arc<str>)| {
                process.client.why_not_held(*key, self.world.now).is_none() && !self.touched.contains(id)
            };
            let users = &self.users[by];
            users.holding.iter().chain(&users.detached).filter(holds).count()
        };
        (0..PROCESSES).map(of).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases * 2, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_more_believe_to_hold_than_there_are_slots_and_nothing_is_left(moves in moves()) {
        let mut game = Game::new();
        for next in &moves {
            game.play(next);
            let believers = game.believers();
            prop_assert!(believers <= SLOTS as usize, "{} after {:?}", believers, next);
        }
        // The network recovers: waiters are served as holders release.
        for by in 0..PROCESSES {
            game.world.connect(by);
        }
        for _ in 0..60 {
            game.world.settle();
            game.world.advance(Duration::from_millis(100));
        }
        game.world.settle();
        game.read();
        // By now, each process knows what it does not hold any more.
        for by in 0..PROCESSES {
            for (key, id) in &game.users[by].holding {
                let is_held = game.world.processes[by].client.why_not_held(*key, game.world.now).is_none();
                prop_assert!(!is_held || game.world.server.has_slot((by, *key)), "{id} of {by}");
            }
            for (_, id) in std::mem::take(&mut game.users[by].detached) {
                game.end_by_id(by, &id, EndReason::Released);
            }
        }
        for _ in 0..400 {
            game.world.settle();
            game.read();
            for by in 0..PROCESSES {
                if !game.users[by].holding.is_empty() {
                    let asking = game.users[by].asking.len();
                    game.drop_one(by, asking);
                }
            }
            game.world.advance(Duration::from_millis(100));
        }
        game.world.settle();
        game.read();
        for (by, users) in game.users.iter().enumerate() {
            prop_assert!(users.asking.is_empty() && users.operations.is_empty(), "{by} was never served");
            let client = &game.world.processes[by].client;
            prop_assert!(client.is_empty(), "{:#?}", client);
        }
        prop_assert_eq!((game.world.server.held(), game.world.server.waiting()), (0, 0));
    }
}
