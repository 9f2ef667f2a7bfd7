//! What the next agent has to know if this one is killed: which grants are live, how many slots there are, and which
//! fencing tokens were issued.
//!
//! It is a file beside the socket. A grant or a new number of slots is written **before** the agent sends its reply, so
//! everything that a client knows is in the file. The end of a grant is written after it: a missing grant would let
//! another holder in beside its holder, while one grant too many only keeps its slot until its client has returned or has
//! ended. For a grant that is held by its id, the end of its lease is written, too, because no client returns for it.
//!
//! Written means passed to the kernel; nothing is synced. What is written survives the agent, however it dies. A machine
//! that loses power may lose the whole file, but then no holder survives either.
//!
//! Each line has a checksum. A file that is damaged, or does not belong to the user, is refused: then the next agent
//! makes no new grants until all possible holders had time to return.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::local::lifeline::{Byte, ProcessKey};
use crate::{Registry, StatsQuery};

const VERSION: u32 = 1;
/// The journal is rewritten when it is longer than this and four times as long as necessary.
const MIN_REWRITE_LENGTH: usize = 64 * 1024;
/// No agent writes a longer journal.
const MAX_LENGTH: u64 = 1 << 30;
/// The pause before the next attempt after a failed write.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How a later agent can find out whether a client is alive.
#[derive(Clone, Copy, Default, Serialize, Deserialize, Debug)]
pub(super) struct Client {
    pub(super) lifeline: Option<Byte>,
    pub(super) process: Option<ProcessKey>,
}

/// A grant that is live.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(super) struct Grant {
    pub(super) name: Arc<str>,
    /// The number of slots of the name.
    pub(super) slots: u32,
    /// The id by which its holder knows it. A former agent may have issued it.
    pub(super) id: Arc<str>,
    pub(super) slot: u32,
    pub(super) weight: u32,
    /// The largest of these is the largest token of this agent.
    pub(super) token: u64,
    pub(super) client: Client,
    /// Set once it is held by its id. Then it does not matter whether its client is alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) by_id: Option<StoredLease>,
}

/// How long a slot is held by its id, on a clock that all agents share.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(super) struct StoredLease {
    /// Counted from the start of the machine. `None` without a time to live.
    ends_at: Option<Duration>,
    /// The time left when this was written. Later no more can be left, even if the clock says so.
    left: Option<Duration>,
    /// The boot id of the machine, where known. A shell script with the id does not survive a reboot.
    boot: Option<Arc<str>>,
}

impl StoredLease {
    pub(super) fn of(left: Option<Duration>) -> Self {
        let ends_at = left.map(|left| since_boot().saturating_add(left));
        Self { ends_at, left, boot: boot() }
    }

    pub(super) fn is_over(&self) -> bool {
        self.boot != boot() || self.remaining().is_some_and(|remaining| remaining.is_zero())
    }

    /// The time left; `None` without a time to live.
    pub(super) fn remaining(&self) -> Option<Duration> {
        let (ends_at, left) = (self.ends_at?, self.left?);
        Some(ends_at.saturating_sub(since_boot()).min(left))
    }
}

fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(now).unwrap_or_default()
}

/// The boot id of the machine, on Linux.
fn boot() -> Option<Arc<str>> {
    static BOOT: OnceLock<Option<Arc<str>>> = OnceLock::new();
    let read = || fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().into());
    BOOT.get_or_init(read).clone()
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    /// The first line.
    Head {
        version: u32,
        /// All tokens so far are at most this.
        token: u64,
        /// The identity of the file of the lifelines.
        lifelines: Option<(u64, u64)>,
    },
    Resized {
        name: Arc<str>,
        slots: u32,
    },
    Granted {
        key: u64,
        grant: Grant,
    },
    Ended {
        key: u64,
    },
}

