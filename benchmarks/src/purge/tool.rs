//! The tools that purge.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use semafor_testkit::trees::{Tree, count};

use super::runner::{self, Taken};

/// The directory that is purged, in the folder of the tool.
pub(super) const ROOT: &str = "tree";

pub(super) struct Tool {
    pub(super) name: &'static str,
    command: Vec<OsString>,
    leaves: Leaves,
}

#[derive(PartialEq, Eq)]
enum Leaves {
    WhatIsNotEmpty,
    Nothing,
}

impl Tool {
    pub(super) fn ours() -> Self {
        let semafor = std::env::var_os("SEMAFOR_BENCH_COMMAND");
        let semafor = semafor.expect("SEMAFOR_BENCH_COMMAND is set, as `cargo xtask bench purge` does");
        let words = ["purge", "--quiet", ROOT].map(OsString::from);
        let command = std::iter::once(semafor).chain(words).collect();
        Self { name: "ours", command, leaves: Leaves::WhatIsNotEmpty }
    }

    pub(super) fn find() -> Self {
        let words = ["find", ROOT, "-mindepth", "1", "-depth", "-type", "d", "-empty", "-delete"];
        let command = words.map(OsString::from).to_vec();
        Self { name: "find -depth -type d -empty -delete", command, leaves: Leaves::WhatIsNotEmpty }
    }

    /// Sorted in reverse, because fd lists directories before their contents.
    fn fd(program: &Path) -> Self {
        let script = format!(
            "\"$0\" --unrestricted --type d --print0 . {ROOT} | sort -rz | \
             xargs -0r rmdir --ignore-fail-on-non-empty"
        );
        let command = vec!["sh".into(), "-c".into(), script.into(), program.into()];
        Self { name: "fd | sort | xargs rmdir", command, leaves: Leaves::WhatIsNotEmpty }
    }

    fn rm() -> Self {
        let command = ["rm", "-rf", ROOT].map(OsString::from).to_vec();
        Self { name: "rm -rf (removes all, looks at nothing)", command, leaves: Leaves::Nothing }
    }

    /// Ours first.
    pub(super) fn installed() -> Vec<Self> {
        let fd = ["fd", "fdfind"].into_iter().find_map(on_path).map(|fd| Self::fd(&fd));
        if fd.is_none() {
            println!("left out: fd: not installed (`cargo xtask bench purge` installs it)");
        }
        [Some(Self::ours()), Some(Self::find()), fd, Some(Self::rm())].into_iter().flatten().collect()
    }

    /// Purges the tree in a folder.
    pub(super) fn run(&self, folder: &Path) -> Taken {
        runner::run(&self.command, folder)
    }

    /// A tool that leaves something, or removes too much, is not worth measuring.
    pub(super) fn assert_has_purged(&self, folder: &Path, tree: Tree) {
        let root = folder.join(ROOT);
        match self.leaves {
            Leaves::Nothing => assert!(!root.exists(), "{} left something", self.name),
            Leaves::WhatIsNotEmpty => {
                assert_eq!(count(&root), (tree.dirs - tree.removable, tree.files), "{}", self.name);
            }
        }
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}
