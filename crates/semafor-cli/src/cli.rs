//! The command line: its options and help texts. Parsing only, no behaviour.

#[cfg(target_os = "linux")]
mod purge;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use semafor_cli::slots::Slots;

use crate::duration;
use crate::exit;

#[cfg(target_os = "linux")]
pub(crate) use purge::Purge;

/// Limit how many processes run at the same time, on this machine without a server or on many machines with Redis.
///
/// A command takes a slot of a named semaphore before it starts. If no slot is free, it waits in line, first come,
/// first served. When the command ends, its slot is released, even if it was killed.
#[derive(Parser, Debug)]
#[command(name = "semafor", version, after_help = exit::HELP, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Wait for a slot, run a command, release the slot, and exit with the command's exit code
    #[command(after_help = RUN_HELP)]
    Run(Run),
    /// Take a slot and print its id. The slot is held until `release`, at most for --ttl
    #[command(after_help = ACQUIRE_HELP)]
    Acquire(Acquire),
    /// Release a slot that `acquire` took
    #[command(override_usage = "semafor release [OPTIONS] NAME ID")]
    Release(Held),
    /// Renew a slot that `acquire` took: it is held for --ttl from now on
    #[command(override_usage = "semafor renew [OPTIONS] --ttl TIME NAME ID")]
    Renew(Renew),
    /// Show how many slots are held, and how many waiters are in line
    Status(Status),
    /// Show the holders and waiters of a semaphore
    Inspect(Inspect),
    /// Change the number of slots of a semaphore, for all its users
    Resize(Resize),
    /// Take a slot away from its holder. `run` then ends its command, unless it has --on-lost warn
    Evict(Evict),
    /// Watch all semaphores live in the terminal
    Top(Top),
    /// Remove empty directories below a directory, and optionally old files. Try --dry-run first
    #[cfg(target_os = "linux")]
    #[command(after_help = purge::HELP)]
    Purge(Box<Purge>),
    /// Show or stop the agent, the background process that manages this user's semaphores on this machine
    #[command(subcommand, after_help = AGENT_HELP)]
    Agent(Agent),
    /// Print shell completions
    Completions {
        /// The shell to print completions for
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write all man pages to a directory
    Man {
        /// The directory for semafor.1, semafor-run.1 and so on. It must exist
        directory: Option<PathBuf>,
    },
}

const RUN_HELP: &str = "\
The command's environment has SEMAFOR_NAME, SEMAFOR_SLOT, SEMAFOR_ID and SEMAFOR_FENCING_TOKEN.

If `semafor run` is killed with SIGKILL, its command is killed too. Then the slot is released; with Redis, \
at most --heartbeat later.

`semafor inspect` and `top` show the --label and the command. With `local:` they show the whole command line, \
which only you can read. With Redis they show only the program's name, because all users of that Redis can read \
it and arguments may contain passwords. --show-command shows the arguments there, too.

Examples:
  semafor run --name nightly -- ./backup.sh           one at a time; others wait in line
  semafor run --name encode --slots 100% -- ffmpeg …  one per core
  semafor run --name api --slots 10 --url redis://db/ --timeout 5m -- ./sync
                                                      ten on all machines together;
                                                      give up after 5 minutes";

const ACQUIRE_HELP: &str = "\
If `acquire` can't print the id, it releases the slot and exits with 74. If the reader of its stdout or its \
parent process ends while it waits, it leaves the line and exits with 74. In the background (setsid, nohup, & in \
a script) it keeps waiting even if its parent ends. Signals that were ignored when `acquire` started do not end it.

After printing the id to a pipe, `acquire` waits up to 0.1 s until the id is read. If the reader ends later \
without reading it, or if the id is in a file that is never read, the slot stays held for its --ttl.

Example, for a script:
  id=
  trap 'test -z \"$id\" || semafor release deploy \"$id\"' EXIT
  trap 'exit 129' HUP; trap 'exit 130' INT; trap 'exit 143' TERM
  id=$(semafor acquire --name deploy --ttl 10m) || exit
  ./deploy.sh";

const AGENT_HELP: &str = "\
The first command that needs the agent starts it. It exits after one minute without use. Each user has their own \
agent and their own semaphores: root and deploy, for example, do not share slots. Use Redis (--url) to share them.";

/// The home of the semaphores.
#[derive(Args, Clone, Debug)]
pub(crate) struct HomeArgs {
    /// Where the semaphores are: `local:` (this machine, only this user) or the URL of a Redis server: redis://host/
    // The value may contain a password.
    #[arg(long, env = "SEMAFOR_URL", default_value = "local:", hide_env_values = true, value_name = "URL")]
    pub(crate) url: String,
}

/// The local agent.
#[derive(Args, Clone, Debug)]
pub(crate) struct AgentArgs {
    /// Which agent: `local:`, or `local:` and its directory [default: SEMAFOR_URL if it is such a URL, otherwise local:]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

impl AgentArgs {
    /// `SEMAFOR_URL` may name a Redis server: then it does not count.
    pub(crate) fn home(&self) -> HomeArgs {
        let from_env =
            || std::env::var("SEMAFOR_URL").ok().filter(|url| semafor::local::Config::is_meant_by(url));
        HomeArgs { url: self.url.clone().or_else(from_env).unwrap_or_else(|| "local:".to_owned()) }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) home: HomeArgs,

    #[command(flatten)]
    pub(crate) options: AcquireOptions,

    /// How long the command may run before it loses its slot [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration::longer_than_zero)]
    pub(crate) ttl: Option<Duration>,

