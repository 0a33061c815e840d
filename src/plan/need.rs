//! Host memory that one sample takes of its worker, computed from its header. The footprint and the check before a
//! sample is decoded use the same code, so they agree.

use crate::decode::DecodeMemory;
use crate::error::{DataError, Reason};
use crate::footprint;
use crate::geometry::Size;
use crate::header::{Format, Header};
use crate::image::PixelType;
use crate::op::resample::Resampler;
use crate::op::{AnyOperator, Bounds, Fusion, Operator, Resize};
use crate::random::{SampleKey, SampleRng};
use crate::tensor::CHANNELS;

use super::{Facts, Plan, SamplePlan};

/// One in this many scanned samples may need more than a worker's share.
const OUTLIERS: usize = 64;
/// A sample that needs less than `limits.large_image_memory` divided by this always counts towards the share.
const OUTLIER_PART: u64 = 8;

/// Sample that was scanned when the plan was made.
#[derive(Clone, Debug)]
pub struct Looked {
    /// Header of the image.
    pub header: Header,
    /// Size of the file, in bytes.
    pub file_bytes: u64,
    /// Memory for decoding it.
    pub decode: DecodeMemory,
}

/// Upper bound on the host memory that one sample takes of its worker, in bytes per buffer. Buffers are reused, so a
/// worker holds the maximum of each buffer ([`max`](Self::max)), not the maximum sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleMemory {
    /// Encoded file.
    pub file: u64,
    /// Coefficient tables of the chain.
    pub tables: u64,
    /// Coefficient tables of `cache.presize`.
    pub resize_tables: u64,
    /// The decoder's whole image, and the rows that it returns together.
    pub decoder: [u64; 2],
    /// Memory that a format's library allocates and frees while it decodes.
    pub library: u64,
    /// Resampling memory that depends on the length of tables.
    pub taps: u64,
    /// Resampling memory that depends on the length of rows.
    pub rows: u64,
    /// Images between operators: two of bytes, two of floats.
    pub windows: [u64; 4],
    /// Images decoded whole for `cache.decoded`: the cached image, and the image it is resized from.
    pub whole: [u64; 2],
}

impl SampleMemory {
    /// Sum of all buffers.
    pub fn total(&self) -> u64 {
        sum(self.parts())
    }

    /// Element-wise maximum.
    pub fn max(mut self, other: &Self) -> Self {
        for (part, other) in self.parts_mut().into_iter().zip(other.parts()) {
            *part = (*part).max(other);
        }
        self
    }

    /// Space for the tables of a sample that waits for its launch: the share plus 25 % for samples that the plan did
    /// not scan.
    pub fn waiting_tables(&self) -> u64 {
        self.tables.saturating_add(self.tables / 4)
    }

    /// Bytes for the footprint's row `worker scratch`.
    pub(super) fn scratch(&self) -> u64 {
        let Self { tables, resize_tables, taps, rows, windows, .. } = *self;
        sum([tables, resize_tables, taps, rows, sum(windows)])
    }

    fn parts(mut self) -> [u64; 14] {
        self.parts_mut().map(|part| *part)
    }

    fn parts_mut(&mut self) -> [&mut u64; 14] {
        let Self { file, tables, resize_tables, decoder, library, taps, rows, windows, whole } =
            self;
        let ([a, b], [c, d, e, f], [g, h]) = (decoder, windows, whole);
        [file, tables, resize_tables, a, b, library, taps, rows, c, d, e, f, g, h]
    }
}

/// Saturating sum.
pub(super) fn sum<const N: usize>(parts: [u64; N]) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}

/// Host memory for samples: a share per worker, and memory shared by samples that need more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRoom {
    /// Share of each worker.
    pub share: SampleMemory,
    /// Bytes shared by all samples that need more than their worker's share. 0 if no sample does. A sample reserves
    /// its excess from it while it is being processed.
    pub large: u64,
}

