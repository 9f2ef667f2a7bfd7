//! The command line: what can be said, and what it is called. Nothing is done here.

#[cfg(target_os = "linux")]
mod purge;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::duration;
use crate::exit;
use crate::slots::Slots;

#[cfg(target_os = "linux")]
pub(crate) use purge::Purge;

/// Limit how many processes do a thing at once: on this machine with no server, across a fleet with a URL.
///
/// First come, first served. A slot comes back when its holder ends, however it ends.
#[derive(Parser, Debug)]
#[command(name = "semafor", version, after_help = exit::HELP, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Wait for a slot, run a command in it, and exit as the command did
    #[command(after_help = RUN_HELP)]
    Run(Run),
    /// Take a slot and print its id: it is held until released, or for as long as --ttl says
    #[command(after_help = ACQUIRE_HELP)]
    Acquire(Acquire),
    /// Give back what `acquire` took
    #[command(override_usage = "semafor release [OPTIONS] NAME ID")]
    Release(Held),
    /// Hold on to what `acquire` took, for another --ttl from now
    #[command(override_usage = "semafor renew [OPTIONS] --ttl TIME NAME ID")]
    Renew(Renew),
    /// How many slots are held, and how many wait
    Status(Status),
    /// Who holds the slots of a semaphore, and who waits for them
    Inspect(Inspect),
    /// Change how many slots a semaphore has, for everybody
    Resize(Resize),
    /// Take a slot away from whoever holds it
    Evict(Evict),
    /// Watch it all, live, in the terminal
    Top(Top),
    /// Remove empty directories below a directory, and old files if asked to. Try --dry-run first
    #[cfg(target_os = "linux")]
    #[command(after_help = purge::HELP)]
    Purge(Box<Purge>),
    /// The process that keeps the semaphores of this user on this machine
    #[command(subcommand)]
    Agent(Agent),
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write all of them into a folder
    Man {
        /// Where to write semafor.1, semafor-run.1 and so on
        directory: Option<PathBuf>,
    },
}

const RUN_HELP: &str = "\
The command's environment has SEMAFOR_NAME, SEMAFOR_SLOT, SEMAFOR_ID and SEMAFOR_FENCING_TOKEN.

If `semafor run` is killed with SIGKILL, its command is killed too. The slot is released once the command is \
dead; with Redis, once --heartbeat is over.

`semafor inspect` and `top` show the --label and the command. On this machine they show the whole \
command line, which only its user can read. With Redis they show only the program's name: all users of that \
Redis can read it, and arguments may contain passwords. --show-command shows the arguments there, too.

Examples:
  semafor run --name nightly -- ./backup.sh           one at a time; the others wait in line
  semafor run --name encode --slots 100% -- ffmpeg …  as many at once as there are cores
  semafor run --name api --slots 10 --url redis://db/ --timeout 5m -- ./sync
                                                      ten across the fleet; give up after 5 minutes";

const ACQUIRE_HELP: &str = "\
If `acquire` can't print the id, it releases the slot and exits with 74. While it waits, it leaves the \
line and exits with 74 as soon as the reader of its stdout is gone or its parent process has ended. It does \
not watch its parent if it runs in the background: in another process group (setsid), or with SIGINT, SIGQUIT \
or SIGHUP ignored (& in a script, nohup). Signals that were ignored when `acquire` started do not end it.

After printing the id into a pipe, `acquire` waits up to 0.1 s for it to be read. It can't notice a reader \
that ends later without reading the id, or a file that is never read: then the slot stays held for its --ttl.

Example:
  id=$(semafor acquire --name deploy --ttl 10m) && ./deploy.sh; semafor release deploy \"$id\"";

/// Where the semaphores are.
#[derive(Args, Clone, Debug)]
pub(crate) struct At {
    /// Where the semaphores are: `local:` for this user's on this machine, or the URL of a Redis
    // Its value may hold a password.
    #[arg(long, env = "SEMAFOR_URL", default_value = "local:", hide_env_values = true, value_name = "URL")]
    pub(crate) url: String,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) at: At,

    #[command(flatten)]
    pub(crate) options: AcquireOptions,

    /// How long the command may run. Then its slot is lost
    #[arg(long, value_name = "TIME", value_parser = duration::longer_than_zero)]
    pub(crate) ttl: Option<Duration>,

    /// What to do with the command when its slot is lost: end it, before another can start; or just say so
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnLost::Kill)]
    pub(crate) on_lost: OnLost,

    /// How long the command has between being asked to end (SIGTERM) and being killed
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration::any)]
    pub(crate) grace: Duration,

    /// With a Redis: how long this process may give no sign of life before it is taken for dead
    #[arg(long, value_name = "TIME", default_value = "180s", value_parser = duration::longer_than_zero)]
    pub(crate) heartbeat: Duration,

    /// With a Redis: show the whole command line to all who can read there. Only the program's name is shown otherwise
    #[arg(long)]
    pub(crate) show_command: bool,

    /// Say nothing but errors
    #[arg(long, short, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Say what is waited for, and when it came, even where there is no terminal
    #[arg(long, short)]
    pub(crate) verbose: bool,

    /// What to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum OnLost {
    /// End the command and all it started
    Kill,
    /// Say so on stderr, and let it run
    Warn,
}

