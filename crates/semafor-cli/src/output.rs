//! Prints to stdout and stderr.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write as _};

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

use crate::exit::{Code, Failure};
use crate::plain::plain;

/// Prints to stdout, with colours only on a terminal. A reader that closes the pipe early is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Code::Undelivered.because(format!("can't write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print(&json(value)?)
}

/// Formats as JSON, with a line break at the end.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(io::Error::from)
        .map_err(|error| Code::Unreachable.because(format!("can't format the output as JSON: {error}")))?;
    text.push('\n');
    Ok(text)
}

/// Prints a message to stderr. Errors are ignored: stderr may be closed.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "semafor: {}", plain(text));
}

/// A table with columns as wide as their content.
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<(String, Style)>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<(String, Style)>) {
        self.rows.push(cells);
    }

    /// Formats the table, each line indented by `indent` spaces.
    pub(crate) fn show(&self, indent: usize) -> String {
        let header: Vec<_> =
            self.columns.iter().map(|(name, _)| ((*name).to_owned(), Style::new().dimmed())).collect();
        let lines: Vec<_> = std::iter::once(&header).chain(&self.rows).collect();
        let width = |at: usize| lines.iter().map(|line| line[at].0.width()).max().unwrap_or(0);
        let widths: Vec<_> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        for line in lines {
            let _ = write!(text, "{:indent$}", "");
            for (at, (cell, style)) in line.iter().enumerate() {
                let room = widths[at] - cell.width();
                let is_last = at + 1 == line.len();
                let (before, after) = match self.columns[at].1 {
                    Align::Left => (0, if is_last { 0 } else { room }),
                    Align::Right => (room, 0),
                };
                let gap = if is_last { "" } else { "  " };
                let _ = write!(text, "{:before$}{style}{cell}{style:#}{:after$}{gap}", "", "");
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_content() {
        let mut table = Table::new(&[("NAME", Align::Left), ("HELD", Align::Right), ("LAST", Align::Left)]);
        let plain = |text: &str| (text.to_owned(), Style::new());
        table.row(vec![plain("a"), plain("1/10"), plain("x")]);
        table.row(vec![plain("bildgröße"), plain("10/10"), plain("")]);
        let shown = anstream::adapter::strip_str(&table.show(1)).to_string();
        assert_eq!(shown, " NAME        HELD  LAST\n a           1/10  x\n bildgröße  10/10  \n");
    }
}
