//! Functions that take any bytes, and must neither panic nor need much memory.
//!
//! Each [`Target`] is run by `tests/any_bytes.rs` with the files in `corpus/` and with random changes of them, and by
//! libFuzzer (`fuzz/`, `cargo xtask fuzz`). Most targets read lines that a mistake elsewhere does not change the meaning
//! of, so that random changes get far.

mod durations;
mod messages;
mod mutations;
mod redis;
mod requests;
mod responses;
mod traces;
mod urls;

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use self::mutations::Mutations;
use crate::heap;

/// What takes any bytes.
pub struct Target {
    /// The name of its folder in `corpus/`.
    pub name: &'static str,
    /// Panics if the code under test does something wrong.
    pub run: fn(&[u8]),
    /// Words that are unlikely to be found by chance.
    pub words: &'static [&'static str],
    /// The most heap, in bytes, that an input may need in addition to [`PER_BYTE`].
    most_heap: usize,
}

/// The most heap that each byte of an input may need.
const PER_BYTE: usize = 1024;

/// All of them.
pub const TARGETS: [Target; 6] = [
    Target { name: "durations", run: durations::run, words: durations::WORDS, most_heap: 1 << 20 },
    Target { name: "redis", run: redis::run, words: redis::WORDS, most_heap: 1 << 20 },
    // Lines may contain the abbreviation of a long text.
    Target { name: "requests", run: requests::run, words: requests::WORDS, most_heap: 64 << 20 },
    Target { name: "responses", run: responses::run, words: responses::WORDS, most_heap: 64 << 20 },
    Target { name: "traces", run: traces::run, words: traces::WORDS, most_heap: 1 << 20 },
    Target { name: "urls", run: urls::run, words: urls::WORDS, most_heap: 1 << 20 },
];

impl Target {
    /// The target with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// The folder of its saved inputs.
    pub fn folder(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(self.name)
    }

    /// Its saved inputs with the names of their files, in the order of the names.
    ///
    /// # Panics
    ///
    /// If they can't be read.
    pub fn corpus(&self) -> Vec<(String, Vec<u8>)> {
        let folder = fs::read_dir(self.folder()).expect("a folder with saved inputs");
        let mut files: Vec<_> = folder.map(|file| file.expect("a file").path()).collect();
        files.sort();
        let read = |path: PathBuf| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, fs::read(path).expect("a file that can be read"))
        };
        files.into_iter().map(read).collect()
    }

    /// Runs one input, in a program with the [`heap::Counting`] allocator.
    ///
    /// # Errors
    ///
    /// If any thread panicked, or this thread needed too much memory.
    pub fn check(&self, input: &[u8]) -> Result<(), String> {
        count_panics();
        let panics = PANICS.load(Ordering::SeqCst);
        let (outcome, peak) = heap::own_peak(|| panic::catch_unwind(AssertUnwindSafe(|| (self.run)(input))));
        let most = self.most_heap + PER_BYTE * input.len();
        // A task of a runtime may have panicked, which the runtime hides.
        if outcome.is_err() || PANICS.load(Ordering::SeqCst) != panics {
            return Err("it panics".to_owned());
        }
        if peak > most { Err(format!("it needs {peak} bytes of memory, more than {most}")) } else { Ok(()) }
    }
}

static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            before(panic);
        }));
    });
}
