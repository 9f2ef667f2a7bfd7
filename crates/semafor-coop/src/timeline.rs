//! Draws a run as one self-contained SVG file: a lane for each task, with the permits it holds and what it waits for.
//!
//! The horizontal axis counts steps, not seconds, because a race happens at one instant. A vertical line marks where
//! time passes.

use std::collections::BTreeMap;
use std::fmt::Write;

use semafor_core::Timestamp;

use crate::Recording;
use crate::recording::{Event, Step, Waited};
use crate::tasks::ROOT;

const MARGIN: usize = 24;
const LABELS: usize = 130;
const STEP: usize = 26;
const LANE: usize = 58;
const TOP: usize = 64;
const BAR: usize = 16;
const STRIPE: usize = 6;

/// Colours of semaphores that colour-blind readers can distinguish.
const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6bb1", "#7a7a00"];

const STYLE: &str = "\
text{font:12px ui-sans-serif,system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:#24292f}\
.small{font-size:10px;fill:#57606a}.title{font-size:14px;font-weight:600}.name{font-weight:600}\
.lane{stroke:#d8dee4}.time{stroke:#8c959f;stroke-dasharray:2 3}\
.run{fill:#57606a}.ready{fill:#d0d7de}.bad{fill:#cf222e;font-weight:600}\
.waits{fill:url(#waits);stroke:#8c959f;stroke-width:.6}.stuck{fill:url(#stuck);stroke:#cf222e}";

const PATTERNS: &str = "\
<pattern id='waits' width='6' height='6' patternUnits='userSpaceOnUse' patternTransform='rotate(45)'>\
<rect width='6' height='6' fill='#f6f8fa'/><rect width='2' height='6' fill='#d0d7de'/></pattern>\
<pattern id='stuck' width='6' height='6' patternUnits='userSpaceOnUse' patternTransform='rotate(45)'>\
<rect width='6' height='6' fill='#ffebe9'/><rect width='2' height='6' fill='#ff8182'/></pattern>";

impl Recording {
    /// The run as a picture: a lane for each task, with when it runs and waits, which permits it holds, and how it
    /// ends.
    ///
    /// It is a complete SVG document that loads no other resources.
    pub fn to_svg(&self) -> String {
        Timeline::of(&self.steps).draw()
    }
}

/// Part of a lane, from one column to another.
struct Stretch {
    from: usize,
    to: usize,
    kind: Kind,
}

enum Kind {
    Runs,
    /// Could run while another task ran.
    Ready,
    Waits {
        on: Waited,
        place: String,
        is_stuck: bool,
    },
    Holds {
        semaphore: u64,
        weight: u32,
        level: usize,
    },
}

#[derive(Default)]
struct Lane {
    name: String,
    stretches: Vec<Stretch>,
    marks: Vec<Mark>,
    begin: usize,
    end: Option<usize>,
    /// The column where the current state began.
    since: usize,
    state: State,
    holds: Vec<(u64, u32, usize, usize)>,
}

struct Mark {
    column: usize,
    text: String,
    is_bad: bool,
}

#[derive(Default)]
enum State {
    #[default]
    Ready,
    Runs,
    Waits {
        on: Waited,
        place: String,
        is_stuck: bool,
    },
}

struct SemaphoreLane {
    name: String,
    permits: u32,
}

#[derive(Default)]
struct Timeline {
    /// The root first, then by number.
    lanes: BTreeMap<u64, Lane>,
    semaphores: BTreeMap<u64, SemaphoreLane>,
    times: Vec<(usize, Timestamp)>,
    columns: usize,
    running: Option<u64>,
    deadlock: Option<String>,
}

/// The root's number is the largest there is; its lane is the first.
fn lane_of(task: u64) -> u64 {
    if task == ROOT { 0 } else { task + 1 }
}

