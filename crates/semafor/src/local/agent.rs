//! The agent: hosts memory semaphores for the other processes of its user.
//!
//! A client is alive while its connection lasts. When the connection ends, for any reason, the client's slots and places
//! in line are released at once. Two kinds of slots stay: those that were detached with a time to live, and those that a
//! copy of the process may still use.
//!
//! There is one agent per folder, because it holds a lock there. The next agent finds in the [`journal`] which slots
//! were held when the last one died, and keeps them [occupied](absent) until their holders have returned and released
//! them, or are dead. Without a journal that it can trust, it makes no new grants until holders had time to return.

mod absent;
mod by_id;
mod journal;
mod renewals;
mod session;

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::UnixListener;
use tokio::sync::Notify;

use self::absent::{Absent, AbsentGrant};
use self::by_id::ById;
use self::journal::{Client, FoundJournal, Journal, StoredLease};
use self::renewals::Renewals;
use super::address;
use super::lifeline::{Lifelines, ProcessKey};
use crate::error::HomeError;
use crate::stats::Who;
use crate::{Registry, StatsQuery};

/// How long an unused agent keeps running.
const IDLE: Duration = Duration::from_secs(60);
/// How long an agent makes no new grants if it does not know those of the former agent. Clients look for the new agent
/// ten times a second; this leaves them enough time on a busy machine, and is shorter than they wait for an answer.
const RECOVERY: Duration = Duration::from_secs(8);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// Hosts the semaphores of one user's processes on this machine; see [`local`](super).
///
/// The `semafor` command starts one where it is needed. A program can also run one itself:
///
/// ```
/// use semafor::local::{Agent, Config};
/// use semafor::{Home, Semaphore};
///
/// let folder = tempfile::tempdir()?;
/// let place = folder.path().join("semafor");
/// let agent = Agent::bind(&place)?;
/// std::thread::spawn(move || agent.serve());
///
/// # pollster::block_on(async {
/// let home = Home::local(Config::default().directory(&place));
/// let sem = home.named("images").slots(2).build()?;
/// let permit = sem.acquire().await?;
/// assert_eq!(permit.slot(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Agent {
    directory: PathBuf,
    listener: StdListener,
    /// Locked for as long as the agent runs.
    _lock: File,
    idle: Duration,
    warnings: Vec<String>,
    shared: Shared,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// Why no agent could be started.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// An agent is running already.
    #[error("an agent is running in {}", directory.display())]
    AlreadyRunning {
        /// Its folder.
        directory: PathBuf,
    },
    /// The folder can't be used.
    #[error(transparent)]
    Home(#[from] HomeError),
}

/// The state that all connections share.
struct Shared {
    registry: Registry,
    host: Arc<str>,
    since: Instant,
    /// When new grants begin.
    opens_at: Instant,
    journal: Arc<Journal>,
    absent: Absent,
    by_id: ById,
    renewals: Renewals,
    lifelines: Option<Lifelines>,
    clients: AtomicUsize,
    client_left: Notify,
    stop: Notify,
}

impl Agent {
    /// Becomes the agent of that folder, which is created if it is missing.
    ///
    /// # Errors
    ///
    /// [`BindError`] if an agent is running there, or the folder can't be used.
    pub fn bind(directory: impl Into<PathBuf>) -> Result<Self, BindError> {
        Self::bind_at(directory.into(), SystemTime::now())
    }

    fn bind_at(directory: PathBuf, wall_clock: SystemTime) -> Result<Self, BindError> {
        address::make(&directory)?;
        let lock = lock(&directory)?;
        let socket = address::socket_in(&directory);
        let has_died = address::has_socket(&directory);
        let lifelines = Lifelines::in_folder(&directory);
        let found = FoundJournal::in_folder(&directory);
        // Tokens keep growing from one agent to the next: no agent makes a million grants per second, and if the clock
        // was set back, the journal has the larger token.
        let now = wall_clock.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let token = u64::try_from(now.as_micros()).unwrap_or_default().max(found.token);
        let registry = Registry::builder().first_token(token).build();
        let journal = Journal::new(
            &directory,
            registry.clone(),
            token,
            lifelines.as_ref().and_then(Lifelines::identity),
        );
        let (now, mut warnings) = (Instant::now(), Vec::new());
        let mut opens_at = now;
        if !found.is_complete && (has_died || found.problem.is_some()) {
            let missing = || format!("an agent died in {} and left no journal", directory.display());
            let problem = found.problem.clone().unwrap_or_else(missing);
            if lifelines.as_ref().is_some_and(Lifelines::are_all_gone) {
                warnings.extend(found.problem.clone());
            } else {
                opens_at = now + RECOVERY;
                warnings.push(format!(
                    "{problem}. No slot is granted for {RECOVERY:?}, so that former holders can return first"
                ));
            }
        }
        let shared = Shared {
            registry,
            host: gethostname::gethostname().to_string_lossy().into(),
            since: now,
            opens_at,
            journal,
            absent: Absent::default(),
            by_id: ById::default(),
            renewals: Renewals::default(),
            lifelines,
            clients: AtomicUsize::new(0),
            client_left: Notify::new(),
            stop: Notify::new(),
        };
        shared.take_over(found);
        shared.journal.begin();
        let listener = listen(&directory, &socket)?;
        Ok(Self { directory, listener, _lock: lock, idle: IDLE, warnings, shared })
    }

