//! Order of the samples of an epoch, and the quality of a shuffle with `loader.shuffle_window`.

use std::fmt;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::footprint::counted;

use super::{Facts, LoaderSettings, Plan};

/// Maximum of `loader.repeats`.
const MAX_REPEATS: u32 = 256;

/// Order of the samples of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
#[non_exhaustive]
pub enum Shuffle {
    /// No shuffle: samples in the order of the source.
    Source,
    /// Full shuffle of the set.
    Whole,
    /// Files in random order, and samples shuffled within windows (blocks of consecutive
    /// positions).
    Windows(Windows),
}

/// Shuffle with `loader.shuffle_window`, and the quality of the shuffle.
///
/// Quality is the entropy of the order per sample, relative to the entropy of a full shuffle. With
/// ideal random keys all possible orders are equally likely, so the entropy is the logarithm of
/// their number. A full shuffle of `N` samples has `log2(N!) / N` bits per sample, about
/// `log2(N) - 1.44`.
///
/// Windows of `W` samples are shuffled twice, the second time displaced by half a window. The
/// possible orders of one pass form a group, which is a product of symmetric groups. Two groups `A`
/// and `B` have `|A| |B| / |A ∩ B|` different products, and each arises equally often. Here `A ∩ B`
/// contains the orders within half windows. So the entropy is `log2 |A| + log2 |B| - log2 |A ∩ B|`,
/// about `log2(2 W) - 1.44` bits per sample.
///
/// This is the entropy of an order in which each sample may be at any of the `2 W` positions around
/// its original position. No scheme that moves samples only this far has a higher entropy (Brègman
/// 1973, on permanents). The random order of `F` files adds at most `log2(F!)` bits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Windows {
    /// Samples per window, `W`.
    pub window: u64,
    /// Files with samples, `F`.
    pub files: u64,
    /// Entropy per sample, in bits.
    pub bits: f64,
    /// Entropy per sample of a full shuffle, in bits.
    pub ideal_bits: f64,
}

impl Shuffle {
    /// Resolves settings and source to an order.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if `loader.shuffle_window` is set but the source has no files with many
    /// samples.
    pub(super) fn new(loader: &LoaderSettings, facts: &Facts) -> Result<Self> {
        match (loader.shuffle, loader.shuffle_window) {
            (false, _) => Ok(Self::Source),
            (true, None) => Ok(Self::Whole),
            (true, Some(_)) if facts.files == 0 => Err(Error::config(
                "loader.shuffle_window",
                "is only for sources with many samples per file, but this source has no such \
                 files; remove loader.shuffle_window, and the whole set is shuffled",
            )),
            (true, Some(window)) => {
                Ok(Self::Windows(Windows::new(window, facts.files, facts.samples)))
            }
        }
    }
}

impl LoaderSettings {
    /// Checks the settings of the order, without a source.
    pub(super) fn check_order(&self) -> Result<()> {
        let &Self { shuffle, shuffle_window, repeats, .. } = self;
        if shuffle_window.is_some() && !shuffle {
            let problem = "needs loader.shuffle = true; set it, or remove loader.shuffle_window";
            return Err(Error::config("loader.shuffle_window", problem));
        }
        if !(1..=MAX_REPEATS).contains(&repeats) {
            let problem = format!("must be 1 to {MAX_REPEATS}, is {repeats}");
            return Err(Error::config("loader.repeats", problem));
        }
        if repeats > 1 && !shuffle {
            let problem = format!(
                "is {repeats}, but without shuffle all epochs would have the same samples; set \
                 loader.shuffle = true, or remove loader.repeats"
            );
            return Err(Error::config("loader.repeats", problem));
        }
        Ok(())
    }
}

impl Plan {
    /// Description of an epoch's order, for users.
    pub(super) fn order_note(&self) -> String {
        let shuffle = &self.shuffle;
        match self.settings.loader.repeats {
            1 => shuffle.to_string(),
            repeats => format!(
                "{shuffle}; each sample occurs {repeats} times in a row in the order of all shards"
            ),
        }
    }
}

impl Windows {
    /// Windows of `window` samples over `samples` samples in `files` files, each at least 1.
    pub fn new(window: u64, files: u64, samples: u64) -> Self {
        let ideal = log2_factorial(samples);
        let bits = (log2_factorial(files) + windows_bits(window, samples)).min(ideal);
        let each = |bits: f64| bits / samples.max(1) as f64;
        Self { window, files, bits: each(bits), ideal_bits: each(ideal) }
    }
}