impl SampleRoom {
    /// Bytes that a sample needs beyond its worker's share.
    ///
    /// # Errors
    /// [`Reason::Oversized`] if that exceeds the memory for large samples.
    pub fn beyond(&self, size: Size, need: &SampleMemory) -> Result<u64, DataError> {
        let (needed, share) = (need.total(), self.share.total());
        let beyond = needed.saturating_sub(share);
        if beyond <= self.large {
            return Ok(beyond);
        }
        let [needs, has] = [needed, share].map(footprint::bytes);
        let problem = match self.large {
            0 => format!(
                "{size} needs {needed} bytes of host memory ({needs}), a worker has {share} ({has}), which was enough for \
                 every sample when the plan was made"
            ),
            large => format!(
                "{size} needs {needed} bytes of host memory ({needs}), a worker has {share} ({has}) and \
                 limits.large_image_memory adds {large} ({}); raise it by {} bytes to take such images",
                footprint::bytes(large),
                beyond - large,
            ),
        };
        Err(DataError::new(Reason::Oversized, problem))
    }
}

impl Plan {
    /// Maximum memory that a sample with this header takes of its worker, for any random numbers.
    pub fn sample_memory(
        &self,
        header: &Header,
        file_bytes: u64,
        decode: DecodeMemory,
    ) -> SampleMemory {
        let mut need = SampleMemory { file: file_bytes, ..SampleMemory::of_decode(decode) };
        let turned = self.settings.decode.orientation && !header.orientation.is_upright();
        let stored = header.size;
        let (mut size, mut turned) = match turned {
            true => (header.orientation.upright_size(stored), true),
            false => (stored, false),
        };
        // An image cached whole already has its final size.
        let decoded = self.settings.cache.decoded.is_some() && header.format != Format::Pixels;
        if decoded {
            need.whole[0] = bytes_of(PixelType::U8, size);
            if let Some(shorter) = self.presized(stored) {
                (size, turned) = (need.add_resized(size, shorter), false);
            }
        }
        self.add_chain(size, turned, &mut need);
        need
    }

    /// Shorter side to which `cache.presize` resizes an image of this size, if it does.
    fn presized(&self, stored: Size) -> Option<u32> {
        self.settings.cache.presize.filter(|&shorter| stored.width.min(stored.height) > shorter)
    }

    /// Adds tables, rows and windows of the chain, for an upright image of this size.
    fn add_chain(&self, image: Size, turned: bool, need: &mut SampleMemory) {
        let mut steps = Vec::with_capacity(self.steps.len());
        let mut size = image;
        for (place, step) in self.steps.iter().enumerate() {
            let (output, params) = step.operator.prepare(size, &mut first_draw(place as u16));
            let fusion = step.operator.fusion(&params);
            steps.push(Step { pixels: step.pixels, input: size, output, fusion });
            size = output;
        }
        // Window of each operator's output that is needed, and therefore of its input.
        let mut wanted = size;
        for (step, planned) in steps.iter_mut().zip(&self.steps).rev() {
            step.output = smaller(step.output, wanted);
            need.add_resampling(&*planned.operator, step.input, step.output, |need| {
                &mut need.tables
            });
            wanted = match step.fusion {
                Fusion::Crop { .. } | Fusion::Flip { .. } | Fusion::Normalize(_) => {
                    smaller(step.input, step.output)
                }
                Fusion::Resample(_) | Fusion::None => step.input,
            };
            step.input = wanted;
        }
        need.windows = self.windows(&steps, turned);
    }

    /// Size of the images between operators for a planned sample, in bytes.
    pub fn windows_of(&self, sample: &SamplePlan) -> [u64; 4] {
        let steps = self.steps.iter().zip(&sample.steps).map(|(planned, step)| Step {
            pixels: planned.pixels,
            input: step.input.size(),
            output: step.output.size(),
            fusion: planned.operator.fusion(&step.params),
        });
        let steps: Vec<Step> = steps.collect();
        self.windows(&steps, !sample.orientation.is_upright())
    }

    /// Images of the whole chain on the CPU, and of every prefix of it that may run before a device's part.
    fn windows(&self, steps: &[Step], turned: bool) -> [u64; 4] {
        let whole = Windows::of(steps, turned, None);
        let splits = self.device.iter().flat_map(|device| {
            device.splits.iter().map(|cut| {
                let windows = Windows::of(steps, turned, Some(cut.first));
                // Decoded pixels are transferred only if they fit into a page.
                let most = if cut.first == 0 { device.pixels_bytes as u64 } else { u64::MAX };
                windows.map(|bytes| bytes.min(most))
            })
        });
        splits.fold(whole, |all, it| std::array::from_fn(|image| all[image].max(it[image])))
    }