/// The journal that a former agent has written.
#[derive(Default, Debug)]
pub(super) struct FoundJournal {
    /// True if every line could be read.
    pub(super) is_complete: bool,
    /// Why it can't be trusted, for the user.
    pub(super) problem: Option<String>,
    /// All tokens so far are at most this.
    pub(super) token: u64,
    pub(super) lifelines: Option<(u64, u64)>,
    pub(super) live: BTreeMap<u64, Grant>,
    /// The newest number of slots, by name.
    pub(super) slots: BTreeMap<Arc<str>, u32>,
    /// Names whose number of slots was set by a resize.
    pub(super) resized: BTreeSet<Arc<str>>,
}

/// The path of an agent's journal.
pub(super) fn file_in(directory: &Path) -> PathBuf {
    directory.join("agent.journal")
}

impl FoundJournal {
    /// Reads the journal, if it can be trusted.
    pub(super) fn in_folder(directory: &Path) -> Self {
        let path = file_in(directory);
        match read(&path) {
            Ok(None) => Self::default(),
            Ok(Some(text)) => {
                let mut found = Self::default();
                match found.read_lines(&text) {
                    Ok(()) => found.is_complete = true,
                    Err(why) => found.problem = Some(untrusted(&path, &why)),
                }
                found
            }
            Err(why) => Self { problem: Some(untrusted(&path, &why.to_string())), ..Self::default() },
        }
    }

    /// Applies all intact lines. The error describes the first line that is not intact.
    fn read_lines(&mut self, text: &[u8]) -> Result<(), String> {
        let mut outcome = Ok(());
        for (at, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let applied = match parse(line) {
                Some(Record::Head { version, .. }) if version != VERSION => {
                    return Err(format!(
                        "it has version {version}, and this semafor knows version {VERSION}"
                    ));
                }
                Some(Record::Head { .. }) if at > 0 => Err(()),
                Some(record) if at > 0 || matches!(record, Record::Head { .. }) => {
                    self.apply(record);
                    Ok(())
                }
                _ => Err(()),
            };
            if applied.is_err() && outcome.is_ok() {
                outcome = Err(format!("line {} is torn", at + 1));
            }
        }
        if text.is_empty() {
            outcome = Err("it is empty".to_owned());
        }
        outcome
    }

    fn apply(&mut self, record: Record) {
        match record {
            Record::Head { token, lifelines, .. } => {
                self.token = token;
                self.lifelines = lifelines;
            }
            Record::Resized { name, slots } => {
                self.resized.insert(Arc::clone(&name));
                self.slots.insert(name, slots);
            }
            Record::Granted { key, grant } => {
                self.token = self.token.max(grant.token);
                self.slots.insert(Arc::clone(&grant.name), grant.slots);
                self.live.insert(key, grant);
            }
            Record::Ended { key } => drop(self.live.remove(&key)),
        }
    }
}

fn untrusted(path: &Path, why: &str) -> String {
    format!("the journal {} can't be trusted: {why}", path.display())
}

/// `None` if there is no such file.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    let refusal = if !found.is_file() {
        "it is not a file"
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        "it belongs to another user"
    } else if found.mode() & 0o077 != 0 {
        "it is open to other users"
    } else if found.len() > MAX_LENGTH {
        "it is too long"
    } else {
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        return Ok(Some(text));
    };
    Err(io::Error::other(refusal))
}

fn parse(line: &[u8]) -> Option<Record> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (sum, record) = line.split_once(' ')?;
    let is_intact = u64::from_str_radix(sum, 16).ok()? == checksum(record.as_bytes());
    is_intact.then(|| serde_json::from_str(record).ok()).flatten()
}

fn line(record: &Record) -> Vec<u8> {
    let mut line = vec![b'0'; 16];
    line.push(b' ');
    // Never fails: no record has maps with odd keys, and the writer is a vector.
    let _ = serde_json::to_writer(&mut line, record);
    let sum = format!("{:016x}", checksum(&line[17..]));
    line[..16].copy_from_slice(sum.as_bytes());
    line.push(b'\n');
    line
}