impl Timeline {
    fn of(steps: &[Step]) -> Self {
        let mut timeline = Self::default();
        let mut now = Timestamp::default();
        for step in steps {
            if step.at != now {
                now = step.at;
                timeline.times.push((timeline.columns, now));
            }
            timeline.add(lane_of(step.task), &step.event);
        }
        let columns = timeline.columns + 1;
        timeline.columns = columns;
        for lane in timeline.lanes.values_mut() {
            lane.close(lane.end.unwrap_or(columns));
        }
        timeline
    }

    fn add(&mut self, task: u64, event: &Event) {
        let column = self.columns;
        let lane = self.lanes.entry(task).or_insert_with(|| Lane {
            begin: column,
            since: column,
            ..Lane::default()
        });
        match event {
            Event::Spawned { name } => {
                lane.name = match (task, name) {
                    (0, _) => "root".into(),
                    (number, None) => format!("task {}", number - 1),
                    (_, Some(name)) => name.to_string(),
                };
            }
            Event::SemaphoreCreated { semaphore, permits, name } => {
                let name =
                    name.as_ref().map_or_else(|| format!("semaphore {semaphore}"), ToString::to_string);
                self.semaphores.insert(*semaphore, SemaphoreLane { name, permits: *permits });
            }
            Event::Runs => {
                let stopped = self.running.replace(task).filter(|stopped| *stopped != task);
                self.change(task, State::Runs);
                if let Some(stopped) = stopped
                    && matches!(self.lanes.get(&stopped), Some(Lane { state: State::Runs, end: None, .. }))
                {
                    self.change(stopped, State::Ready);
                }
                return;
            }
            Event::Waits { on, at } => {
                let place = format!("{}:{}", at.file().rsplit('/').next().unwrap_or_default(), at.line());
                self.change(task, State::Waits { on: *on, place, is_stuck: false });
            }
            Event::Resumed => return self.change(task, State::Runs),
            Event::Acquired { semaphore, weight } => lane.acquire(*semaphore, *weight, column),
            Event::Released { semaphore } => self.release(task, *semaphore, column),
            Event::Cancelled => lane.mark(column, "cancelled", true),
            Event::Deadlock(deadlock) => {
                let stuck: Vec<_> =
                    deadlock.links.iter().map(|link| link.task.number.map_or(0, |n| n + 1)).collect();
                for task in stuck {
                    if let Some(Lane { state: State::Waits { is_stuck, .. }, .. }) = self.lanes.get_mut(&task)
                    {
                        *is_stuck = true;
                    }
                }
                self.deadlock = deadlock.to_string().lines().next().map(ToString::to_string);
                self.columns += 1;
                let column = self.columns;
                if let Some(lane) = self.lanes.get_mut(&task) {
                    lane.mark(column, "gets the error", true);
                }
            }
            Event::Logged(text) => lane.mark(column, text, false),
            Event::Ended { error } => {
                lane.close(column);
                lane.end = Some(column);
                if let Some(error) = error {
                    let first = error.lines().next().unwrap_or_default();
                    lane.mark(column, first.split(':').next().unwrap_or(first), true);
                }
            }
        }
        self.columns += 1;
    }

    fn change(&mut self, task: u64, state: State) {
        let column = self.columns;
        if let Some(lane) = self.lanes.get_mut(&task) {
            lane.change(state, column);
        }
    }

    /// Ends the hold of the releasing task, or else of another task that holds a permit.
    fn release(&mut self, task: u64, semaphore: u64, column: usize) {
        let own = self.lanes.get_mut(&task).is_some_and(|lane| lane.release(semaphore, column));
        if !own {
            self.lanes.values_mut().any(|lane| lane.release(semaphore, column));
        }
    }