    /// Memory shares for samples like the scanned ones. They do not depend on workers, batches or total limits, so
    /// which samples are oversized does not either.
    pub(super) fn sample_room(&self, facts: &Facts) -> SampleRoom {
        let most_file = self.settings.limits.max_file_bytes;
        if facts.looked.is_empty() {
            let header = Header {
                format: Format::Pixels,
                size: facts.image,
                orientation: Default::default(),
                jpeg: None,
            };
            let largest = facts.largest_bytes.min(most_file);
            let mut share = self.sample_memory(&header, largest, DecodeMemory::default());
            if self.settings.cache.decoded.is_some() {
                let file = Header { format: Format::Pnm, ..header };
                share = share.max(&self.sample_memory(&file, largest, DecodeMemory::default()));
            }
            let large = if facts.samples > 0 { self.settings.limits.large_image_memory } else { 0 };
            return SampleRoom { share, large };
        }
        let large = self.settings.limits.large_image_memory;
        let mut needs: Vec<SampleMemory> = facts
            .looked
            .iter()
            .map(|it| self.sample_memory(&it.header, it.file_bytes.min(most_file), it.decode))
            .collect();
        needs.sort_by_key(SampleMemory::total);
        // The share must suffice for half of the set. Beyond that, samples over the limit do not raise it.
        let too_large = needs.iter().rev().take_while(|it| it.total() > large).count();
        let mut outliers = if 2 * too_large < needs.len() { too_large } else { 0 };
        let few = needs.len().div_ceil(OUTLIERS);
        let costly = needs.iter().rev().take_while(|it| it.total() > large / OUTLIER_PART).count();
        outliers = outliers.max(costly.min(few));
        // There must be a share, at least for the files.
        let kept = needs.len() - outliers;
        let mut share = needs[..kept].iter().fold(SampleMemory::default(), SampleMemory::max);
        let largest = facts.largest_bytes.min(most_file);
        if largest <= large / OUTLIER_PART {
            share.file = share.file.max(largest);
        }
        let all_fit = needs[kept..].iter().all(|it| it.total() <= share.total());
        let known = facts.looked_at_all && all_fit && largest <= share.file;
        SampleRoom { share, large: if known { 0 } else { large } }
    }
}

/// Inputs for computing the windows of a chain.
struct Step {
    pixels: PixelType,
    /// Windows of input and output, or bounds on them.
    input: Size,
    output: Size,
    fusion: Fusion,
}

/// Images of the CPU transform: two of bytes and two of floats, one of which is written at a time
/// (`transform/host.rs`).
#[derive(Default)]
struct Windows {
    bytes: [[u64; 2]; 2],
    at: (usize, usize),
}

impl Windows {
    /// Bytes of each image for a chain. `prefix` is the number of operators that run, if not the whole tensor is
    /// stored.
    fn of(steps: &[Step], turned: bool, prefix: Option<usize>) -> [u64; 4] {
        let last = prefix.unwrap_or(steps.len());
        let crops = steps.iter().take_while(|it| matches!(it.fusion, Fusion::Crop { .. })).count();
        let streams = crops < last && matches!(steps[crops].fusion, Fusion::Resample(_)) && !turned;
        let mut this = Self::default();
        let (first, begins) = match steps.first() {
            _ if streams => (crops + 1, steps[crops].output),
            Some(step) => (0, step.input),
            None => return [0; 4],
        };
        if streams && prefix.is_none() && folds(&steps[first..]) {
            return [0; 4];
        }
        this.bytes[0][0] = bytes_of(PixelType::U8, begins);
        let mut is_bytes = true;
        for place in first..last {
            if prefix.is_none() && is_bytes && folds(&steps[place..]) {
                break;
            }
            this.put(steps[place].pixels, steps[place].output);
            is_bytes = steps[place].pixels == PixelType::U8;
        }
        let [[a, b], [c, d]] = this.bytes;
        [a, b, c, d]
    }

