//! The lines around the lists: title, totals, warning and keys.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect, Size};
use ratatui::text::{Line, Span};

use super::super::app::App;
use super::super::snapshot::SemaphoreRow;
use super::columns::inset;
use super::footer::footer;
use super::paint::{BOLD, Paint, percent};
use super::{detail, help, names};
use crate::plain::{fit, plain};

/// From this size on, optional parts are shown.
pub(super) const ROOMY: Size = Size::new(60, 16);

pub(in crate::top) fn draw(frame: &mut Frame<'_>, app: &mut App, paint: Paint, now: Instant) {
    let notice = notice(app, now);
    let air = u16::from(frame.area().height >= ROOMY.height);
    let [title, summary, warning, _, body, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(if app.detail.is_some() { 2 } else { 1 }),
        Constraint::Length(u16::from(notice.is_some())),
        Constraint::Length(air),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());

    draw_title(frame, app, paint, inset(title));
    if let Some(notice) = notice {
        let text = fit(&notice, usize::from(inset(warning).width)).into_owned();
        frame.render_widget(Line::styled(text, paint.alarm()), inset(warning));
    }
    match &mut app.detail {
        Some(one) => {
            frame.render_widget(detail::summary(one, paint, inset(summary).width), inset(summary));
            detail::draw(frame, one, paint, inset(body));
        }
        None => {
            frame.render_widget(totals(app, paint, inset(summary).width), inset(summary));
            names::draw(frame, app, paint, inset(body));
        }
    }
    let keys = inset(keys);
    frame.render_widget(footer(app, paint, usize::from(keys.width)), keys);
    if app.shows_help {
        help::draw(frame, paint);
    }
}

fn notice(app: &App, now: Instant) -> Option<String> {
    let (since, why) = app.unanswered(now)?;
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    Some(format!(" no answer for {}s{why} ", since.as_secs()))
}

fn draw_title(frame: &mut Frame<'_>, app: &App, paint: Paint, area: Rect) {
    let refresh = if app.is_paused {
        Span::styled(" paused ", paint.chosen())
    } else {
        Span::styled(format!("every {}", humantime::format_duration(app.interval)), paint.faint())
    };
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(refresh.width() as u16)]).areas(area);
    let title = "semafor top  ";
    let address =
        fit(&plain(&app.address), usize::from(left.width).saturating_sub(title.len() + 1)).into_owned();
    let title = Line::from(vec![Span::styled(title, BOLD.patch(paint.accent())), Span::raw(address)]);
    frame.render_widget(title, left);
    frame.render_widget(refresh, right);
}

fn totals(app: &App, paint: Paint, width: u16) -> Line<'static> {
    let is_roomy = width >= ROOMY.width;
    let all = app.all_names();
    let shown = app.shown_names();
    let add = |sum: SemaphoreRow, one: &&SemaphoreRow| SemaphoreRow {
        held: sum.held.saturating_add(one.held),
        slots: sum.slots.saturating_add(one.slots),
        waiting: sum.waiting + one.waiting,
        ..sum
    };
    let sum = shown.iter().fold(SemaphoreRow::default(), add);
    let mut line = Line::default();
    let names = if all.len() == 1 { "name" } else { "names" };
    if app.filter.text.is_empty() {
        line.push_span(Span::styled(all.len().to_string(), BOLD));
        line.push_span(Span::raw(format!(" {names}")));
    } else {
        line.push_span(Span::styled(shown.len().to_string(), BOLD));
        line.push_span(Span::raw(format!(" of {} {names} with ", all.len())));
        line.push_span(Span::styled(plain(&app.filter.text).into_owned(), paint.accent()));
    }
    let gap = if is_roomy { "   " } else { "  " };
    line.push_span(Span::raw(format!("{gap}held ")));
    line.push_span(Span::styled(format!("{}/{}", sum.held, sum.slots), BOLD));
    if is_roomy {
        line.push_span(Span::styled(format!(" {}", percent(&sum)), paint.faint()));
    }
    line.push_span(Span::raw(format!("{gap}waiting ")));
    let style = if sum.waiting > 0 { BOLD.patch(paint.load(&sum)) } else { BOLD };
    line.push_span(Span::styled(sum.waiting.to_string(), style));
    line
}
