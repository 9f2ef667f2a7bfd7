//! Takes the terminal over, and gives it back however this ends.

use std::io::{self, BufWriter, Stdout, stdout};
use std::mem::ManuallyDrop;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::process::{Signal, kill_current_process_group};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Buffered, so that a change of the picture is one write: one packet, over ssh.
type Screen = Terminal<CrosstermBackend<BufWriter<Stdout>>>;

/// A terminal that is ours until this is dropped.
pub(super) struct TerminalGuard {
    /// Never dropped: it would complain on stderr if the terminal is gone, and panic, as stderr is gone as well.
    screen: ManuallyDrop<Screen>,
}

impl TerminalGuard {
    pub(super) fn begin() -> io::Result<Self> {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            // What it has to say would be lost on the other screen.
            leave();
            hook(panic);
        }));
        let guard = Self { screen: ManuallyDrop::new(blank()?) };
        enter()?;
        Ok(guard)
    }

    pub(super) fn draw(&mut self, picture: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        self.screen.draw(picture).map(drop)
    }

    /// Stops, as others do on Ctrl-Z, until the shell says to go on.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        leave();
        // Whoever runs us in a pipeline stops with us. Returns when continued; at once, where no shell could do that.
        kill_current_process_group(Signal::TSTP)?;
        enter()?;
        self.screen = ManuallyDrop::new(blank()?);
        Ok(())
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        leave();
    }
}

/// A screen of which nothing is known. One that is cleared asks the terminal first where its cursor is.
fn blank() -> io::Result<Screen> {
    Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(1 << 16, stdout())))
}

/// To leave once only: the second time, the cursor would jump to where it was when this began.
static IS_TAKEN_OVER: AtomicBool = AtomicBool::new(false);

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    IS_TAKEN_OVER.store(true, Ordering::SeqCst);
    execute!(stdout(), EnterAlternateScreen, Hide)
}

/// There is nobody to complain to if it fails: the terminal may be gone.
fn leave() {
    if IS_TAKEN_OVER.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// What is typed, and changes of size. The thread that waits for them ends with the process.
pub(super) fn events() -> UnboundedReceiver<Event> {
    let (events, received) = unbounded_channel();
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            if events.send(event).is_err() {
                break;
            }
        }
    });
    received
}
