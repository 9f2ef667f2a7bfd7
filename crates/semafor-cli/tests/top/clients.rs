//! Holders and waiters that stay for as long as the test runs.

use std::future::pending;
use std::time::Duration;

use semafor::{Home, Permit, Semaphore, Stats, StatsQuery};
use semafor_testkit::redis::eventually;
use tokio::runtime::Runtime;

pub(crate) struct Clients {
    runtime: Runtime,
    home: Home,
    held: Vec<Permit<'static>>,
}

impl Clients {
    /// No clients yet, for the home of this URL.
    pub(crate) fn at(url: &str) -> Self {
        let runtime = Runtime::new().expect("threads can be started");
        let home = runtime.block_on(Home::connect(url)).expect("the home is there");
        Self { runtime, home, held: Vec::new() }
    }

    fn semaphore(&self, name: &str, slots: u32, command: &str) -> Semaphore {
        self.home.named(name).slots(slots).command(command).build().expect("it can be opened")
    }

    /// Adds one holder.
    pub(crate) fn hold(&mut self, name: &str, slots: u32, label: &str, command: &str) {
        let semaphore = self.semaphore(name, slots, command);
        let acquired = self
            .runtime
            .block_on(async { semaphore.acquire().label(label).ttl(Duration::from_secs(5400)).await });
        self.held.push(acquired.expect("there is a slot").into_owned());
    }

    /// Adds `count` holders.
    pub(crate) fn fill(&mut self, name: &str, slots: u32, count: u32) {
        (0..count).for_each(|number| self.hold(name, slots, &format!("holder-{number}"), "./work"));
    }

    /// Adds a waiter at the end of the line. It is in line when this returns.
    pub(crate) fn queue(&self, name: &str, slots: u32, label: &str, command: &str) {
        let before = self.stats(name).waiting;
        let (semaphore, label) = (self.semaphore(name, slots, command), label.to_owned());
        self.runtime.spawn(async move {
            let _permit = semaphore.acquire().label(label).await;
            pending::<()>().await;
        });
        eventually("it is in line", || (self.stats(name).waiting > before).then_some(()));
    }

    /// Adds tasks that take turns, each holding a slot for that long.
    pub(crate) fn take_turns(&self, name: &str, slots: u32, count: u32, hold: Duration) {
        for _ in 0..count {
            let semaphore = self.semaphore(name, slots, "./work");
            self.runtime.spawn(async move {
                while let Ok(_permit) = semaphore.acquire().await {
                    tokio::time::sleep(hold).await;
                }
            });
        }
    }

    /// Releases the slot that was acquired first.
    pub(crate) fn release_first(&mut self) {
        let permit = self.held.remove(0);
        self.runtime.block_on(permit.release()).expect("it is held");
    }

    pub(crate) fn stats(&self, name: &str) -> Stats {
        let semaphore = self.home.named(name).build().expect("it can be opened");
        self.runtime.block_on(semaphore.stats()).expect("the home answers")
    }

    pub(crate) fn grants(&self) -> u64 {
        let stats = self.runtime.block_on(self.home.stats(&StatsQuery::default())).expect("the home answers");
        stats.iter().map(|stats| stats.totals.granted).sum()
    }
}
