//! Host memory of the workers: a share for each, and memory that all share for samples that need
//! more.

use crate::decode::{self, DecodeMemory};
use crate::error::{DataError, Reason};
use crate::footprint;
use crate::geometry::Size;
use crate::header::{Format, Header};
use crate::op::Resize;
use crate::random::SampleKey;

use super::SampleMemory;
use crate::plan::windows::Stage;
use crate::plan::{Facts, Limits, Plan, SamplePlan, ScannedSample};

/// `1 / OUTLIERS` of the scanned samples, but at least one of several, may be outliers. An outlier
/// may need more memory than a worker's share.
const OUTLIERS: usize = 64;
/// A sample that needs at most `limits.large_image_memory / OUTLIER_PART` is never an outlier.
const OUTLIER_PART: u64 = 8;

/// A bound on the memory of a sample is replaced by an estimate only if it is more than this many
/// times the estimate.
const LEAST_RATIO: u64 = 4;
/// Number of images for which actions are drawn to estimate the memory of samples.
const DRAWN_IMAGES: usize = 32;
/// Number of draws per image. Each output of a view is a draw.
const DRAWS: usize = 128;

/// Host memory for samples: a share per worker, and memory shared by samples that need more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRoom {
    /// Memory that each worker always has.
    pub share: SampleMemory,
    /// Bytes shared by all samples that need more than their worker's share. 0 if no sample does.
    /// While a sample is being processed, it reserves its excess from these bytes.
    pub large: u64,
    /// Bytes for samples that need more than their worker's share because their files grew after
    /// the plan was made. Used only if `large` is 0. These bytes are within the memory limits, but
    /// not part of the footprint.
    pub unplanned: u64,
}

impl SampleRoom {
    /// Bytes for all samples that need more than their worker's share.
    pub fn beyond_shares(&self) -> u64 {
        if self.large > 0 { self.large } else { self.unplanned }
    }

    /// Bytes that a sample with the memory `need` takes beyond its worker's share.
    ///
    /// # Errors
    /// [`Reason::Oversized`] if these bytes exceed the memory for large samples.
    pub fn beyond(&self, size: Size, need: &SampleMemory) -> Result<u64, DataError> {
        let (needed, share) = (need.total(), self.share.total());
        let (beyond, most) = (needed.saturating_sub(share), self.beyond_shares());
        if beyond <= most {
            return Ok(beyond);
        }
        let [needs, has] = [needed, share].map(footprint::bytes);
        let key = if self.large > 0 { "limits.large_image_memory adds" } else { "the limits add" };
        let problem = format!(
            "an image of {size} needs {needed} bytes of host memory ({needs}), but a worker has \
             {share} ({has}) and {key} {most} ({}); raise limits.large_image_memory{} by {} bytes \
             to accept such images",
            footprint::bytes(most),
            if self.large > 0 { "" } else { " or limits.host_memory" },
            beyond - most,
        );
        Err(DataError::new(Reason::Oversized, problem))
    }
}

impl Plan {
    /// Memory for samples, computed from the scanned ones. It does not depend on the number of
    /// workers, the batch size or the total memory limits, so these settings do not change which
    /// samples are oversized.
    pub(in crate::plan) fn sample_room(&self, facts: &Facts) -> SampleRoom {
        let most_file = self.settings.limits.max_file_bytes;
        let large = self.settings.limits.large_image_memory;
        let largest = facts.largest_bytes.min(most_file);
        if facts.scanned.is_empty() {
            let share = self.assumed_need(facts.image, largest);
            return SampleRoom {
                share,
                large: if facts.samples > 0 { large } else { 0 },
                unplanned: 0,
            };
        }
        let (mut needs, estimated) = self.needs(&facts.scanned);
        needs.sort_by_key(SampleMemory::total);
        // If fewer than half of the scanned samples exceed `limits.large_image_memory`, those
        // samples are outliers and do not raise the share.
        let too_large = needs.iter().rev().take_while(|it| it.total() > large).count();
        let mut outliers = if 2 * too_large < needs.len() { too_large } else { 0 };
        let few = needs.len().div_ceil(OUTLIERS).min(needs.len() - 1);
        let costly = needs.iter().rev().take_while(|it| it.total() > large / OUTLIER_PART).count();
        outliers = outliers.max(costly.min(few));
        // The share does not cover outliers. It covers the largest file unless that file is very
        // large.
        let kept = needs.len() - outliers;
        let mut share = needs[..kept].iter().fold(SampleMemory::default(), SampleMemory::max);
        if largest <= large / OUTLIER_PART {
            share.file = share.file.max(largest);
        }
        let all_fit = needs[kept..].iter().all(|it| it.total() <= share.total());
        let known = !estimated && facts.scanned_all && all_fit && largest <= share.file;
        // For some random numbers, an operator without a computable bound may need more memory than
        // the share. So memory for large samples is kept.
        let known = known && facts.scanned.iter().all(|it| self.is_bounded(&it.header));
        // Images in fields are not scanned.
        let known = known && self.views.iter().all(|view| view.field.is_none());
        SampleRoom { share, large: if known { 0 } else { large }, unplanned: 0 }
    }

