//! The result, as a table and as JSON.

use serde::Serialize;

use super::device::Device;
use super::table::{Part, line, milli};

/// The result.
#[derive(Serialize)]
pub struct Measured {
    pub source: String,
    /// Samples that were measured.
    pub samples: usize,
    /// Samples that cannot be used.
    pub left_out: u64,
    /// Why the first of them cannot.
    pub first_fault: Option<String>,
    /// Of the mean image.
    pub image_megapixels: f64,
    /// Mean seconds per image of the steps up to the decoded window, measured alone.
    pub load_seconds: f64,
    /// The operators and the output conversion, alone.
    pub encode_seconds: f64,
    /// The same as the loader runs them.
    pub loader_seconds: f64,
    /// Its inverse.
    pub images_per_second_per_core: f64,
    /// The device, or why nothing was measured on one.
    pub gpu: String,
    /// What was measured on it.
    pub device: Option<Device>,
    pub rows: Vec<Row>,
}

/// One step. Means are over all samples, including those that did not need the step.
#[derive(Serialize)]
pub struct Row {
    pub name: String,
    pub part: Part,
    /// Mean of an image.
    pub seconds: f64,
    pub p50_seconds: f64,
    pub p99_seconds: f64,
    /// Mean of its input.
    pub megapixels: f64,
    pub seconds_per_megapixel: Option<f64>,
    /// Of the sum of all steps; none for a comparison.
    pub share: Option<f64>,
}

impl Measured {
    /// All of it for people.
    pub fn table(&self) -> String {
        let mut text = format!("source    {}\n", self.source);
        text += &format!(
            "samples   {}, {:.2} megapixels each in the mean; one thread of the CPU\n",
            self.samples, self.image_megapixels
        );
        if let Some(fault) = &self.first_fault {
            text += &format!("left out  {}; the first: {fault}\n", self.left_out);
        }
        let heads = ["ms/image", "p50", "p99", "megapixels", "ms/megapixel", "share"];
        text += &line("step", heads.map(String::from));
        for row in &self.rows {
            text += &line(
                &row.name,
                [
                    milli(row.seconds),
                    milli(row.p50_seconds),
                    milli(row.p99_seconds),
                    format!("{:.3}", row.megapixels),
                    row.seconds_per_megapixel.map_or("-".into(), milli),
                    row.share.map_or("-".into(), |it| format!("{:.1} %", 100.0 * it)),
                ],
            );
        }
        let Self { load_seconds: load, encode_seconds: encode, .. } = *self;
        text += &format!(
            "alone     load {} ms (up to the decoded window), encode {} ms (operators, output): {:.0} % and {:.0} %\n",
            milli(load),
            milli(encode),
            100.0 * load / (load + encode),
            100.0 * encode / (load + encode)
        );
        text += &format!(
            "together  {} ms as the loader runs them: {:.0} images/s per core\ngpu       {}",
            milli(self.loader_seconds),
            self.images_per_second_per_core,
            self.gpu
        );
        if let Some(device) = &self.device {
            text += &device.table();
        }
        text
    }
}