/// FNV-1a: it detects accidents. Only the user could change the file on purpose.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// The journal that is being written.
pub(super) struct Journal(Mutex<Inner>);

struct Inner {
    path: PathBuf,
    registry: Registry,
    /// `None` if the journal could not be written. Then there is no journal in the folder.
    file: Option<File>,
    retry_at: Option<Instant>,
    length: usize,
    /// The lines of the live grants.
    live: BTreeMap<u64, Vec<u8>>,
    live_bytes: usize,
    /// The length of the lines with numbers of slots.
    resized_bytes: usize,
    last_key: u64,
    token: u64,
    lifelines: Option<(u64, u64)>,
    resized: BTreeSet<Arc<str>>,
    is_sealed: bool,
}

/// A grant in the journal. Drop writes that it has ended.
pub(super) struct Entry {
    journal: Arc<Journal>,
    key: u64,
    grant: Grant,
}

impl Entry {
    /// Writes that the grant is held by its id from now on, with this lease. Must be called before the reply is sent.
    pub(super) fn held_by_id(&mut self, lease: StoredLease) {
        self.grant.by_id = Some(lease);
        self.journal.0.lock().note(self.key, self.grant.clone());
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.journal.0.lock().end(self.key);
    }
}

impl Journal {
    /// Creates a journal that is not written yet: see [`begin`](Self::begin).
    pub(super) fn new(
        directory: &Path,
        registry: Registry,
        token: u64,
        lifelines: Option<(u64, u64)>,
    ) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Inner {
            path: file_in(directory),
            registry,
            file: None,
            retry_at: None,
            length: 0,
            live: BTreeMap::new(),
            live_bytes: 0,
            resized_bytes: 0,
            last_key: 0,
            token,
            lifelines,
            resized: BTreeSet::new(),
            is_sealed: true,
        })))
    }

    /// Replaces the journal of a former agent.
    pub(super) fn begin(&self) {
        let mut inner = self.0.lock();
        inner.is_sealed = false;
        inner.rewrite();
    }

    /// Writes a grant. Must be called before the grant is sent to its holder.
    pub(super) fn grant(self: &Arc<Self>, grant: Grant) -> Entry {
        let mut inner = self.0.lock();
        inner.last_key += 1;
        inner.token = inner.token.max(grant.token);
        let key = inner.last_key;
        inner.note(key, grant.clone());
        Entry { journal: Arc::clone(self), key, grant }
    }

    /// Writes a new number of slots. Must be called before the reply is sent.
    pub(super) fn resized(&self, name: &Arc<str>, slots: u32) {
        let mut inner = self.0.lock();
        let line = line(&Record::Resized { name: Arc::clone(name), slots });
        if inner.resized.insert(Arc::clone(name)) {
            inner.resized_bytes += line.len();
        }
        inner.write(&line);
    }

    /// Stops writing: grants that end from now on end only because this agent ends.
    pub(super) fn seal(&self) {
        self.0.lock().is_sealed = true;
    }

    /// The same, for an agent without grants: the next agent needs only its tokens.
    pub(super) fn finish(&self) {
        let mut inner = self.0.lock();
        inner.resized.clear();
        inner.rewrite();
        inner.is_sealed = true;
    }
}

impl Inner {
    /// Writes a live grant. It replaces an earlier line with the same key.
    fn note(&mut self, key: u64, grant: Grant) {
        let line = line(&Record::Granted { key, grant });
        self.write(&line);
        self.live_bytes += line.len();
        if let Some(former) = self.live.insert(key, line) {
            self.live_bytes -= former.len();
        }
    }

    fn end(&mut self, key: u64) {
        if let Some(line) = self.live.remove(&key) {
            self.live_bytes -= line.len();
        }
        // Without a journal, its end need not be written.
        if self.file.is_some() {
            self.write(&line(&Record::Ended { key }));
        }
    }

