//! Cost of decoding an image on an engine, learned from measurements.
//!
//! An engine has as many places as it decodes images at the same time. An image occupies one place
//! for `fixed + size` seconds. For each route, the shares of bytes and pixels in `size` are assumed
//! once. The scales of the two terms `fixed` and `size` are learned. A measured time is only an
//! upper bound of the real one, because completions are observed late, and an engine that seems
//! busy may have been idle. The bound is tight if the engine was always saturated. So measurements
//! of a saturated engine have full weight, and other measurements have little.

use super::ImageWork;
use crate::plan::{AssumedCost, Route};

/// Number of images in the first, second, third and later spans, which are measuring intervals. The
/// first spans are short, so a wrong assumption is corrected soon.
const SPAN_IMAGES: [u32; 4] = [4, 8, 16, 32];
/// A span is saturated if the engine had more images than places for at least this share of its
/// working time.
const SATURATED: f64 = 0.8;
/// Factor by which a new span of full weight reduces the weight of older spans.
const MEMORY: f64 = 0.85;
/// Weight of a span in which the engine may have been idle.
const LOOSE: f64 = 0.15;
/// Strength with which the scales of both terms are pulled towards a common scale. Without it, the
/// ratio of the terms would be undetermined if all images had one size.
const RIDGE: f64 = 0.2;
/// Maximum factor by which the scale of each term may differ from the common scale.
const SPREAD: f64 = 8.0;
/// Maximum weight of a span (a measuring interval), relative to a typical span.
const LARGEST_SPAN: f64 = 4.0;
/// Weight of the newest span in the running mean.
const NEWEST_SPAN: f64 = 0.2;
/// If this many consecutive spans are far slower than expected, these spans have full weight. A
/// single such span may be slow because of only one slow image.
const BELIEVED_AFTER: u32 = 3;

/// Assumed time to decode an image, in seconds, as two terms: a fixed time, and a time that depends
/// on the image's size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Terms {
    pub fixed: f64,
    pub size: f64,
}

impl Terms {
    pub fn add(&mut self, other: Terms) {
        self.fixed += other.fixed;
        self.size += other.size;
    }
}

/// Assumed cost of an image on a route, before anything was measured.
pub(super) fn assume(route: Route, work: ImageWork) -> Terms {
    let AssumedCost { image, byte, pixel, window_pixel } = route.assumed_cost();
    let ImageWork { pixels, window_pixels, bytes } = work;
    let size = bytes as f64 * byte + pixels as f64 * pixel + window_pixels as f64 * window_pixel;
    Terms { fixed: image, size }
}

/// Measurement of an engine from one completion to a later one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Sum of the terms of all images that finished in the span.
    pub terms: Terms,
    /// Time in which places were occupied, in seconds, summed over the places.
    pub busy: f64,
    /// Whether the engine had more images than places nearly all the time.
    pub saturated: bool,
}

/// Measurement in progress, with the times up to now and up to the last completion.
#[derive(Clone, Copy, Default)]
pub(super) struct Measuring {
    terms: Terms,
    images: u32,
    now: Times,
    completed: Times,
    completed_at: f64,
}

/// Accumulated times, in seconds.
#[derive(Clone, Copy, Default)]
struct Times {
    /// Time summed over the occupied places.
    busy: f64,
    /// Time in which the engine had at least one image.
    working: f64,
    /// Time in which the engine had more images than places.
    full: f64,
}

impl Measuring {
    /// Adds an interval of `seconds` in which `taken` places were occupied. `full` is whether there
    /// were more images than places.
    pub fn add(&mut self, seconds: f64, taken: usize, full: bool) {
        self.now.busy += seconds * taken as f64;
        self.now.working += if taken > 0 { seconds } else { 0.0 };
        self.now.full += if full { seconds } else { 0.0 };
    }

    /// Records a finished image.
    pub fn complete(&mut self, terms: Terms, now: f64) {
        self.terms.add(terms);
        self.images += 1;
        (self.completed, self.completed_at) = (self.now, now);
    }

