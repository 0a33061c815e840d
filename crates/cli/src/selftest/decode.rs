//! Compares the pixels of every decode route with those of libjpeg-turbo. They must agree within
//! [`BOUND`]. If the CPU decodes, they must be equal.
//!
//! The bound is an estimate and was not confirmed on a GPU. Entropy decoding is exact. Decoders may
//! round differently in the inverse DCT (by one level of Y, Cb or Cr) and in the upsampling of
//! chroma (by another level). The conversion to RGB multiplies a chroma error by up to 1.772 and
//! adds the luma error. Together, these errors rarely reach four levels. Real errors, such as a
//! window that is off by one pixel, differ by tens of levels at every edge.

use std::sync::{Arc, OnceLock};

use feedwater::internals::geometry::Size;
use feedwater::internals::gpu::nvjpeg::window_verdict;
use feedwater::internals::header::Header;
use feedwater::internals::tensor::{DType, Layout};
use feedwater::loader::{DeviceChoice, LoaderBuilder, Outcome, SampleRecord};
use feedwater::op::{Chain, Crop, Placement, Resize};
use feedwater::plan::{LastBatch, Route};
use feedwater::source::Memory;

use super::difference::{Bound, Difference};
use super::gpu::Gpu;
use super::images::{self, SORTS};
use super::{Check, Epoch, Found, epoch, message};

/// Largest allowed difference between nvJPEG and libjpeg-turbo.
pub const BOUND: Bound = Bound { most: 4, mean: 0.5 };

/// Largest allowed difference if the decoder downscales the image.
///
/// libjpeg-turbo downscales by using the low frequencies of each block. How nvJPEG's engines
/// downscale is not documented. The other usual method is to average pixels. On these images,
/// averaged pixels differ from libjpeg-turbo's by up to 37 levels, and by 0.6 on average. An image
/// that is shifted by one pixel differs by up to 210 levels, and by 17 on average. The bound is
/// between these two cases.
const BOUND_REDUCED: Bound = Bound { most: 64, mean: 2.0 };

/// Size of the test images. They have many blocks, and partial blocks at the right and lower edges.
const SIZE: Size = Size::new(203, 149);

/// Number of test images of each kind of JPEG.
const PER_SORT: usize = 3;

/// Windows to decode, as x, y, width and height: the whole image, a window that begins and ends
/// inside blocks, the corners, borders of one pixel, and a single pixel.
const WINDOWS: [[u32; 4]; 11] = {
    let (right, bottom) = (SIZE.width, SIZE.height);
    [
        [0, 0, right, bottom],
        [33, 17, 101, 55],
        [0, 0, 9, 7],
        [right - 9, 0, 9, 7],
        [0, bottom - 7, 9, 7],
        [right - 9, bottom - 7, 9, 7],
        [0, 0, right, 1],
        [0, bottom - 1, right, 1],
        [0, 0, 1, bottom],
        [right - 1, 0, 1, bottom],
        [7, 91, 1, 1],
    ]
};

/// Sizes to which images are resized. For these sizes, the decoder downscales by 2, 4 and 8.
const REDUCED: [(u32, u32); 3] = [(100, 70), (50, 37), (25, 18)];

/// Yields the checks of one route after the other: one check per kind of JPEG, and another check if
/// the route downscales.
pub fn checks(gpu: &Gpu) -> impl Iterator<Item = Vec<Check>> {
    let expected = WINDOWS.iter().map(|&window| {
        let builder =
            builder(source()?, &crop(window)).configure(|it| it.decode.placement = Placement::Cpu);
        epoch(builder.device(DeviceChoice::Cpu))
    });
    let expected: Vec<_> = expected.collect();
    let routes = Route::ALL.into_iter().map(move |route| route_checks(gpu, route, &expected));
    std::iter::once_with(|| vec![windows(gpu)]).chain(routes)
}

