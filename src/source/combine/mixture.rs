//! Weighted mixture of sources.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::{Arrangement, Combined, Mixture};
use crate::error::{Error, Result};
use crate::footprint::counted;
use crate::source::Source;

/// Longest period of a mixture, in draws. Each draw takes 6 bytes in the table.
const MOST_PERIOD: u64 = 1 << 20;
/// Tolerance for weights with rounding errors, such as 1.0 / 3.0. The share of a weight in the sum
/// of all weights counts as equal to a fraction if they differ by at most this much.
const SAME: f64 = 1e-9;
/// Longest period that is tried for exact fractions. Weights that need a longer period are rounded
/// to a period of [`MOST_PERIOD`] draws.
const MOST_TRIED: u64 = 10_000;

/// Arrangement of [`Mixture`]: which part provides the sample at each index.
pub struct Weighted {
    len: u64,
    /// For each draw of a period: the part that is drawn, and the number of its earlier draws in
    /// the period.
    period: Period,
    parts: Vec<Draws>,
    /// Whether the weights had to be rounded to a period of [`MOST_PERIOD`].
    rounded: bool,
}

struct Period {
    parts: Vec<u16>,
    ranks: Vec<u32>,
}

/// Numbers of draws and samples of one part of the mixture.
struct Draws {
    /// Number of draws per period.
    share: u64,
    /// Number of samples in the part.
    len: u64,
    /// Number of draws in the whole mixture.
    draws: u64,
}

impl Mixture {
    /// Mixes sources by their weights. `samples` is the length of the mixture. `None` gives the
    /// shortest length that includes every sample.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there are no sources, a source is empty, a weight is not positive and
    /// finite, the length is 0, or the classes of the sources cannot be merged.
    pub fn new(parts: Vec<(Arc<dyn Source>, f64)>, samples: Option<u64>) -> Result<Self> {
        let (sources, weights): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let lens: Vec<u64> = sources.iter().map(|source| source.len()).collect();
        let arrangement = Weighted::new(&weights, &lens, samples)?;
        Combined::join(KEY, sources, arrangement)
    }
}

const KEY: &str = "source.mixture";

impl Weighted {
    fn new(weights: &[f64], lens: &[u64], samples: Option<u64>) -> Result<Self> {
        if let Some(empty) = lens.iter().position(|&len| len == 0) {
            return Err(Error::config(format!("{KEY}[{empty}]"), "has no samples"));
        }
        let (shares, rounded) = shares(weights)?;
        let period = Period::new(&shares);
        let len = match samples {
            Some(0) => return Err(Error::config("source.samples", "must be at least 1, is 0")),
            Some(samples) => samples,
            None => period.covering(&shares, lens)?,
        };
        let parts = shares.iter().zip(lens).enumerate().map(|(part, (&share, &part_len))| Draws {
            share,
            len: part_len,
            draws: period.draws(part, share, len),
        });
        Ok(Self { len, parts: parts.collect(), period, rounded })
    }
}

impl Arrangement for Weighted {
    fn samples(&self) -> u64 {
        self.len
    }

    fn at(&self, index: u64) -> (usize, u64) {
        let len = self.period.parts.len() as u64;
        let (round, place) = (index / len, (index % len) as usize);
        let part = usize::from(self.period.parts[place]);
        let Draws { share, len, draws } = self.parts[part];
        let draw = round * share + u64::from(self.period.ranks[place]);
        let (pass, place) = (draw / len, draw % len);
        let (whole_passes, rest) = (draws / len, draws % len);
        if pass < whole_passes {
            return (part, place);
        }
        (part, (u128::from(place) * u128::from(len) / u128::from(rest)) as u64)
    }

    /// Returns the first index at which the mixture contains a sample of a part.
    fn index_of(&self, part: usize, index: u64) -> Option<u64> {
        let Draws { share, len, draws } = self.parts[part];
        // If the mixture has fewer draws of a part than the part has samples, the drawn samples are
        // evenly spaced.
        let draw = match draws < len {
            true => (u128::from(index) * u128::from(draws)).div_ceil(u128::from(len)) as u64,
            false => index,
        };
        let is_draw =
            |(&it, &rank): (&u16, &u32)| usize::from(it) == part && u64::from(rank) == draw % share;
        let Period { parts, ranks } = &self.period;
        let place = parts.iter().zip(ranks).position(is_draw)? as u64;
        let at = (draw / share).checked_mul(parts.len() as u64)?.checked_add(place)?;
        (at < self.len && self.at(at) == (part, index)).then_some(at)
    }

