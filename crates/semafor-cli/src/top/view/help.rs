//! The help window: what the keys do and what the columns mean.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, BorderType, Clear, Padding, Paragraph};

use super::paint::{BOLD, Paint};

const KEYS: &[(&str, &str)] = &[
    ("↑ ↓ j k", "choose a line; also PgUp PgDn Home End"),
    ("⏎", "show holders and waiters of the chosen one"),
    ("Tab", "there: switch between holders and waiters"),
    ("Esc q", "back, or quit; Ctrl-C quits"),
    ("s", "sort by name, use, waiting, longest wait"),
    ("r", "reverse the order"),
    ("/", "show only names that contain a text"),
    ("p", "pause"),
    ("+ -", "longer or shorter interval"),
];

const COLUMNS: &[(&str, &str)] = &[
    ("LONGEST", "how long the first waiter has waited"),
    ("P50 P99", "half of all waits, and 99% of them, took"),
    ("", "at most this long"),
    ("GRANTS/S", "grants per second since the last update"),
];

pub(super) fn draw(frame: &mut Frame<'_>, paint: Paint) {
    let line = |(key, does): &(&'static str, &'static str)| {
        Line::from(vec![Span::styled(format!("{key:<10}"), BOLD.patch(paint.accent())), Span::raw(*does)])
    };
    let lines = KEYS.iter().map(line).chain([Line::default()]).chain(COLUMNS.iter().map(line));
    let text = Text::from_iter(lines);
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(paint.accent())
        .padding(Padding::horizontal(1))
        .title(" semafor top ")
        .title_bottom(Line::raw(" any key closes this ").right_aligned());
    let area = middle(frame.area(), text.width() as u16 + 4, text.height() as u16 + 2);
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(text).block(block), area);
}

/// An area of this size, or smaller if needed, in the middle of `area`.
fn middle(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}
