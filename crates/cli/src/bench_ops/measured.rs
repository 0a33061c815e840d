//! Results of `bench-ops`, as a table and as JSON.

use serde::Serialize;

use super::device::Device;
use super::table::{WorkPart, line, milli};

/// All results.
#[derive(Serialize)]
pub struct Measured {
    pub source: String,
    /// Name of the pixel format of the decoded images.
    pub pixels: &'static str,
    /// What the pixel format means for the measurements. `None` for RGB of 8 bits.
    pub pixels_note: Option<String>,
    /// Number of samples measured.
    pub samples: usize,
    /// Number of unusable samples, which were skipped.
    pub skipped: u64,
    /// Reason why the first unusable sample could not be used.
    pub first_error: Option<String>,
    /// Mean image size, in megapixels.
    pub image_megapixels: f64,
    /// Mean seconds per image of all steps up to the decoded window, when each step runs alone.
    pub load_seconds: f64,
    /// Mean seconds per image of the operators and the output conversion, when each step runs
    /// alone.
    pub encode_seconds: f64,
    /// Mean seconds per image of all steps together, as a loader runs them.
    pub loader_seconds: f64,
    /// Inverse of `loader_seconds`: throughput of one core.
    pub images_per_second_per_core: f64,
    /// Description of the device, or the reason why no device was measured.
    pub gpu: String,
    /// Measurements on the device. `None` if no device was measured.
    pub device: Option<Device>,
    pub rows: Vec<Row>,
}

/// Measurements of one step. The means are over all samples, including those that did not need the
/// step.
#[derive(Serialize)]
pub struct Row {
    pub name: String,
    pub part: WorkPart,
    /// Mean seconds per image.
    pub seconds: f64,
    pub p50_seconds: f64,
    pub p99_seconds: f64,
    /// Mean size of the step's input, in megapixels.
    pub megapixels: f64,
    pub seconds_per_megapixel: Option<f64>,
    /// Share of this step in the sum of all steps. `None` for steps that are only a comparison.
    pub share: Option<f64>,
}

impl Measured {
    /// Formats all measurements as text.
    pub fn table(&self) -> String {
        let mut text = format!("source    {}\n", self.source);
        text += &format!(
            "samples   {}, {:.2} megapixels on average; one CPU thread\n",
            self.samples, self.image_megapixels
        );
        if let Some(note) = &self.pixels_note {
            text += &format!("pixels    {}; {note}\n", self.pixels);
        }
        if let Some(error) = &self.first_error {
            text += &format!("skipped   {}; first error: {error}\n", self.skipped);
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
            "alone     read and decode {} ms, operators and output {} ms: {:.0} % and {:.0} % of \
             their sum\n",
            milli(load),
            milli(encode),
            100.0 * load / (load + encode),
            100.0 * encode / (load + encode)
        );
        text += &format!(
            "together  {} ms if all steps run in turn as in the loader: {:.0} images/s per \
             core\ngpu       {}",
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
