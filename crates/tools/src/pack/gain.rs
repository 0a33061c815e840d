//! Measures how much faster smaller images load, so that users know the gain before packing writes
//! any file.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use super::Settings;
use super::encode::Maker;
use super::fields::{FieldChoice, FieldPlan};
use feedwater::error::{Error, Result};
use feedwater::internals::footprint::counted;
use feedwater::internals::loader::LargeImages;
use feedwater::loader::{DeviceChoice, LoaderBuilder};
use feedwater::op::Chain;
use feedwater::plan::{self, LastBatch, OnError};
use feedwater::source::custom::HostPage;
use feedwater::source::{Memory, Source};

/// Throughput and size of the same images before and after shrinking.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// Number of measured images.
    pub images: u64,
    /// Total bytes of the original images.
    pub bytes_before: u64,
    /// Total bytes of the smaller images.
    pub bytes_after: u64,
    /// Original images per second that one CPU thread decodes and transforms.
    pub images_per_second_before: f64,
    /// Smaller images per second that one CPU thread decodes and transforms.
    pub images_per_second_after: f64,
}

/// Measures the gain on `looks` images that are spread evenly over the source. The images are
/// shrunk in memory. Then one CPU thread loads the original and the smaller images alternately
/// through `chain`, in five rounds. The fastest round of each set counts. Unusable samples are
/// skipped.
///
/// # Errors
///
/// Fails with [`Error::Config`] if `settings.presize` is `None`, or if no sample is usable.
pub fn gain(source: &dyn Source, settings: &Settings, chain: &Chain, looks: u64) -> Result<Gain> {
    const ROUNDS: u32 = 5;
    let settings = &Settings { fields: FieldChoice::None, ..settings.clone() };
    settings.check()?;
    if settings.presize.is_none() {
        return Err(Error::config(
            "presize",
            "is missing, so packing would not make any image smaller and there is no gain to \
             measure",
        ));
    }
    let fields = FieldPlan::new(source, settings)?;
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let large = Arc::new(LargeImages::new(settings.limits.large_image_memory));
    let mut maker = Maker::new(source, settings, &fields, large);
    let mut page = HostPage::default();
    let looks = looks.min(source.len());
    for look in 0..looks {
        let index = (u128::from(look) * u128::from(source.len()) / u128::from(looks)) as u64;
        let Ok(smaller) = maker.make(index).image else { continue };
        if source.read(index, &mut page, settings.limits.max_file_bytes).is_ok() {
            before.push((page.bytes().to_vec(), -1));
            after.push((smaller.bytes, -1));
        }
    }
    if before.is_empty() {
        let problem = format!(
            "has no usable sample among the {} that were read; feedwater probe prints the \
                 reasons",
            counted(looks, "sample")
        );
        return Err(Error::config("source", problem));
    }
    let bytes = |set: &[(Vec<u8>, i64)]| set.iter().map(|(bytes, _)| bytes.len() as u64).sum();
    let (images, bytes_before, bytes_after) = (before.len() as u64, bytes(&before), bytes(&after));
    let sets = [Arc::new(Memory::new(before)?), Arc::new(Memory::new(after)?)];
    let mut best = [0.0f64; 2];
    for _ in 0..ROUNDS {
        for (set, best) in sets.iter().zip(&mut best) {
            *best = best.max(rate(set.clone(), chain, settings)?);
        }
    }
    let [images_per_second_before, images_per_second_after] = best;
    Ok(Gain {
        images,
        bytes_before,
        bytes_after,
        images_per_second_before,
        images_per_second_after,
    })
}

/// Loads all images once, and returns the images per second.
fn rate(set: Arc<Memory>, chain: &Chain, settings: &Settings) -> Result<f64> {
    let images = set.len();
    let mut wanted = plan::Settings { limits: settings.limits.clone(), ..Default::default() };
    wanted.loader.batch_size = images.min(16) as usize;
    wanted.loader.num_workers = 1.into();
    wanted.loader.last_batch = LastBatch::Partial;
    wanted.loader.on_error = OnError::Substitute;
    let builder = LoaderBuilder::new(set, chain.clone()).settings(wanted);
    let mut loader = builder.device(DeviceChoice::Cpu).epochs(Some(1)).build()?;
    let begin = Instant::now();
    for batch in &mut loader {
        drop(batch?);
    }
    Ok(images as f64 / begin.elapsed().as_secs_f64())
}
