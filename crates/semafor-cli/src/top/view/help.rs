//! What the keys do and what the columns mean, above everything else.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, BorderType, Clear, Padding, Paragraph};

use super::paint::{BOLD, Paint};

const KEYS: &[(&str, &str)] = &[
    ("↑ ↓ j k", "choose; PgUp PgDn Home End, too"),
    ("⏎", "look into the chosen one: who holds, who waits"),
    ("Tab", "there: from the holders to the waiters and back"),
    ("Esc q", "back, or quit; Ctrl-C quits"),
    ("s", "sort by name, use, waiting, longest wait"),
    ("r", "reverse the order"),
    ("/", "show only names with a text in them"),
    ("p", "pause"),
    ("+ -", "look less often, more often"),
];

const COLUMNS: &[(&str, &str)] = &[
    ("LONGEST", "how long the first in line has been waiting"),
    ("P50 P99", "half, and 99 of 100, who had to wait got their"),
    ("", "slot within this time"),
    ("GRANTS/S", "slots given out per second, since the last look"),
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

/// The middle of `area`, as large as wanted if that is possible.
fn middle(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}
