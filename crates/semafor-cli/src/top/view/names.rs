//! The list of all semaphores.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use unicode_width::UnicodeWidthStr;

use super::super::app::{App, Column as SortColumn};
use super::super::snapshot::SemaphoreRow;
use super::columns::{Column, Fit};
use super::paint::{BOLD, NOTHING, Paint, percent, rate, time};
use crate::plain::{fit, plain};

/// A semaphore, and how to draw it.
struct Entry {
    name: SemaphoreRow,
    paint: Paint,
    is_chosen: bool,
}

pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App, paint: Paint, area: Rect) {
    let names = Vec::from_iter(app.shown_names().into_iter().cloned());
    if names.is_empty() {
        frame.render_widget(Line::styled(nothing(app), paint.faint()), area);
        return;
    }
    let shown = app.list.scroll(usize::from(area.height.saturating_sub(1)), names.len());
    let columns = columns(&names, app, paint);
    let entries = names[shown.clone()].iter().zip(shown).map(|(name, at)| {
        let is_chosen = at == app.list.chosen;
        (Entry { name: name.clone(), paint, is_chosen }, Style::new())
    });
    frame.render_widget(Fit::new(&columns, area.width).table(entries), area);
}

fn nothing(app: &App) -> String {
    if !app.has_names {
        "Loading …".to_owned()
    } else if app.filter.text.is_empty() {
        "There are no semaphores.".to_owned()
    } else {
        format!("No name contains {:?}.", app.filter.text)
    }
}

fn columns(names: &[SemaphoreRow], app: &App, paint: Paint) -> Vec<Column<Entry>> {
    let widest =
        |text: fn(&SemaphoreRow) -> String| names.iter().map(|name| text(name).width()).max().unwrap_or(0);
    let name_width = widest(|name| plain(&name.name).into_owned());
    let title = |plain, falling, rising, by| {
        if app.sort.by != by {
            return (plain, paint.faint());
        }
        // ▾ is A to Z for names, and highest first for numbers.
        (if app.sort.is_reversed { rising } else { falling }, paint.accent().add_modifier(Modifier::BOLD))
    };
    let (name, name_style) = title("NAME", "NAME ▾", "NAME ▴", SortColumn::Name);
    let (percentage, percent_style) = title("USE", "USE ▾", "USE ▴", SortColumn::Percent);
    let (waiting, waiting_style) = title("WAITING", "WAITING▾", "WAITING▴", SortColumn::Waiting);
    let (longest, longest_style) = title("LONGEST", "LONGEST▾", "LONGEST▴", SortColumn::LongestWait);
    let faint = paint.faint();
    vec![
        Column {
            title: name,
            title_style: name_style,
            width: name_width.min(40),
            least: name_width.min(14),
            rank: 0,
            is_right: false,
            cell: |entry, width| {
                let text = fit(&plain(&entry.name.name), width).into_owned();
                Line::styled(text, if entry.is_chosen { entry.paint.chosen() } else { BOLD })
            },
        },
        Column {
            title: "",
            title_style: faint,
            width: 40,
            least: 8,
            rank: 3,
            is_right: false,
            cell: |entry, width| entry.paint.bar(&entry.name, width),
        },
        number(percentage, percent_style, 4, 4, |entry, _| {
            Line::styled(percent(&entry.name), entry.paint.load(&entry.name))
        }),
        number("HELD", faint, widest(held), 1, |entry, _| Line::raw(held(&entry.name))),
        number(waiting, waiting_style, 7, 2, |entry, _| match entry.name.waiting {
            0 => Line::styled("0", entry.paint.faint()),
            waiting => Line::styled(waiting.to_string(), entry.paint.load(&entry.name)),
        }),
        number(longest, longest_style, 7, 5, |entry, _| {
            let waits = (entry.name.waiting > 0).then_some(entry.name.longest_wait);
            or_nothing(entry, waits.map(time))
        }),
        number("P50", faint, 6, 8, |entry, _| {
            or_nothing(entry, entry.name.waits.map(|waits| time(waits.p50)))
        }),
        number("P99", faint, 6, 7, |entry, _| {
            or_nothing(entry, entry.name.waits.map(|waits| time(waits.p99)))
        }),
        number("GRANTS/S", faint, 8, 6, |entry, _| or_nothing(entry, entry.name.grants_per_second.map(rate))),
    ]
}

fn number(
    title: &'static str,
    title_style: Style,
    width: usize,
    rank: u8,
    cell: fn(&Entry, usize) -> Line<'static>,
) -> Column<Entry> {
    Column { title, title_style, width, least: width, rank, is_right: true, cell }
}

fn held(name: &SemaphoreRow) -> String {
    if name.is_broken { "broken".to_owned() } else { format!("{}/{}", name.held, name.slots) }
}

fn or_nothing(entry: &Entry, text: Option<String>) -> Line<'static> {
    match text {
        Some(text) => Line::raw(text),
        None => Line::styled(NOTHING, entry.paint.faint()),
    }
}