    fn memory_bytes(&self) -> u64 {
        let Period { parts, ranks } = &self.period;
        (size_of_val(&**parts) + size_of_val(&**ranks) + size_of_val(&*self.parts)) as u64
    }

    fn describe(&self, parts: &[String]) -> String {
        let total = self.period.parts.len();
        let parts = self.parts.iter().zip(parts);
        let parts = parts.map(|(it, text)| format!("{} of {total} from {text}", it.share));
        let rounded = if self.rounded { " (weights rounded to a period of 2^20)" } else { "" };
        let samples = counted(self.len, "sample");
        format!("{samples}, mixed{rounded}: {}", parts.collect::<Vec<_>>().join("; "))
    }

    fn weights(&self) -> Vec<u64> {
        self.parts.iter().map(|it| it.share).collect()
    }
}

impl Period {
    /// Computes one period from the number of draws of each part. Every draw has a range of
    /// positions at which it may occur (see [`Mixture`]). Each step picks, among the draws whose
    /// range has begun, the one whose range ends first. Among equal ends, the range that began
    /// first wins, then the first part.
    fn new(shares: &[u64]) -> Self {
        let len: u64 = shares.iter().sum();
        let room = len as usize;
        let (mut parts, mut ranks) = (Vec::with_capacity(room), Vec::with_capacity(room));
        let mut drawn = vec![0u32; shares.len()];
        let begin = |part: usize, draw: u32| u64::from(draw) * len / shares[part];
        let end = |part: usize, draw: u32| ((u64::from(draw) + 1) * len).div_ceil(shares[part]);
        let mut waiting: BinaryHeap<_> = (0..shares.len()).map(|part| Reverse((0, part))).collect();
        let mut ready = BinaryHeap::new();
        for place in 0..len {
            while let Some(&Reverse((at, part))) = waiting.peek()
                && at <= place
            {
                waiting.pop();
                ready.push(Reverse((end(part, drawn[part]), at, part)));
            }
            let Reverse((.., part)) = ready
                .pop()
                .expect("a source is always ready to be drawn, because the shares add up to one");
            parts.push(part as u16);
            ranks.push(drawn[part]);
            drawn[part] += 1;
            waiting.push(Reverse((begin(part, drawn[part]), part)));
        }
        Self { parts, ranks }
    }

    /// Returns how often a part is drawn among the first `len` draws.
    fn draws(&self, part: usize, share: u64, len: u64) -> u64 {
        let period = self.parts.len() as u64;
        let rest = &self.parts[..(len % period) as usize];
        let rest = rest.iter().filter(|&&it| usize::from(it) == part).count() as u64;
        (len / period).saturating_mul(share).saturating_add(rest)
    }

    /// Returns the smallest number of draws that includes every sample of every part.
    fn covering(&self, shares: &[u64], lens: &[u64]) -> Result<u64> {
        let mut most = 0;
        for (part, (&share, &len)) in shares.iter().zip(lens).enumerate() {
            let (round, rank) = ((len - 1) / share, (len - 1) % share);
            let is_last =
                |(&it, &of): (&u16, &u32)| usize::from(it) == part && u64::from(of) == rank;
            let place = self.parts.iter().zip(&self.ranks).position(is_last);
            let place = place.expect("each period contains `share` draws of each source");
            let draws = u128::from(round) * self.parts.len() as u128 + place as u128 + 1;
            most = most.max(draws);
        }
        u64::try_from(most).map_err(|_| {
            let problem =
                "including every sample of every source would take 2^64 or more samples; set source.samples";
            Error::config(KEY, problem)
        })
    }
}

