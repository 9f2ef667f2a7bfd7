//! What happens to the clients of an agent that dies.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use semafor::local::{self, Agent, BindError, Config, Stopped};
use semafor::{AcquireError, Home, HomeError, Loss, NotHeld, Semaphore};
use semafor_testkit::by_hand::in_line;
use semafor_testkit::redis::eventually;
use tempfile::TempDir;

/// A folder for agents, one after the other.
struct AgentFolder {
    _folder: TempDir,
    directory: PathBuf,
}

struct Running {
    config: Config,
    thread: JoinHandle<Result<(), HomeError>>,
}

impl AgentFolder {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        Self { directory: folder.path().join("semafor"), _folder: folder }
    }

    fn agent(&self) -> Running {
        // A process that another test is starting shares the lock of the last agent until it calls `exec`.
        let agent = eventually("the last agent is gone", || match Agent::bind(&self.directory) {
            Err(BindError::AlreadyRunning { .. }) => None,
            bound => Some(bound.expect("there is none")),
        });
        let config = self.config();
        Running { config, thread: std::thread::spawn(move || agent.serve()) }
    }

    /// For clients that look for an agent but leave it to the test to start it.
    fn config(&self) -> Config {
        Config::default().directory(&self.directory).program(Path::new("/bin/true"))
    }

    /// A connection that keeps an agent from being idle before the test has begun.
    fn presence(&self) -> UnixStream {
        UnixStream::connect(self.directory.join("agent.sock")).expect("the agent listens")
    }

    fn semaphore(&self, slots: u32) -> Semaphore {
        Home::local(self.config()).named("it").slots(slots).build().expect("it can be opened")
    }
}

impl Running {
    /// Stops the agent, even with holders and waiters.
    async fn die(self) {
        assert_eq!(local::stop(&self.config, true).await, Ok(Stopped::Yes));
        self.thread.join().expect("it does not panic").expect("it serves to its end");
    }
}

#[tokio::test]
async fn holders_are_notified_when_the_agent_dies() {
    let folder = AgentFolder::new();
    let agent = folder.agent();
    let sem = folder.semaphore(1);
    let permit = sem.acquire().await.expect("a slot is free");
    agent.die().await;
    assert_eq!(permit.lost().await, NotHeld::Lost(Loss::Vanished));
    assert!(permit.is_lost());
    let released = permit.release().await.expect_err("it is lost");
    assert_eq!(released, NotHeld::Lost(Loss::Vanished).into());
}

#[tokio::test]
async fn waiters_keep_waiting_with_the_next_agent() {
    let folder = AgentFolder::new();
    let agent = folder.agent();
    let (holder, waiter) = (folder.semaphore(1), folder.semaphore(1));
    let permit = holder.acquire().await.expect("a slot is free");
    let waiting = in_line(&waiter, waiter.acquire()).await;
    agent.die().await;
    let next = folder.agent();
    permit.lost().await;
    drop(permit);
    let permit = waiting.outcome().await.expect("the next agent serves it");
    assert_eq!(waiter.stats().await.expect("it answers").held, 1);
    permit.release().await.expect("it is held");
    next.die().await;
}

#[tokio::test]
async fn slot_stays_occupied_until_its_former_holder_releases_it() {
    let folder = AgentFolder::new();
    let agent = folder.agent();
    let (holder, other) = (folder.semaphore(1), folder.semaphore(1));
    let lost = holder.acquire().await.expect("a slot is free");
    agent.die().await;
    lost.lost().await;
    let next = folder.agent();
    // It may come at any time: the next agent waits a moment for former holders.
    let refused = other.try_acquire().await.expect_err("the former holder has not released it yet");
    assert_eq!(refused, AcquireError::Busy);
    drop(lost);
    other.acquire().await.expect("now it has").release().await.expect("it is held");
    next.die().await;
}

#[tokio::test]
async fn fencing_tokens_grow_from_one_agent_to_the_next() {
    let folder = AgentFolder::new();
    let sem = folder.semaphore(1);
    let mut last = 0;
    for _ in 0..3 {
        let agent = folder.agent();
        let permit = sem.acquire().await.expect("a slot is free");
        assert!(permit.fencing_token() > last);
        last = permit.fencing_token();
        permit.release().await.expect("it is held");
        agent.die().await;
    }
}

#[tokio::test]
async fn without_an_agent_nothing_is_held_and_none_is_started() {
    let folder = AgentFolder::new();
    let home = Home::local(folder.config());
    assert_eq!(home.stats(&Default::default()).await, Ok(Vec::new()));
    let sem = folder.semaphore(3);
    assert_eq!(sem.stats().await.map(|stats| (stats.held, stats.slots)), Ok((0, 3)));
    assert_eq!(sem.holders().await, Ok(Vec::new()));
    assert_eq!(sem.locked().await, Ok(false));
    assert_eq!(local::status(&folder.config()).await, Ok(None));
    assert_eq!(local::stop(&folder.config(), false).await, Ok(Stopped::NotRunning));
    let id = "8a3deaa0-0-1".parse().expect("it looks like one");
    assert_eq!(sem.release(&id).await, Err(NotHeld::Unknown.into()));
    assert!(!folder.directory.exists());
}

#[tokio::test]
async fn failure_to_start_an_agent_is_reported_with_the_remedy() {
    let folder = AgentFolder::new();
    let config = Config::default().directory(&folder.directory).program("/nowhere/semafor");
    let sem = Home::local(config).named("it").slots(1).build().expect("no agent is asked");
    let error = sem.acquire().await.expect_err("there is no agent").to_string();
    assert!(error.contains("/nowhere/semafor") && error.contains("install"), "{error}");
}