/// Binary logarithm of the number of orders that two passes of windows can produce, the second
/// displaced by half a window.
fn windows_bits(window: u64, samples: u64) -> f64 {
    let half = window / 2;
    let blocks = |samples: u64| {
        (samples / window) as f64 * log2_factorial(window) + log2_factorial(samples % window)
    };
    let first = blocks(samples);
    let second = log2_factorial(half.min(samples)) + blocks(samples.saturating_sub(half));
    let rest = samples % window;
    let both = (samples / window) as f64 * (log2_factorial(half) + log2_factorial(window - half))
        + log2_factorial(rest.min(half))
        + log2_factorial(rest.saturating_sub(half));
    first + second - both
}

fn log2_factorial(n: u64) -> f64 {
    libm::lgamma(n as f64 + 1.0) * std::f64::consts::LOG2_E
}

impl fmt::Display for Shuffle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source => f.write_str("as in the source"),
            Self::Whole => f.write_str("the whole set is shuffled"),
            Self::Windows(windows) => windows.fmt(f),
        }
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { window, files, bits, ideal_bits } = self;
        let percent = if *ideal_bits > 0.0 { 100.0 * bits / ideal_bits } else { 100.0 };
        let (files, window) = (counted(*files, "file"), counted(*window, "sample"));
        write!(
            f,
            "{files} in random order, in windows of {window}: {bits:.1} of {ideal_bits:.1} bits \
             of entropy per sample ({percent:.0} % of a full shuffle)"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// All permutations of the elements.
    fn orders(elements: &[usize]) -> Vec<Vec<usize>> {
        if elements.is_empty() {
            return vec![Vec::new()];
        }
        let mut all = Vec::new();
        for (at, &first) in elements.iter().enumerate() {
            let rest = [&elements[..at], &elements[at + 1..]].concat();
            all.extend(orders(&rest).into_iter().map(|it| [&[first][..], &it].concat()));
        }
        all
    }

    /// All permutations that move elements within blocks only. The first block has `first`
    /// elements, the others `window`.
    fn block_orders(samples: usize, first: usize, window: usize) -> Vec<Vec<usize>> {
        let mut all = vec![Vec::new()];
        let mut begin = 0;
        while begin < samples {
            let len = if begin == 0 && first > 0 { first } else { window };
            let end = (begin + len).min(samples);
            let block = orders(&(begin..end).collect::<Vec<_>>());
            all = all
                .iter()
                .flat_map(|it| block.iter().map(|more| [&it[..], more].concat()))
                .collect();
            begin = end;
        }
        all
    }

    #[test]
    fn the_entropy_equals_that_of_an_exhaustive_count() {
        for (samples, window) in [(5, 2), (6, 4), (7, 3), (7, 4), (8, 4), (4, 4), (3, 7), (6, 1)] {
            let mut counts: HashMap<Vec<usize>, u32> = HashMap::new();
            let second = block_orders(samples, window / 2, window);
            for first in block_orders(samples, window, window) {
                for second in &second {
                    let order = second.iter().map(|&it| first[it]).collect();
                    *counts.entry(order).or_default() += 1;
                }
            }
            let some = counts.values().next().unwrap();
            assert!(counts.values().all(|it| it == some), "{samples} in windows of {window}");
            let counted = (counts.len() as f64).log2();
            let bits = windows_bits(window as u64, samples as u64);
            assert!((bits - counted).abs() < 1e-9, "{samples}, {window}: {bits}, not {counted}");
        }
    }

    #[test]
    fn a_window_has_the_entropy_of_twice_its_size() {
        let windows = Windows::new(10_000, 1, 1 << 30);
        let expected = (20_000f64).log2() - std::f64::consts::LOG2_E;
        assert!((windows.bits - expected).abs() < 0.002, "{windows:?}");
        assert!((windows.ideal_bits - (30.0 - std::f64::consts::LOG2_E)).abs() < 1e-6);
    }

    #[test]
    fn one_window_over_the_whole_set_is_ideal() {
        let windows = Windows::new(5000, 7, 5000);
        assert_eq!(windows.bits, windows.ideal_bits);
        let files_only = Windows::new(1, 100, 100);
        assert_eq!(files_only.bits, files_only.ideal_bits);
        assert_eq!(Windows::new(1, 1, 100).bits, 0.0);
    }

    #[test]
    fn the_quality_is_printed() {
        let text = Shuffle::Windows(Windows::new(10_000, 1000, 1_281_167)).to_string();
        let numbers = text.split(|it: char| !it.is_ascii_digit() && it != '.');
        let numbers: Vec<&str> = numbers.filter(|it| !it.is_empty()).collect();
        // The numbers are the files, the samples per window, the bits of entropy per sample, the
        // bits of a full shuffle, and the ratio of the two in percent.
        for number in ["1000", "10000", "12.8", "18.8", "68"] {
            assert!(numbers.contains(&number), "{number}: {text}");
        }
    }
}
