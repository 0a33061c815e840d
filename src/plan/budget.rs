//! Memory limits: reduce the numbers of buffers and batches until they fit.

use std::fmt;

use crate::error::{ConfigError, Error, Result};
use crate::footprint::{self, Footprint, Memory};

use super::device::on_cpu;
use super::{AutoCount, Bounds, Counts, Facts, Plan, Route, memory};

/// Count that memory limits reduced.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reduction {
    /// Name of the count, such as `prefetch`.
    pub name: &'static str,
    /// Count after the reduction.
    pub count: usize,
    /// Count without memory limits.
    pub instead_of: usize,
    /// Keys of the limits that would be exceeded if the count were one higher.
    pub limits: Vec<&'static str>,
}

impl Counts {
    /// Counts without memory limits.
    fn full(plan: &Plan) -> Self {
        let workers = plan.workers.most;
        let Some(device) = &plan.device else {
            let prefetch = plan.prefetch;
            return Self { reading: 0, hardware_group: 0, decoders: 0, group: 0, prefetch };
        };
        let batches = device.has_any(Route::batches);
        // A decode state is busy until the GPU has finished with it. If the GPU has JPEG engines,
        // the engines do most of the work, so fewer states suffice.
        let most = if batches { 4 } else { 8 };
        let states = device.routes.iter().map(|it| it.route).filter_map(|route| {
            let threads = if route.uses_worker_cpu() { on_cpu(plan) } else { workers };
            (route.on_device() && !route.batches()).then(|| most.min(threads))
        });
        Self {
            reading: workers,
            hardware_group: match plan.settings.decode.hardware_group {
                _ if !batches => 0,
                Some(group) => group,
                None => device.default_hardware_group(plan),
            },
            decoders: states.max().unwrap_or(0),
            // A larger group needs more pages and does not reduce the work per sample if tiles have
            // the greatest height. With the lowest tiles (16 rows), 16 samples of 224x224 are 448
            // thread blocks. These nearly fill a large GPU, which runs 528 blocks at once (132
            // multiprocessors with 4 blocks each). So a larger group would gain little.
            group: 16,
            prefetch: plan.prefetch,
        }
    }
}

/// Function that returns a mutable reference to one of the counts.
type CountField = fn(&mut Counts) -> &mut usize;

/// Counts with their names, in order of priority. The first one is reduced last.
const KEPT: [(&str, CountField); 5] = [
    ("prefetch", |counts| &mut counts.prefetch),
    ("launch group", |counts| &mut counts.group),
    ("decode states", |counts| &mut counts.decoders),
    ("hardware group", |counts| &mut counts.hardware_group),
    ("pages for workers", |counts| &mut counts.reading),
];

impl Plan {
    /// Chooses the largest counts that fit the memory limits.
    ///
    /// # Errors
    /// [`Error::Config`] if a limit is too small for the smallest counts. The message lists the
    /// rows of the footprint and the smallest sufficient limit.
    pub(super) fn fit(&mut self, facts: &Facts) -> Result<()> {
        let (all, most_ahead) = (self.workers.most, self.prefetch);
        let limits = Limit::of(self);
        loop {
            match self.fit_counts(facts, &limits) {
                Ok(()) => break,
                Err(refused) => {
                    let host_alone = refused.exceeded.iter().all(|it| it.key == HOST.0);
                    let workers = self.workers.most;
                    if !host_alone
                        || workers == 1
                        || self.settings.loader.num_workers != AutoCount::Auto
                    {
                        return Err(refusal(&refused.exceeded, &refused.rows));
                    }
                    // Fewer workers also lower other counts, so all counts are computed again.
                    self.workers = self.workers.at_most(workers - 1);
                    self.prefetch = most_ahead;
                }
            }
        }
        let count = self.workers.most;
        if count < all {
            let limits = vec![HOST.0];
            self.reductions.push(Reduction { name: "workers", count, instead_of: all, limits });
        }
        Ok(())
    }

    /// Memory that the limits leave for samples that need more than their worker's planned share,
    /// in bytes.
    pub(super) fn unplanned_room(&self) -> u64 {
        self.settings.limits.large_image_memory.min(self.host_bytes_left())
    }

    /// Host memory that `limits.host_memory` leaves besides the footprint, in bytes. `u64::MAX`
    /// without a limit.
    pub(super) fn host_bytes_left(&self) -> u64 {
        let needed = HOST.1.iter().map(|&memory| self.footprint.total_bytes(memory));
        let needed = needed.fold(0, u64::saturating_add);
        let limit = self.settings.limits.host_memory;
        limit.map_or(u64::MAX, |limit| limit.saturating_sub(needed))
    }

