//! One semaphore: its holders and waiters.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};
use unicode_width::UnicodeWidthStr;

use super::super::app::{Detail, List, Pane};
use super::super::snapshot::{Participant, Participants, Percentiles, SemaphoreRow};
use super::columns::{Column, Fit};
use super::frame::ROOMY;
use super::paint::{BOLD, NOTHING, Paint, percent, rate, time};
use crate::plain::{fit, plain};

/// Lines of a pane besides its rows: the title and the names of the columns.
const HEAD: u16 = 2;
/// With fewer lines, only the chosen pane is shown.
const ROOM_FOR_BOTH: u16 = 2 * (HEAD + 2) + 1;

pub(super) fn summary(one: &Detail, paint: Paint, width: u16) -> Text<'static> {
    let is_roomy = width >= ROOMY.width;
    let name = Span::styled(fit(&plain(&one.name), usize::from(width / 2)).into_owned(), BOLD);
    let Some(numbers) = &one.numbers else {
        return Line::from(vec![name, Span::styled("  no longer exists", paint.faint())]).into();
    };
    let mut line = Line::from(vec![name, Span::raw("  ")]);
    if is_roomy {
        line.spans.extend(paint.bar(numbers, 20).spans);
        line.push_span(Span::raw("  "));
    }
    let load = paint.load(numbers);
    line.push_span(Span::styled(format!("{}/{}  {}", numbers.held, numbers.slots, percent(numbers)), load));
    line.push_span(Span::raw(match numbers.waiting {
        0 => "  no waiters".to_owned(),
        waiting if is_roomy => format!("  {waiting} waiting, the first for {}", time(numbers.longest_wait)),
        waiting => format!("  {waiting} waiting"),
    }));
    Text::from(vec![line, Line::styled(history(numbers), paint.faint())])
}