    /// Next image: the other one of the same type, or the first one of the other type.
    fn put(&mut self, pixels: PixelType, size: Size) {
        let sort = usize::from(pixels == PixelType::F32);
        self.at = (sort, if self.at.0 == sort { 1 - self.at.1 } else { 0 });
        let bytes = &mut self.bytes[sort][self.at.1];
        *bytes = (*bytes).max(bytes_of(pixels, size));
    }
}

/// Whether storing the tensor also applies these operators.
fn folds(steps: &[Step]) -> bool {
    let mut normalized = false;
    steps.iter().all(|step| match step.fusion {
        Fusion::Flip { .. } | Fusion::Crop { .. } => true,
        Fusion::Normalize(_) => !std::mem::replace(&mut normalized, true),
        Fusion::Resample(_) | Fusion::None => false,
    })
}

/// Size of a window, in bytes.
fn bytes_of(pixels: PixelType, size: Size) -> u64 {
    let value = match pixels {
        PixelType::U8 => 1,
        PixelType::F32 => size_of::<f32>() as u64,
    };
    size.pixels().saturating_mul(CHANNELS as u64 * value)
}

impl SampleMemory {
    /// Memory for decoding alone, without the file.
    pub fn of_decode(DecodeMemory { scratch, rows, library }: DecodeMemory) -> Self {
        Self { decoder: [scratch, rows], library, ..Self::default() }
    }

    /// Memory for resizing an image with this header, without its file.
    pub fn of_resized(header: &Header, decode: DecodeMemory, shorter: u32) -> Self {
        let mut need = Self::of_decode(decode);
        need.add_resized(header.orientation.upright_size(header.size), shorter);
        need
    }

    /// Adds a whole image of this size and its resizing to a shorter side. Returns the new size.
    fn add_resized(&mut self, size: Size, shorter: u32) -> Size {
        let resize = Resize::shorter(shorter);
        let (output, _) = Operator::prepare(&resize, size, &mut first_draw(0));
        self.add_resampling(&resize, size, output, |need| &mut need.resize_tables);
        self.whole = [output, size].map(|size| bytes_of(PixelType::U8, size));
        output
    }

    /// Adds an operator's tables and resampling memory for this input and this part of its output. Does nothing for
    /// operators without tables.
    fn add_resampling(
        &mut self,
        operator: &(impl AnyOperator + ?Sized),
        input: Size,
        output: Size,
        tables: impl Fn(&mut Self) -> &mut u64,
    ) {
        // Larger tables fit nowhere, and products could overflow a `u64`.
        const MOST_ENTRIES: usize = 1 << 32;
        const MOST_COLUMNS: u32 = 1 << 24;
        let side = input.width.max(input.height).max(1);
        let bounds = Bounds { pixels: input.pixels(), side, wanted: Some(output) };
        let entries = operator.table_len(bounds);
        if entries == 0 {
            return;
        }
        if entries > MOST_ENTRIES || output.width > MOST_COLUMNS {
            *tables(self) = u64::MAX;
            return;
        }
        // The weights of one output are computed in f64 before they become entries.
        let least = output.width.min(output.height).max(1) as usize;
        let bytes = size_of::<i32>() * entries + size_of::<f64>() * (entries / least);
        let all = tables(self);
        *all = all.saturating_add(bytes as u64);
        // One part by tables and one by rows, because the longest tables and the longest rows need not belong to the
        // same sample. If outputs differ in size, so do the parts of the first, which no sample has together.
        let differ = if operator.fixed_output(None).is_some() { 1 } else { 2 };
        let line = CHANNELS * output.width as usize;
        let taps = differ * (Resampler::max_scratch_bytes(entries, output, 1) + line);
        self.taps = self.taps.saturating_add(taps as u64);
        let rows = Resampler::max_scratch_bytes(0, output, side);
        self.rows = self.rows.saturating_add(rows as u64);
    }
}

fn smaller(a: Size, b: Size) -> Size {
    Size::new(a.width.min(b.width), a.height.min(b.height))
}

/// Random numbers for computing sizes, which do not depend on them.
fn first_draw(place: u16) -> SampleRng {
    SampleRng::new(SampleKey::default(), place)
}
