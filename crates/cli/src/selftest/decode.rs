//! Every route alone against libjpeg-turbo: within [`BOUND`] of its pixels, and bit for bit where it is libjpeg-turbo
//! that decodes.
//!
//! The two agree in entropy decoding, which is exact, and may differ where they round: in the inverse DCT (by a level
//! of Y, Cb or Cr), in the interpolation of halved chroma (by another) and in the conversion to RGB, which multiplies
//! an error of chroma by up to 1.772 and adds that of luma. Four levels is where these meet, which is seldom. What is
//! really wrong, such as a window that is off by a pixel, differs by tens at every edge. The bound is chosen by this
//! reckoning; no GPU has confirmed it yet.

use std::sync::{Arc, OnceLock};

use feedwater::geometry::Size;
use feedwater::header::Header;
use feedwater::loader::{DeviceChoice, LoaderBuilder, Outcome, SampleRecord};
use feedwater::op::{Chain, Crop, Placement, Resize};
use feedwater::plan::{Last, Route};
use feedwater::source::Memory;
use feedwater::tensor::{DType, Layout};

use super::difference::{Bound, Difference};
use super::gpu::Gpu;
use super::images::{self, SORTS};
use super::{Check, Epoch, Found, epoch, words};

/// How far nvJPEG's pixels may be from libjpeg-turbo's.
pub const BOUND: Bound = Bound { most: 4, mean: 0.5 };

/// The same where the decoder reduces the image. libjpeg-turbo takes the low frequencies of each block; what the
/// engines do nobody says. The mean of the pixels that stand for one, which is the other usual way, differs from it by up
/// to 37 levels and by 0.6 on average in these images, and an image that is off by a pixel by 210 and by 17.
const BOUND_REDUCED: Bound = Bound { most: 64, mean: 2.0 };

/// Columns and rows of the images: no multiple of a block, and large enough for many.
const SIZE: Size = Size::new(203, 149);

/// Images of each sort.
const PER_SORT: usize = 3;

/// Windows as x, y, width, height: all, in the middle of blocks, corners, borders of one pixel, one pixel.
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

/// Sizes after resizing, for which the decoder reduces by 2, 4 and 8.
const REDUCED: [(u32, u32); 3] = [(100, 70), (50, 37), (25, 18)];

