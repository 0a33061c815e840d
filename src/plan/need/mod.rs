//! Host memory that a worker needs for one sample: an upper bound from the sample's header, and the
//! memory for the actions that are drawn. The footprint and the check before decoding use the same
//! code, so they agree.

use crate::decode::DecodeMemory;
use crate::geometry::Size;
use crate::header::{Format, Header};
use crate::image::{PixelFormat, PixelType};
use crate::op::kind::resample::Params as Resampling;
use crate::op::kind::{Execution, Executor};
use crate::op::resample::{ScratchBytes, TableBounds, WORDS};
use crate::op::{Bounds, Kinds, Operator, Resize};
use crate::tensor::CHANNELS;

use super::windows::{Ends, Input, Stage, Windows, bytes_of};
use super::{Plan, SamplePlan};

mod room;

pub use room::SampleRoom;

/// Upper bound on the host memory that a worker needs for one sample, in bytes per buffer. Buffers
/// are reused, so a worker needs the maximum of each buffer over its samples ([`max`](Self::max)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleMemory {
    /// Encoded file.
    pub file: u64,
    /// Coefficient tables of the chain.
    pub tables: u64,
    /// Coefficient tables of `cache.presize`.
    pub resize_tables: u64,
    /// The decoder's buffer for the whole image, and the decoder's buffer for the rows that one
    /// call returns.
    pub decoder: [u64; 2],
    /// Memory that a format's library allocates and frees during decoding.
    pub library: u64,
    /// Buffers of the chain's resampling.
    pub resampling: ScratchBytes,
    /// Buffers of the resize for `cache.presize`.
    pub resize: ScratchBytes,
    /// Buffers for pixel rows between operators.
    pub rows: u64,
    /// Bytes of the images between operators: two images of bytes, two of floats, and two that a
    /// mix keeps.
    pub windows: [u64; 6],
    /// Images decoded whole for `cache.decoded`: the cached image, and the image before
    /// `cache.presize`.
    pub whole: [u64; 2],
    /// A decoded mask, the mask of an object, and the origins of pixels.
    pub masks: u64,
    /// Coefficient tables of all views, and the image that they share.
    pub views: [u64; 2],
}

impl SampleMemory {
    /// Sum of all buffers.
    pub fn total(&self) -> u64 {
        self.parts().fold(0, u64::saturating_add)
    }

    /// Maximum of each buffer.
    pub fn max(self, other: &Self) -> Self {
        Self {
            file: self.file.max(other.file),
            tables: self.tables.max(other.tables),
            resize_tables: self.resize_tables.max(other.resize_tables),
            decoder: largest(self.decoder, other.decoder),
            library: self.library.max(other.library),
            resampling: self.resampling.max(other.resampling),
            resize: self.resize.max(other.resize),
            rows: self.rows.max(other.rows),
            windows: largest(self.windows, other.windows),
            whole: largest(self.whole, other.whole),
            masks: self.masks.max(other.masks),
            views: largest(self.views, other.views),
        }
    }

    /// Maximum of this bound and the memory of a planned sample. The resampling buffers and `rows`
    /// are compared as one sum, because the bound and the sample may divide the same bytes
    /// differently between them.
    pub fn with_drawn(mut self, drawn: &Self) -> Self {
        let rows = |it: &Self| sum(it.resampling.0).saturating_add(it.rows);
        self.rows = self.rows.saturating_add(rows(drawn).saturating_sub(rows(&self)));
        self.max(&Self { resampling: ScratchBytes::default(), rows: 0, ..*drawn })
    }

    /// This memory without the part that depends on the drawn actions: tables, masks, and images
    /// and rows between operators.
    pub fn before_draw(self) -> Self {
        let [_, shared] = self.views;
        let rest = Self { tables: 0, masks: 0, views: [0, shared], ..self };
        rest.with_passes_of(&Self::default())
    }

    /// This memory, with the images and rows between operators of `drawn`.
    pub fn with_passes_of(self, drawn: &Self) -> Self {
        let Self { resampling, rows, windows, .. } = *drawn;
        Self { resampling, rows, windows, ..self }
    }

    /// Only the file, an image that was decoded whole, the tables and the masks.
    pub fn for_planning(self) -> Self {
        let Self { file, whole, tables, masks, views: [view_tables, _], .. } = self;
        Self { file, whole, tables, masks, views: [view_tables, 0], ..Self::default() }
    }