    /// Finds counts that fit for the current number of workers, and sets them.
    fn fit_counts(&mut self, facts: &Facts, limits: &[Limit]) -> std::result::Result<(), Refused> {
        let full = Counts::full(self);
        let first_ahead = Bounds::ahead(self.settings.loader.prefetch, full.prefetch).start;
        let mut rows = |counts: &Counts| {
            self.set(counts);
            memory::footprint(self, facts)
        };
        let mut exceeded = |counts: &Counts| {
            let rows = rows(counts);
            limits.iter().filter(|it| it.needed(&rows) > it.bytes).copied().collect::<Vec<_>>()
        };
        let [lean, least] = [Counts::LEAN, Counts::ONE].map(|most| full.at_most(&most));
        // Reducing `prefetch` helps only against limits whose memory contains batches.
        let is_over = |over: &[Limit], batches| over.iter().any(|limit| limit.batches == batches);
        let helps = is_over(&exceeded(&full), true) && !is_over(&exceeded(&lean), false);
        let floor = if helps { lean } else { least };
        let start = if helps { first_ahead } else { full.prefetch };
        let fits = |counts: &Counts| exceeded(counts).is_empty();
        let Some(counts) = choose(full, start, floor, least, fits) else {
            let exceeded = exceeded(&least);
            return Err(Refused { exceeded, rows: rows(&least) });
        };
        let mut reductions = Vec::new();
        for (name, part) in KEPT {
            let [count, instead_of] = [counts, full].map(|mut it| *part(&mut it));
            if count < instead_of {
                // `more` has a count that is higher by one. The limits that `more` exceeds are the
                // reason for the reduction.
                let mut more = match name == KEPT[0].0 {
                    true if count >= start => full,
                    true => floor,
                    false => counts,
                };
                *part(&mut more) = count + 1;
                let limits = exceeded(&more).iter().map(|limit| limit.key).collect();
                reductions.push(Reduction { name, count, instead_of, limits });
            }
        }
        self.set(&counts);
        self.ahead_batches = Bounds::ahead(self.settings.loader.prefetch, counts.prefetch);
        self.reductions = reductions;
        Ok(())
    }

    fn set(&mut self, counts: &Counts) {
        self.prefetch = counts.prefetch;
        if let Some(mut device) = self.device.take() {
            device.set(self, counts);
            self.device = Some(device);
        }
    }
}

/// Key of the host memory limit, and the kinds of memory that it covers. Page-locked memory is host
/// memory.
const HOST: (&str, &[Memory]) = ("limits.host_memory", &[Memory::Host, Memory::Pinned]);

/// Memory limit that is set.
#[derive(Clone, Copy)]
struct Limit {
    key: &'static str,
    memory: &'static [Memory],
    bytes: u64,
    /// Whether the limited memory contains batches.
    batches: bool,
}

impl Limit {
    /// All memory limits that are set.
    fn of(plan: &Plan) -> Vec<Self> {
        let (limits, device) = (&plan.settings.limits, plan.uses_gpu());
        let all: [(&'static str, &'static [Memory], Option<u64>, bool); 3] = [
            ("limits.device_memory", &[Memory::Device], limits.device_memory, true),
            ("limits.pinned_memory", &[Memory::Pinned], limits.pinned_memory, false),
            (HOST.0, HOST.1, limits.host_memory, !device),
        ];
        let set = all.into_iter().filter_map(|(key, memory, limit, batches)| {
            limit.map(|bytes| Self { key, memory, bytes, batches })
        });
        set.collect()
    }

    /// Bytes of a footprint in the kinds of memory that this limit covers.
    fn needed(&self, rows: &Footprint) -> u64 {
        self.memory.iter().fold(0, |sum, &memory| sum.saturating_add(rows.total_bytes(memory)))
    }
}

/// Limits that even the smallest counts exceed, and the footprint with these counts.
struct Refused {
    exceeded: Vec<Limit>,
    rows: Footprint,
}

/// Returns the largest counts that fit, in the order of [`KEPT`], or `None` if even `least` does
/// not fit. Reduces `prefetch` to `start` before it reduces other counts. Reduces other counts
/// below `floor` only after `prefetch` is 1. If `fits` accepts some counts, it must also accept all
/// smaller counts.
fn choose(
    full: Counts,
    start: usize,
    floor: Counts,
    least: Counts,
    mut fits: impl FnMut(&Counts) -> bool,
) -> Option<Counts> {
    let mut spare = (start..=full.prefetch).rev().map(|prefetch| Counts { prefetch, ..full });
    if let Some(counts) = spare.find(&mut fits) {
        return Some(counts);
    }
    let mut ahead = (2..=start).rev().map(|prefetch| Counts { prefetch, ..floor });
    let mut counts = ahead.find(&mut fits).unwrap_or(least);
    if !fits(&counts) {
        return None;
    }
    for (_, part) in &KEPT[1..] {
        let [least, most] = [counts, full].map(|mut it| *part(&mut it));
        let mut more = counts;
        for count in (least + 1..=most).rev() {
            *part(&mut more) = count;
            if fits(&more) {
                counts = more;
                break;
            }
        }
    }
    Some(counts)
}

impl Counts {
    /// Lowers each count that is higher than the same count of `most`.
    fn at_most(&self, most: &Self) -> Self {
        let (mut counts, mut most) = (*self, *most);
        for (_, part) in KEPT {
            let count = part(&mut counts);
            *count = (*count).min(*part(&mut most));
        }
        counts
    }
}

/// Error for limits that are too small. `rows` is the footprint with the smallest counts.
fn refusal(exceeded: &[Limit], rows: &Footprint) -> Error {
    let words = |limit: &Limit| {
        let needed = limit.needed(rows);
        let [is, would] = [limit.bytes, needed].map(footprint::bytes);
        format!("is {} bytes ({is}), but must be at least {needed} bytes ({would})", limit.bytes)
    };
    let mut problem = String::new();
    for (number, limit) in exceeded.iter().enumerate() {
        let key = if number == 0 { String::new() } else { format!("; {} ", limit.key) };
        problem += &format!("{key}{}", words(limit));
    }
    let of = |memory| exceeded.iter().any(|limit| limit.memory.contains(&memory));
    let rows = rows.rows.iter().filter(|row| of(row.memory)).cloned().collect();
    let key = exceeded.first().map_or("limits", |limit| limit.key);
    let rows = Footprint { rows }.to_string().trim_end().to_string();
    Error::Config(ConfigError { rows, ..ConfigError::new(key, problem) })
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, count, instead_of, limits } = self;
        write!(f, "{name} {count} instead of {instead_of} because of {}", limits.join(" and "))
    }
}