/// Which slots, of which semaphore, and how long to wait for them.
#[derive(Args, Debug)]
pub(crate) struct AcquireOptions {
    /// The semaphore. Commands with the same name share its slots
    // Not from SEMAFOR_NAME: a `run` inside a `run` would wait for itself.
    #[arg(long, short, default_value = "default", value_name = "NAME")]
    pub(crate) name: String,

    /// How many may hold a slot at once: a number, or 100%, +2, -1 of this machine's cores. As it is if in use, else 1
    #[arg(long, short = 'j', value_name = "N", allow_hyphen_values = true)]
    pub(crate) slots: Option<Slots>,

    /// How many slots to take, all or none
    #[arg(long, short, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) weight: u32,

    /// How long to wait in line, e.g. 30s, 5m, or seconds. 0 is not to wait. For as long as it takes by default
    #[arg(long, short, value_name = "TIME", value_parser = duration::any)]
    pub(crate) timeout: Option<Duration>,

    /// What others see this as, in `inspect` and `top`
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) at: At,

    #[command(flatten)]
    pub(crate) options: AcquireOptions,

    /// How long to hold it, unless released or renewed
    #[arg(long, value_name = "TIME", value_parser = duration::longer_than_zero)]
    pub(crate) ttl: Duration,

    /// Print an object: name, id, slot, fencing_token, waited_seconds, ttl_seconds
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `acquire` took.
#[derive(Args, Debug)]
pub(crate) struct Held {
    #[command(flatten)]
    pub(crate) at: At,

    /// Which semaphore; can also be said as the first word
    #[arg(long, short, env = "SEMAFOR_NAME", value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Its name, unless said with --name, and the id that `acquire` printed
    #[arg(required = true, num_args = 1..=2, value_names = ["NAME", "ID"])]
    pub(crate) words: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Renew {
    #[command(flatten)]
    pub(crate) held: Held,

    /// How long to hold it from now on
    #[arg(long, value_name = "TIME", value_parser = duration::longer_than_zero)]
    pub(crate) ttl: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) at: At,

    /// Only these; all by default
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// At most so many, the fullest first
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,

    /// Print an array of objects: name, held, capacity, percent, waiting, longest_wait_seconds, holders, granted, …
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Inspect {
    #[command(flatten)]
    pub(crate) at: At,

    /// Which semaphore
    pub(crate) name: String,

    /// Print an object: name, held, capacity, holders, waiters
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Resize {
    #[command(flatten)]
    pub(crate) at: At,

    /// Which semaphore
    pub(crate) name: String,

    /// How many slots it shall have: a number, or 100%, +2, -1 of this machine's cores
    #[arg(allow_hyphen_values = true, value_name = "N")]
    pub(crate) slots: Slots,
}

#[derive(Args, Debug)]
pub(crate) struct Evict {
    #[command(flatten)]
    pub(crate) at: At,

    /// Which semaphore
    pub(crate) name: String,

    /// The holder's id, as `inspect` shows it
    pub(crate) id: String,
}

#[derive(Args, Debug)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) at: At,

    /// How often to look
    #[arg(long, short = 'd', value_name = "TIME", default_value = "1s", value_parser = duration::longer_than_zero)]
    pub(crate) interval: Duration,

    /// Show only names with this in them
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Agent {
    /// Whether it runs, since when, and for whom
    Status {
        #[command(flatten)]
        at: At,
        /// Print an object: running, pid, version, uptime_seconds, clients, names, directory
        #[arg(long)]
        json: bool,
    },
    /// End it. Refuses while slots are held or waited for, unless forced
    Stop {
        #[command(flatten)]
        at: At,
        /// Even so: holders lose their slots, who waits goes on with a new agent
        #[arg(long, short)]
        force: bool,
    },
    /// Start it in the background, unless there is one. It is started by itself where it is needed
    #[command(hide = true)]
    Start {
        /// Where its socket is
        directory: PathBuf,
    },
    /// Be the agent, in the foreground
    #[command(hide = true)]
    Serve {
        /// Where its socket is
        directory: PathBuf,
    },
}