    fn draw(&self) -> String {
        let mut svg = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut svg);
        svg
    }

    fn x(column: usize) -> usize {
        MARGIN + LABELS + column * STEP
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let width = (Self::x(self.columns) + MARGIN + 60).max(self.legend_width());
        let bottom = TOP + self.lanes.len() * LANE;
        let height = bottom + 64;
        write!(
            out,
            "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}'>\
             <style>{STYLE}</style><defs>{PATTERNS}</defs><rect width='100%' height='100%' rx='8' fill='#fff'/>"
        )?;
        let title = self.deadlock.as_deref().unwrap_or("a run, step by step");
        let class = if self.deadlock.is_some() { "title bad" } else { "title" };
        write!(out, "<text x='{MARGIN}' y='32' class='{class}'>{}</text>", Escaped(title))?;
        for (column, at) in &self.times {
            let (x, seconds) = (Self::x(*column), at.as_nanos() as f64 / 1e9);
            write!(out, "<line x1='{x}' y1='{}' x2='{x}' y2='{bottom}' class='time'/>", TOP - 12)?;
            write!(out, "<text x='{}' y='{}' class='small'>{seconds} s</text>", x + 3, TOP - 6)?;
        }
        for (place, lane) in self.lanes.values().enumerate() {
            self.write_lane(out, lane, TOP + place * LANE)?;
        }
        self.write_legend(out, bottom + 28)?;
        out.write_str("</svg>\n")
    }

    fn write_lane(&self, out: &mut String, lane: &Lane, top: usize) -> std::fmt::Result {
        let (from, to) = (Self::x(lane.begin), Self::x(lane.end.unwrap_or(self.columns)));
        let bar = top + 14;
        write!(out, "<text x='{MARGIN}' y='{}' class='name'>{}</text>", bar + 12, Escaped(&lane.name))?;
        let middle = bar + BAR / 2;
        write!(out, "<line x1='{from}' y1='{middle}' x2='{to}' y2='{middle}' class='lane'/>")?;
        for Stretch { from, to, kind } in &lane.stretches {
            let (x, width) = (Self::x(*from), (to - from) * STEP);
            match kind {
                Kind::Runs => write!(
                    out,
                    "<rect x='{x}' y='{bar}' width='{width}' height='{BAR}' rx='3' class='run'/>"
                )?,
                Kind::Ready => {
                    let (y, height) = (bar + BAR / 2 - 2, 4);
                    write!(out, "<rect x='{x}' y='{y}' width='{width}' height='{height}' class='ready'/>")?;
                }
                Kind::Waits { on, place, is_stuck } => {
                    let class = if *is_stuck { "stuck" } else { "waits" };
                    let what = self.what(*on);
                    write!(
                        out,
                        "<g><title>waits for {what} at {}</title>\
                         <rect x='{x}' y='{bar}' width='{width}' height='{BAR}' rx='3' class='{class}'/>",
                        Escaped(place)
                    )?;
                    let text = format!("{what} · {place}");
                    let shown = if text.chars().count() * 6 <= width { &text } else { &what };
                    if shown.chars().count() * 6 <= width {
                        let middle = x + width / 2;
                        write!(
                            out,
                            "<text x='{middle}' y='{}' class='small' text-anchor='middle' \
                             paint-order='stroke' stroke='#fff' stroke-width='3'>{}</text>",
                            bar + 12,
                            Escaped(shown)
                        )?;
                    }
                    out.write_str("</g>")?;
                }
                Kind::Holds { semaphore, weight, level } => {
                    let (y, colour) = (bar + BAR + 2 + level * (STRIPE + 1), self.colour(*semaphore));
                    let name = self.name(*semaphore);
                    write!(
                        out,
                        "<g><title>holds {weight} of {}</title>\
                         <rect x='{x}' y='{y}' width='{width}' height='{STRIPE}' rx='2' fill='{colour}'/></g>",
                        Escaped(&name)
                    )?;
                }
            }
        }
        if let Some(end) = lane.end {
            write!(out, "<circle cx='{}' cy='{}' r='4' class='run'/>", Self::x(end), bar + BAR / 2)?;
        }
        for Mark { column, text, is_bad } in &lane.marks {
            let (x, class) = (Self::x(*column), if *is_bad { "small bad" } else { "small" });
            write!(out, "<text x='{x}' y='{}' class='{class}'>{}</text>", bar - 4, Escaped(text))?;
        }
        Ok(())
    }

    fn write_legend(&self, out: &mut String, y: usize) -> std::fmt::Result {
        let mut x = MARGIN;
        let fixed = [("run", "runs"), ("ready", "could run"), ("waits", "waits"), ("stuck", "deadlocked")];
        for (class, text) in fixed {
            write!(out, "<rect x='{x}' y='{}' width='18' height='10' rx='2' class='{class}'/>", y - 9)?;
            write!(out, "<text x='{}' y='{y}' class='small'>{text}</text>", x + 24)?;
            x += 44 + text.len() * 6;
        }
        for (number, SemaphoreLane { name, permits }) in &self.semaphores {
            let colour = self.colour(*number);
            let text = format!("holds {name} (of {permits})");
            write!(out, "<rect x='{x}' y='{}' width='18' height='{STRIPE}' rx='2' fill='{colour}'/>", y - 7)?;
            write!(out, "<text x='{}' y='{y}' class='small'>{}</text>", x + 24, Escaped(&text))?;
            x += 44 + text.chars().count() * 6;
        }
        Ok(())
    }

    fn legend_width(&self) -> usize {
        let names: usize = self.semaphores.values().map(|found| 128 + found.name.chars().count() * 6).sum();
        2 * MARGIN + 344 + names
    }

    fn what(&self, on: Waited) -> String {
        match on {
            Waited::Semaphore(number) => self.name(number),
            Waited::Eventual(number) => match self.lanes.get(&(number.wrapping_add(1))) {
                Some(lane) if !lane.name.is_empty() => lane.name.clone(),
                _ => format!("promise {number}"),
            },
            Waited::Gather => "gather".into(),
            Waited::Race => "race".into(),
            Waited::Timer => "timer".into(),
        }
    }

    fn name(&self, semaphore: u64) -> String {
        self.semaphores
            .get(&semaphore)
            .map_or_else(|| format!("semaphore {semaphore}"), |found| found.name.clone())
    }

    fn colour(&self, semaphore: u64) -> &'static str {
        let place = self.semaphores.keys().position(|number| *number == semaphore).unwrap_or_default();
        COLOURS[place % COLOURS.len()]
    }
}