    /// Warnings for the user about the state in which the folder was found.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// How long to keep running without clients and holders. A minute by default.
    pub fn idle_timeout(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// Serves until it is stopped, or was unused for the idle timeout.
    ///
    /// # Errors
    ///
    /// [`HomeError`] if the system refuses the runtime or the socket.
    pub fn serve(self) -> Result<(), HomeError> {
        raise_file_limit();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| address::io_failure("serve in", &self.directory, error))?;
        runtime.block_on(self.receive())
    }

    async fn receive(self) -> Result<(), HomeError> {
        let listener =
            self.listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(self.listener));
        let listener = listener.map_err(|error| address::io_failure("serve in", &self.directory, error))?;
        let shared = Arc::new(self.shared);
        let watcher = Arc::clone(&shared);
        tokio::spawn(async move { watcher.absent.watch(watcher.lifelines.as_ref()).await });
        by_id::watch_all(&shared);
        let mut idle_since = Instant::now();
        loop {
            let is_alone = shared.clients.load(Ordering::Relaxed) == 0;
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => session::start(&shared, stream),
                    // Probably out of file descriptors: new clients wait until others have left.
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                },
                () = shared.client_left.notified() => idle_since = Instant::now(),
                () = shared.stop.notified() => break,
                () = tokio::time::sleep_until((idle_since + self.idle).into()), if is_alone => {
                    if shared.held_and_waiting() == (0, 0) {
                        break;
                    }
                    idle_since = Instant::now();
                }
            }
        }
        // If holders or waiters lose something, the files stay, to tell the next agent.
        if shared.held_and_waiting() == (0, 0) {
            shared.journal.finish();
            let _ = fs::remove_file(address::socket_in(&self.directory));
        } else {
            shared.journal.seal();
        }
        Ok(())
    }
}

/// Grants that are dropped with it have not ended for their holders.
impl Drop for Shared {
    fn drop(&mut self) {
        self.journal.seal();
    }
}

impl Shared {
    /// Keeps everything occupied that a former agent had granted to clients that are still alive.
    fn take_over(&self, found: FoundJournal) {
        let has_same_lifelines = found.lifelines.is_some()
            && found.lifelines == self.lifelines.as_ref().and_then(Lifelines::identity);
        for name in &found.resized {
            // The registry keeps this name as long as other unused names.
            if let Some(slots) = found.slots.get(name)
                && self.registry.named(&**name).slots(*slots).build().is_ok()
            {
                self.journal.resized(name, *slots);
            }
        }
        for mut grant in found.live.into_values() {
            grant.client.lifeline = grant.client.lifeline.filter(|_| has_same_lifelines);
            let lease = grant.by_id.take();
            // A slot held by id outlives its client.
            let has_ended =
                lease.as_ref().map_or_else(|| !self.may_be_alive(grant.client), StoredLease::is_over);
            if has_ended {
                continue;
            }
            let slots = found.slots.get(&grant.name).copied().unwrap_or(grant.slots).max(1);
            let Ok(semaphore) = self.registry.named(&*grant.name).slots(slots).build() else { continue };
            let who = self.former_holder(grant.client.process.map(ProcessKey::pid));
            let Some(permit) = semaphore.reserve(grant.slot, grant.weight, &who) else { continue };
            let (name, id, client) = (Arc::clone(&grant.name), Arc::clone(&grant.id), grant.client);
            grant.slots = slots;
            grant.slot = permit.slot();
            grant.token = grant.token.max(permit.fencing_token());
            let entry = self.journal.grant(grant);
            if let Some(lease) = lease {
                // Can't fail: the slot was reserved just now.
                let _ = permit.gate().map(|gate| gate.renew(permit.id().in_memory(), lease.remaining()));
                self.by_id.keep(permit, id, entry);
                continue;
            }
            self.absent.keep(name, id, AbsentGrant { permit, entry, client, has_ttl: false });
        }
    }

    /// Waits until new grants begin: before that, former clients reclaim what they hold.
    async fn wait_until_open(&self) {
        if Instant::now() < self.opens_at {
            tokio::time::sleep_until(self.opens_at.into()).await;
        }
    }

    fn former_holder(&self, pid: Option<u32>) -> Who {
        let label = Some("(held from a former agent)".into());
        Who { label, host: Some(Arc::clone(&self.host)), pid, ..Who::default() }
    }

    /// True if its lifeline shows that it is alive.
    fn is_held(&self, client: Client) -> bool {
        let lifelines = self.lifelines.as_ref();
        client.lifeline.is_some_and(|byte| lifelines.is_some_and(|lifelines| lifelines.is_held(byte)))
    }