/// Checks whether the JPEG engines decode windows. If they do not, loaders let the engines decode
/// whole images.
fn windows(gpu: &Gpu) -> Check {
    let name = "gpu/engines/windows";
    if let Err(why) = gpu.offers(Route::NvjpegHardware) {
        return Check::skip(name, why);
    }
    match window_verdict(&gpu.device, true) {
        Ok(Some(true)) => Check::new(name, Ok("the JPEG engines decode windows".into())),
        Ok(Some(false)) => {
            let found = "a process that gave windows to the JPEG engines crashed or got wrong pixels: whole images are decoded";
            Check::new(name, Ok(found.into()))
        }
        Ok(None) => Check::skip(
            name,
            "the check did not come to a result: its process did not start, or ended before the engines were used; whole images are decoded",
        ),
        Err(error) => Check::new(name, Err(message(error))),
    }
}

fn route_checks(gpu: &Gpu, route: Route, expected: &[Result<Epoch, String>]) -> Vec<Check> {
    let reduces = route.reduces();
    let names = SORTS.iter().map(|sort| sort.name).chain(reduces.then_some("prescale"));
    let name = |what: &str| format!("gpu/decode/route={}/{what}", route.name());
    if let Err(why) = gpu.offers(route) {
        return names.map(|what| Check::skip(name(what), why.clone())).collect();
    }
    let mut found = all_sorts(gpu, route, expected);
    if reduces {
        found.push(prescale(gpu, route));
    }
    names.zip(found).map(|(what, found)| Check::new(name(what), found)).collect()
}

/// Decodes every window of every image on a route, and compares the pixels for each kind of JPEG.
fn all_sorts(gpu: &Gpu, route: Route, expected: &[Result<Epoch, String>]) -> Vec<Found> {
    let mut sorts: Vec<_> = SORTS.iter().map(|_| Ok(Compared::default())).collect();
    for (&window, expected) in WINDOWS.iter().zip(expected) {
        let run = || epoch(gpu.on_route(builder(source()?, &crop(window)), route));
        let seen = expected.clone().and_then(|expected| Ok((expected, run()?)));
        for (sort, so_far) in sorts.iter_mut().enumerate() {
            let Ok(compared) = so_far else { continue };
            let added = match &seen {
                Ok((expected, actual)) => compared.add(route, sort, expected, actual),
                Err(error) => Err(error.clone()),
            };
            if let Err(problem) = added {
                let [x, y, width, height] = window;
                *so_far = Err(format!("window {width}x{height}+{x}+{y}: {problem}"));
            }
        }
    }
    sorts.into_iter().map(|compared| compared.and_then(|it| it.found(route))).collect()
}

/// Comparison of the windows of one kind of JPEG that were decoded so far.
#[derive(Default)]
struct Compared {
    difference: Difference,
    /// Reason why the route does not support this kind of JPEG. `None` if the route decodes it.
    left: Option<&'static str>,
}

impl Compared {
    fn add(
        &mut self,
        route: Route,
        sort: usize,
        expected: &Epoch,
        actual: &Epoch,
    ) -> Result<(), String> {
        let bytes = expected.data.len() / expected.records.len().max(1);
        for place in PER_SORT * sort..PER_SORT * (sort + 1) {
            let (Some(record), Some(file)) = (actual.records.get(place), files()?.get(place))
            else {
                return Err(format!("image {place} is missing"));
            };
            let header = Header::parse(file).map_err(|error| error.to_string())?;
            self.left = went(route, &header, record)?;
            let range = place * bytes..(place + 1) * bytes;
            let (a, b) = (expected.data.get(range.clone()), actual.data.get(range));
            let (Some(a), Some(b)) = (a, b) else {
                return Err(format!("image {place} has no pixels"));
            };
            let difference = Difference::between(a, b);
            if difference.most() > self.bound(route).most {
                difference.within(self.bound(route))?;
            }
            self.difference.add(difference);
        }
        Ok(())
    }

    /// Returns the bound for this kind of JPEG. It is 0 for images that the CPU decodes.
    fn bound(&self, route: Route) -> Bound {
        match (route.is_own(), self.left) {
            (false, None) => BOUND,
            _ => Bound { most: 0, mean: 0.0 },
        }
    }

    fn found(self, route: Route) -> Found {
        let found = self.difference.within(self.bound(route))?;
        Ok(match self.left {
            Some(why) => {
                format!(
                    "this route does not support the JPEGs ({why}), so the CPU decoded them: \
                     {found}"
                )
            }
            None => format!("{found}; {} windows", WINDOWS.len()),
        })
    }
}

