//! A screen as a self-contained picture: SVG, with the text as text.

use std::fmt::Write;

use vt100::{Cell, Color};

use super::Screen;

/// Width and height of a character. The width of monospaced fonts is three fifths of their size, or near it.
const CELL: (f32, f32) = (8.4, 19.0);
const FONT_SIZE: f32 = 14.0;
const MARGIN: f32 = 14.0;

const BACKGROUND: &str = "#16181d";
const FOREGROUND: &str = "#d5d9e0";

/// The sixteen colours of a terminal.
const PALETTE: [&str; 16] = [
    "#22252c", "#e5636c", "#8cc570", "#e3b65f", "#62a8ea", "#c07bdb", "#55b7c3", "#b8bec9", //
    "#6a7180", "#ef7f87", "#a5d98a", "#f0cb82", "#83bdf2", "#d199e6", "#7accd6", "#ffffff",
];

/// How a character looks.
#[derive(Clone, Copy, PartialEq)]
struct Look {
    foreground: Ink,
    background: Option<Ink>,
    is_bold: bool,
    is_dim: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Ink {
    Named(&'static str),
    Mixed(u8, u8, u8),
}

/// Draws `screen`.
pub fn svg(screen: &Screen) -> String {
    let (rows, cols) = screen.cells().size();
    let (width, height) = (f32::from(cols.get()) * CELL.0, f32::from(rows.get()) * CELL.1);
    let (outer_width, outer_height) = (width + 2.0 * MARGIN, height + 2.0 * MARGIN);
    let mut backgrounds = String::new();
    let mut letters = String::new();
    for row in 0..rows.get() {
        let y = f32::from(row) * CELL.1;
        for run in runs(screen, row, cols.get(), |cell, _| Look::of(cell).background) {
            if let Some(ink) = run.look {
                rectangle(&mut backgrounds, (run.x(), y), (run.width(), CELL.1), ink);
            }
        }
        let look = |cell: &Cell, text: &str| (Look::of(cell), text.trim().is_empty());
        for run in runs(screen, row, cols.get(), look) {
            let (look, is_blank) = run.look;
            if !is_blank {
                letter(&mut letters, &run, look, y + CELL.1 * 0.72);
            }
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {outer_width:.0} {outer_height:.0}\" \
         width=\"{outer_width:.0}\" height=\"{outer_height:.0}\" xml:space=\"preserve\" font-size=\"{FONT_SIZE}\" \
         font-family=\"'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n\
         <g transform=\"translate({MARGIN} {MARGIN})\">\n{backgrounds}{letters}</g>\n</svg>\n"
    )
}

fn rectangle(into: &mut String, (x, y): (f32, f32), (width, height): (f32, f32), fill: Ink) {
    let fill = fill.css();
    let _ = writeln!(
        into,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
    );
}

fn letter<L>(into: &mut String, run: &Run<L>, look: Look, baseline: f32) {
    let (x, width, fill, text) = (run.x(), run.width(), look.foreground.css(), escaped(&run.text));
    let weight = if look.is_bold { " font-weight=\"600\"" } else { "" };
    let dim = if look.is_dim { " opacity=\"0.6\"" } else { "" };
    // Keeps the columns aligned with any font.
    let _ = writeln!(
        into,
        "<text x=\"{x:.1}\" y=\"{baseline:.1}\" textLength=\"{width:.1}\" fill=\"{fill}\"{weight}{dim}>{text}</text>"
    );
}

/// Neighbours in a row with the same look.
struct Run<L> {
    look: L,
    first: u16,
    columns: u16,
    text: String,
}

impl<L> Run<L> {
    fn x(&self) -> f32 {
        f32::from(self.first) * CELL.0
    }

    fn width(&self) -> f32 {
        f32::from(self.columns) * CELL.0
    }
}

fn runs<L: PartialEq>(screen: &Screen, row: u16, cols: u16, look: impl Fn(&Cell, &str) -> L) -> Vec<Run<L>> {
    let mut runs: Vec<Run<L>> = Vec::new();
    let cells = (0..cols).filter_map(|col| Some((col, screen.cells().cell(row, col)?)));
    for (col, cell) in cells.filter(|(_, cell)| !cell.is_wide_continuation()) {
        let text = if cell.has_contents() { cell.contents() } else { " " };
        let (look, columns) = (look(cell, text), if cell.is_wide() { 2 } else { 1 });
        match runs.last_mut().filter(|run| run.look == look) {
            Some(run) => {
                run.text.push_str(text);
                run.columns += columns;
            }
            None => runs.push(Run { look, first: col, columns, text: text.to_owned() }),
        }
    }
    runs
}

impl Look {
    fn of(cell: &Cell) -> Self {
        let ink = |color| match color {
            Color::Default => None,
            Color::Idx(index) => Some(indexed(index)),
            Color::Rgb(red, green, blue) => Some(Ink::Mixed(red, green, blue)),
        };
        let (mut foreground, mut background) = (ink(cell.fgcolor()), ink(cell.bgcolor()));
        if cell.inverse() {
            let (front, back) = (Ink::Named(FOREGROUND), Ink::Named(BACKGROUND));
            (foreground, background) = (Some(background.unwrap_or(back)), Some(foreground.unwrap_or(front)));
        }
        Self {
            foreground: foreground.unwrap_or(Ink::Named(FOREGROUND)),
            background,
            is_bold: cell.bold(),
            is_dim: cell.dim(),
        }
    }
}

impl Ink {
    fn css(self) -> String {
        match self {
            Self::Named(name) => name.to_owned(),
            Self::Mixed(red, green, blue) => format!("#{red:02x}{green:02x}{blue:02x}"),
        }
    }
}

/// Of the 256 colours: sixteen with names, a cube of six shades each, and greys.
fn indexed(index: u8) -> Ink {
    let shade = |level: u8| if level == 0 { 0 } else { 55 + 40 * level };
    match index {
        0..16 => Ink::Named(PALETTE[usize::from(index)]),
        16..232 => {
            let index = index - 16;
            Ink::Mixed(shade(index / 36), shade(index / 6 % 6), shade(index % 6))
        }
        232.. => Ink::Mixed(8 + 10 * (index - 232), 8 + 10 * (index - 232), 8 + 10 * (index - 232)),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_colours_are_drawn() {
        let mut parser = vt100::Parser::default();
        parser.process(b"a <b> \x1b[31mred\x1b[0m \x1b[7mchosen\x1b[0m \x1b[32m");
        parser.process("■■".as_bytes());
        let svg = svg(&Screen(parser.screen().clone()));
        for wanted in [">a<", ">&lt;b&gt;<", PALETTE[1], ">chosen<", PALETTE[2], ">■■<"] {
            assert!(svg.contains(wanted), "{wanted} in {svg}");
        }
    }

    #[test]
    fn all_256_colours_are_known() {
        let shown = [0, 16, 21, 231, 232, 255].map(|index| indexed(index).css());
        assert_eq!(shown, [PALETTE[0], "#000000", "#0000ff", "#ffffff", "#080808", "#eeeeee"]);
    }
}
