//! Draws the timeline of a simulation as text.

use std::fmt::Write;

use feedwater_insight::model::{Event, Forecast, What, Who};

/// Number of columns of the time axis, in characters.
const COLUMNS: usize = 96;
/// Largest number of loaders that are drawn.
const ROWS: usize = 24;
const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

const LEGEND: [&str; 2] = [
    "loader: each bar of █ or ▒ is one batch; · waits for a free slot",
    "ready: batches that wait for the consumer, + for more than 9; consumer: share of the time in steps, ▁ to █",
];

/// Draws the first `seconds` of a simulation: each loader's batches as bars, the number of ready
/// batches, and the consumer's utilization.
///
/// The bars of a loader alternate between two shades. Dots mark the time in which a loader waits
/// for a free slot. The last lines are a legend.
pub fn timeline(forecast: &Forecast, seconds: f64) -> String {
    let column = seconds / COLUMNS as f64;
    let mut text = String::new();
    let loaders = forecast.workers.len();
    for loader in 0..loaders.min(ROWS) {
        let name = format!("loader {}", loader + 1);
        let spans = spans(&forecast.events, Who::Worker(loader as u32), forecast.seconds);
        let bars = (0..COLUMNS).map(|at| {
            let middle = (at as f64 + 0.5) * column;
            let at = spans.iter().rposition(|(begin, end)| (*begin..*end).contains(&middle));
            match at {
                Some(at) if at % 2 == 0 => '█',
                Some(_) => '▒',
                None => '·',
            }
        });
        line(&mut text, &name, bars);
    }
    if loaders > ROWS {
        line(&mut text, "", format!("... and {} more", loaders - ROWS).chars());
    }
    let ready = ready(&forecast.events, column);
    let digit = |count: usize| char::from_digit(count as u32, 10).unwrap_or('+');
    line(&mut text, "ready", ready.into_iter().map(digit));
    let steps = spans(&forecast.events, Who::Consumer, forecast.seconds);
    line(&mut text, "consumer", busy(&steps, column).into_iter().map(height));
    let mut axis = String::new();
    let ticks = 6;
    for tick in 0..ticks {
        let seconds = seconds * f64::from(tick) / f64::from(ticks);
        let _ = write!(axis, "{:<width$}", format!("|{seconds:.1} s"), width = COLUMNS / 6);
    }
    line(&mut text, "", axis.trim_end().chars());
    for legend in LEGEND {
        line(&mut text, "", legend.chars());
    }
    text
}

fn line(text: &mut String, name: &str, row: impl Iterator<Item = char>) {
    let row: String = row.collect();
    let _ = writeln!(text, "{name:<11}{}", row.trim_end());
}

/// Returns the times in which a loader or the consumer worked, as pairs of start and end. Work that
/// is not finished lasts until `end`.
fn spans(events: &[Event], who: Who, end: f64) -> Vec<(f64, f64)> {
    let mut spans: Vec<(f64, f64)> = Vec::new();
    for event in events.iter().filter(|event| event.who == who) {
        match event.what {
            What::Begins => spans.push((event.time, end)),
            What::Ends => {
                if let Some(last) = spans.last_mut() {
                    last.1 = event.time;
                }
            }
            _ => {}
        }
    }
    spans
}

/// Returns for each column of the time axis the share that `spans` cover.
fn busy(spans: &[(f64, f64)], column: f64) -> Vec<f64> {
    let mut busy = vec![0.0; COLUMNS];
    for (begin, end) in spans {
        let first = (begin / column) as usize;
        let last = ((end / column) as usize).min(COLUMNS - 1);
        for (at, busy) in busy.iter_mut().enumerate().take(last + 1).skip(first) {
            let (from, to) = (at as f64 * column, (at + 1) as f64 * column);
            *busy += (end.min(to) - begin.max(from)).max(0.0) / column;
        }
    }
    busy
}

/// Returns the largest number of ready batches in each column.
fn ready(events: &[Event], column: f64) -> Vec<usize> {
    let mut most = vec![0; COLUMNS];
    let (mut count, mut filled) = (0, 0);
    for event in events {
        let at = (event.time / column) as usize;
        // The number of ready batches has not changed since the previous event. So fill the columns
        // between the two events with this number.
        while filled < at.min(COLUMNS) {
            most[filled] = most[filled].max(count);
            filled += 1;
            if filled < COLUMNS {
                most[filled] = count;
            }
        }
        match (event.who, event.what) {
            (Who::Ring, What::Ready) => count += 1,
            (Who::Consumer, What::Begins) => count -= 1,
            _ => {}
        }
        if at < COLUMNS {
            most[at] = most[at].max(count);
        }
    }
    most[filled.min(COLUMNS - 1)..].fill(count);
    most
}

fn height(share: f64) -> char {
    let at = (share.clamp(0.0, 1.0) * 8.0).round() as usize;
    // Draw at least the smallest bar if the consumer worked at all, so that short steps are
    // visible.
    HEIGHTS[if share > 0.0 { at.max(1) } else { 0 }]
}
