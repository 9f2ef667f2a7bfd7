//! A file system in memory where every operation is delayed, as on a network file system.
//!
//! At most [`SLOTS`] operations run at once, as with the slots of NFS. The kernel makes removals in one directory one
//! after the other, as it does for NFS.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

use super::store::{Line, Store};

/// Operations at once: as many as NFS has slots by default.
const SLOTS: usize = 64;

/// How long the kernel may cache an answer.
const VALID: Duration = Duration::from_secs(30);

/// The state that survives an unmount.
#[derive(Clone)]
pub(super) struct LatencyFs {
    store: Arc<Mutex<Store>>,
    /// The number of delayed operations.
    trips: Arc<AtomicU64>,
    latency: Duration,
}

/// Mounted until it is dropped.
pub(super) struct Mounted {
    _session: BackgroundSession,
}

/// Makes mounts private to this process, so that they vanish when it ends. False if that fails.
pub(super) fn use_private_mounts() -> bool {
    // SAFETY: no memory is involved, and there is only one thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return false;
    }
    let (what, root) = (c"none".as_ptr(), c"/".as_ptr());
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: the two strings are static, and the others may be null.
    unsafe { libc::mount(what, root, std::ptr::null(), flags, std::ptr::null()) == 0 }
}

impl LatencyFs {
    pub(super) fn new() -> Self {
        Self { store: Arc::new(Mutex::new(Store::new())), trips: Arc::default(), latency: Duration::ZERO }
    }

    /// Mounts it at `at`. The kernel forgets what it cached from an earlier mount.
    pub(super) fn mount(&self, at: &Path, latency: Duration, is_private: bool) -> io::Result<Mounted> {
        self.trips.store(0, Ordering::Relaxed);
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("semafor-latency".into())];
        if !is_private {
            config.mount_options.push(MountOption::AutoUnmount);
        }
        config.n_threads = Some(SLOTS);
        let session = fuser::spawn_mount(Self { latency, ..self.clone() }, at, &config)?;
        Ok(Mounted { _session: session })
    }

    /// Operations since it was mounted.
    pub(super) fn trips(&self) -> u64 {
        self.trips.load(Ordering::Relaxed)
    }

    /// The round trip to a server. Called within each operation.
    fn delay(&self) {
        self.trips.fetch_add(1, Ordering::Relaxed);
        sleep(self.latency);
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().expect("no thread panics while it holds the lock")
    }

    fn describe(&self, number: u64) -> Result<FileAttr, Errno> {
        let store = self.store();
        let node = store.get(number)?;
        let time = SystemTime::UNIX_EPOCH;
        Ok(FileAttr {
            ino: INodeNo(number),
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: node.kind,
            perm: 0o755,
            nlink: node.links(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn add(&self, parent: INodeNo, name: &OsStr, kind: FileType) -> Result<FileAttr, Errno> {
        let number = self.store().add(parent.0, name, kind)?;
        self.describe(number)
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, kind: FileType, reply: ReplyEmpty) {
        self.delay();
        let removed = self.store().remove(parent.0, name, kind);
        match removed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }
}

fn answer(reply: ReplyEntry, found: Result<FileAttr, Errno>) {
    match found {
        Ok(attributes) => reply.entry(&VALID, &attributes, Generation(0)),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for LatencyFs {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // NFS looks up several names of a directory at once, too.
        let parallel = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        parallel.map_err(|_| io::Error::other("this kernel looks up one name of a directory at a time"))
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.delay();
        let found = self.store().find(parent.0, name);
        answer(reply, found.and_then(|number| self.describe(number)));
    }

    fn getattr(&self, _: &Request, of: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.delay();
        match self.describe(of.0) {
            Ok(attributes) => reply.attr(&VALID, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        self.delay();
        answer(reply, self.add(parent, name, FileType::Directory));
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        self.delay();
        match self.add(parent, name, FileType::RegularFile) {
            Ok(attributes) => {
                reply.created(&VALID, &attributes, Generation(0), FileHandle(0), FopenFlags::empty());
            }
            Err(error) => reply.error(error),
        }
    }

    /// Written data is discarded: it is never read.
    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, FileType::RegularFile, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, FileType::Directory, reply);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.delay();
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn readdir(&self, _: &Request, of: INodeNo, _: FileHandle, behind: u64, mut reply: ReplyDirectory) {
        let mut is_over = true;
        {
            let store = self.store();
            let lines = match store.list(of.0, behind) {
                Ok(lines) => lines,
                Err(error) => return reply.error(error),
            };
            for Line { number, kind, name } in lines {
                is_over = false;
                if reply.add(INodeNo(number), number, kind, OsString::from(name)) {
                    break;
                }
            }
        }
        // The last part also tells the kernel that nothing more comes.
        if behind == 0 || !is_over {
            self.delay();
        }
        reply.ok();
    }
}
