//! The loop that brings it together: keys, signals, and looks at the home.

use std::env::var_os;
use std::future::pending;
use std::io::{self, IsTerminal, stdout};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use ratatui::crossterm::event::{Event, KeyEventKind};
use semafor::Home;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep_until;

use super::app::{Action, App};
use super::seen::Look;
use super::terminal::{Takeover, events};
use super::view::{self, Paint};
use super::{address, watch};
use crate::cli::Top;
use crate::exit::{Code, Failure};

/// Shows all there is until told to quit.
pub(crate) async fn top(args: Top) -> Result<ExitCode, Failure> {
    if !stdout().is_terminal() {
        let hint = "semafor top needs a terminal; for scripts there is `semafor status --json`";
        return Err(Code::Usage.because(hint));
    }
    let home = args.at.connect().await?;
    let app = App::new(address::shown(&args.at.url), args.interval, args.filter, Instant::now());
    let complain = |error: io::Error| Code::Usage.because(format!("the terminal can't be used: {error}"));
    let endings = Endings::new().map_err(complain)?;
    let mut terminal = Takeover::begin().map_err(complain)?;
    // A terminal that fails later is gone, and with it whoever could be told.
    Ok(run(app, &home, &mut terminal, endings).await.unwrap_or_else(|_| ended_by(HANGUP)))
}

async fn run(
    mut app: App,
    home: &Home,
    terminal: &mut Takeover,
    mut endings: Endings,
) -> io::Result<ExitCode> {
    let no_color = var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let paint = if no_color { Paint::None } else { Paint::Colours };
    let mut keys = events();
    let mut looking = Looking::begin(&mut app, home);
    terminal.draw(|frame| view::draw(frame, &mut app, paint, Instant::now()))?;
    loop {
        let next_look = looking.next(&app);
        let next_change = app.next_change(Instant::now());
        tokio::select! {
            event = keys.recv() => match event {
                Some(Event::Key(key)) if key.kind != KeyEventKind::Release => match app.press(key) {
                    Action::Nothing => {}
                    Action::Look => looking = Looking::begin(&mut app, home),
                    Action::Suspend => terminal.suspend()?,
                    Action::Quit => return Ok(ExitCode::SUCCESS),
                },
                // Another size, which drawing takes into account.
                Some(_) => {}
                None => return Ok(ended_by(HANGUP)),
            },
            signal = endings.next() => return Ok(ended_by(signal)),
            answer = looking.answer() => match answer {
                Ok(look) => app.has_seen(look, Instant::now()),
                Err(failure) => app.has_failed(&failure.message),
            },
            () = at(next_change) => {}
            () = at(next_look) => {
                looking = Looking::begin(&mut app, home);
                // There is nothing new to be drawn yet.
                continue;
            }
        }
        terminal.draw(|frame| view::draw(frame, &mut app, paint, Instant::now()))?;
    }
}

/// One look at a time: the next begins when an interval has passed since this one began, and it was answered.
struct Looking {
    began: Instant,
    answer: Option<LookFuture>,
}

type LookFuture = Pin<Box<dyn Future<Output = Result<Look, Failure>>>>;

impl Looking {
    fn begin(app: &mut App, home: &Home) -> Self {
        let began = Instant::now();
        app.asks(began);
        let into = app.inside.as_ref().map(|inside| Arc::clone(&inside.name));
        Self { began, answer: Some(Box::pin(watch::look(home.clone(), into))) }
    }

    /// Cancel safe: what was begun is awaited further the next time.
    async fn answer(&mut self) -> Result<Look, Failure> {
        let Some(answer) = &mut self.answer else { return pending().await };
        let answered = answer.await;
        self.answer = None;
        answered
    }

    fn next(&self, app: &App) -> Option<Instant> {
        let is_due = self.answer.is_none() && !app.is_paused;
        self.began.checked_add(app.interval).filter(|_| is_due)
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => pending().await,
    }
}

/// The signals that end this, after which the terminal is to be as it was.
struct Endings {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Endings {
    fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The number of the first that comes.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.hangup.recv() => HANGUP,
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
        }
    }
}

const HANGUP: u8 = 1;

fn ended_by(signal: u8) -> ExitCode {
    ExitCode::from(128 + signal)
}