/// A check for every route and sort of JPEG, and for every route that reduces; route by route, when asked for.
pub fn checks(gpu: &Gpu) -> impl Iterator<Item = Vec<Check>> {
    let expected = WINDOWS.iter().map(|&window| {
        let builder = builder(source()?, &crop(window)).decode(Placement::Cpu);
        epoch(builder.device(DeviceChoice::Cpu))
    });
    let expected: Vec<_> = expected.collect();
    Route::ALL.into_iter().map(move |route| route_checks(gpu, route, &expected))
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

/// Decodes every window of every image by a route, and compares by sort of JPEG.
fn all_sorts(gpu: &Gpu, route: Route, expected: &[Result<Epoch, String>]) -> Vec<Found> {
    let mut sorts: Vec<_> = SORTS.iter().map(|_| Ok(Compared::default())).collect();
    for (&window, expected) in WINDOWS.iter().zip(expected) {
        let run = || epoch(gpu.on_route(builder(source()?, &crop(window)), route));
        let seen = expected.clone().and_then(|expected| Ok((expected, run()?)));
        for (sort, so_far) in sorts.iter_mut().enumerate() {
            let Ok(compared) = so_far else { continue };
            let added = match &seen {
                Ok((expected, given)) => compared.add(route, sort, expected, given),
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

/// The windows of one sort of JPEG so far.
#[derive(Default)]
struct Compared {
    difference: Difference,
    /// Why the route leaves this sort to the CPU.
    left: Option<&'static str>,
}

impl Compared {
    fn add(
        &mut self,
        route: Route,
        sort: usize,
        expected: &Epoch,
        given: &Epoch,
    ) -> Result<(), String> {
        let bytes = expected.data.len() / expected.records.len().max(1);
        for place in PER_SORT * sort..PER_SORT * (sort + 1) {
            let (Some(record), Some(file)) = (given.records.get(place), files()?.get(place)) else {
                return Err(format!("image {place} is missing"));
            };
            let header = Header::parse(file).map_err(|fault| fault.to_string())?;
            self.left = went(route, &header, record)?;
            let range = place * bytes..(place + 1) * bytes;
            let (a, b) = (expected.data.get(range.clone()), given.data.get(range));
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

    /// What libjpeg-turbo decodes has its bits.
    fn bound(&self, route: Route) -> Bound {
        match (route.on_device(), self.left) {
            (true, None) => BOUND,
            _ => Bound { most: 0, mean: 0.0 },
        }
    }

    fn found(self, route: Route) -> Found {
        let found = self.difference.within(self.bound(route))?;
        Ok(match self.left {
            Some(why) => format!("not for this route ({why}), so made on the CPU: {found}"),
            None => format!("{found}; {} windows", WINDOWS.len()),
        })
    }
}

/// Whether an image went by the route, or, where the route does not take it, why not.
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
            Err(format!("image {index} went by {}{told}", outcome.name()))
        }
    }
}

/// Reduction inside the decoder against libjpeg-turbo's.
fn prescale(gpu: &Gpu, route: Route) -> Found {
    let mut difference = Difference::default();
    let mut by_resizing = Difference::default();
    for (width, height) in REDUCED {
        let chain = Chain::new().then(Resize::to(width, height));
        let files = files()?
            .iter()
            .filter(|file| Header::parse(file).is_ok_and(|header| route.takes(&header, 2).is_ok()));
        let files = files.map(|file| (file.clone(), 0)).collect();
        let source = Arc::new(Memory::new(files).map_err(words)?);
        let on_cpu = |prescale| {
            let builder = builder(source.clone(), &chain).decode(Placement::Cpu);
            epoch(builder.device(DeviceChoice::Cpu).prescale(prescale))
        };
        let (expected, resized) = (on_cpu(true)?, on_cpu(false)?);
        let given = epoch(gpu.on_route(builder(source.clone(), &chain), route).prescale(true))?;
        let other = given.records.iter().find(|record| record.outcome != Outcome::Decoded(route));
        if let Some(record) = other {
            let (index, outcome) = (record.index, record.outcome.name());
            return Err(format!("to {width}x{height}: image {index} went by {outcome}"));
        }
        difference.add(Difference::between(&expected.data, &given.data));
        by_resizing.add(Difference::between(&expected.data, &resized.data));
    }
    if by_resizing == Difference::default() {
        return Err("the decoder reduces nothing on the CPU".into());
    }
    let exact = Bound { most: 0, mean: 0.0 };
    let found = difference.within(if route.on_device() { BOUND_REDUCED } else { exact })?;
    let (most, mean) = (by_resizing.most(), by_resizing.mean());
    Ok(format!("{found}; without reduction it would be {most} levels and {mean:.3}"))
}

fn builder(source: Arc<Memory>, chain: &Chain) -> LoaderBuilder {
    LoaderBuilder::new(source, chain.clone())
        .batch(PER_SORT * SORTS.len())
        .tune(false)
        .workers(3)
        .last(Last::Partial)
        .shard(0, 1)
        .output(DType::U8, Layout::Nhwc)
}

fn crop([x, y, width, height]: [u32; 4]) -> Chain {
    Chain::new().then(Crop { x, y, width, height })
}

fn source() -> Result<Arc<Memory>, String> {
    let samples = files()?.iter().map(|file| (file.clone(), 0)).collect();
    Memory::new(samples).map(Arc::new).map_err(words)
}

/// The images, sort after sort, made once.
fn files() -> Result<&'static [Vec<u8>], String> {
    static MADE: OnceLock<Result<Vec<Vec<u8>>, String>> = OnceLock::new();
    let make = || {
        let all = (0..PER_SORT * SORTS.len())
            .map(|place| images::jpeg(place as u64, SIZE, SORTS[place / PER_SORT]));
        all.collect()
    };
    MADE.get_or_init(make).as_deref().map_err(Clone::clone)
}