    fn write(&mut self, line: &[u8]) {
        if self.is_sealed {
            return;
        }
        let is_long =
            self.length > MIN_REWRITE_LENGTH && self.length / 4 > self.live_bytes + self.resized_bytes;
        let is_due = is_long || self.file.is_none();
        if is_due && self.retry_at.is_none_or(|at| at <= Instant::now()) {
            // Contains all live grants, but not yet the one of this line.
            self.rewrite();
        }
        if self.file.is_some() && self.append(line).is_err() && self.rewrite_in_place(line).is_err() {
            self.abandon();
        }
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        let file = self.file.as_mut().ok_or(ErrorKind::NotFound)?;
        file.write_all(text)?;
        self.length += text.len();
        Ok(())
    }

    /// For a full disk: drops the lines of ended grants in place. An agent that dies meanwhile leaves a torn journal.
    fn rewrite_in_place(&mut self, line: &[u8]) -> io::Result<()> {
        let former = self.length;
        let text = self.text();
        // Otherwise this would be repeated soon, and each time takes as long as there are live grants.
        if text.len() > former / 2 {
            return Err(ErrorKind::StorageFull.into());
        }
        if let Some(file) = &self.file {
            file.set_len(0)?;
        }
        self.length = 0;
        self.append(&text)?;
        self.append(line)
    }

    /// The current state as journal lines.
    fn text(&mut self) -> Vec<u8> {
        let (version, token, lifelines) = (VERSION, self.token, self.lifelines);
        let mut text = line(&Record::Head { version, token, lifelines });
        self.live.values().for_each(|line| text.extend_from_slice(line));
        // Only names that the registry still knows.
        let names: Vec<String> = self.resized.iter().map(ToString::to_string).collect();
        let known = self.registry.stats(&StatsQuery::default().names(names));
        self.resized = known.iter().map(|stats| Arc::clone(&stats.name)).collect();
        let before = text.len();
        for stats in known {
            text.extend(line(&Record::Resized { name: Arc::clone(&stats.name), slots: stats.slots }));
        }
        self.resized_bytes = text.len() - before;
        text
    }

