//! A status line on the terminal that is overwritten on each update and removed at the end.

use std::io::{Write, stderr};

use rustix::termios::{tcgetpgrp, tcgetwinsize};

use crate::groups::own_group;
use crate::plain::{fit, plain};

/// A status line on stderr. Removed on drop.
#[derive(Default)]
pub(crate) struct LiveLine {
    is_shown: bool,
}

impl LiveLine {
    pub(crate) fn show(&mut self, line: &str) {
        let width = tcgetwinsize(stderr()).map_or(0, |size| usize::from(size.ws_col));
        let width = if width == 0 { 80 } else { width };
        // Leave room for the terminal's `^C`: if it wrapped to a second line, that line could not be removed.
        self.is_shown |= overwrite(&fit(&plain(line), width.saturating_sub(3)));
    }

    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            overwrite("");
        }
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Overwrites the line. Does nothing in the background, where another process group uses the terminal.
fn overwrite(line: &str) -> bool {
    let is_ours = tcgetpgrp(stderr()).is_ok_and(|foreground| Some(foreground) == own_group());
    is_ours && write!(stderr(), "\r{line}\x1b[K").is_ok()
}
