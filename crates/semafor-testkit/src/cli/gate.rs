use std::fs::File;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Blocks the processes that reach it until it is opened. In a script, `: < gate` passes through the gate of that name.
#[derive(Debug)]
pub struct Gate {
    path: PathBuf,
}

/// An open gate. Later processes pass as well, as long as this value lives.
#[derive(Debug)]
#[must_use = "dropped, it is closed again"]
pub struct Opened {
    _writer: File,
}

impl Gate {
    pub(super) fn new(path: PathBuf) -> Self {
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, &path, FileType::Fifo, mode, 0).expect("a pipe with a name can be made");
        Self { path }
    }

    /// Lets all pass: the readers of the pipe wait until a writer opens it.
    ///
    /// # Panics
    ///
    /// If its folder is gone.
    pub fn open(&self) -> Opened {
        let writer = File::options().read(true).write(true).open(&self.path).expect("it is there");
        Opened { _writer: writer }
    }
}