/// Converts weights to whole numbers without a common divisor. Also returns whether the weights
/// were rounded.
fn shares(weights: &[f64]) -> Result<(Vec<u64>, bool)> {
    if weights.is_empty() {
        return Err(Error::config(KEY, "is empty; list at least one source"));
    }
    if weights.len() > usize::from(u16::MAX) {
        let problem = format!("has {} sources; at most {} are allowed", weights.len(), u16::MAX);
        return Err(Error::config(KEY, problem));
    }
    for (part, &weight) in weights.iter().enumerate() {
        if !(weight > 0.0 && weight.is_finite()) {
            let problem = format!("must be a positive finite number, is {weight}");
            return Err(Error::config(format!("{KEY}[{part}].weight"), problem));
        }
    }
    // Weights with up to six decimal places become whole numbers if they are multiplied by a power
    // of ten, at most a million.
    let decimal = [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6].map(|scale| {
        let scaled = weights.iter().map(|weight| weight * scale);
        whole(scaled, |weight| weight * SAME)
    });
    let mut decimal = decimal.into_iter().flatten().map(reduced);
    if let Some(shares) = decimal.find(|it| is_period(it)) {
        return Ok((shares, false));
    }
    // The weights are divided by the largest weight first, because the sum of large weights could
    // be infinite.
    let largest = weights.iter().copied().fold(0.0, f64::max);
    let scaled: Vec<f64> = weights.iter().map(|weight| weight / largest).collect();
    let sum: f64 = scaled.iter().sum();
    let of_one: Vec<f64> = scaled.iter().map(|weight| weight / sum).collect();
    let fractions = (1..=MOST_TRIED).find_map(|period| {
        let draws = of_one.iter().map(|share| share * period as f64);
        whole(draws, |_| SAME * period as f64)
    });
    match fractions {
        Some(shares) => Ok((reduced(shares), false)),
        None => Ok((rounded(&of_one), true)),
    }
}

/// Rounds the numbers to positive whole numbers. Returns `None` if rounding changes a number by
/// more than `tolerance`, or if a result is not between 1 and 1e15.
fn whole(numbers: impl Iterator<Item = f64>, tolerance: impl Fn(f64) -> f64) -> Option<Vec<u64>> {
    let whole = numbers.map(|number| {
        let near = number.round();
        let is_near = (1.0..=1e15).contains(&near) && (number - near).abs() <= tolerance(near);
        is_near.then_some(near as u64)
    });
    whole.collect()
}

/// Divides the shares by their greatest common divisor.
fn reduced(shares: Vec<u64>) -> Vec<u64> {
    let divisor = shares.iter().copied().fold(0, greatest_common_divisor);
    shares.iter().map(|share| share / divisor).collect()
}

fn is_period(shares: &[u64]) -> bool {
    let total = shares.iter().try_fold(0u64, |total, &share| total.checked_add(share));
    total.is_some_and(|total| total <= MOST_PERIOD)
}

/// Converts shares, which add up to one, to numbers of draws in a period of [`MOST_PERIOD`] draws.
/// Each part gets at least one draw. The largest remainders are rounded up.
fn rounded(of_one: &[f64]) -> Vec<u64> {
    let exact: Vec<f64> = of_one.iter().map(|share| share * MOST_PERIOD as f64).collect();
    let mut draws: Vec<u64> = exact.iter().map(|it| (*it as u64).max(1)).collect();
    let mut order: Vec<usize> = (0..draws.len()).collect();
    let surplus = |draws: &[u64], part: usize| draws[part] as f64 - exact[part];
    order.sort_by(|&a, &b| surplus(&draws, a).total_cmp(&surplus(&draws, b)).then(a.cmp(&b)));
    let total: u64 = draws.iter().sum();
    // If the sum is too small, the parts that lost most by rounding get one more draw each. If the
    // sum is too large, because parts with almost no weight got one draw, the largest part gets
    // fewer draws.
    for &part in order.iter().take(MOST_PERIOD.saturating_sub(total) as usize) {
        draws[part] += 1;
    }
    if let Some(largest) = draws.iter_mut().max() {
        *largest = (*largest).saturating_sub(total.saturating_sub(MOST_PERIOD)).max(1);
    }
    reduced(draws)
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
