use super::*;
use crate::top::snapshot::Participant;

fn name(name: &str, held: u32, slots: u32, waiting: usize, longest: u64) -> SemaphoreRow {
    let longest_wait = Duration::from_secs(longest);
    SemaphoreRow { name: name.into(), held, slots, waiting, longest_wait, ..SemaphoreRow::default() }
}

fn all(names: Vec<SemaphoreRow>) -> Snapshot {
    Snapshot { names, participants: None }
}

/// `a` is half full and has the longest wait, `b` is full, `c` is nearly empty and has the longest line.
fn app() -> App {
    let now = Instant::now();
    let mut app = App::new("local:".to_owned(), Duration::from_secs(1), None, now);
    app.update(all(vec![name("a", 2, 4, 1, 60), name("b", 4, 4, 2, 30), name("c", 1, 10, 9, 10)]), now);
    app
}

fn press(app: &mut App, keys: &[KeyCode]) -> Action {
    keys.iter().map(|key| app.press(KeyEvent::from(*key))).last().expect("a key was pressed")
}

fn type_in(app: &mut App, text: &str) -> Action {
    press(app, &Vec::from_iter(text.chars().map(KeyCode::Char)))
}

fn shown(app: &App) -> String {
    app.shown_names().iter().map(|name| &*name.name).collect()
}

fn chosen(app: &App) -> String {
    app.shown_names()[app.list.chosen].name.to_string()
}

#[test]
fn highest_values_come_first_in_every_column() {
    let mut app = app();
    let orders = [0; 5].map(|_| {
        let order = shown(&app);
        type_in(&mut app, "s");
        order
    });
    assert_eq!(
        orders,
        ["bac", "cba", "abc", "abc", "bac"],
        "by use, waiting, longest wait, name, and use again"
    );
    type_in(&mut app, "sssr");
    assert_eq!((app.sort.by, shown(&app).as_str()), (Column::Percent, "cab"), "reversed");
}

#[test]
fn cursor_follows_the_chosen_name() {
    let mut app = app();
    assert_eq!(chosen(&app), "b", "the first, until the user chooses");
    press(&mut app, &[KeyCode::Down]);
    assert_eq!(chosen(&app), "a");
    type_in(&mut app, "r");
    assert_eq!(chosen(&app), "a");
    app.update(all(vec![name("a", 4, 4, 0, 0), name("d", 0, 1, 0, 0)]), Instant::now());
    assert_eq!((shown(&app).as_str(), chosen(&app).as_str()), ("da", "a"));
    app.update(all(vec![name("e", 1, 1, 0, 0)]), Instant::now());
    assert_eq!(chosen(&app), "e", "the name at the same position, if the chosen one is gone");
    app.update(all(Vec::new()), Instant::now());
    assert_eq!(press(&mut app, &[KeyCode::Down, KeyCode::Enter]), Action::Nothing);
}

#[test]
fn list_moves_by_lines_and_pages() {
    let mut list = List { height: 10, ..List::default() };
    let moves = [
        (KeyCode::Up, 0),
        (KeyCode::Down, 1),
        (KeyCode::PageDown, 11),
        (KeyCode::Char('k'), 10),
        (KeyCode::End, 24),
        (KeyCode::Char('j'), 24),
        (KeyCode::PageUp, 14),
        (KeyCode::Home, 0),
    ];
    for (key, wanted) in moves {
        assert!(list.press(key, 25));
        assert_eq!(list.chosen, wanted, "{key:?}");
    }
    assert!(!list.press(KeyCode::Char('x'), 25));
}

#[test]
fn list_scrolls_only_as_far_as_needed() {
    let mut list = List { chosen: 12, ..List::default() };
    assert_eq!(list.scroll(10, 25), 3..13);
    list.chosen = 5;
    assert_eq!(list.scroll(10, 25), 3..13);
    list.chosen = 2;
    assert_eq!(list.scroll(10, 25), 2..12);
    list.chosen = 24;
    assert_eq!(list.scroll(10, 25), 15..25);
    assert_eq!(list.scroll(20, 25), 5..25, "a higher screen shows more lines");
    list.chosen = 0;
    assert_eq!(list.scroll(10, 3), 0..3);
    assert_eq!(list.scroll(0, 3).len(), 0);
}

