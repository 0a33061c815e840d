//! Compares all implementations of a chain of operators on one image.

use std::sync::Arc;

use crate::decode::Decoders;
use crate::error::Error;
use crate::geometry::{Orientation, Roi, Size};
use crate::gpu::host_kernel::Tiles;
use crate::header::{Header, PnmHead};
use crate::image::{HostImage, Image, PixelType, Planes};
use crate::op::device_chain::{Block, DeviceChain, Sample};
use crate::op::kernel_text::{FloatsParams, Leaf, RoiParams};
use crate::op::kind::{self, mix::Mixer};
use crate::op::program::{Addresses, Extent};
use crate::op::{Action, Actions, Chain, Crop, Kind, Kinds, Operator, Placement, Trace};
use crate::output;
use crate::plan::{DeviceFacts, Facts, Plan, SamplePlan, Settings};
use crate::random::SampleKey;
use crate::tensor::{CHANNELS, DType, Layout, TensorShape};
use crate::transform::{HostTransform, PlannedImage};

use super::error::{Difference, Implementation, ParityError};
use super::kernels::{Entry, Executor, Kernels};
use super::values::{Found, of_images, of_tensors};

/// Inputs of a comparison of all implementations of a chain of operators on one image.
#[derive(Clone)]
pub struct Case<'a> {
    /// Operators of the chain, in order.
    pub operators: &'a [Arc<dyn Operator>],
    /// Number of operators that run on the host before the kernel.
    pub on_host: usize,
    /// Stored image.
    pub stored: &'a Image<u8>,
    /// Orientation of the stored image.
    pub orientation: Orientation,
    /// Factor by which the decoder shrinks the image. The operators are planned for the size before
    /// shrinking.
    pub reduction: u32,
    /// Element type of the tensor.
    pub dtype: DType,
    /// Memory order of the tensor.
    pub layout: Layout,
    /// Key of the sample's random numbers.
    pub key: SampleKey,
    /// Where the compared kernels run: nowhere, on the host, or on a GPU.
    pub kernels: Kernels<'a>,
    /// Returns planes of samples for a window of the stored image, and their layout. The kernels
    /// then read these planes in place of the stored image, which must have the same pixels.
    pub planes: Option<&'a dyn Fn(Roi) -> (Planes, Vec<u8>)>,
    /// Kinds of actions that the program kernel supports besides those of this chain. One compiled
    /// kernel can then serve many chains, which saves compile time.
    pub known: &'a [Kind],
}

/// Launches that are tested, in this order: one thread per pixel; tiles as on a device; small tiles
/// whose shared memory is too small for one strip of columns; tiles whose shared memory is too
/// small for the widest rows.
const LAUNCHES: [Option<Tiles>; 4] = [
    None,
    Some(Tiles { columns: 2, rows: 1, threads: 224, shared_bytes: PITCHED }),
    Some(Tiles { columns: 2, rows: 3, threads: 96, shared_bytes: 20 << 10 }),
    Some(Tiles { columns: 1, rows: 6, threads: 64, shared_bytes: 10 << 10 }),
];

/// Shared memory of one of the launches, in bytes. The images of this launch have rows that begin
/// at multiples of 16 bytes, as in a loader's pages.
const PITCHED: u32 = 56 << 10;

/// Number of padding values between the rows of an image, in all launches except the one with
/// `PITCHED` bytes of shared memory.
const GAP: usize = 5;

