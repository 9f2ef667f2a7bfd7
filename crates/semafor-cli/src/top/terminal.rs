//! Takes over the terminal, and always restores it.

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

/// Buffered, so that an update of the screen is one write: one packet over ssh.
type Screen = Terminal<CrosstermBackend<BufWriter<Stdout>>>;

/// The terminal. Restored on drop.
pub(super) struct TerminalGuard {
    /// Never dropped: if the terminal is gone, its drop prints to stderr, which is gone as well, and panics.
    screen: ManuallyDrop<Screen>,
}

impl TerminalGuard {
    pub(super) fn begin() -> io::Result<Self> {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            // On the alternate screen, the message would be lost.
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

    /// Stops this process, as Ctrl-Z does elsewhere, until the shell continues it.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        leave();
        // Stops the whole pipeline. Returns when continued, or at once if there is no shell to continue us.
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

/// A new screen of unknown content. Clearing an old one would ask the terminal for its cursor position.
fn blank() -> io::Result<Screen> {
    Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(1 << 16, stdout())))
}

/// Makes sure we leave only once: leaving twice would move the cursor to its position at the start.
static IS_TAKEN_OVER: AtomicBool = AtomicBool::new(false);

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    IS_TAKEN_OVER.store(true, Ordering::SeqCst);
    execute!(stdout(), EnterAlternateScreen, Hide)
}

/// Errors are ignored: the terminal may be gone.
fn leave() {
    if IS_TAKEN_OVER.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Keys and changes of the size. The thread that waits for them ends with the process.
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