#[test]
fn filter_applies_while_it_is_typed() {
    let mut app = app();
    type_in(&mut app, "/B");
    assert_eq!((shown(&app).as_str(), app.filter.is_typed), ("b", true));
    assert_eq!(type_in(&mut app, "q"), Action::Nothing, "q is text now");
    assert_eq!(shown(&app), "");
    press(&mut app, &[KeyCode::Backspace, KeyCode::Enter]);
    assert_eq!((shown(&app).as_str(), app.filter.is_typed), ("b", false));
    assert_eq!(press(&mut app, &[KeyCode::Esc]), Action::Nothing, "back to all names");
    assert_eq!(shown(&app), "bac");
    type_in(&mut app, "/b");
    press(&mut app, &[KeyCode::Esc]);
    assert_eq!((shown(&app).as_str(), app.filter.is_typed), ("bac", false));
    assert_eq!(press(&mut app, &[KeyCode::Esc]), Action::Quit);
}

#[test]
fn detail_opens_and_closes() {
    let mut app = app();
    assert_eq!(press(&mut app, &[KeyCode::Enter]), Action::Refresh);
    assert_eq!(app.detail.as_ref().map(|detail| &*detail.name), Some("b"));

    app.update(all(vec![name("z", 1, 1, 0, 0)]), Instant::now());
    assert_eq!(shown(&app), "bac", "an answer for the old view is ignored");

    let participants =
        Participants { holders: vec![Participant::default(); 4], waiters: vec![Participant::default(); 2] };
    app.update(
        Snapshot { names: vec![name("b", 4, 4, 2, 30)], participants: Some(participants) },
        Instant::now(),
    );
    press(&mut app, &[KeyCode::End, KeyCode::Tab, KeyCode::Down]);
    let detail = app.detail.as_ref().expect("it is shown");
    assert_eq!((detail.holders.chosen, detail.waiters.chosen, detail.chosen), (3, 1, Pane::Waiters));

    assert_eq!(press(&mut app, &[KeyCode::Char('q')]), Action::Refresh);
    assert!(app.detail.is_none());
    assert_eq!(press(&mut app, &[KeyCode::Char('q')]), Action::Quit);
}

#[test]
fn pause_stops_automatic_refreshes() {
    let mut app = app();
    assert_eq!(type_in(&mut app, "p"), Action::Nothing);
    assert_eq!(press(&mut app, &[KeyCode::Enter]), Action::Refresh, "there is nothing to show yet");
    assert_eq!(press(&mut app, &[KeyCode::Esc]), Action::Nothing);
    assert_eq!(type_in(&mut app, "p"), Action::Refresh);
}

#[test]
fn any_key_closes_help_and_control_keys_always_work() {
    let mut app = app();
    type_in(&mut app, "?");
    assert!(app.shows_help);
    assert_eq!(type_in(&mut app, "q"), Action::Nothing);
    assert!(!app.shows_help);
    type_in(&mut app, "/");
    for (key, action) in [('c', Action::Quit), ('z', Action::Suspend), ('x', Action::Nothing)] {
        assert_eq!(app.press(KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL)), action);
    }
}

#[test]
fn missing_answer_is_shown_until_the_next_answer() {
    let mut app = app();
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    app.update(all(Vec::new()), start);
    app.request_sent(after(1));
    assert_eq!(app.unanswered(after(2)), None);
    assert_eq!(app.next_redraw(after(2)), Some(after(3)));
    assert_eq!(app.unanswered(after(3)), Some((Duration::from_secs(3), None)));
    assert_eq!(app.next_redraw(after(3)), Some(after(4)), "the screen counts the seconds");
    app.request_failed("refused\u{7}");
    app.request_sent(after(5));
    assert_eq!(app.unanswered(after(5)), Some((Duration::from_secs(5), Some("refused?"))));
    app.update(all(Vec::new()), after(6));
    assert_eq!((app.unanswered(after(7)), app.next_redraw(after(7))), (None, None));
}

#[test]
fn interval_changes_in_steps() {
    let mut app = app();
    let mut after = |keys| {
        type_in(&mut app, keys);
        app.interval.as_millis()
    };
    assert_eq!(after("+"), 2_000);
    assert_eq!(after("---"), 250);
    assert_eq!(after("-"), 250, "250 ms is the shortest");
    assert_eq!(after("+++++++++"), 60_000);
}