impl Case<'_> {
    /// Compares all implementations of the chain with its reference implementation.
    ///
    /// # Errors
    ///
    /// Fails with the first difference, or with the reason why a comparison is impossible.
    pub fn check(&self) -> Result<(), ParityError> {
        let (first, actions) = self.plan()?;
        let images = self.run(&actions, first)?;
        let last = images.last().expect("the list always contains the decoded image");
        let expected = self.store(last);
        self.check_rows(&actions, &images, &expected)?;
        self.check_kernels(&actions, &images, &expected)
    }

    /// Draws the actions of all operators and computes the window of each action, as a loader's
    /// plan does. Returns the window to decode, and the actions.
    fn plan(&self) -> Result<(Roi, Actions), ParityError> {
        let decoded = self.orientation.upright_size(self.stored.window().size());
        let full = Size::new(decoded.width * self.reduction, decoded.height * self.reduction);
        let (mut size, mut pixels, mut channels) = (full, PixelType::U8, CHANNELS);
        let mut actions = Actions::default();
        for (place, op) in self.operators.iter().enumerate() {
            op.check().map_err(|error| {
                self.invalid(format!("{}.{}: {}", op.name(), error.field, error.problem))
            })?;
            pixels = op.pixels(pixels).map_err(|problem| self.invalid(problem))?;
            channels = op.channels(channels).map_err(|problem| self.invalid(problem))?;
            let operators = self.operators[..=place].iter().map(|op| &**op);
            let output = actions.draw(operators, self.key, full, &mut Trace::default());
            if let Some(fixed) = op.fixed_output(Some(size))
                && fixed != output
            {
                let problem =
                    format!("fixed_output of {op:?} returns {fixed}, but draw returns {output}");
                return Err(self.invalid(problem));
            }
            self.check_kinds(&**op, &actions.list[actions.end(place)..])?;
            size = output;
        }
        let stored = self.orientation.upright_size(full);
        let padding = self.orientation.padding(stored, self.reduction);
        let window = actions.demand_reduced(self.reduction, padding, size.window());
        for (place, action) in actions.list.iter().enumerate() {
            let size = match place.checked_sub(1) {
                Some(before) => actions.list[before].whole,
                None => decoded,
            };
            if action.input.is_empty() || !size.window().contains(action.input) {
                let (params, input) = (&action.params, action.input);
                let problem = format!(
                    "the action {params:?} demands the window {input} of an image of {size}, \
                     which is empty or not inside of the image"
                );
                return Err(self.invalid(problem));
            }
        }
        Ok((window, actions))
    }

    /// Checks that an operator drew the kinds of actions that it declares.
    fn check_kinds(&self, op: &dyn Operator, drawn: &[Action]) -> Result<(), ParityError> {
        let kinds = op.kinds();
        let same = |kind: &Kind, action: &Action| kind.is(action.params.kind());
        let declared = match kinds.is_exact() {
            true => {
                kinds.list().len() == drawn.len()
                    && kinds.list().iter().zip(drawn).all(|(kind, action)| same(kind, action))
            }
            false => {
                drawn.len() <= kinds.most()
                    && drawn.iter().all(|it| kinds.list().iter().any(|kind| same(kind, it)))
            }
        };
        if declared {
            return Ok(());
        }
        let drawn: Vec<_> = drawn.iter().map(|action| action.params.kind()).collect();
        Err(self.invalid(format!(
            "{op:?} declares the kinds {kinds:?}, but draw returns actions of the kinds {drawn:?}"
        )))
    }

    fn upright(&self) -> Image<u8> {
        let size = self.stored.window().size();
        let mut upright = Image::new(self.orientation.upright_size(size).window());
        let window = upright.window();
        for y in 0..window.height {
            for x in 0..window.width {
                let (sx, sy) = self.orientation.stored_position(size, x, y);
                upright.set_pixel(x, y, self.stored.pixel(sx, sy));
            }
        }
        upright
    }

    /// Runs the reference implementation of every action. Returns the decoded image, followed by
    /// the output of every action. Fails if the fast implementation of an image action gives other
    /// pixels than its reference.
    fn run(&self, actions: &Actions, first: Roi) -> Result<Vec<HostImage>, ParityError> {
        let mut images = vec![HostImage::U8(cut(&self.upright(), first))];
        let mut mixer = Mixer::default();
        for (place, action) in actions.list.iter().enumerate() {
            let src = &images[place];
            let pixels = action.pixels(src.pixels());
            let mut out = HostImage::new(pixels, action.output);
            action.params.reference(actions.table_of(place), src, &mut out, &mut mixer);
            if let kind::Executor::Whole(whole) = action.params.executor() {
                let mut fast = HostImage::new(pixels, action.output);
                whole.image(src, &mut fast);
                self.same(Implementation::FastPath, of_images(&out, &fast))?;
            }
            images.push(out);
        }
        Ok(images)
    }

    fn store(&self, image: &HostImage) -> Vec<u8> {
        let shape = self.shape(image.window().size());
        let bytes = shape.bytes();
        let mut out = vec![0u32; bytes.div_ceil(4)];
        let out = &mut bytemuck::cast_slice_mut::<_, u8>(&mut out)[..bytes];
        output::store(image, shape, out);
        out.to_vec()
    }

    /// Compares the CPU path of a loader with the reference, on a PNM file. Checks the output of
    /// the whole chain, and the output of the operators before the kernel. Does nothing if the
    /// image is reduced, because the PNM decoder cannot reduce images.
    fn check_rows(
        &self,
        actions: &Actions,
        images: &[HostImage],
        expected: &[u8],
    ) -> Result<(), ParityError> {
        if self.reduction != 1 {
            return Ok(());
        }
        let size = images.last().map_or(Size::default(), |last| last.window().size());
        // A plan requires a fixed output size. The added crop fixes the size and keeps all pixels.
        let whole = Crop { x: 0, y: 0, width: size.width, height: size.height };
        let chain = self
            .operators
            .iter()
            .fold(Chain::new(), |chain, op| chain.then_any(Placement::Cpu, op.clone()))
            .then_on(Placement::Cpu, whole);
        let mut settings = Settings::default();
        (settings.output.dtype, settings.output.layout) = (self.dtype, self.layout);
        let device = DeviceFacts::None("the CPU is compared".into());
        let facts = Facts { samples: 1, cores: 1, device, ..Facts::default() };
        let plan = Plan::new(&chain, &settings, &facts)?;
        let head = PnmHead::rgb(self.stored.window().size());
        let file = [head.bytes(), self.stored.data()].concat();
        let mut found = vec![0u32; expected.len().div_ceil(4)];
        let found = &mut bytemuck::cast_slice_mut::<_, u8>(&mut found)[..expected.len()];
        let mut transform = HostTransform::new(&plan);
        let mut make = |is_past_caches, found: &mut [u8]| {
            transform.set_past_caches(is_past_caches);
            let mut header = Header::parse(&file)?;
            header.orientation = self.orientation;
            let mut sample = SamplePlan::default();
            plan.sample(self.key, &header, &mut sample)?;
            let image =
                PlannedImage { bytes: &file, header: &header, plan: &plan, sample: &sample };
            transform.run(image, &mut Decoders::new(), found)?;
            transform.run_prefix(image, &mut Decoders::new(), self.on_host)
        };
        for is_past_caches in [false, true] {
            found.fill(0);
            make(is_past_caches, found).map_err(|error| self.invalid(error.to_string()))?;
            self.same(Implementation::Rows, of_tensors(self.shape(size), expected, found))?;
        }
        let prefix = &images[actions.end(self.on_host)];
        self.same(Implementation::Rows, of_images(prefix, transform.image()))
    }

    /// Compares the kernels that a plan can choose with the reference: a fused kernel, a program
    /// kernel, or a fused kernel followed by a program kernel.
    fn check_kernels(
        &self,
        actions: &Actions,
        images: &[HostImage],
        expected: &[u8],
    ) -> Result<(), ParityError> {
        let last = images.last().expect("the list always contains the decoded image");
        let shape = self.shape(last.window().size());
        let first = actions.end(self.on_host);
        let leaf = Leaf::of(images[first].pixels());
        let kinds: Vec<Kind> = actions.list[first..].iter().map(|it| it.params.kind()).collect();
        if kinds.iter().any(|kind| kind.cuda().is_none()) {
            return Ok(());
        }
        let known = Kinds::up_to(kinds.len(), [self.known, &kinds].concat());
        let mut chains = vec![DeviceChain::program(leaf, &[&known], last.pixels(), shape)];
        if !matches!(self.kernels, Kernels::HostPrograms(_)) {
            if kinds.iter().all(|kind| kind.facts().nests) {
                chains.push(DeviceChain::fused(leaf, kinds.clone(), shape));
            }
            let declared: Vec<Kinds> =
                self.operators[self.on_host..].iter().map(|op| op.kinds()).collect();
            // No sample uses these additional kinds. With them, the kernel source is the same for
            // many chains and is compiled only once.
            let more = (!self.known.is_empty()).then(|| Kinds::up_to(0, self.known));
            let planned =
                DeviceChain::new(leaf, &declared.iter().chain(&more).collect::<Vec<_>>(), shape);
            if planned.fused.is_some() && planned.program.is_some() {
                chains.push(planned);
            }
        }
        for chain in &chains {
            let tiled = chain.fused.as_ref().is_some_and(|text| text.tiled);
            let launches = if tiled { &LAUNCHES } else { &LAUNCHES[..1] };
            for &tiles in launches {
                let Some(mut executor) = self.kernels.executor()? else { return Ok(()) };
                let form = executor.form(chain, tiles.is_some());
                for found in self.launch(&mut *executor, chain, actions, &images[first], tiles)? {
                    self.same(form, of_tensors(shape, expected, &found))?;
                }
            }
        }
        Ok(())
    }

    /// Runs the kernels on two copies of the same sample, and returns both tensors.
    fn launch(
        &self,
        executor: &mut dyn Executor,
        chain: &DeviceChain,
        actions: &Actions,
        image: &HostImage,
        tiles: Option<Tiles>,
    ) -> Result<[Vec<u8>; 2], ParityError> {
        let pitched = tiles.is_some_and(|tiles| tiles.shared_bytes == PITCHED);
        let (leaf, first) = (self.leaf(executor, image, pitched)?, actions.end(self.on_host));
        let whole = match first.checked_sub(1) {
            Some(last) => actions.list[last].whole,
            None => self.orientation.upright_size(self.stored.window().size()),
        };
        let sample = Sample { actions, first, input: (image.window(), whole), leaf: &leaf };
        chain.takes(&sample).map_err(|problem| self.invalid(problem.into()))?;
        let tables = executor.put(bytemuck::cast_slice(&actions.table))?;
        let tensor = actions.list.last().map_or(whole, |last| last.output.size());
        let bytes = self.shape(tensor).bytes();
        let scratch_bytes = chain.scratch_bytes(&sample) as usize;
        let (mut outs, mut extent) = ([0; 2], Extent::default());
        let [mut fused, mut program] = [const { Vec::new() }; 2];
        for out in &mut outs {
            *out = executor.room(bytes)?;
            let scratch = [executor.room(scratch_bytes)?, executor.room(scratch_bytes)?];
            let mut at = Addresses { out: *out, scratch, tables, passes: 0 };
            let mut write = |at: &Addresses| {
                let mut parts = [chain.fused_bytes(), chain.program_bytes(), chain.passes_bytes()]
                    .map(|bytes| vec![0; bytes]);
                let [fused, program, passes] = &mut parts;
                chain.write(&sample, at, Block { fused, program, passes }, &mut extent);
                parts
            };
            // The passes do not contain their own address. So they are written first, and their
            // address is then passed to the other parts.
            at.passes = executor.put(&write(&at)[2])?;
            let [one, two, _] = write(&at);
            fused.extend(one);
            program.extend(two);
        }
        if let Some(text) = &chain.fused {
            executor.launch(&Entry::fused(text, tiles), &fused, extent.fused)?;
        }
        if let Some(text) = &chain.program {
            executor.launch_program(text, &program, &extent)?;
        }
        Ok([executor.read(outs[0], bytes)?, executor.read(outs[1], bytes)?])
    }

    /// Copies an image to memory with padded rows, and returns the kernel parameters that describe
    /// the image.
    fn leaf(
        &self,
        executor: &mut dyn Executor,
        image: &HostImage,
        pitched: bool,
    ) -> Result<Vec<u8>, Error> {
        let window = image.window();
        let pitch_of = |window: Roi| match pitched {
            true => window.pitch_bytes(),
            false => 3 * window.width + GAP as u32,
        };
        let mut bytes_leaf = |image: &Image<u8>, whole, turn| {
            let window = image.window();
            let address = executor.put(&in_rows(image, pitch_of(window)))?;
            let leaf = RoiParams::new(address, pitch_of(window), window, whole, turn);
            Ok(bytemuck::bytes_of(&leaf).to_vec())
        };
        match image {
            HostImage::U8(_) if self.on_host == 0 => {
                let stored = self.stored.window().size();
                let window = self.orientation.stored_window(stored, window);
                if let Some(planes) = self.planes {
                    let (planes, samples) = planes(window);
                    return planes_leaf(executor, &planes, &samples, stored, self.orientation);
                }
                bytes_leaf(&cut(self.stored, window), stored, self.orientation)
            }
            HostImage::U8(image) => {
                let whole = Size::new(window.right(), window.bottom());
                bytes_leaf(image, whole, Orientation::UPRIGHT)
            }
            HostImage::F32(image) => {
                let address = executor.put(bytemuck::cast_slice(&spread(image, GAP)))?;
                let pitch = 3 * window.width + GAP as u32;
                Ok(bytemuck::bytes_of(&FloatsParams::new(address, pitch, window)).to_vec())
            }
        }
    }

    fn shape(&self, Size { width, height }: Size) -> TensorShape {
        let channels = |input, op: &Arc<dyn Operator>| op.channels(input).unwrap_or(input);
        let channels = self.operators.iter().fold(CHANNELS, channels);
        let (dtype, layout) = (self.dtype, self.layout);
        TensorShape { batch: 1, width, height, channels, dtype, layout }
    }

    fn same(&self, form: Implementation, found: Option<Found>) -> Result<(), ParityError> {
        let Some((x, y, channel, expected, found)) = found else { return Ok(()) };
        let (input, case) = (self.stored.window().size(), self.describe());
        let difference = Difference { form, input, x, y, channel, expected, found, case };
        Err(ParityError::Differs(Box::new(difference)))
    }

    fn invalid(&self, problem: String) -> ParityError {
        ParityError::Invalid { problem, case: self.describe() }
    }

    fn describe(&self) -> String {
        format!(
            "case: operators {:?}, {} of them on the host, image {} {:?} reduced by {}, output {} \
             {}, key {:?}",
            self.operators,
            self.on_host,
            self.stored.window().size(),
            self.orientation,
            self.reduction,
            self.dtype,
            self.layout,
            self.key
        )
    }
}

