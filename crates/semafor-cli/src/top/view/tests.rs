use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::style::Color;
use semafor::Totals;

use super::super::app::App;
use super::super::snapshot::{Participant, Participants, Percentiles, SemaphoreRow, Snapshot};
use super::{Paint, draw};

fn granted(count: u64) -> Totals {
    let mut totals = Totals::default();
    totals.granted = count;
    totals
}

fn app() -> App {
    let now = Instant::now();
    let before = now - Duration::from_secs(1);
    let mut app = App::new("redis://db:6379/0".to_owned(), Duration::from_secs(1), None, now);
    let waits = Some(Percentiles { p50: Duration::from_millis(42), p99: Duration::from_secs(75) });
    let names = vec![
        SemaphoreRow {
            name: "encode".into(),
            held: 4,
            slots: 4,
            waiting: 7,
            longest_wait: Duration::from_secs(184),
            waits,
            totals: granted(12),
            ..SemaphoreRow::default()
        },
        SemaphoreRow { name: "upload".into(), held: 3, slots: 12, ..SemaphoreRow::default() },
        SemaphoreRow {
            name: "a-name-that-is-longer-than-any-column".into(),
            held: 0,
            slots: 1000,
            ..SemaphoreRow::default()
        },
    ];
    let first = names.iter().map(|name| SemaphoreRow { totals: granted(0), ..name.clone() }).collect();
    app.update(Snapshot { names: first, participants: None }, before);
    app.update(Snapshot { names, participants: None }, now);
    app
}

fn open_detail(app: &mut App) {
    app.press(KeyEvent::from(KeyCode::Enter));
    let participant = |number| Participant {
        number: Some(number),
        since: Duration::from_secs(61),
        expires_in: (number == 0).then_some(Duration::from_secs(3)),
        weight: 1,
        host: "build-7".to_owned(),
        pid: Some(4711),
        label: format!("film-{number}"),
        command: "ffmpeg -i in.mov out.mp4".to_owned(),
        id: "0123456789abcdef0123456789abcdef".to_owned(),
    };
    let participants = Participants {
        holders: (0..4).map(participant).collect(),
        waiters: (1..=70).map(participant).collect(),
    };
    let names = vec![SemaphoreRow {
        name: "encode".into(),
        held: 4,
        slots: 4,
        waiting: 70,
        ..SemaphoreRow::default()
    }];
    app.update(Snapshot { names, participants: Some(participants) }, Instant::now());
}

fn buffer(app: &mut App, paint: Paint, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("create a terminal");
    terminal.draw(|frame| draw(frame, app, paint, Instant::now())).expect("draw");
    terminal.backend().buffer().clone()
}

fn lines(app: &mut App, width: u16, height: u16) -> Vec<String> {
    let buffer = buffer(app, Paint::Colours, width, height);
    let line = |row| (0..width).map(|column| buffer[(column, row)].symbol()).collect::<String>();
    (0..height).map(|row| line(row).trim_end().to_owned()).collect()
}

fn line<'a>(lines: &'a [String], with: &str) -> &'a str {
    lines.iter().find(|line| line.contains(with)).unwrap_or_else(|| panic!("{with} in {lines:#?}"))
}

#[test]
fn all_columns_fit_on_80_characters() {
    let lines = lines(&mut app(), 80, 24);
    assert_eq!(lines[0], format!(" semafor top  redis://db:6379/0{:>48}", "every 1s"));
    assert_eq!(lines[1], " 3 names   held 7/1016 1%   waiting 7");
    for title in ["NAME", "USE ▾", "HELD", "WAITING", "LONGEST", "P50", "P99", "GRANTS/S"] {
        assert!(lines[3].contains(title), "{title} in {}", lines[3]);
    }
    let encode = line(&lines, "encode");
    assert!(encode.contains("■■"), "{encode}");
    let words = Vec::from_iter(encode.split_whitespace().skip(2));
    assert_eq!(words, ["100%", "4/4", "7", "3m04s", "42ms", "1m15s", "12"]);
    assert!(line(&lines, "a-name").contains("…"));
    assert!(lines[23].contains("q quit  ? help"));
}

#[test]
fn small_screen_keeps_the_important_columns() {
    let lines = lines(&mut app(), 40, 10);
    assert_eq!(lines[1], " 3 names  held 7/1016  waiting 7");
    let encode = line(&lines, "encode");
    assert!(encode.contains("4/4") && encode.contains("■■") && encode.contains('7'), "{encode}");
    assert!(!lines.iter().any(|line| line.contains("P50") || line.contains("GRANTS")));
    assert!(lines[9].contains("q quit  ? help"));
}

#[test]
fn drawing_works_at_every_size() {
    let mut app = app();
    for detail in [false, true] {
        if detail {
            open_detail(&mut app);
        }
        for width in [0, 1, 2, 3, 5, 8, 13, 21, 34, 40, 55, 300] {
            for height in [0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 70] {
                app.shows_help = (width + height) % 2 == 0;
                buffer(&mut app, Paint::Colours, width, height);
            }
        }
    }
}

#[test]
fn holders_and_waiters_are_shown_in_two_panes() {
    let mut app = app();
    open_detail(&mut app);
    let lines = lines(&mut app, 120, 24);
    assert!(lines[1].contains("encode") && lines[1].contains("4/4  100%  70 waiting"), "{}", lines[1]);
    assert!(lines.iter().any(|line| line.contains("Holders 4")));
    assert!(line(&lines, "Waiters 70").contains("1–9 shown"));
    let first = Vec::from_iter(line(&lines, "film-0").split_whitespace());
    assert_eq!(first[..6], ["0", "1m01s", "3.0s", "build-7", "4711", "film-0"]);
    assert!(lines[22].contains("id 0123456789abcdef0123456789abcdef"), "in full: {}", lines[22]);
}

#[test]
fn low_screen_shows_one_pane_at_a_time() {
    let mut app = app();
    open_detail(&mut app);
    let holders = lines(&mut app, 60, 10);
    app.press(KeyEvent::from(KeyCode::Tab));
    let waiters = lines(&mut app, 60, 10);
    let has = |lines: &[String], text: &str| lines.iter().any(|line| line.contains(text));
    assert!(has(&holders, "Holders 4") && !has(&holders, "Waiters"));
    assert!(has(&waiters, "Waiters 70") && !has(&waiters, "Holders"));
}

#[test]
fn semaphore_that_no_longer_exists_is_reported() {
    let mut app = app();
    open_detail(&mut app);
    app.update(Snapshot { names: Vec::new(), participants: Some(Participants::default()) }, Instant::now());
    let lines = lines(&mut app, 80, 24);
    assert!(line(&lines, "encode").contains("no longer exists"));
    assert!(lines.iter().any(|line| line.contains("No waiters.")));
}

#[test]
fn missing_answer_is_red_and_keeps_the_last_data() {
    let mut app = app();
    app.request_failed("connection refused");
    let lines = lines(&mut app, 80, 24);
    assert!(lines[2].contains("no answer for 0s: connection refused"), "{}", lines[2]);
    assert!(lines.iter().any(|line| line.contains("encode")));
    assert_eq!(buffer(&mut app, Paint::Colours, 80, 24)[(3, 2)].bg, Color::Red);
}

#[test]
fn no_color_means_no_colours() {
    let mut app = app();
    for detail in [false, true] {
        if detail {
            open_detail(&mut app);
            app.request_failed("refused");
            app.shows_help = true;
        }
        let buffer = buffer(&mut app, Paint::None, 80, 24);
        assert!(buffer.content().iter().all(|cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset)));
    }
}