    /// Bytes for the footprint's row `worker scratch`.
    pub(in crate::plan) fn scratch(&self) -> u64 {
        let Self { tables, resize_tables, resampling, resize, rows, windows, masks, views, .. } =
            *self;
        let images = [sum(windows), masks, sum(views)];
        sum([tables, resize_tables, sum(resampling.0), sum(resize.0), rows, sum(images)])
    }

    fn parts(self) -> impl Iterator<Item = u64> {
        let Self {
            file,
            tables,
            resize_tables,
            decoder,
            library,
            resampling,
            resize,
            rows,
            windows,
            whole,
            masks,
            views,
        } = self;
        let single = [file, tables, resize_tables, library, rows, masks].into_iter();
        single
            .chain(decoder)
            .chain(resampling.0)
            .chain(resize.0)
            .chain(windows)
            .chain(whole)
            .chain(views)
    }
}

/// Maximum of each element.
fn largest<const N: usize>(a: [u64; N], b: [u64; N]) -> [u64; N] {
    std::array::from_fn(|part| a[part].max(b[part]))
}

/// Saturating sum.
pub(in crate::plan) fn sum<const N: usize>(parts: [u64; N]) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}

impl Plan {
    /// Maximum memory that a worker needs for a sample with this header, whatever random numbers
    /// are drawn. Overwrites `scratch`.
    pub fn sample_memory(
        &self,
        header: &Header,
        file_bytes: u64,
        decode: DecodeMemory,
        scratch: &mut SamplePlan,
    ) -> SampleMemory {
        let decode = self.decode_memory(header, decode);
        let mut need = SampleMemory { file: file_bytes, ..SampleMemory::of_decode(decode) };
        let turned = self.settings.decode.orientation && !header.orientation.is_upright();
        let stored = header.size;
        let (mut size, mut turned) = match turned {
            true => (header.orientation.upright_size(stored), true),
            false => (stored, false),
        };
        // An image from the decoded cache already has its final size.
        let decoded = self.settings.cache.decoded.is_some() && header.format != Format::Pixels;
        if decoded {
            need.whole[0] = bytes_of(PixelType::U8, size);
            if let Some(shorter) = self.presized(stored) {
                (size, turned) = (need.add_resized(size, shorter), false);
            }
        }
        if self.has_images() {
            self.add_chain(size, turned, scratch, &mut need);
        }
        need.masks = self.mask_bytes(self.followers(None), size, &scratch.stages);
        self.add_views(0..self.views.len(), (header, size), scratch, &mut need);
        need
    }

    /// Memory for decoding an image with this header to the pixel format of the chain, if decoding
    /// it to RGB takes `decode`.
    pub(in crate::plan) fn decode_memory(
        &self,
        header: &Header,
        decode: DecodeMemory,
    ) -> DecodeMemory {
        decode.of_format(header, self.pixel_format(), self.settings.decode.background.is_some())
    }

    /// Shorter side to which `cache.presize` resizes an image of this size. `None` if it does not
    /// resize the image.
    fn presized(&self, stored: Size) -> Option<u32> {
        self.settings.cache.presize.filter(|&shorter| stored.width.min(stored.height) > shorter)
    }

    /// Adds tables, rows and windows of the chain, for an upright image of this size.
    fn add_chain(
        &self,
        image: Size,
        turned: bool,
        SamplePlan { actions, stages, .. }: &mut SamplePlan,
        need: &mut SampleMemory,
    ) {
        actions.format = self.pixel_format();
        Stage::put_bounding(&self.steps, image, actions, stages);
        // Window of each stage's output that later stages need.
        let mut wanted = stages.last().map_or(image, |last| last.output);
        let (mut line, mut values, mut read) = (0, 0, 0);
        for (number, planned) in self.steps.iter().enumerate().rev() {
            let (mut input, mut output) = (wanted, wanted);
            for (place, stage) in
                stages.iter_mut().filter(|it| it.operator == number).rev().enumerate()
            {
                if place == 0 {
                    output = smaller(stage.largest, wanted);
                }
                input = stage.input;
                stage.output = smaller(stage.output, wanted);
                if stage.is_pointwise() {
                    stage.input = smaller(stage.input, stage.output);
                }
                if stage.has_rows() {
                    line = line.max(stage.width());
                    values = values.max(if stage.is_floats() { size_of::<f32>() } else { 0 });
                }
                if stage.reads_rows() {
                    read = read.max(stage.width());
                }
                wanted = stage.input;
                if stage.is_any() {
                    // Operators inside a combinator may need more than the window that later
                    // operators read.
                    (input, output) = (stage.largest, stage.largest);
                }
            }
            let into = (&mut need.tables, &mut need.resampling);
            let operator = (&*planned.operator, &planned.kinds);
            SampleMemory::add_resampling(operator, (input, output), into);
        }
        if self.pixel_format().is_floats() {
            need.tables = need.tables.saturating_mul(WORDS as u64);
            need.resampling = ScratchBytes::default();
        }
        need.add_rows(line, values, read);
        need.windows = self.windows(stages, wanted, turned);
        need.tables = need.tables.saturating_mul(self.lists_of_actions() as u64);
        need.add_alpha(self.pixel_format());
    }

