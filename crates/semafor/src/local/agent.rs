//! The agent: hosts memory semaphores for the other processes of its user.
//!
//! A connection is a client's sign of life. When it ends, whatever way, all that the client held or waited for is given
//! back in the same moment; only what it [detached](Ask::Detach) with a time to live stays.
//!
//! There is one agent per folder, because it holds a lock there. One that finds the socket of another behind it knows that
//! this one died: for a moment it lets only its former holders in, so that they can keep their slots occupied until they
//! have let go of what they do.

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

use super::address;
use crate::error::HomeError;
use crate::{Registry, StatsQuery};

/// How long an agent stays that nobody needs.
const IDLE: Duration = Duration::from_secs(60);
/// How long the successor of an agent that died waits for its holders.
const MOURNING: Duration = Duration::from_millis(500);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// Hosts the semaphores of one user's processes on this machine; see [`local`](super).
///
/// The `semafor` command starts one where it is needed. A program may as well be one itself:
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
#[derive(Debug)]
pub struct Agent {
    directory: PathBuf,
    listener: StdListener,
    /// Held for as long as the agent lives.
    _lock: File,
    is_successor: bool,
    idle: Duration,
    registry: Registry,
}

/// Why there is no new agent.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// There is one already.
    #[error("an agent is running in {}", directory.display())]
    AlreadyRunning {
        /// Where.
        directory: PathBuf,
    },
    /// There can be none.
    #[error(transparent)]
    Home(#[from] HomeError),
}

/// What all connections share.
struct House {
    registry: Registry,
    host: Arc<str>,
    since: Instant,
    /// When newcomers are let in.
    opens_at: Instant,
    clients: AtomicUsize,
    client_left: Notify,
    stop: Notify,
}

impl Agent {
    /// Becomes the agent of that folder, which is made if it is missing.
    ///
    /// # Errors
    ///
    /// [`BindError`] if there is one, or the folder will not do.
    pub fn bind(directory: impl Into<PathBuf>) -> Result<Self, BindError> {
        let directory = directory.into();
        address::make(&directory)?;
        let lock = lock(&directory)?;
        let socket = address::socket_in(&directory);
        let is_successor = fs::symlink_metadata(&socket).is_ok();
        let listener = listen(&directory, &socket)?;
        // Tokens go on growing from one agent to the next: no agent grants a million times a second.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let first_token = u64::try_from(now.as_micros()).unwrap_or_default();
        let registry = Registry::builder().first_token(first_token).build();
        Ok(Self { directory, listener, _lock: lock, is_successor, idle: IDLE, registry })
    }

    /// How long to stay when there is no client and nothing is held. A minute by default.
    pub fn idle_timeout(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// Serves until it is stopped, or nobody has needed it for a while.
    ///
    /// # Errors
    ///
    /// [`HomeError`] if the system refuses what it takes.
    pub fn serve(self) -> Result<(), HomeError> {
        raise_file_limit();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| address::trouble("serve in", &self.directory, &error))?;
        runtime.block_on(self.receive())
    }

    async fn receive(self) -> Result<(), HomeError> {
        let listener =
            self.listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(self.listener));
        let listener = listener.map_err(|error| address::trouble("serve in", &self.directory, &error))?;
        let now = Instant::now();
        let house = Arc::new(House {
            registry: self.registry,
            host: gethostname::gethostname().to_string_lossy().into(),
            since: now,
            opens_at: if self.is_successor { now + MOURNING } else { now },
            clients: AtomicUsize::new(0),
            client_left: Notify::new(),
            stop: Notify::new(),
        });
        let mut idle_since = Instant::now();
        loop {
            let is_alone = house.clients.load(Ordering::Relaxed) == 0;
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => session::begin(&house, stream),
                    // Out of file descriptors, most likely: those who knock wait until others have left.
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                },
                () = house.client_left.notified() => idle_since = Instant::now(),
                () = house.stop.notified() => break,
                () = tokio::time::sleep_until((idle_since + self.idle).into()), if is_alone => {
                    if house.held_and_waiting() == (0, 0) {
                        break;
                    }
                    idle_since = Instant::now();
                }
            }
        }
        // What is left behind tells the next agent that somebody lost a slot.
        if house.held_and_waiting() == (0, 0) {
            let _ = fs::remove_file(address::socket_in(&self.directory));
        }
        Ok(())
    }
}

impl House {
    fn held_and_waiting(&self) -> (usize, usize) {
        let all = self.registry.stats(&StatsQuery::default());
        all.iter().fold((0, 0), |(held, waiting), stats| (held + stats.holders, waiting + stats.waiting))
    }
}

fn lock(directory: &Path) -> Result<File, BindError> {
    let path = address::lock_in(directory);
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(|error| address::trouble("write", &path, &error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(BindError::AlreadyRunning { directory: directory.to_owned() })
        }
        Err(error) => Err(address::trouble("lock", &path, &error.into()).into()),
    }
}

/// Under another name first: who finds the socket, finds somebody listening.
fn listen(directory: &Path, socket: &Path) -> Result<StdListener, HomeError> {
    let fresh = directory.join("agent.sock.new");
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(address::trouble("remove", &fresh, &error));
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
    let listener = listening().map_err(|error| address::trouble("listen on", socket, &error.into()))?;
    Ok(listener.into())
}

/// A client is a file descriptor.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // What there is has to do, then.
    let _ = setrlimit(Resource::Nofile, limit);
}