    /// Returns the span if it has enough images and the burst of completions that ended it is over.
    /// The next span begins at the last completion of this one.
    pub fn end(&mut self, spans: u32, now: f64) -> Option<Span> {
        let enough = SPAN_IMAGES[(spans as usize).min(SPAN_IMAGES.len() - 1)];
        if self.images < enough || now <= self.completed_at {
            return None;
        }
        let Times { busy, working, full } = self.completed;
        let span = Span { terms: self.terms, busy, saturated: full >= SATURATED * working };
        let now = Times {
            busy: self.now.busy - busy,
            working: self.now.working - working,
            full: self.now.full - full,
        };
        *self = Self { now, ..Self::default() };
        Some(span)
    }
}

/// Cost model of a route, fitted by least squares over spans with exponentially decreasing weights.
/// The result is a factor for each assumed term.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    scale: [f64; 2],
    /// The normal equations: the upper triangle of the matrix, and the right side.
    matrix: [f64; 3],
    right: [f64; 2],
    /// Running mean of the expected time of a span, in seconds.
    typical: f64,
    slow_spans: u32,
    spans: u32,
}

impl Cost {
    pub fn new() -> Self {
        Self {
            scale: [1.0; 2],
            matrix: [0.0; 3],
            right: [0.0; 2],
            typical: 0.0,
            slow_spans: 0,
            spans: 0,
        }
    }

    /// Time for which an image with these terms occupies one place of the engine, in seconds.
    pub fn seconds(&self, terms: Terms) -> f64 {
        self.scale[0] * terms.fixed + self.scale[1] * terms.size
    }

    /// Number of spans (measuring intervals) that the cost was learned from.
    pub fn spans(&self) -> u32 {
        self.spans
    }

    /// Learns from a span, which is a measuring interval. A span that is far slower than expected
    /// counts like a span that is twice as slow as expected, unless [`BELIEVED_AFTER`] consecutive
    /// spans were that slow.
    pub fn learn(&mut self, span: Span) {
        let expected = self.seconds(span.terms);
        if span.busy <= 0.0 || expected <= 0.0 {
            return;
        }
        let known = self.spans >= 2;
        self.spans = self.spans.saturating_add(1);
        let measured = span.busy / expected;
        let slower = measured - 1.0;
        self.slow_spans = if slower > 1.0 { self.slow_spans + 1 } else { 0 };
        let mut weight = if span.saturated || !known { 1.0 } else { LOOSE };
        if known && slower > 1.0 && self.slow_spans < BELIEVED_AFTER {
            weight /= slower;
        }
        let [x, y] = [span.terms.fixed / expected, span.terms.size / expected];
        // A span (measuring interval) counts the whole time of each image that finishes in it,
        // although the work on a large image began in an earlier span. So the span in which a large
        // image finishes looks fast, and the spans before it look slow. Their mean is right if each
        // span is weighted by its expected time.
        let typical = if self.typical > 0.0 { self.typical } else { expected };
        weight *= (expected / typical).clamp(1.0 / LARGEST_SPAN, LARGEST_SPAN);
        self.typical = typical + NEWEST_SPAN * (expected - typical);
        let keep = MEMORY.powf(weight);
        let new = [x * x, x * y, y * y];
        self.matrix = [0, 1, 2].map(|at| keep * self.matrix[at] + weight * new[at]);
        let new = [x, y].map(|term| weight * term * measured);
        self.right = [0, 1].map(|at| keep * self.right[at] + new[at]);
        self.solve();
    }

    fn solve(&mut self) {
        let [xx, xy, yy] = self.matrix;
        let [xm, ym] = self.right;
        let whole = xx + 2.0 * xy + yy;
        if whole <= 0.0 {
            return;
        }
        // `common` is the least-squares solution with one scale for both terms. The solution with
        // two scales is pulled towards `common` (ridge regression), so that it is stable.
        let common = (xm + ym) / whole;
        let [hold_x, hold_y] = [xx, yy].map(|own| RIDGE * own + 1e-9 * whole);
        let (xx, yy) = (xx + hold_x, yy + hold_y);
        let (xm, ym) = (xm + hold_x * common, ym + hold_y * common);
        let determinant = xx * yy - xy * xy;
        let solved = if determinant > 0.0 {
            [(xm * yy - ym * xy) / determinant, (ym * xx - xm * xy) / determinant]
        } else {
            [common; 2]
        };
        self.scale = solved.map(|scale| scale.clamp(common / SPREAD, common * SPREAD));
    }
}
