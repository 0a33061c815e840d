//! Search for the configuration that is best in the model.

use crate::error::Result;
use crate::footprint::counted;
use feedwater_insight::model::{Model, Options};

use super::{AS_FAST, Choice, Space};

/// Minimum predicted speed, relative to the fastest choice, at which a choice with fewer workers or
/// slots is preferred.
const NEARLY_AS_FAST: f64 = 0.99;

/// Choice with the model's prediction.
pub struct Found {
    pub choice: Choice,
    /// Predicted gain in speed over the current choice, such as 0.5 for 50 % faster.
    pub gain: f64,
}

/// Finds the cheapest choice that is nearly as fast as the fastest, without changing the work on
/// the device. Chooses the number of workers first, with the longest ring, and then the length of
/// the ring.
pub fn search(model: &Model, now: Choice, space: &Space) -> Result<Found> {
    let rate = |choice: Choice| -> Result<f64> {
        let mut model = model.clone();
        model.workers.resize(choice.workers.max(1), 1.0);
        model.slots = choice.slots() as u32;
        let batches = (SAMPLES / model.batch.max(1)).clamp(24, 200);
        let options = Options::batches(batches, 4 + 2 * model.slots);
        Ok(model.run(&options)?.samples_per_second)
    };
    let longest = Choice { prefetch: space.prefetch.most, ..now };
    let workers = numbers(space.workers.least, space.workers.most);
    let workers = cheapest(workers, |workers| rate(Choice { workers, ..longest }))?;
    let chosen = Choice { workers, ..now };
    // The memory is already allocated, so a ring shorter than the start value would save nothing.
    let prefetch = numbers(space.prefetch.start, space.prefetch.most);
    let prefetch = cheapest(prefetch, |prefetch| rate(Choice { prefetch, ..chosen }))?;
    let choice = Choice { prefetch, ..chosen };
    Ok(Found { choice, gain: rate(choice)? / rate(now)?.max(1e-9) - 1.0 })
}

/// Approximate number of samples per simulation.
const SAMPLES: u32 = 6_000;

/// Candidates in increasing order: all numbers up to 8, then steps of 25 %, and `most`.
fn numbers(least: usize, most: usize) -> Vec<usize> {
    let next = |number: &usize| Some(if *number < 8 { number + 1 } else { number + number / 4 });
    let mut numbers: Vec<usize> =
        std::iter::successors(Some(least), next).take_while(|it| *it < most).collect();
    numbers.push(most);
    numbers
}

/// First candidate that is nearly as fast as the best one.
fn cheapest(numbers: Vec<usize>, rate: impl Fn(usize) -> Result<f64>) -> Result<usize> {
    if let [only] = numbers[..] {
        return Ok(only);
    }
    let rates = numbers.iter().map(|&it| rate(it)).collect::<Result<Vec<f64>>>()?;
    let best = rates.iter().copied().fold(0.0, f64::max);
    let first = rates.iter().position(|&it| it >= NEARLY_AS_FAST * best).unwrap_or(0);
    Ok(numbers[first])
}

impl Found {
    /// Whether the choice is predicted to be clearly faster than `now`, or clearly cheaper than
    /// `now` and about as fast.
    pub fn is_worth_a_trial(&self, now: Choice) -> bool {
        let cheaper = 8 * self.choice.workers <= 7 * now.workers;
        self.gain > 1.0 - AS_FAST || (cheaper && self.gain > AS_FAST - 1.0)
    }

    /// Changed settings and predicted gain, as text.
    pub fn words(&self, now: Choice) -> String {
        let mut words = Vec::new();
        if self.choice.workers != now.workers {
            let workers = counted(self.choice.workers, "worker");
            words.push(format!("{workers} instead of {}", now.workers));
        }
        if self.choice.prefetch != now.prefetch {
            words.push(format!("prefetch {} instead of {}", self.choice.prefetch, now.prefetch));
        }
        let gain = match 100.0 * self.gain {
            gain if gain.abs() < 0.5 => "predicted to be as fast".to_string(),
            gain => format!("predicted gain {gain:+.0} %"),
        };
        format!("{}: {gain}", words.join(" and "))
    }
}