impl Lane {
    fn change(&mut self, state: State, column: usize) {
        let old = std::mem::replace(&mut self.state, state);
        let kind = match old {
            State::Ready => Kind::Ready,
            State::Runs => Kind::Runs,
            State::Waits { on, place, is_stuck } => Kind::Waits { on, place, is_stuck },
        };
        if column > self.since {
            self.stretches.push(Stretch { from: self.since, to: column, kind });
        }
        self.since = column;
    }

    fn acquire(&mut self, semaphore: u64, weight: u32, column: usize) {
        let level = (0..).find(|level| self.holds.iter().all(|hold| hold.3 != *level)).unwrap_or_default();
        self.holds.push((semaphore, weight, column, level));
    }

    fn release(&mut self, semaphore: u64, column: usize) -> bool {
        let Some(place) = self.holds.iter().rposition(|hold| hold.0 == semaphore) else { return false };
        let (semaphore, weight, from, level) = self.holds.remove(place);
        self.stretches.push(Stretch { from, to: column, kind: Kind::Holds { semaphore, weight, level } });
        true
    }

    fn mark(&mut self, column: usize, text: &str, is_bad: bool) {
        self.marks.push(Mark { column, text: text.into(), is_bad });
    }

    fn close(&mut self, column: usize) {
        if self.end.is_none() {
            self.change(State::Ready, column);
        }
        for (semaphore, weight, from, level) in std::mem::take(&mut self.holds) {
            self.stretches.push(Stretch { from, to: column, kind: Kind::Holds { semaphore, weight, level } });
        }
    }
}

/// Text between tags.
struct Escaped<'t>(&'t str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '&' => f.write_str("&amp;"),
            '\'' => f.write_str("&apos;"),
            '"' => f.write_str("&quot;"),
            // XML can't represent these.
            control if control < ' ' => f.write_char(' '),
            other => f.write_char(other),
        })
    }
}