    /// Writes the current state to a new file, which replaces the old one.
    fn rewrite(&mut self) {
        let text = self.text();
        let fresh = self.path.with_extension("journal.new");
        let written = || -> io::Result<File> {
            match fs::remove_file(&fresh) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&fresh)?;
            file.write_all(&text)?;
            fs::rename(&fresh, &self.path)?;
            Ok(file)
        };
        let mut outcome = written();
        if outcome.is_err() && self.file.is_none() {
            // The journal of a former agent is useless now, and may take up the space.
            let _ = fs::remove_file(&fresh);
            let _ = fs::remove_file(&self.path);
            outcome = written();
        }
        match outcome {
            Ok(file) => {
                self.file = Some(file);
                self.retry_at = None;
                self.length = text.len();
            }
            Err(_) => {
                let _ = fs::remove_file(&fresh);
                self.retry_at = Some(Instant::now() + RETRY_PAUSE);
                // The old file stays: it may be long, but it is complete.
            }
        }
    }

    /// Gives up the journal, for example on a full disk. Without one the next agent is careful; with an incomplete one
    /// it would not be.
    fn abandon(&mut self) {
        self.file = None;
        self.retry_at = Some(Instant::now() + RETRY_PAUSE);
        let _ = fs::remove_file(&self.path);
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(name: &str, token: u64) -> Grant {
        Grant {
            name: name.into(),
            slots: 4,
            id: format!("1-0-{token}").into(),
            slot: 0,
            weight: 1,
            token,
            client: Client { lifeline: Some(7), process: None },
            by_id: None,
        }
    }

    fn started(directory: &Path) -> Arc<Journal> {
        let journal = Journal::new(directory, Registry::new(), 5, Some((1, 2)));
        journal.begin();
        journal
    }

    fn tokens(found: &FoundJournal) -> Vec<u64> {
        found.live.values().map(|grant| grant.token).collect()
    }

    #[test]
    fn live_grants_are_found_again() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        assert!(!FoundJournal::in_folder(folder.path()).is_complete, "there is no journal yet");
        let journal = started(folder.path());
        let (one, two) = (journal.grant(grant("a", 10)), journal.grant(grant("b", 12)));
        journal.resized(&"a".into(), 9);
        drop(one);
        let three = journal.grant(grant("b", 11));
        let found = FoundJournal::in_folder(folder.path());
        assert!(found.is_complete && found.problem.is_none(), "{found:?}");
        assert_eq!((found.token, found.lifelines), (12, Some((1, 2))));
        assert_eq!(tokens(&found), [12, 11]);
        assert_eq!(found.slots.get("a"), Some(&9));
        drop((two, three));
    }

    #[test]
    fn journal_is_rewritten_before_it_grows_long() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let journal = started(folder.path());
        let held = journal.grant(grant("a", 10));
        for token in 11..20_000 {
            drop(journal.grant(grant("a", token)));
        }
        let length = fs::metadata(file_in(folder.path())).expect("it is there").len();
        assert!(length < 4 * MIN_REWRITE_LENGTH as u64, "{length}");
        let found = FoundJournal::in_folder(folder.path());
        assert!(found.is_complete);
        assert_eq!(found.live.values().next().map(|grant| grant.token), Some(10));
        assert_eq!(found.token, 19_999);
        drop(held);
    }

    fn inode(directory: &Path) -> u64 {
        fs::metadata(file_in(directory)).expect("it is there").ino()
    }

    #[test]
    fn many_resizes_cause_few_rewrites() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let registry = Registry::new();
        let journal = Journal::new(folder.path(), registry.clone(), 5, None);
        journal.begin();
        let (mut rewrites, mut last) = (0, inode(folder.path()));
        let mut count = || {
            let now = inode(folder.path());
            rewrites += u32::from(now != last);
            last = now;
        };
        let mut used = Vec::new();
        for n in 0..3000 {
            let name: Arc<str> = format!("name {n}").into();
            used.push(registry.named(&*name).slots(9).build().expect("it can be opened"));
            journal.resized(&name, 9);
            count();
        }
        for token in 10..1000 {
            drop(journal.grant(grant("a", token)));
            count();
        }
        assert!(rewrites <= 10, "written anew {rewrites} times");
        let found = FoundJournal::in_folder(folder.path());
        assert_eq!((found.is_complete, found.resized.len(), found.live.len()), (true, 3000, 0));
        drop(used);
    }

    #[test]
    fn journal_that_cannot_be_rewritten_is_appended_to() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let journal = started(folder.path());
        let held = journal.grant(grant("a", 10));
        // A folder that is not empty can't be replaced by a file.
        fs::create_dir_all(folder.path().join("agent.journal.new/full")).expect("it can be made");
        for token in 11..2000 {
            drop(journal.grant(grant("a", token)));
        }
        let found = FoundJournal::in_folder(folder.path());
        assert!(found.is_complete, "{:?}", found.problem);
        assert_eq!((tokens(&found), found.token), (vec![10], 1999));
        drop(held);
    }

    #[test]
    fn grant_held_by_id_is_found_with_the_rest_of_its_lease() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let journal = started(folder.path());
        let (hour, ended) = (Duration::from_secs(3600), Duration::from_nanos(1));
        let mut held = [hour, ended].map(|left| (journal.grant(grant("a", 10)), left));
        held.iter_mut().for_each(|(entry, left)| entry.held_by_id(StoredLease::of(Some(*left))));
        let found = FoundJournal::in_folder(folder.path());
        let leases: Vec<&StoredLease> =
            found.live.values().filter_map(|grant| grant.by_id.as_ref()).collect();
        let [lasting, over] = leases[..] else { panic!("{found:?}") };
        assert!(!lasting.is_over() && over.is_over(), "{found:?}");
        assert!(lasting.remaining().is_some_and(|left| left <= hour && left > hour / 2), "{found:?}");
        let before = StoredLease { boot: Some("another".into()), ..lasting.clone() };
        assert!(before.is_over(), "the machine was started again since");
        let set_back = StoredLease { ends_at: lasting.ends_at.map(|end| end + 9 * hour), ..lasting.clone() };
        assert!(set_back.remaining().is_some_and(|left| left <= hour));
        drop(held);
    }

    #[test]
    fn sealed_journal_keeps_the_live_grants() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let journal = started(folder.path());
        let held = journal.grant(grant("a", 10));
        journal.seal();
        drop(held);
        assert_eq!(tokens(&FoundJournal::in_folder(folder.path())), [10]);
    }

    #[test]
    fn finished_journal_has_only_the_tokens() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let journal = started(folder.path());
        drop(journal.grant(grant("a", 10)));
        journal.finish();
        let found = FoundJournal::in_folder(folder.path());
        assert!(found.is_complete && found.live.is_empty() && found.resized.is_empty(), "{found:?}");
        assert_eq!(found.token, 10);
    }

    #[test]
    fn torn_journal_is_refused_wherever_it_is_torn() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let journal = started(folder.path());
        let held = (journal.grant(grant("a", 10)), journal.grant(grant("b", 11)));
        let path = file_in(folder.path());
        let whole = fs::read(&path).expect("it is there");
        let ends: Vec<usize> = (1..=whole.len()).filter(|end| whole[end - 1] == b'\n').collect();
        for end in (0..whole.len()).filter(|end| !ends.contains(end)) {
            fs::write(&path, &whole[..end]).expect("it is ours");
            let found = FoundJournal::in_folder(folder.path());
            assert!(!found.is_complete && found.problem.is_some(), "{end} bytes: {found:?}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).expect("it is ours");
            let found = FoundJournal::in_folder(folder.path());
            assert!(!found.is_complete && found.problem.is_some(), "byte {at}: {found:?}");
        }
        drop(held);
    }

    #[test]
    fn journal_of_another_version_is_refused() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let head = Record::Head { version: VERSION + 1, token: 1, lifelines: None };
        let path = file_in(folder.path());
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        file.as_mut().expect("it can be made").write_all(&line(&head)).expect("it is ours");
        let found = FoundJournal::in_folder(folder.path());
        assert!(found.problem.is_some_and(|why| why.contains("version 2")) && !found.is_complete);
    }

    #[test]
    fn journal_that_is_not_a_private_file_of_the_user_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().expect("a folder can be made");
        let elsewhere = tempfile::tempdir().expect("a folder can be made");
        drop(started(elsewhere.path()));
        let path = file_in(folder.path());
        let problem = || FoundJournal::in_folder(folder.path()).problem.expect("it is refused");
        symlink(file_in(elsewhere.path()), &path).expect("it can be made");
        problem();
        fs::remove_file(&path).expect("it is ours");
        fs::copy(file_in(elsewhere.path()), &path).expect("it can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("it is ours");
        assert!(problem().contains("open to other users"));
        fs::remove_file(&path).expect("it is ours");
        fs::create_dir(&path).expect("it can be made");
        assert!(problem().contains("not a file"));
    }

    #[test]
    fn journal_that_cannot_be_written_is_written_once_it_can() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let place = folder.path().join("gone");
        let journal = started(&place);
        let held = journal.grant(grant("a", 10));
        assert!(!FoundJournal::in_folder(&place).is_complete);
        fs::create_dir(&place).expect("it can be made");
        journal.0.lock().retry_at = None;
        drop(journal.grant(grant("b", 11)));
        let found = FoundJournal::in_folder(&place);
        assert!(found.is_complete && tokens(&found).contains(&10), "{found:?}");
        drop(held);
    }
}
