//! The last line: which keys do what.

use ratatui::text::{Line, Span};

use super::super::app::App;
use super::paint::{BOLD, Paint};
use crate::plain::plain;

const LIST_KEYS: &[(&str, &str)] = &[
    ("q", "quit"),
    ("?", "help"),
    ("↑↓", "choose"),
    ("⏎", "details"),
    ("/", "filter"),
    ("s", "sort"),
    ("r", "reverse"),
    ("p", "pause"),
    ("+ -", "interval"),
];

const DETAIL_KEYS: &[(&str, &str)] = &[
    ("Esc", "back"),
    ("?", "help"),
    ("↑↓", "choose"),
    ("Tab", "holders/waiters"),
    ("p", "pause"),
    ("+ -", "interval"),
];

pub(super) fn footer(app: &App, paint: Paint, width: usize) -> Line<'static> {
    if app.filter.is_typed {
        let text = plain(&app.filter.text).into_owned();
        let typed = vec![Span::styled("/", BOLD), Span::raw(text), Span::styled(" ", paint.chosen())];
        let hints = keys(&[("⏎", "keep"), ("Esc", "clear")], paint, width);
        return Line::from_iter(typed.into_iter().chain([Span::raw("  ")]).chain(hints));
    }
    Line::from(keys(if app.detail.is_some() { DETAIL_KEYS } else { LIST_KEYS }, paint, width))
}

/// As many hints as fit.
fn keys(hints: &[(&'static str, &'static str)], paint: Paint, width: usize) -> Vec<Span<'static>> {
    let mut line = Line::default();
    for (key, does) in hints {
        let hint = [Span::styled(*key, BOLD), Span::styled(format!(" {does}  "), paint.faint())];
        let needed: usize = hint.iter().map(Span::width).sum();
        if line.width() + needed > width + 2 {
            break;
        }
        line.spans.extend(hint);
    }
    line.spans
}
