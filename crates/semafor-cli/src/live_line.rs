//! One line on the terminal that is written over and over again, and gone in the end.

use std::io::{Write, stderr};

use rustix::termios::{tcgetpgrp, tcgetwinsize};

use crate::groups::own_group;
use crate::plain::{fit, plain};

/// On stderr. Wiped out when it is dropped.
#[derive(Default)]
pub(crate) struct LiveLine {
    is_shown: bool,
}

impl LiveLine {
    pub(crate) fn show(&mut self, line: &str) {
        let width = tcgetwinsize(stderr()).map_or(0, |size| usize::from(size.ws_col));
        let width = if width == 0 { 80 } else { width };
        // A Ctrl-C is shown behind it, and must not begin another line: that could not be wiped out.
        self.is_shown |= write_over(&fit(&plain(line), width.saturating_sub(3)));
    }

    pub(crate) fn wipe(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            write_over("");
        }
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        self.wipe();
    }
}

/// In place of what stands there. Not from the background: there, the terminal is another's.
fn write_over(line: &str) -> bool {
    let is_ours = tcgetpgrp(stderr()).is_ok_and(|foreground| Some(foreground) == own_group());
    is_ours && write!(stderr(), "\r{line}\x1b[K").is_ok()
}
