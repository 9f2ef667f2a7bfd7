//! Semaphores for a fleet, on Redis or Valkey.
//!
//! Processes that use the Python library `asyncio-advanced-semaphores` share them: the keys are the same.
//!
//! # The URL
//!
//! | | |
//! |---|---|
//! | `redis://user:password@host:6379/0` | one server |
//! | `rediss://host` | over TLS (feature `redis-tls`); `?ca=/path/to/ca.pem` for a certificate authority of your own |
//! | `unix:///run/redis.sock?db=0&user=u&pass=p` | over a Unix socket |
//! | `redis+cluster://a:7000,b:7000/?namespace={app}` | a cluster; the `{tag}` keeps a namespace on one node |
//! | `redis+sentinel://a:26379,b:26379/mymaster/0` | the current master |
//!
//! `rediss+cluster` and `rediss+sentinel` use TLS for all servers and sentinels.
//!
//! Options: `namespace` (`adv-sem`), `socket_timeout` (30 s), `socket_connect_timeout` (10 s), `number_of_attempts` (3),
//! `retry_multiplier` (2), `retry_min_delay` (1 s), `retry_max_delay` (60 s), `protocol` (`resp3`), `max_connections` (300;
//! not used). [`Config`] says what they mean.
//!
//! # What is promised, and what is not
//!
//! - Scripts on the server decide which client gets a slot, by the server's clock, in order of arrival.
//! - A holder that dies loses its slot after `heartbeat_max_interval`. A holder that can't reach the server gets a signal
//!   before the server can grant its slot to another client: [`Permit::lost`](crate::Permit::lost).
//! - A process that was stopped for longer than that runs on for a moment before it gets the signal. So does a process
//!   whose server forgot everything: after a flush, or after a failover to a replica that was behind. Where that must not
//!   do harm, pass the [fencing token](crate::Permit::fencing_token) to the resource.
//! - Fencing tokens grow with every grant of a name: they are at least the server's time in microseconds. A process always
//!   gets a larger token than those it has seen, because it sends the largest one to the server. Only if the server forgot
//!   its last grants *and* its clock was set back (or the clock of the new master is behind), a process that has seen none
//!   of the newer tokens may get an older one, until the clock has caught up.
//! - The server's record decides how long a slot is held. Any process can renew it by its id; the holder's process gets a
//!   message at once, or learns of it before it gives up.
//! - Clients of the Python library count the members of a set. They see at most 64 slots of a weight, so a larger weight is
//!   refused where they hold slots, wait, or did so within the last hour. A Python client that comes for the first time
//!   while a larger weight is held counts the slots that it does not see as free: use no weights above 64 under names that
//!   you share with it. Python clients also set the expiry of the shared keys: the next call of ours puts back a slot of
//!   ours that is lost that way, unless another client has it. Where Python clients were seen within the last hour, a
//!   holder that can't reach the server gives up 10 seconds after its last heartbeat.
//! - After the machine was suspended, a permit counts as lost as soon as its lease has ended on a clock that counts the
//!   suspended time. Linux only; elsewhere the process learns of it from the next heartbeat.
//! - While a slot of a cluster moves to another node, the cluster serves no script that needs keys on both nodes. Calls are
//!   repeated until the move is over, as often as the options allow.
//!
//! # What the server needs
//!
//! - `maxmemory-policy noeviction`. With another policy the server deletes keys of semaphores in use when its memory runs
//!   out, and a second holder may get the slot. The first holder then gets a signal, at the latest with its next
//!   heartbeat. Connecting to such a server causes a warning: [`Home::warnings`](crate::Home::warnings).
//! - A user with `~NAMESPACE:* &NAMESPACE:* +@all -@admin -@dangerous +info`. Without `+info` the policy is not checked. A
//!   user that lacks a command can list semaphores if it may read; everything else fails with an error that names the
//!   command, before a script has changed anything.
//! - A namespace without `:semaphore_main` or another kind of key in it: its keys could be those of another namespace.
//!
//! A `ttl` on Redis may be at most 68 years.

mod alarm;
mod config;
mod connection;
mod diagnostics;
mod discovery;
mod driver;
mod engine;
mod home;
mod ids;
mod inspect;
mod keys;
pub(crate) mod offline;
mod requirements;
mod script;
#[cfg(feature = "redis-tls")]
mod tls;

pub use config::{Config, Protocol};
pub(crate) use home::RedisHome;

pub(crate) fn after_fork() {
    driver::RedisDriver::after_fork();
}
