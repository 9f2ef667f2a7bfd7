//! Tables that fit the screen: the least important columns are dropped first.

use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Row, Table};
use unicode_width::UnicodeWidthStr;

/// The space between two columns: the first if all columns fit with it, otherwise the second.
const GAPS: [u16; 2] = [2, 1];

/// A column, and how to draw its cells.
pub(super) struct Column<T> {
    pub(super) title: &'static str,
    pub(super) title_style: Style,
    /// The preferred width, if the title is not wider.
    pub(super) width: usize,
    /// The smallest useful width.
    pub(super) least: usize,
    /// Columns with the highest rank are dropped first; those with the lowest get extra room first.
    pub(super) rank: u8,
    pub(super) is_right: bool,
    /// Draws a cell of the given width.
    pub(super) cell: fn(&T, usize) -> Line<'static>,
}

impl<T> Column<T> {
    fn wanted(&self) -> u16 {
        u16::try_from(self.width.max(self.title.width())).unwrap_or(u16::MAX)
    }

    fn least(&self) -> u16 {
        u16::try_from(self.least.max(self.title.width())).unwrap_or(u16::MAX).min(self.wanted())
    }

    fn aligned(&self, line: Line<'static>) -> Text<'static> {
        Text::from(if self.is_right { line.right_aligned() } else { line })
    }
}

/// Which columns are shown, and how wide.
pub(super) struct Fit<'a, T> {
    columns: Vec<(&'a Column<T>, u16)>,
    gap: u16,
}

impl<'a, T> Fit<'a, T> {
    pub(super) fn new(columns: &'a [Column<T>], room: u16) -> Self {
        let mut fit = Vec::from_iter(columns.iter().map(|column| (column, column.least())));
        let used = |fit: &[(&Column<T>, u16)], gap: u16| {
            let gaps = u16::try_from(fit.len().saturating_sub(1)).unwrap_or(u16::MAX).saturating_mul(gap);
            fit.iter().fold(gaps, |sum, (_, width)| sum.saturating_add(*width))
        };
        let gap = GAPS.into_iter().find(|gap| used(&fit, *gap) <= room).unwrap_or(GAPS[1]);
        while fit.len() > 1 && used(&fit, gap) > room {
            let last = fit.iter().map(|(column, _)| column.rank).max();
            fit.retain(|(column, _)| Some(column.rank) != last);
        }
        let mut left = room.saturating_sub(used(&fit, gap));
        let mut by_rank = Vec::from_iter(&mut fit);
        by_rank.sort_by_key(|(column, _)| column.rank);
        for (column, width) in by_rank {
            let more = left.min(column.wanted() - *width);
            *width += more;
            left -= more;
        }
        Self { columns: fit, gap }
    }

    pub(super) fn table(&self, rows: impl Iterator<Item = (T, Style)>) -> Table<'static> {
        let widths = self.columns.iter().map(|(_, width)| Constraint::Length(*width));
        let titles = self
            .columns
            .iter()
            .map(|(column, _)| Cell::from(column.aligned(Line::styled(column.title, column.title_style))));
        let rows = rows.map(|(row, style)| {
            let cells = self
                .columns
                .iter()
                .map(|(column, width)| Cell::from(column.aligned((column.cell)(&row, usize::from(*width)))));
            Row::new(cells).style(style)
        });
        let (titles, rows, widths) = (Row::new(titles), Vec::from_iter(rows), Vec::from_iter(widths));
        Table::new(rows, widths).header(titles).column_spacing(self.gap)
    }
}

/// `area` with a margin of one column on both sides.
pub(super) fn inset(area: Rect) -> Rect {
    Rect { x: area.x + area.width.min(1), width: area.width.saturating_sub(2), ..area }
}
