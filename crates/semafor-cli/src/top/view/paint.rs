//! Colours, bars and numbers.

use std::time::Duration;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::super::snapshot::SemaphoreRow;
use crate::duration;

/// Whether colours are used. Only the sixteen colours that every terminal has and that users can configure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::top) enum Paint {
    Colours,
    /// `NO_COLOR` is set.
    None,
}

impl Paint {
    fn colour(self, colour: Color) -> Style {
        match self {
            Self::Colours => Style::new().fg(colour),
            Self::None => Style::new(),
        }
    }

    pub(super) fn accent(self) -> Style {
        self.colour(Color::Cyan)
    }

    pub(super) fn faint(self) -> Style {
        match self {
            Self::Colours => self.colour(Color::DarkGray),
            Self::None => Style::new().add_modifier(Modifier::DIM),
        }
    }

    pub(super) fn alarm(self) -> Style {
        match self {
            Self::Colours => Style::new().fg(Color::White).bg(Color::Red).add_modifier(Modifier::BOLD),
            Self::None => Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD),
        }
    }

    pub(super) fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Green with free slots, yellow if almost all are held, red if there are waiters.
    pub(super) fn load(self, name: &SemaphoreRow) -> Style {
        self.colour(match name.percent() {
            _ if name.waiting > 0 => Color::Red,
            80.0.. => Color::Yellow,
            _ => Color::Green,
        })
    }

    /// A bar that shows how many slots are held.
    pub(super) fn bar(self, name: &SemaphoreRow, width: usize) -> Line<'static> {
        let share = (name.percent() / 100.0).clamp(0.0, 1.0);
        let mut filled = (share * width as f64).round() as usize;
        // A bar is empty or full only if no slot or every slot is held.
        if share > 0.0 {
            filled = filled.max(1);
        }
        if share < 1.0 {
            filled = filled.min(width.saturating_sub(1));
        }
        Line::from(vec![
            Span::styled("■".repeat(filled), self.load(name)),
            Span::styled("·".repeat(width - filled), self.faint()),
        ])
    }
}

pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Shown in place of a missing value.
pub(super) const NOTHING: &str = "–";

pub(super) fn percent(name: &SemaphoreRow) -> String {
    format!("{:.0}%", name.percent())
}

/// Like [`duration::show`], but with milliseconds, which matter for waits.
pub(super) fn time(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1e3;
    match millis {
        0.0..9.95 => format!("{millis:.1}ms"),
        9.95..999.5 => format!("{millis:.0}ms"),
        _ => duration::show(time),
    }
}

pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => "0".to_owned(),
        ..9.95 => format!("{per_second:.1}"),
        ..99_999.5 => format!("{per_second:.0}"),
        _ => format!("{:.0}k", per_second / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_full_as_the_semaphore() {
        let bar = |held, slots| {
            Paint::None.bar(&SemaphoreRow { held, slots, ..SemaphoreRow::default() }, 4).to_string()
        };
        assert_eq!(bar(0, 10), "····");
        assert_eq!(bar(1, 100), "■···", "one slot held is visible");
        assert_eq!(bar(5, 10), "■■··");
        assert_eq!(bar(99, 100), "■■■·", "one free slot is visible");
        assert_eq!(bar(10, 10), "■■■■");
        assert_eq!(bar(13, 10), "■■■■", "after a shrink");
        assert_eq!(bar(0, 0), "····");
        let none = Paint::Colours.bar(&SemaphoreRow { held: 1, slots: 2, ..SemaphoreRow::default() }, 0);
        assert_eq!(none.width(), 0);
    }

    #[test]
    fn times_and_rates_are_short() {
        let shown = [0, 40, 3_240, 340_000, 1_500_000, 75_000_000].map(|us| time(Duration::from_micros(us)));
        assert_eq!(shown, ["0.0ms", "0.0ms", "3.2ms", "340ms", "1.5s", "1m15s"]);
        assert_eq!([0.0, 0.25, 12.3, 1234.0, 250_000.0].map(rate), ["0", "0.2", "12", "1234", "250k"]);
    }
}