fn history(numbers: &SemaphoreRow) -> String {
    let totals = &numbers.totals;
    let mut words = vec![match numbers.grants_per_second {
        Some(per_second) => format!("granted {} ({}/s)", totals.granted, rate(per_second)),
        None => format!("granted {}", totals.granted),
    }];
    let percentiles = |of: &str, percentiles: Option<Percentiles>| {
        percentiles.map(|Percentiles { p50, p99 }| format!("{of} p50 {} p99 {}", time(p50), time(p99)))
    };
    words.extend(percentiles("waits", numbers.waits));
    words.extend(percentiles("holds", numbers.holds));
    let rare = [
        (totals.expired, "expired"),
        (totals.evicted, "evicted"),
        (totals.timed_out, "timed out"),
        (totals.cancelled, "cancelled"),
        (totals.refused, "refused"),
    ];
    words.extend(rare.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    words.join("   ")
}

pub(super) fn draw(frame: &mut Frame<'_>, one: &mut Detail, paint: Paint, area: Rect) {
    let Some(participants) = &one.participants else {
        frame.render_widget(Line::styled("Loading …", paint.faint()), area);
        return;
    };
    let holders = Section::holders(participants, &mut one.holders, paint);
    let waiters = Section::waiters(participants, &mut one.waiters, paint);
    if area.height < ROOM_FOR_BOTH {
        let pane = if one.chosen == Pane::Holders { holders } else { waiters };
        pane.draw(frame, true, area);
        return;
    }
    let room = area.height - 1;
    let (holders_height, waiters_height) =
        share(room, participants.holders.len(), participants.waiters.len());
    let [above, _, below, _, detail] = Layout::vertical([
        Constraint::Length(holders_height),
        Constraint::Length(1),
        Constraint::Length(waiters_height),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    holders.draw(frame, one.chosen == Pane::Holders, above);
    waiters.draw(frame, one.chosen == Pane::Waiters, below);
    let chosen = match one.chosen {
        Pane::Holders => participants.holders.get(one.holders.chosen),
        Pane::Waiters => participants.waiters.get(one.waiters.chosen),
    };
    if let Some(participant) = chosen {
        let text = fit(&in_full(participant), usize::from(detail.width)).into_owned();
        frame.render_widget(Line::styled(text, paint.accent()), detail);
    }
}

/// How many lines each pane gets: as many as it needs; if both need more than there are, half each or what the other
/// leaves.
fn share(room: u16, holders: usize, waiters: usize) -> (u16, u16) {
    // One line between the panes, one for the details.
    let room = room.saturating_sub(1);
    let need = |count: usize| u16::try_from(count.max(1)).unwrap_or(u16::MAX).saturating_add(HEAD);
    let (above, below) = (need(holders), need(waiters));
    let half = room / 2;
    let above = above.min(half.max(room.saturating_sub(below)));
    (above, below.min(room - above))
}

fn in_full(participant: &Participant) -> String {
    let weight =
        if participant.weight == 1 { String::new() } else { format!("weight {}  ", participant.weight) };
    let id = if participant.id.is_empty() { String::new() } else { format!("id {}  ", participant.id) };
    format!("{id}{weight}{}", participant.command)
}

/// A holder or waiter, and how to draw it.
struct Entry {
    participant: Participant,
    /// The style of less important text.
    faint: Style,
}

/// A list of holders or waiters with a title.
struct Section<'a> {
    title: &'static str,
    empty_text: &'static str,
    participants: &'a [Participant],
    columns: Vec<Column<Entry>>,
    list: &'a mut List,
    paint: Paint,
}

impl<'a> Section<'a> {
    fn holders(participants: &'a Participants, list: &'a mut List, paint: Paint) -> Self {
        let participants = &participants.holders;
        let mut columns = vec![
            column("SLOT", 4, 0, true, paint, |entry, _| or_nothing(entry, entry.participant.number)),
            column("HELD FOR", 8, 1, true, paint, |entry, _| Line::raw(time(entry.participant.since))),
            column("EXPIRES IN", 10, 5, true, paint, |entry, _| {
                or_nothing(entry, entry.participant.expires_in.map(time))
            }),
        ];
        columns.extend(identity_columns(participants, paint));
        let id = widest(participants, |participant| &participant.id);
        columns.push(Column {
            least: id.min(13),
            ..column("ID", id, 7, false, paint, |entry, width| {
                Line::styled(cut_inside(&entry.participant.id, width), entry.faint)
            })
        });
        Self { title: "Holders", empty_text: "No holders.", participants, columns, list, paint }
    }

    fn waiters(participants: &'a Participants, list: &'a mut List, paint: Paint) -> Self {
        let participants = &participants.waiters;
        let mut columns = vec![
            column("LINE", 4, 0, true, paint, |entry, _| or_nothing(entry, entry.participant.number)),
            column("WAITED", 8, 1, true, paint, |entry, _| Line::raw(time(entry.participant.since))),
        ];
        columns.extend(identity_columns(participants, paint));
        Self { title: "Waiters", empty_text: "No waiters.", participants, columns, list, paint }
    }

    fn draw(self, frame: &mut Frame<'_>, is_chosen: bool, area: Rect) {
        let Self { title, empty_text, participants, columns, list, paint } = self;
        let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        let shown = list.scroll(usize::from(body.height.saturating_sub(1)), participants.len());
        let style = if is_chosen { BOLD.patch(paint.accent()) } else { BOLD };
        let mut line =
            Line::from(vec![Span::styled(title, style), Span::raw(format!(" {}", participants.len()))]);
        if shown.len() < participants.len() {
            let part = format!("  {}–{} shown", shown.start + 1, shown.end);
            line.push_span(Span::styled(part, paint.faint()));
        }
        frame.render_widget(line, head);
        if participants.is_empty() {
            frame.render_widget(Line::styled(empty_text, paint.faint()), body);
            return;
        }
        let rows = participants[shown.clone()].iter().zip(shown).map(|(participant, at)| {
            let (style, faint) = match is_chosen && at == list.chosen {
                true => (paint.chosen(), Style::new()),
                false => (Style::new(), paint.faint()),
            };
            (Entry { participant: participant.clone(), faint }, style)
        });
        frame.render_widget(Fit::new(&columns, body.width).table(rows), body);
    }
}

fn identity_columns(participants: &[Participant], paint: Paint) -> [Column<Entry>; 4] {
    let host = widest(participants, |participant| &participant.host).min(30);
    let label = widest(participants, |participant| &participant.label).min(30);
    let command = widest(participants, |participant| &participant.command);
    [
        Column {
            least: host.min(8),
            ..column("HOST", host, 6, false, paint, |entry: &Entry, width| {
                Line::raw(fit(&entry.participant.host, width).into_owned())
            })
        },
        column("PID", 7, 3, true, paint, |entry, _| or_nothing(entry, entry.participant.pid)),
        Column {
            least: label.min(8),
            ..column("LABEL", label, 2, false, paint, |entry, width| {
                Line::raw(fit(&entry.participant.label, width).into_owned())
            })
        },
        Column {
            least: command.min(12),
            ..column("COMMAND", command, 4, false, paint, |entry, width| {
                Line::raw(fit(&entry.participant.command, width).into_owned())
            })
        },
    ]
}

fn column(
    title: &'static str,
    width: usize,
    rank: u8,
    is_right: bool,
    paint: Paint,
    cell: fn(&Entry, usize) -> Line<'static>,
) -> Column<Entry> {
    Column { title, title_style: paint.faint(), width, least: width, rank, is_right, cell }
}

fn widest(participants: &[Participant], text: impl Fn(&Participant) -> &str) -> usize {
    participants.iter().map(|participant| text(participant).width()).max().unwrap_or(0)
}

/// Cuts the middle out of a long id: ids of one process differ only at the end.
fn cut_inside(id: &str, width: usize) -> String {
    let count = id.chars().count();
    if count <= width || width < 3 {
        return id.to_owned();
    }
    let tail = (width - 1) * 2 / 3;
    let head = id.chars().take(width - 1 - tail);
    head.chain(['…']).chain(id.chars().skip(count - tail)).collect()
}

fn or_nothing(entry: &Entry, value: Option<impl ToString>) -> Line<'static> {
    match value {
        Some(value) => Line::raw(value.to_string()),
        None => Line::styled(NOTHING, entry.faint),
    }
}