fn cut(image: &Image<u8>, window: Roi) -> Image<u8> {
    let mut out = Image::new(window);
    for y in window.y..window.bottom() {
        for x in window.x..window.right() {
            out.set_pixel(x, y, image.pixel(x, y));
        }
    }
    out
}

/// Copies each plane to memory of its own, which ends before unreadable memory, and returns the
/// kernel parameters that describe the planes.
fn planes_leaf(
    executor: &mut dyn Executor,
    planes: &Planes,
    samples: &[u8],
    stored: Size,
    turn: Orientation,
) -> Result<Vec<u8>, Error> {
    let mut addresses = [0; 3];
    let [blue, red] = if planes.is_gray { [planes.bytes; 2] } else { planes.chroma };
    let parts = [0..blue, blue..red, red..planes.bytes];
    for (address, part) in addresses.iter_mut().zip(parts).filter(|(_, part)| !part.is_empty()) {
        *address = executor.put(&samples[part])?;
    }
    let leaf = RoiParams::planes(addresses, planes, stored, turn);
    Ok(bytemuck::bytes_of(&leaf).to_vec())
}

/// Bytes of an image whose rows begin `pitch` bytes apart.
fn in_rows(image: &Image<u8>, pitch: u32) -> Vec<u8> {
    let window = image.window();
    let mut rows = vec![0; pitch as usize * window.height as usize];
    for (row, y) in rows.chunks_exact_mut(pitch as usize).zip(window.y..) {
        row[..image.row(y).len()].copy_from_slice(image.row(y));
    }
    rows
}

fn spread<T: Copy + Default>(image: &Image<T>, gap: usize) -> Vec<T> {
    let window = image.window();
    let gap = vec![T::default(); gap];
    (window.y..window.bottom()).flat_map(|y| [image.row(y), &gap].concat()).collect()
}
