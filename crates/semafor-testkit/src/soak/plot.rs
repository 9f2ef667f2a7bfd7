//! Draws memory and descriptors over time.

use std::fmt::Write;

use super::report::Series;
use super::samples::Sample;

const LEFT: f64 = 64.0;
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 180.0;
const GAP: f64 = 80.0;
const TOP: f64 = 84.0;
const COLOURS: [&str; 8] =
    ["#0969da", "#cf222e", "#1a7f37", "#8250df", "#bf8700", "#57606a", "#d4a72c", "#0550ae"];

/// The servers, agents and clients that live as long as the run, as SVG.
pub(super) fn to_svg(series: &[Series]) -> String {
    let series: Vec<_> =
        series.iter().filter(|series| series.is_drawn && !series.samples.is_empty()).collect();
    let end = series.iter().flat_map(|series| &series.samples).map(|sample| sample.at).fold(1.0, f64::max);
    let height = TOP + 2.0 * HEIGHT + GAP + 60.0;
    let width = LEFT + WIDTH + 190.0;
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        svg,
        "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}'>\
         <style>text{{font:12px ui-sans-serif,system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:#24292f}}\
         .small{{font-size:10px;fill:#57606a}}.title{{font-size:14px;font-weight:600}}.grid{{stroke:#d8dee4}}\
         .line{{fill:none;stroke-width:1.5}}</style><rect width='100%' height='100%' rx='8' fill='#fff'/>\
         <text x='24' y='32' class='title'>Processes that live as long as the run</text>"
    );
    let memory = |sample: &Sample| sample.rss as f64 / 1024.0;
    panel(&mut svg, TOP, "memory, MB", &series, end, memory);
    let descriptors = |sample: &Sample| sample.descriptors as f64;
    panel(&mut svg, TOP + HEIGHT + GAP, "open descriptors", &series, end, descriptors);
    for (number, series) in series.iter().enumerate() {
        let y = TOP + 14.0 + 18.0 * number as f64;
        let (x, colour) = (LEFT + WIDTH + 20.0, COLOURS[number % COLOURS.len()]);
        let _ = write!(
            svg,
            "<rect x='{x}' y='{}' width='12' height='4' fill='{colour}'/><text x='{}' y='{y}'>{}</text>",
            y - 6.0,
            x + 18.0,
            series.name
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel(
    svg: &mut String,
    top: f64,
    title: &str,
    series: &[&Series],
    end: f64,
    value: impl Fn(&Sample) -> f64,
) {
    let most = series.iter().flat_map(|series| &series.samples).map(&value).fold(1.0, f64::max);
    let step = step_for(most);
    let most = (most / step).ceil() * step;
    let y = |value: f64| top + HEIGHT - value / most * HEIGHT;
    let _ = write!(svg, "<text x='24' y='{}'>{title}</text>", top - 20.0);
    let mut mark = 0.0;
    while mark <= most {
        let at = y(mark);
        let _ = write!(
            svg,
            "<line x1='{LEFT}' y1='{at:.1}' x2='{}' y2='{at:.1}' class='grid'/>\
             <text x='{}' y='{:.1}' text-anchor='end' class='small'>{mark}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            at + 3.0
        );
        mark += step;
    }
    for part in 0..=4 {
        let share = f64::from(part) / 4.0;
        let _ = write!(
            svg,
            "<text x='{:.1}' y='{:.1}' text-anchor='middle' class='small'>{}</text>",
            LEFT + share * WIDTH,
            top + HEIGHT + 16.0,
            time(share * end)
        );
    }
    for (number, series) in series.iter().enumerate() {
        let points: Vec<_> = series
            .samples
            .iter()
            .map(|sample| format!("{:.1},{:.1}", LEFT + sample.at / end * WIDTH, y(value(sample))))
            .collect();
        let colour = COLOURS[number % COLOURS.len()];
        let _ = write!(svg, "<polyline points='{}' class='line' stroke='{colour}'/>", points.join(" "));
    }
}

/// About five marks, at round numbers.
fn step_for(most: f64) -> f64 {
    let rough = most / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|step| *step >= rough).unwrap_or(rough)
}

fn time(seconds: f64) -> String {
    if seconds >= 120.0 { format!("{:.0} min", seconds / 60.0) } else { format!("{seconds:.0} s") }
}
