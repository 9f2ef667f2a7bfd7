//! Draws a run: a lane for the server and one for each process, holds as bars, messages as arrows, the violation in red.

use std::fmt::Write;

use super::{Outcome, SECOND, Settings, Time};

const LEFT: f64 = 90.0;
const WIDTH: f64 = 1_400.0;
const LANE: f64 = 46.0;
const TOP: f64 = 40.0;
/// How much time before the violation is drawn.
const WINDOW: Time = 20 * SECOND;

/// The last seconds of a run that was recorded, as SVG.
pub fn to_svg(settings: &Settings, outcome: &Outcome) -> String {
    let end =
        outcome.violation.as_ref().map_or(outcome.simulated, |violation| violation.at).min(outcome.simulated)
            + SECOND / 2;
    let begin = end.saturating_sub(WINDOW);
    let x = |at: Time| LEFT + (at.clamp(begin, end) - begin) as f64 / (end - begin).max(1) as f64 * WIDTH;
    let y = |process: Option<usize>| TOP + LANE * process.map_or(0, |process| process + 1) as f64;
    let height = TOP + LANE * (settings.processes + 1) as f64 + 60.0;
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>",
        LEFT + WIDTH + 20.0
    );
    for lane in 0..=settings.processes {
        let (process, name) = match lane {
            0 => (None, "server".to_owned()),
            lane => (Some(lane - 1), format!("process {}", lane - 1)),
        };
        let at = y(process);
        let _ = writeln!(
            svg,
            "<text x=\"8\" y=\"{}\">{name}</text><line x1=\"{LEFT}\" y1=\"{at}\" x2=\"{}\" y2=\"{at}\" stroke=\"#ccc\"/>",
            at + 4.0,
            LEFT + WIDTH
        );
    }
    for held in &outcome.holds {
        let until = held.until.map_or(end, |(at, _)| at);
        if until < begin || held.from > end {
            continue;
        }
        let (from, to, at) = (x(held.from), x(until), y(Some(held.process)));
        let title = format!("n{} slot {} token {} {:?}", held.name, held.slot, held.token, held.until);
        let hue = (held.name * 90 + 200) % 360;
        let _ = writeln!(
            svg,
            "<rect x=\"{from}\" y=\"{}\" width=\"{}\" height=\"12\" fill=\"hsl({hue} 60% 70%)\"><title>{}</title></rect>\
             <text x=\"{}\" y=\"{}\" font-size=\"9\">{}</text>",
            at - 16.0,
            (to - from).max(1.0),
            escaped(&title),
            from + 2.0,
            at - 7.0,
            held.slot
        );
    }
    for event in outcome.events.iter().filter(|event| (begin..=end).contains(&event.at)) {
        let (at, lane) = (x(event.at), y(event.process));
        if let Some((sent, from)) = event.sent {
            let _ = writeln!(
                svg,
                "<line x1=\"{}\" y1=\"{}\" x2=\"{at}\" y2=\"{lane}\" stroke=\"#88a\" stroke-width=\"0.6\"/>",
                x(sent),
                y(from)
            );
        }
        let colour = if event.text.starts_with("fault") { "#d80" } else { "#446" };
        let _ = writeln!(
            svg,
            "<circle cx=\"{at}\" cy=\"{lane}\" r=\"2.5\" fill=\"{colour}\"><title>{:.6} s: {}</title></circle>",
            event.at as f64 / SECOND as f64,
            escaped(&event.text)
        );
    }
    if let Some(violation) = &outcome.violation {
        let at = x(violation.at);
        let _ = writeln!(
            svg,
            "<line x1=\"{at}\" y1=\"{TOP}\" x2=\"{at}\" y2=\"{}\" stroke=\"red\" stroke-width=\"2\"/>\
             <text x=\"{LEFT}\" y=\"{}\" fill=\"red\">{}</text>",
            height - 40.0,
            height - 20.0,
            escaped(&violation.to_string().chars().take(240).collect::<String>())
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
