//! What an image costs an engine, learnt while running.
//!
//! An image takes one of an engine's places for `fixed + size` seconds. How bytes and pixels make up `size` is
//! assumed once for each route; how large both terms are is learnt. What can be measured is only an upper bound: a
//! completion is seen late, and an engine that is thought busy may long be idle. The bound is tight where the
//! engine had more to do than it could all the time, so such spans count in full and others little.

use crate::plan::{AssumedCost, Route};

use super::ImageWork;

/// Images that end a span: few at first, so that a wrong assumption does not last.
const SPAN_IMAGES: [u32; 4] = [4, 8, 16, 32];
/// Share of a span in which more images than places were there, from which on the engine cannot have idled.
const SATURATED: f64 = 0.8;
/// Share of the old evidence that is kept after a span of full weight.
const MEMORY: f64 = 0.85;
/// Weight of a span in which the engine may have been idle.
const LOOSE: f64 = 0.15;
/// How strongly both terms are held together: without it, images of one size would leave their ratio undecided.
const RIDGE: f64 = 0.2;
/// Either term stays within this factor of the common scale.
const SPREAD: f64 = 8.0;
/// A span counts at most so many times as much as a typical one.
const LARGEST_SPAN: f64 = 4.0;
/// Weight of the newest span in what is typical.
const NEWEST_SPAN: f64 = 0.2;
/// Spans in a row that are far slower than expected before they are believed: one may have held a sick image.
const BELIEVED_AFTER: u32 = 3;

/// Seconds of the two terms of an image, as assumed before anything was measured.
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

/// What an image costs on a route before anything was measured.
pub(super) fn assume(route: Route, work: ImageWork) -> Terms {
    let AssumedCost { image, byte, pixel, window_pixel } = route.assumed_cost();
    let ImageWork { pixels, window_pixels, bytes } = work;
    let size = bytes as f64 * byte + pixels as f64 * pixel + window_pixels as f64 * window_pixel;
    Terms { fixed: image, size }
}

/// What was seen of an engine from one completion to a later one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Of all images that were finished.
    pub terms: Terms,
    /// Seconds in which places were taken, summed over the places.
    pub busy: f64,
    /// The engine had more images than places for nearly all of the time.
    pub saturated: bool,
}

/// The span that is being measured, up to now and up to its last completion.
#[derive(Clone, Copy, Default)]
pub(super) struct Measuring {
    terms: Terms,
    images: u32,
    now: Times,
    completed: Times,
    completed_at: f64,
}

/// Seconds.
#[derive(Clone, Copy, Default)]
struct Times {
    /// Summed over the places that are taken.
    busy: f64,
    /// With any image.
    working: f64,
    /// With more images than places.
    full: f64,
}

impl Measuring {
    /// So many seconds went by with so many places taken; `full` where more images than places were there.
    pub fn add(&mut self, seconds: f64, taken: usize, full: bool) {
        self.now.busy += seconds * taken as f64;
        self.now.working += if taken > 0 { seconds } else { 0.0 };
        self.now.full += if full { seconds } else { 0.0 };
    }

    /// An image is over.
    pub fn complete(&mut self, terms: Terms, now: f64) {
        self.terms.add(terms);
        self.images += 1;
        (self.completed, self.completed_at) = (self.now, now);
    }

    /// The span, where it has enough images and the burst that completed them is over. The next one begins with its
    /// last completion.
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

/// Least squares over spans with fading memory; `scale * assumed` for each of the two terms.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    scale: [f64; 2],
    /// The normal equations: the matrix by its upper triangle, and the right side.
    matrix: [f64; 3],
    right: [f64; 2],
    /// Running mean of a span's expected seconds.
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

    /// Seconds that images of these terms take, of one place of the engine.
    pub fn seconds(&self, terms: Terms) -> f64 {
        self.scale[0] * terms.fixed + self.scale[1] * terms.size
    }

    /// Spans that were learnt from.
    pub fn spans(&self) -> u32 {
        self.spans
    }

    /// Learns from a span. One far slower than expected moves the estimate as little as one twice as slow as expected
    /// would, until some in a row say the same.
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
        // A large image makes the span that it ends look fast and those before it slow: only sums are right.
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
        // Both terms scaled alike: what one unknown would give.
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