    /// Sets the sizes of the images between passes for a planned sample.
    pub(in crate::plan) fn set_windows(&self, sample: &mut SamplePlan) {
        Stage::put(&self.steps, &sample.actions, &mut sample.stages);
        let turned = !sample.orientation.is_upright();
        sample.windows = self.windows(&sample.stages, sample.window.size(), turned);
    }

    /// Memory for images, rows and resampling of a planned sample. Its total is at most that of the
    /// bound from the sample's header, unless the largest output of an operator cannot be computed.
    pub fn drawn_memory(&self, sample: &SamplePlan) -> SampleMemory {
        self.passes(sample, |place, params| {
            let (axes, table) = (&params.axes, sample.actions.table_of(place));
            let (columns, rows) = (axes.columns(table), axes.rows(table));
            TableBounds {
                entries: table.len(),
                columns: columns.len() * (2 + columns.taps()),
                taps: [columns.taps(), rows.taps()],
            }
        })
    }

    /// Maximum memory for images, rows and resampling of a sample whose actions are drawn, before
    /// their windows are computed.
    pub(in crate::plan) fn most_drawn_memory(&self, sample: &mut SamplePlan) -> SampleMemory {
        sample.window = sample.upright.window();
        self.set_windows(sample);
        self.passes(sample, |_, params| params.table_bounds())
    }

    /// Memory for the passes of a sample. `tables` returns the bounds on the table of an action
    /// that resamples.
    fn passes(
        &self,
        sample: &SamplePlan,
        tables: impl Fn(usize, &Resampling) -> TableBounds,
    ) -> SampleMemory {
        let mut need = SampleMemory { windows: sample.windows, ..SampleMemory::default() };
        let (mut line, mut values, mut read) = (0, 0, 0);
        for stage in &sample.stages {
            if stage.has_rows() {
                line = line.max(stage.width());
                values = values.max(if stage.is_floats() { size_of::<f32>() } else { 0 });
            }
            if stage.reads_rows() {
                read = read.max(stage.width());
            }
        }
        for (place, action) in sample.actions.list.iter().enumerate() {
            // Floats are resampled from one stored image to another.
            if let Executor::Resample(params) = action.params.executor()
                && !params.floats
            {
                let (output, input) = (action.output.width, action.input.width);
                let most = ScratchBytes::most(tables(place, params), output, input);
                need.resampling = need.resampling.max(most);
            }
        }
        need.add_rows(line, values, read);
        need.add_alpha(self.pixel_format());
        need
    }

    /// Sizes of the images between passes. Each size is the maximum over all possible cases: the
    /// whole chain runs on the CPU, or one of the possible prefixes of the chain runs on the CPU
    /// before the GPU part.
    fn windows(&self, stages: &[Stage], decoded: Size, turned: bool) -> [u64; 6] {
        let pixels = self.pixel_format().pixel_type();
        if self.pixel_format().has_alpha() {
            return Windows::of(stages, (pixels, decoded), Input::Stored, Ends::EachAction);
        }
        let input = match (self.reads_image, turned || self.pixel_format().is_floats()) {
            (true, _) => Input::Image,
            (false, true) => Input::Stored,
            (false, false) => Input::Rows,
        };
        let whole = Windows::of(stages, (pixels, decoded), input, Ends::Tensor);
        let splits = self.device.iter().flat_map(|device| {
            device.splits.iter().map(|cut| {
                let before = stages.iter().take_while(|it| it.operator < cut.first).count();
                let windows = Windows::of(&stages[..before], (pixels, decoded), input, Ends::Image);
                // Decoded pixels are transferred only if they fit into a page.
                let most = if cut.first == 0 { device.pixels_bytes as u64 } else { u64::MAX };
                windows.map(|bytes| bytes.min(most))
            })
        });
        splits.fold(whole, |all, it| std::array::from_fn(|image| all[image].max(it[image])))
    }
}

impl SampleMemory {
    /// Memory for decoding, without the file.
    pub fn of_decode(DecodeMemory { scratch, rows, library }: DecodeMemory) -> Self {
        Self { decoder: [scratch, rows], library, ..Self::default() }
    }