    /// True unless it has certainly ended.
    fn may_be_alive(&self, client: Client) -> bool {
        match client.lifeline {
            Some(_) => self.is_held(client),
            None => client.process.is_none_or(ProcessKey::may_be_alive),
        }
    }

    fn held_and_waiting(&self) -> (usize, usize) {
        let all = self.registry.stats(&StatsQuery::default());
        all.iter().fold((0, 0), |(held, waiting), stats| (held + stats.holders, waiting + stats.waiting))
    }
}

fn lock(directory: &Path) -> Result<File, BindError> {
    let path = address::lock_in(directory);
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(|error| address::io_failure("write", &path, error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(BindError::AlreadyRunning { directory: directory.to_owned() })
        }
        Err(error) => Err(address::io_failure("lock", &path, error.into()).into()),
    }
}

/// Binds under another name first: a client that finds the socket must find the agent listening.
fn listen(directory: &Path, socket: &Path) -> Result<StdListener, HomeError> {
    let fresh = directory.join("agent.sock.new");
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(address::io_failure("remove", &fresh, error));
        }
        _ => {}
    }
    let listening = || -> rustix::io::Result<_> {
        let listener = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        rustix::net::bind(&listener, &SocketAddrUnix::new(&fresh)?)?;
        rustix::net::listen(&listener, BACKLOG)?;
        rustix::fs::rename(&fresh, socket)?;
        Ok(listener)
    };
    let listener = listening().map_err(|error| address::io_failure("listen on", socket, error.into()))?;
    Ok(listener.into())
}

/// Each client needs a file descriptor.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, the old limit stays.
    let _ = setrlimit(Resource::Nofile, limit);
}

#[cfg(test)]
mod tests {
    use std::thread::JoinHandle;

    use semafor_testkit::redis::eventually;

    use super::*;
    use crate::local::{Config, stop};
    use crate::{Home, Semaphore};

    fn serve(directory: &Path, wall_clock: SystemTime) -> JoinHandle<Result<(), HomeError>> {
        // A process that another test is starting shares the lock of the last agent until it runs its own program.
        let agent =
            eventually("the last agent is gone", || match Agent::bind_at(directory.to_owned(), wall_clock) {
                Err(BindError::AlreadyRunning { .. }) => None,
                bound => Some(bound.expect("no other agent")),
            });
        std::thread::spawn(move || agent.serve())
    }

    fn semaphore(config: &Config) -> Semaphore {
        Home::local(config.clone()).named("it").slots(2).build().expect("it can be opened")
    }

    /// With `is_held`, a slot is held when the agent ends.
    fn check_tokens_grow_when_the_clock_is_set_back(is_held: bool) {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let place = folder.path().join("semafor");
        let config = Config::default().directory(&place).program("/bin/true");
        let mut last = 0;
        for age in [4_000_000_000, 3_000_000_000, 10, 0] {
            let agent = serve(&place, SystemTime::UNIX_EPOCH + Duration::from_secs(age));
            pollster::block_on(async {
                let sem = semaphore(&config);
                for _ in 0..3 {
                    let permit = sem.acquire().await.expect("a slot is free");
                    assert!(permit.fencing_token() > last, "{} after {last}", permit.fencing_token());
                    last = permit.fencing_token();
                    permit.release().await.expect("it is held");
                }
                let held = sem.acquire().await.expect("a slot is free");
                last = held.fencing_token();
                let held = is_held.then_some(held);
                stop(&config, true).await.expect("it answers");
                drop(held);
            });
            agent.join().expect("it does not panic").expect("it serves to its end");
        }
    }

    #[test]
    fn tokens_grow_across_agents_even_if_the_clock_is_set_back() {
        check_tokens_grow_when_the_clock_is_set_back(false);
    }

    #[test]
    fn tokens_grow_after_an_agent_died_even_if_the_clock_is_set_back() {
        check_tokens_grow_when_the_clock_is_set_back(true);
    }

    /// The time to live at the detach counts, not the one at the acquire.
    #[test]
    fn detached_permit_renewed_with_a_ttl_outlives_its_connection() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let place = folder.path().join("semafor");
        let config = Config::default().directory(&place).program("/bin/true");
        let agent = serve(&place, SystemTime::now());
        pollster::block_on(async {
            let sem = semaphore(&config);
            let held = sem.acquire().await.expect("a slot is free");
            held.renew(Duration::from_secs(600)).await.expect("it is held");
            held.detach();
            // The last handle is dropped, so the connection ends.
            drop(sem);
            let sem = semaphore(&config);
            for _ in 0..50 {
                assert_eq!(sem.stats().await.expect("it answers").holders, 1);
                std::thread::sleep(Duration::from_millis(20));
            }
            stop(&config, true).await.expect("it answers");
        });
        agent.join().expect("it does not panic").expect("it serves to its end");
    }
}
