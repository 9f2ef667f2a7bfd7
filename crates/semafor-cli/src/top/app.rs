//! The state of the screen, and how keys change it. Plain data: no terminal, no home, and the time is an argument.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::snapshot::{Grants, Participants, SemaphoreRow, Snapshot};
use crate::plain::plain;

/// Longer waits for an answer are shown.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The intervals that + and - choose from, in milliseconds.
const INTERVALS: [u64; 8] = [250, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];

pub(super) struct App {
    pub(super) address: String,
    pub(super) interval: Duration,
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
    pub(super) sort: Sort,
    pub(super) filter: Filter,
    pub(super) list: List,
    /// The semaphore whose holders and waiters are shown.
    pub(super) detail: Option<Detail>,
    /// False until the home has answered for the first time.
    pub(super) has_names: bool,
    names: Vec<SemaphoreRow>,
    /// The chosen name. It stays chosen when the order changes. `None` until the user chooses one.
    chosen: Option<Arc<str>>,
    grants: Grants,
    last_answer: Instant,
    pending_since: Option<Instant>,
    failure: Option<String>,
}

/// What the event loop must do after a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Nothing,
    /// Ask the home again.
    Refresh,
    Suspend,
    Quit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Column {
    Name,
    Percent,
    Waiting,
    LongestWait,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sort {
    pub(super) by: Column,
    pub(super) is_reversed: bool,
}

#[derive(Default)]
pub(super) struct Filter {
    pub(super) text: String,
    pub(super) is_typed: bool,
}

/// A scrolling list with a chosen line.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct List {
    pub(super) chosen: usize,
    pub(super) first_shown: usize,
    pub(super) height: usize,
}

/// The view of one semaphore.
pub(super) struct Detail {
    pub(super) name: Arc<str>,
    /// `None` until the home has answered, or if the semaphore no longer exists.
    pub(super) numbers: Option<SemaphoreRow>,
    pub(super) participants: Option<Participants>,
    pub(super) chosen: Pane,
    pub(super) holders: List,
    pub(super) waiters: List,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pane {
    Holders,
    Waiters,
}

impl App {
    pub(super) fn new(address: String, interval: Duration, filter: Option<String>, now: Instant) -> Self {
        Self {
            address,
            interval,
            is_paused: false,
            shows_help: false,
            sort: Sort { by: Column::Percent, is_reversed: false },
            filter: Filter { text: filter.unwrap_or_default(), is_typed: false },
            list: List::default(),
            detail: None,
            names: Vec::new(),
            chosen: None,
            grants: Grants::default(),
            has_names: false,
            last_answer: now,
            pending_since: None,
            failure: None,
        }
    }

    /// Called when the home is asked.
    pub(super) fn request_sent(&mut self, now: Instant) {
        self.pending_since = Some(now);
    }

    pub(super) fn update(&mut self, mut snapshot: Snapshot, now: Instant) {
        self.grants.compare(&mut snapshot, now);
        self.last_answer = now;
        self.pending_since = None;
        self.failure = None;
        match (&mut self.detail, snapshot.participants) {
            (Some(detail), Some(participants)) => {
                detail.numbers = snapshot.names.pop();
                detail.holders.keep_within(participants.holders.len());
                detail.waiters.keep_within(participants.waiters.len());
                detail.participants = Some(participants);
            }
            (None, None) => {
                self.names = snapshot.names;
                self.has_names = true;
                self.follow();
            }
            // The user has changed the view meanwhile: the answer is for the old view.
            _ => {}
        }
    }

    pub(super) fn request_failed(&mut self, message: &str) {
        self.pending_since = None;
        self.failure = Some(plain(message).into_owned());
    }

    /// How long an answer is missing, and the error if there is one. `None` if no answer is late.
    pub(super) fn unanswered(&self, now: Instant) -> Option<(Duration, Option<&str>)> {
        let is_late =
            self.pending_since.is_some_and(|sent| now.saturating_duration_since(sent) >= ANSWER_TIMEOUT);
        let since = now.saturating_duration_since(self.last_answer);
        (is_late || self.failure.is_some()).then_some((since, self.failure.as_deref()))
    }

    /// When the screen changes without an event.
    pub(super) fn next_redraw(&self, now: Instant) -> Option<Instant> {
        match self.unanswered(now) {
            Some((since, _)) => Some(self.last_answer + Duration::from_secs(since.as_secs() + 1)),
            None => self.pending_since.map(|sent| sent + ANSWER_TIMEOUT),
        }
    }

    /// All names, without the filter.
    pub(super) fn all_names(&self) -> &[SemaphoreRow] {
        &self.names
    }

    /// The names that pass the filter, sorted.
    pub(super) fn shown_names(&self) -> Vec<&SemaphoreRow> {
        let wanted = self.filter.text.to_lowercase();
        let passes = |name: &&SemaphoreRow| wanted.is_empty() || name.name.to_lowercase().contains(&wanted);
        let mut names = Vec::from_iter(self.names.iter().filter(passes));
        names.sort_by(|a, b| self.sort.compare(a, b));
        names
    }

    /// Moves the cursor to the chosen name.
    fn follow(&mut self) {
        let names = self.shown_names();
        let at = self.chosen.as_ref().and_then(|chosen| names.iter().position(|name| name.name == *chosen));
        let count = names.len();
        self.list.chosen = at.unwrap_or(if self.chosen.is_some() { self.list.chosen } else { 0 });
        self.list.keep_within(count);
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Action {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Action::Quit,
                KeyCode::Char('z') => return Action::Suspend,
                KeyCode::Char('u') if self.filter.is_typed => self.filter.text.clear(),
                _ => return Action::Nothing,
            }
            self.follow();
            return Action::Nothing;
        }
        if self.shows_help {
            self.shows_help = false;
            return Action::Nothing;
        }
        if self.filter.is_typed {
            self.filter.press(key.code);
            self.follow();
            return Action::Nothing;
        }
        match key.code {
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.shows_help = true,
            KeyCode::Char('p' | ' ') => {
                self.is_paused = !self.is_paused;
                return if self.is_paused { Action::Nothing } else { Action::Refresh };
            }
            KeyCode::Char('+' | '=') => self.interval = longer(self.interval),
            KeyCode::Char('-' | '_') => self.interval = shorter(self.interval),
            _ if self.detail.is_some() => return self.press_in_detail(key.code),
            _ => return self.press_in_list(key.code),
        }
        Action::Nothing
    }