    /// Memory for decoding an image with this header and resizing it to the shorter side `shorter`,
    /// without its file.
    pub fn of_resized(header: &Header, decode: DecodeMemory, shorter: u32) -> Self {
        let mut need = Self::of_decode(decode);
        need.add_resized(header.orientation.upright_size(header.size), shorter);
        need
    }

    /// Adds a whole image of this size and its resizing to the shorter side `shorter`. Returns the
    /// new size.
    fn add_resized(&mut self, size: Size, shorter: u32) -> Size {
        let resize = Resize::shorter(shorter);
        let output = resize.output(size);
        let kinds = resize.kinds();
        let into = (&mut self.resize_tables, &mut self.resize);
        Self::add_resampling((&resize, &kinds), (size, output), into);
        self.whole = [output, size].map(|size| bytes_of(PixelType::U8, size));
        output
    }

    /// Adds the operator's tables to `tables`, for this input and this part of the output. Raises
    /// `scratch` to the operator's resampling memory, if that is more. Does nothing for operators
    /// without tables.
    fn add_resampling(
        (operator, kinds): (&dyn Operator, &Kinds),
        (input, output): (Size, Size),
        (tables, scratch): (&mut u64, &mut ScratchBytes),
    ) {
        // Tables beyond these limits would not fit any memory, and the products below could
        // overflow a `u64`.
        const MOST_ENTRIES: usize = 1 << 32;
        const MOST_COLUMNS: u32 = 1 << 24;
        let side = input.width.max(input.height).max(1);
        let bounds = Bounds { pixels: input.pixels(), side, wanted: Some(output) };
        // Tables that do not depend on windows are stored in `Actions::fixed` and copied to
        // `Actions::table`, so they need twice the memory.
        let fixed = (2 * size_of::<i32>() * kinds.entries()) as u64;
        *tables = tables.saturating_add(fixed);
        let entries = operator.coefficients(bounds);
        if entries == 0 {
            return;
        }
        if entries > MOST_ENTRIES || output.width > MOST_COLUMNS {
            *tables = u64::MAX;
            return;
        }
        let resamples = kinds.list().iter().any(|it| it.is_executed(Execution::Resample));
        // A combinator may turn the image before it is resampled.
        let Size { width, height } =
            if kinds.list().len() > 1 { Size::new(side, side) } else { input };
        let taps = [Size::new(1, 0), Size::new(0, 1)].map(|output| {
            let taps = |pixels, side| {
                let one = Bounds { pixels, side, wanted: Some(output) };
                operator.coefficients(one).saturating_sub(2)
            };
            // A blur kernel has the same size on a 1x1 image, so it may have more taps than the
            // side has pixels.
            let pixels = if output.height == 0 { width } else { height };
            taps(bounds.pixels, side).min(taps(1, 1).max(pixels as usize))
        });
        // Weights are computed in f64 and then converted to entries.
        let weights = if resamples { size_of::<f64>() * taps[0].max(taps[1]) } else { 0 };
        let bytes = size_of::<i32>() * entries + weights;
        *tables = tables.saturating_add(bytes as u64);
        if !resamples {
            return;
        }
        let columns = Bounds { wanted: Some(Size::new(output.width, 0)), ..bounds };
        let columns = operator.coefficients(columns).min(entries);
        let table = TableBounds { entries, columns, taps };
        *scratch = scratch.max(ScratchBytes::most(table, output.width, width));
    }

    /// Doubles the memory of the passes if the format has an alpha channel, which is an image of
    /// its own.
    fn add_alpha(&mut self, format: PixelFormat) {
        if !format.has_alpha() {
            return;
        }
        let twice = |bytes: u64| bytes.saturating_mul(2);
        self.resampling = ScratchBytes(self.resampling.0.map(twice));
        self.windows = self.windows.map(twice);
        self.rows = twice(self.rows);
    }

    /// Adds the memory of the pixel rows that are stored between passes. Pointwise actions need a
    /// row of bytes and one of floats (`values` bytes each) with `line` columns. A stencil or warp
    /// needs a row of bytes with `read` columns.
    fn add_rows(&mut self, line: u32, values: usize, read: u32) {
        let line = u64::from(line) * (CHANNELS * (1 + values)) as u64;
        let read = u64::from(read) * CHANNELS as u64;
        self.rows = self.rows.saturating_add(line.saturating_add(read));
    }
}

fn smaller(a: Size, b: Size) -> Size {
    Size::new(a.width.min(b.width), a.height.min(b.height))
}