    /// Memory for a sample with an image of this size and a file of `file_bytes` bytes, if no
    /// sample was scanned.
    fn assumed_need(&self, size: Size, file_bytes: u64) -> SampleMemory {
        let header = header_of(size);
        let scanned =
            |header| ScannedSample { header, file_bytes, decode: DecodeMemory::default() };
        let mut samples = vec![scanned(header.clone())];
        if self.settings.cache.decoded.is_some() {
            // An image that is not in the decoded cache is first decoded whole.
            samples.push(scanned(Header { format: Format::Pnm, ..header }));
        }
        self.needs(&samples).0.iter().fold(SampleMemory::default(), SampleMemory::max)
    }

    /// Memory for each of these samples: the bound from its header, or an estimate if the bound is
    /// absurdly large. Also returns whether there are estimates.
    ///
    /// A bound holds for all random numbers. It may be thousands of times what any sample needs,
    /// for example if operators that enlarge images run in random order. So if it exceeds
    /// `limits.large_image_memory`, and is more than [`LEAST_RATIO`] times the maximum over a
    /// number of draws, this maximum counts instead. A draw that needs more takes memory for large
    /// samples.
    fn needs(&self, samples: &[ScannedSample]) -> (Vec<SampleMemory>, bool) {
        let Limits { max_file_bytes, large_image_memory, .. } = self.settings.limits;
        let scratch = &mut SamplePlan::default();
        let bound = |it: &ScannedSample| {
            self.sample_memory(&it.header, it.file_bytes.min(max_file_bytes), it.decode, scratch)
        };
        let mut needs: Vec<SampleMemory> = samples.iter().map(bound).collect();
        if self.views.iter().any(|view| view.field.is_some()) {
            // Fields often have PNGs beside the JPEGs of the samples.
            let views = self.views.iter().filter(|view| view.field.is_some());
            for (need, sample) in needs.iter_mut().zip(samples) {
                let (header, decode) = png_memory(sample.header.size);
                for view in views.clone() {
                    let decode = view.plan.decode_memory(&header, decode);
                    *need = need.max(&SampleMemory::of_decode(decode));
                }
            }
        }
        let is_large = |it: &usize| needs[*it].total() > large_image_memory;
        let mut large: Vec<usize> = (0..needs.len()).filter(is_large).collect();
        let pixels = |sample: usize| samples[sample].header.size.pixels();
        large.sort_by_key(|&it| std::cmp::Reverse((needs[it].total(), pixels(it))));
        let mut estimated = false;
        for alike in large.chunks(large.len().div_ceil(DRAWN_IMAGES).max(1)) {
            let drawn = self.drawn_need(self.input_size(&samples[alike[0]].header));
            for &sample in alike {
                let estimate = needs[sample].before_draw().max(&drawn);
                if needs[sample].total() / LEAST_RATIO > estimate.total() {
                    (needs[sample], estimated) = (estimate, true);
                }
            }
        }
        (needs, estimated)
    }

    /// Maximum memory that the chains need for an image of this size, over some draws.
    fn drawn_need(&self, image: Size) -> SampleMemory {
        let header = &header_of(Size::new(image.width.max(1), image.height.max(1)));
        let members: Vec<usize> = (0..self.views.len()).collect();
        let (mut outputs, mut main) = (self.view_plans(&members), SamplePlan::default());
        let draws = (DRAWS / outputs.len().max(1)).max(1) as u32;
        let mut draw = |epoch| {
            let key = SampleKey { epoch, ..SampleKey::default() };
            self.draw_views((key, header), Some(&mut main), &members, &mut outputs);
            let tables = self.drawn_tables(Some(&mut main), &members, &mut outputs);
            let main = self.most_drawn_memory(&mut main);
            let views = self.outputs_of(&members).zip(&mut outputs);
            let views = views.map(|((_, plan), output)| plan.most_drawn_memory(output));
            views.fold(tables.max(&main), |all, it| all.max(&it))
        };
        (0..draws).map(&mut draw).fold(SampleMemory::default(), |all, it| all.max(&it))
    }

    /// Whether [`sample_memory`](Self::sample_memory) is an upper bound for every sample with this
    /// header.
    fn is_bounded(&self, header: &Header) -> bool {
        let size = self.input_size(header);
        let plans = std::iter::once(self).chain(self.views.iter().map(|view| &view.plan));
        plans.into_iter().all(|plan| Stage::are_certain(&plan.steps, size))
    }

    /// Size of the image that the chains read: upright, and resized if the decoded cache holds
    /// resized images.
    fn input_size(&self, header: &Header) -> Size {
        let upright = self.orientation(header).upright_size(header.size);
        let presized = self.settings.cache.decoded.and(self.presized(header.size));
        presized.map_or(upright, |shorter| Resize::shorter(shorter).output(upright))
    }
}

/// Header of a PNG of this size, and memory for decoding it if it has 16 bits per channel and is
/// not interlaced.
fn png_memory(size: Size) -> (Header, DecodeMemory) {
    // The first bytes of a file. The last five are depth, color type, two methods and interlacing.
    const HEAD: [u8; 29] = {
        let mut head = [0; 29];
        (head[24], head[25]) = (16, 6);
        head
    };
    let header = Header { format: Format::Png, ..header_of(size) };
    let decode = decode::memory_bytes(&header, &HEAD, 0);
    (header, decode)
}

/// Header of upright pixels of this size.
fn header_of(size: Size) -> Header {
    Header { format: Format::Pixels, size, orientation: Default::default(), jpeg: None }
}