    fn press_in_list(&mut self, key: KeyCode) -> Action {
        match key {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Esc if self.filter.text.is_empty() => return Action::Quit,
            KeyCode::Esc => self.filter.text.clear(),
            KeyCode::Char('/') => self.filter.is_typed = true,
            KeyCode::Char('s') => self.sort.by = self.sort.by.next(),
            KeyCode::Char('r') => self.sort.is_reversed = !self.sort.is_reversed,
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => return self.open_detail(),
            key => {
                let names = self.shown_names();
                let (mut list, count) = (self.list, names.len());
                if list.press(key, count) {
                    let chosen = names.get(list.chosen).map(|name| Arc::clone(&name.name));
                    (self.list, self.chosen) = (list, chosen);
                }
                return Action::Nothing;
            }
        }
        self.follow();
        Action::Nothing
    }

    fn open_detail(&mut self) -> Action {
        let Some(name) = self.shown_names().get(self.list.chosen).copied().cloned() else {
            return Action::Nothing;
        };
        self.chosen = Some(Arc::clone(&name.name));
        self.detail = Some(Detail {
            name: Arc::clone(&name.name),
            numbers: Some(name),
            participants: None,
            chosen: Pane::Holders,
            holders: List::default(),
            waiters: List::default(),
        });
        Action::Refresh
    }

    fn press_in_detail(&mut self, key: KeyCode) -> Action {
        let Some(detail) = &mut self.detail else { return Action::Nothing };
        match key {
            KeyCode::Esc | KeyCode::Char('q') | KeyCode::Left | KeyCode::Backspace => {
                self.detail = None;
                self.follow();
                return if self.is_paused { Action::Nothing } else { Action::Refresh };
            }
            KeyCode::Tab | KeyCode::BackTab => detail.chosen = detail.chosen.other(),
            key => {
                let (holders, waiters) = detail
                    .participants
                    .as_ref()
                    .map_or((0, 0), |participants| (participants.holders.len(), participants.waiters.len()));
                match detail.chosen {
                    Pane::Holders => detail.holders.press(key, holders),
                    Pane::Waiters => detail.waiters.press(key, waiters),
                };
            }
        }
        Action::Nothing
    }
}

impl Filter {
    fn press(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.is_typed = false,
            KeyCode::Esc => *self = Self::default(),
            KeyCode::Backspace => {
                self.text.pop();
            }
            KeyCode::Char(character) => self.text.push(character),
            _ => {}
        }
    }
}

impl List {
    /// True if the key moves the cursor.
    fn press(&mut self, key: KeyCode, count: usize) -> bool {
        let page = self.height.max(1);
        self.chosen = match key {
            KeyCode::Up | KeyCode::Char('k') => self.chosen.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.chosen + 1,
            KeyCode::PageUp => self.chosen.saturating_sub(page),
            KeyCode::PageDown => self.chosen + page,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => count,
            _ => return false,
        };
        self.keep_within(count);
        true
    }

    fn keep_within(&mut self, count: usize) {
        self.chosen = self.chosen.min(count.saturating_sub(1));
    }

    /// Scrolls as little as needed to show the chosen line, and returns the lines to show.
    pub(super) fn scroll(&mut self, height: usize, count: usize) -> std::ops::Range<usize> {
        self.height = height;
        self.first_shown = self.first_shown.min(self.chosen).min(count.saturating_sub(height));
        self.first_shown = self.first_shown.max((self.chosen + 1).saturating_sub(height));
        self.first_shown..count.min(self.first_shown + height)
    }
}

impl Pane {
    fn other(self) -> Self {
        match self {
            Self::Holders => Self::Waiters,
            Self::Waiters => Self::Holders,
        }
    }
}

impl Column {
    fn next(self) -> Self {
        match self {
            Self::Name => Self::Percent,
            Self::Percent => Self::Waiting,
            Self::Waiting => Self::LongestWait,
            Self::LongestWait => Self::Name,
        }
    }
}

impl Sort {
    /// Highest numbers first, names from A to Z; the opposite if reversed.
    fn compare(self, a: &SemaphoreRow, b: &SemaphoreRow) -> Ordering {
        let percent = || b.percent().total_cmp(&a.percent());
        let waiting = || b.waiting.cmp(&a.waiting);
        let order = match self.by {
            Column::Name => Ordering::Equal,
            Column::Percent => percent().then_with(waiting),
            Column::Waiting => waiting().then_with(percent),
            Column::LongestWait => b.longest_wait.cmp(&a.longest_wait),
        };
        let order = order.then_with(|| a.name.cmp(&b.name));
        if self.is_reversed { order.reverse() } else { order }
    }
}

fn longer(interval: Duration) -> Duration {
    let mut steps = INTERVALS.into_iter().map(Duration::from_millis);
    steps.find(|step| *step > interval).unwrap_or(interval)
}

fn shorter(interval: Duration) -> Duration {
    let mut steps = INTERVALS.into_iter().map(Duration::from_millis);
    steps.rfind(|step| *step < interval).unwrap_or(interval)
}

#[cfg(test)]
mod tests;