#[tokio::test]
async fn only_one_agent_runs_per_folder() {
    let folder = AgentFolder::new();
    let agent = folder.agent();
    let error = Agent::bind(&folder.directory).expect_err("there is one");
    assert!(matches!(error, local::BindError::AlreadyRunning { .. }), "{error}");
    agent.die().await;
}

#[tokio::test]
async fn an_unused_agent_exits_and_leaves_no_socket() {
    let folder = AgentFolder::new();
    let agent =
        Agent::bind(&folder.directory).expect("there is none").idle_timeout(Duration::from_millis(20));
    let present = folder.presence();
    let thread = std::thread::spawn(move || agent.serve());
    let sem = folder.semaphore(1);
    drop(sem.acquire().await.expect("a slot is free"));
    drop((sem, present));
    thread.join().expect("it does not panic").expect("it ends by itself");
    assert!(!folder.directory.join("agent.sock").exists());
}

#[tokio::test]
async fn agent_stays_while_a_slot_is_held_by_id() {
    let folder = AgentFolder::new();
    let agent = Agent::bind(&folder.directory).expect("there is none").idle_timeout(Duration::from_millis(5));
    let present = folder.presence();
    let thread = std::thread::spawn(move || agent.serve());
    let sem = folder.semaphore(1);
    let id = sem.acquire().ttl(Duration::from_secs(2)).await.expect("a slot is free").detach();
    drop((sem, present));
    assert_eq!(folder.semaphore(1).holders().await.map(|holders| holders.len()), Ok(1));
    thread.join().expect("it does not panic").expect("it ends when the lease ends");
    assert_eq!(folder.semaphore(1).release(&id).await, Err(NotHeld::Unknown.into()));
}

#[tokio::test]
async fn handle_keeps_the_resized_number_of_slots_with_the_next_agent() {
    let folder = AgentFolder::new();
    let agent = folder.agent();
    let (early, late) = (folder.semaphore(2), folder.semaphore(3));
    let held = early.acquire().await.expect("a slot is free");
    early.resize(3).await.expect("it can be resized");
    let other = late.acquire().await.expect("a slot is free");
    agent.die().await;
    let next = folder.agent();
    let third = early.acquire().await.expect("it is the third of three");
    assert_eq!(late.stats().await.map(|stats| (stats.held, stats.slots)), Ok((3, 3)));
    assert_eq!(late.try_acquire().await.expect_err("all are held"), AcquireError::Busy);
    let newcomer = folder.semaphore(2).try_acquire().await.expect_err("it has another number");
    assert!(matches!(newcomer, AcquireError::Open(_)), "{newcomer}");
    drop((held, other, third));
    next.die().await;
}

#[tokio::test]
async fn holders_opened_without_slots_count_at_the_next_agent() {
    let folder = AgentFolder::new();
    let agent = folder.agent();
    let opener = folder.semaphore(2);
    let first = opener.acquire().await.expect("a slot is free");
    let as_it_is = Home::local(folder.config()).named("it").build().expect("no agent is asked");
    let second = as_it_is.acquire().await.expect("a slot is free");
    first.release().await.expect("it is held");
    agent.die().await;
    let next = folder.agent();
    second.lost().await;
    let stats = opener.stats().await.expect("it answers");
    assert_eq!((stats.held, stats.slots), (1, 2));
    drop(second);
    next.die().await;
}

#[tokio::test]
async fn without_a_journal_former_holders_come_first_even_with_another_number_of_slots() {
    let folder = AgentFolder::new();
    let agent = folder.agent();
    let early = folder.semaphore(1);
    let held = early.acquire().await.expect("a slot is free");
    early.resize(2).await.expect("it can be resized");
    let late = folder.semaphore(2);
    let other = late.acquire().await.expect("a slot is free");
    agent.die().await;
    std::fs::remove_file(folder.directory.join("agent.journal")).expect("it is there");
    let next = folder.agent();
    // Answered when all former holders have had time to reconnect.
    let refused = Home::local(folder.config()).named("it").build().expect("no agent is asked");
    assert_eq!(refused.try_acquire().await.expect_err("both are held"), AcquireError::Busy);
    assert_eq!(refused.stats().await.map(|stats| stats.held), Ok(2));
    drop((held, other));
    next.die().await;
}

#[tokio::test]
async fn without_a_journal_the_number_of_slots_is_the_one_at_the_grant() {
    let folder = AgentFolder::new();
    let agent = folder.agent();
    let sem = folder.semaphore(2);
    sem.resize(4).await.expect("it can be resized");
    let held = sem.acquire().await.expect("a slot is free");
    agent.die().await;
    std::fs::remove_file(folder.directory.join("agent.journal")).expect("it is there");
    let next = folder.agent();
    held.lost().await;
    let other = Home::local(folder.config()).named("it").build().expect("no agent is asked");
    // Answered when the holder has had time to reconnect.
    drop(other.acquire().await.expect("three are free"));
    assert_eq!(other.stats().await.map(|stats| (stats.held, stats.slots)), Ok((1, 4)));
    drop(held);
    next.die().await;
}

/// A process has one connection to its agent, however many homes it opens.
#[tokio::test]
async fn two_homes_of_one_folder_share_a_connection() {
    let folder = AgentFolder::new();
    let agent = folder.agent();
    let (one, other) = (Home::local(folder.config()), Home::local(folder.config()));
    let held = one.named("a").slots(1).build().expect("it can be opened");
    let held = held.acquire().await.expect("a slot is free");
    let also_held = other.named("b").slots(1).build().expect("it can be opened");
    let also_held = also_held.acquire().await.expect("a slot is free");
    let status = local::status(&folder.config()).await.expect("it answers").expect("it runs");
    assert_eq!((status.clients, status.held), (1, 2));
    drop((held, also_held));
    agent.die().await;
}