    /// What to do with the command when its slot is lost (--ttl over, evicted, agent died, Redis unreachable)
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnLost::Kill)]
    pub(crate) on_lost: OnLost,

    /// With --on-lost kill: time between SIGTERM and SIGKILL
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration::any)]
    pub(crate) grace: Duration,

    /// With Redis: the slot is released if this process sends no heartbeat for this long
    #[arg(long, value_name = "TIME", default_value = "180s", value_parser = duration::longer_than_zero)]
    pub(crate) heartbeat: Duration,

    /// With Redis: `inspect` and `top` show the whole command line to all users of that Redis, not only the program's
    /// name
    #[arg(long)]
    pub(crate) show_command: bool,

    /// Print errors and warnings only
    #[arg(long, short, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Print a line when waiting starts and when the slot is granted, even without a terminal
    #[arg(long, short)]
    pub(crate) verbose: bool,

    /// The command to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum OnLost {
    /// End the command and the processes that it started (not those in a session of their own), normally before
    /// another waiter gets the slot
    Kill,
    /// Print a warning to stderr and let the command continue
    Warn,
}

/// Options of `run` and `acquire`: which semaphore, how many slots, and how long to wait.
#[derive(Args, Debug)]
pub(crate) struct AcquireOptions {
    /// The name of the semaphore. Commands with the same name share its slots
    // Not from SEMAFOR_NAME: a `run` inside a `run` would wait for itself.
    #[arg(long, short, default_value = "default", value_name = "NAME")]
    pub(crate) name: String,

    /// How many slots the semaphore has: a number, or relative to this machine's cores: 100%, +2, -1 [default: the
    /// current number if the semaphore exists, otherwise 1]
    #[arg(long, short = 'j', value_name = "N", allow_hyphen_values = true)]
    pub(crate) slots: Option<Slots>,

    /// How many slots to take. Takes all of them at once, or none
    #[arg(long, short, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) weight: u32,

    /// How long to wait in line: 30s, 5m, or a number of seconds. 0: do not wait [default: no timeout]
    #[arg(long, short, value_name = "TIME", value_parser = duration::any)]
    pub(crate) timeout: Option<Duration>,

    /// A text that `inspect` and `top` show for this holder or waiter
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) home: HomeArgs,

    #[command(flatten)]
    pub(crate) options: AcquireOptions,

    /// The slot is released after this time, unless `release` or `renew` comes first
    #[arg(long, value_name = "TIME", value_parser = duration::longer_than_zero)]
    pub(crate) ttl: Duration,

    /// Print a JSON object: name, id, slot, fencing_token, waited_seconds, ttl_seconds
    #[arg(long)]
    pub(crate) json: bool,
}

/// A slot that `acquire` took.
#[derive(Args, Debug)]
pub(crate) struct Held {
    #[command(flatten)]
    pub(crate) home: HomeArgs,

    /// The name of the semaphore, if the argument NAME is omitted
    #[arg(long, short, env = "SEMAFOR_NAME", value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// The name of the semaphore (may be omitted with --name) and the id that `acquire` printed
    #[arg(required = true, num_args = 1..=2, value_names = ["NAME", "ID"])]
    pub(crate) words: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Renew {
    #[command(flatten)]
    pub(crate) held: Held,

    /// How long to hold the slot, counted from now
    #[arg(long, value_name = "TIME", value_parser = duration::longer_than_zero)]
    pub(crate) ttl: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) home: HomeArgs,

    /// Show only these semaphores [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// Show at most N semaphores, the fullest first
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,

    /// Print a JSON array of objects: name, held, capacity, percent, waiting, longest_wait_seconds, holders, granted, …
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Inspect {
    #[command(flatten)]
    pub(crate) home: HomeArgs,

    /// The name of the semaphore
    pub(crate) name: String,

    /// Print a JSON object: name, held, capacity, percent, waiting, holders, waiters
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Resize {
    #[command(flatten)]
    pub(crate) home: HomeArgs,

    /// The name of the semaphore
    pub(crate) name: String,

    /// The new number of slots: a number, or relative to this machine's cores: 100%, +2, -1
    #[arg(allow_hyphen_values = true, value_name = "N")]
    pub(crate) slots: Slots,
}

#[derive(Args, Debug)]
pub(crate) struct Evict {
    #[command(flatten)]
    pub(crate) home: HomeArgs,

    /// The name of the semaphore
    pub(crate) name: String,

    /// The id of the holder, as `inspect` shows it
    pub(crate) id: String,
}

#[derive(Args, Debug)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) home: HomeArgs,

    /// Time between two updates
    #[arg(long, short = 'd', value_name = "TIME", default_value = "1s", value_parser = duration::longer_than_zero)]
    pub(crate) interval: Duration,

    /// Show only semaphores with this text in their name
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Agent {
    /// Show whether the agent is running, for how long, and how many clients it has
    Status {
        #[command(flatten)]
        home: AgentArgs,
        /// Print a JSON object: running, pid, version, uptime_seconds, clients, names, held, waiting, directory
        #[arg(long)]
        json: bool,
    },
    /// Stop the agent. Refused while there are holders or waiters, unless --force is given
    Stop {
        #[command(flatten)]
        home: AgentArgs,
        /// Stop it even if it has holders or waiters: holders lose their slots, waiters continue with a new agent
        #[arg(long, short)]
        force: bool,
    },
    /// Start the agent in the background, unless it is running. Other commands start it when they need it
    #[command(hide = true)]
    Start {
        /// The directory of the agent's socket
        directory: PathBuf,
    },
    /// Run the agent in the foreground
    #[command(hide = true)]
    Serve {
        /// The directory of the agent's socket
        directory: PathBuf,
    },
}
