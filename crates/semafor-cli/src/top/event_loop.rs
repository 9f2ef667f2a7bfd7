//! The event loop: keys, signals, and requests to the home.

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
use super::snapshot::Snapshot;
use super::terminal::{TerminalGuard, events};
use super::view::{self, Paint};
use super::{address, query};
use crate::cli::Top;
use crate::exit::{Code, Failure};

/// Shows all semaphores until the user quits.
pub(crate) async fn top(args: Top) -> Result<ExitCode, Failure> {
    if !stdout().is_terminal() {
        let hint = "semafor top needs a terminal; in scripts, use `semafor status --json`";
        return Err(Code::Usage.because(hint));
    }
    let home = args.home.connect().await?;
    let app = App::new(address::shown(&args.home.url), args.interval, args.filter, Instant::now());
    let complain = |error: io::Error| Code::Usage.because(format!("the terminal can't be used: {error}"));
    let stop_signals = StopSignals::new().map_err(complain)?;
    let mut terminal = TerminalGuard::begin().map_err(complain)?;
    // A terminal that fails later is gone: no message could be printed.
    Ok(run(app, &home, &mut terminal, stop_signals).await.unwrap_or_else(|_| exit_code_for(HANGUP)))
}

async fn run(
    mut app: App,
    home: &Home,
    terminal: &mut TerminalGuard,
    mut stop_signals: StopSignals,
) -> io::Result<ExitCode> {
    let no_color = var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let paint = if no_color { Paint::None } else { Paint::Colours };
    let mut keys = events();
    let mut request = Request::begin(&mut app, home);
    terminal.draw(|frame| view::draw(frame, &mut app, paint, Instant::now()))?;
    loop {
        let next_request = request.next(&app);
        let next_redraw = app.next_redraw(Instant::now());
        tokio::select! {
            event = keys.recv() => match event {
                Some(Event::Key(key)) if key.kind != KeyEventKind::Release => match app.press(key) {
                    Action::Nothing => {}
                    Action::Refresh => request = Request::begin(&mut app, home),
                    Action::Suspend => terminal.suspend()?,
                    Action::Quit => return Ok(ExitCode::SUCCESS),
                },
                // The size has changed: draw again.
                Some(_) => {}
                None => return Ok(exit_code_for(HANGUP)),
            },
            signal = stop_signals.next() => return Ok(exit_code_for(signal)),
            answer = request.answer() => match answer {
                Ok(snapshot) => app.update(snapshot, Instant::now()),
                Err(failure) => app.request_failed(&failure.message),
            },
            () = at(next_redraw) => {}
            () = at(next_request) => {
                request = Request::begin(&mut app, home);
                // There is nothing new to draw yet.
                continue;
            }
        }
        terminal.draw(|frame| view::draw(frame, &mut app, paint, Instant::now()))?;
    }
}

/// One request at a time: the next is sent one interval after this one was sent, but not before it is answered.
struct Request {
    began: Instant,
    answer: Option<SnapshotFuture>,
}

type SnapshotFuture = Pin<Box<dyn Future<Output = Result<Snapshot, Failure>>>>;

impl Request {
    fn begin(app: &mut App, home: &Home) -> Self {
        let began = Instant::now();
        app.request_sent(began);
        let into = app.detail.as_ref().map(|detail| Arc::clone(&detail.name));
        Self { began, answer: Some(Box::pin(query::fetch(home.clone(), into))) }
    }

    /// Cancel safe: the next call waits for the same answer.
    async fn answer(&mut self) -> Result<Snapshot, Failure> {
        let Some(answer) = &mut self.answer else { return pending().await };
        let snapshot = answer.await;
        self.answer = None;
        snapshot
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

/// The signals that end `top`. The terminal is restored first.
struct StopSignals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for a signal, and returns its number.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.hangup.recv() => HANGUP,
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
        }
    }
}

const HANGUP: u8 = 1;

fn exit_code_for(signal: u8) -> ExitCode {
    ExitCode::from(128 + signal)
}