/// Returns `None` if the route decoded the image, or the reason why the route does not support it.
fn went(
    route: Route,
    header: &Header,
    record: &SampleRecord,
) -> Result<Option<&'static str>, String> {
    let SampleRecord { index, outcome, cpu_fallback, .. } = *record;
    match (route.takes(header, 1), cpu_fallback) {
        (Ok(()), None) if outcome == Outcome::Decoded(route) => Ok(None),
        (Err(why), Some(told)) if why == told => Ok(Some(why)),
        (_, told) => {
            let told = told.map_or(String::new(), |told| format!(" ({told})"));
            Err(format!(
                "image {index} was decoded by {}{told} instead of the tested route",
                outcome.name()
            ))
        }
    }
}

/// Compares images that the decoder of a route downscales with the same images downscaled by
/// libjpeg-turbo.
fn prescale(gpu: &Gpu, route: Route) -> Found {
    let mut difference = Difference::default();
    let mut by_resizing = Difference::default();
    for (width, height) in REDUCED {
        let chain = Chain::new().then(Resize::to(width, height));
        let takes = |header: Header| [2, 4, 8].iter().all(|by| route.takes(&header, *by).is_ok());
        let files = files()?.iter().filter(|file| Header::parse(file).is_ok_and(takes));
        let files = files.map(|file| (file.clone(), 0)).collect();
        let source = Arc::new(Memory::new(files).map_err(message)?);
        let on_cpu = |prescale| {
            let builder = builder(source.clone(), &chain)
                .configure(|it| it.decode.placement = Placement::Cpu);
            epoch(builder.device(DeviceChoice::Cpu).configure(|it| it.decode.prescale = prescale))
        };
        let (expected, resized) = (on_cpu(true)?, on_cpu(false)?);
        let actual = epoch(
            gpu.on_route(builder(source.clone(), &chain), route)
                .configure(|it| it.decode.prescale = true),
        )?;
        let other = actual.records.iter().find(|record| record.outcome != Outcome::Decoded(route));
        if let Some(record) = other {
            let (index, outcome) = (record.index, record.outcome.name());
            return Err(format!(
                "resize to {width}x{height}: image {index} was decoded by {outcome} instead of \
                 the tested route"
            ));
        }
        difference.add(Difference::between(&expected.data, &actual.data));
        by_resizing.add(Difference::between(&expected.data, &resized.data));
    }
    if by_resizing == Difference::default() {
        return Err("the decoder does not downscale on the CPU".into());
    }
    let exact = Bound { most: 0, mean: 0.0 };
    let found = difference.within(if route.is_own() { exact } else { BOUND_REDUCED })?;
    let (most, mean) = (by_resizing.most(), by_resizing.mean());
    Ok(format!(
        "{found}; for comparison, decoding at full size and then resizing differs by up to {most} \
         levels, {mean:.3} on average"
    ))
}

fn builder(source: Arc<Memory>, chain: &Chain) -> LoaderBuilder {
    LoaderBuilder::new(source, chain.clone())
        .batch_size(PER_SORT * SORTS.len())
        .configure(|it| it.loader.tune = false)
        .num_workers(3)
        .last_batch(LastBatch::Partial)
        .shard(0, 1)
        .output(DType::U8, Layout::Nhwc)
}

fn crop([x, y, width, height]: [u32; 4]) -> Chain {
    Chain::new().then(Crop { x, y, width, height })
}

fn source() -> Result<Arc<Memory>, String> {
    let samples = files()?.iter().map(|file| (file.clone(), 0)).collect();
    Memory::new(samples).map(Arc::new).map_err(message)
}

/// Returns the test images, one kind of JPEG after the other. They are encoded only once.
fn files() -> Result<&'static [Vec<u8>], String> {
    static MADE: OnceLock<Result<Vec<Vec<u8>>, String>> = OnceLock::new();
    let make = || {
        let all = (0..PER_SORT * SORTS.len())
            .map(|place| images::jpeg(place as u64, SIZE, SORTS[place / PER_SORT]));
        all.collect()
    };
    MADE.get_or_init(make).as_deref().map_err(Clone::clone)
}
