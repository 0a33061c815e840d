//! Runs the kernels of the JPEG decoder, compiled for the host. Each array of the kernels has an
//! allocation of its own, which ends directly before unreadable memory.

mod compare;

use std::sync::Arc;

use feedwater::internals::decode::{
    DeviceImage, DeviceProblem, DeviceRefusal, Fingerprint, JPEG_KERNELS, JpegParams, RowIndex,
    jpeg_kernels_text,
};
use feedwater::internals::geometry::Roi;
use feedwater::internals::gpu::host_kernel::{Guarded, HostCompiler, HostKernel};
use feedwater::internals::header::{Header, JpegLayout};
use feedwater::internals::image::Planes;

pub use compare::{COMPARISONS, compare};

/// Result of the kernels for an image that is not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The file is damaged outside of its coded data.
    Damaged,
    /// The kernels were not launched.
    Refused(DeviceRefusal),
    /// The kernels found a problem.
    Problem(DeviceProblem),
}

/// An image to decode: the file, a window of the reduced image, and the reduction.
pub type Wanted<'a> = (&'a [u8], Roi, u32);

/// The kernels, compiled for the host.
pub struct JpegKernels {
    kernel: Arc<HostKernel>,
}

/// Memory of an image.
struct Arrays {
    image: DeviceImage,
    /// Offset of each array, and its memory.
    arrays: Vec<(usize, Guarded)>,
    samples: Guarded,
    params: JpegParams,
}

impl Arrays {
    fn new(
        (file, window, reduction): Wanted<'_>,
        index: Option<&RowIndex>,
        makes_index: bool,
    ) -> Result<Self, Failure> {
        let header = Header::parse_as(file, false).map_err(|_| Failure::Damaged)?;
        let mut layout = JpegLayout::default();
        header.layout(file, true, &mut layout).map_err(|_| Failure::Damaged)?;
        let mut image = DeviceImage::new(file, &header, &layout, (window, reduction), index)
            .map_err(Failure::Refused)?;
        if makes_index {
            image.make_index();
        }
        let memory = image.memory();
        let mut arrays: Vec<_> = memory
            .arrays()
            .into_iter()
            .map(|array| (array.start, Guarded::new(array.len())))
            .collect();
        let mut tables = vec![0; memory.tables().len()];
        let samples = Guarded::new(image.planes().bytes);
        let addresses: Vec<_> =
            arrays.iter().map(|(start, array)| (*start, array.as_ptr() as u64)).collect();
        let at = |offset: usize| addresses.iter().find(|it| it.0 == offset).unwrap().1;
        let params = image.write(&mut tables, at, samples.as_ptr() as u64);
        for (start, array) in &mut arrays {
            let bytes = array.bytes_mut();
            bytes.fill(0xcb);
            if *start < memory.data {
                let len = bytes.len();
                bytes.copy_from_slice(&tables[*start..][..len]);
            } else if *start == memory.data {
                bytes[..image.data().len()].copy_from_slice(&file[image.data()]);
            }
        }
        Ok(Self { image, arrays, samples, params })
    }

    /// Returns the row index that the kernels have made, or `None` after a problem.
    fn index(mut self, file: Fingerprint) -> Option<Vec<u8>> {
        let memory = self.image.memory();
        let of = |start: usize, arrays: &mut Vec<(usize, Guarded)>| {
            let found = arrays.iter_mut().find(|it| it.0 == start);
            found.map_or(Vec::new(), |it| it.1.bytes_mut().to_vec())
        };
        let problem = of(memory.problem, &mut self.arrays);
        let number = u32::from_ne_bytes(*problem.first_chunk().unwrap());
        // An image of one row has an index without entries.
        let bytes = match memory.made() {
            made if made.is_empty() => Vec::new(),
            made => of(made.start, &mut self.arrays),
        };
        DeviceProblem::of(number).is_none().then(|| self.image.row_index(&bytes, file).unwrap())
    }

    fn result(mut self) -> Result<(Planes, Vec<u8>), Failure> {
        let place = self.image.memory().problem;
        let (_, problem) = self.arrays.iter_mut().find(|it| it.0 == place).unwrap();
        let number = u32::from_ne_bytes(*problem.bytes_mut().first_chunk().unwrap());
        match DeviceProblem::of(number) {
            Some(problem) => Err(Failure::Problem(problem)),
            None => Ok((self.image.planes(), self.samples.bytes_mut().to_vec())),
        }
    }
}

impl JpegKernels {
    /// Compiles the kernels.
    pub fn new() -> Self {
        let text = jpeg_kernels_text();
        let kernel = HostCompiler::of_process().compile("jpeg", &text);
        Self { kernel: kernel.unwrap_or_else(|error| panic!("{error:?}")) }
    }

    /// Decodes images in the same launches. Returns planes, or the reason why there are none.
    pub fn planes(
        &self,
        images: &[(Wanted<'_>, Option<&RowIndex>)],
    ) -> Vec<Result<(Planes, Vec<u8>), Failure>> {
        let mut images: Vec<_> =
            images.iter().map(|(wanted, index)| Arrays::new(*wanted, *index, false)).collect();
        self.launch(&images.iter().filter_map(|it| it.as_ref().ok()).collect::<Vec<_>>());
        images.drain(..).map(|it| it.and_then(Arrays::result)).collect()
    }

    /// Returns the row index that the kernels make.
    pub fn index(&self, wanted: Wanted<'_>, file: Fingerprint) -> Option<Vec<u8>> {
        let image = Arrays::new(wanted, None, true).ok()?;
        self.launch(&[&image]);
        image.index(file)
    }

    fn launch(&self, here: &[&Arrays]) {
        let params: Vec<u8> = here.iter().flat_map(|it| it.params.bytes().to_vec()).collect();
        for kernel in JPEG_KERNELS {
            let blocks = here.iter().map(|it| kernel.blocks(&it.image)).max().unwrap_or(0);
            self.kernel.launch_blocks(kernel.name, &params, (here.len(), blocks), kernel.threads);
        }
    }

    /// Decodes the pixels of one image.
    pub fn decode(&self, wanted: Wanted<'_>, index: Option<&RowIndex>) -> Result<Vec<u8>, Failure> {
        let (planes, samples) = self.planes(&[(wanted, index)]).remove(0)?;
        Ok(pixels(&planes, &samples, wanted.1))
    }
}

impl Default for JpegKernels {
    fn default() -> Self {
        Self::new()
    }
}

/// Converts the planes of a window to interleaved red, green and blue, pixel by pixel.
pub fn pixels(planes: &Planes, samples: &[u8], window: Roi) -> Vec<u8> {
    let mut pixels = Vec::with_capacity(3 * window.size().pixels() as usize);
    for y in window.y..window.bottom() {
        for x in window.x..window.right() {
            pixels.extend(pixel(planes, samples, x as usize, y as usize));
        }
    }
    pixels
}

fn pixel(planes: &Planes, samples: &[u8], x: usize, y: usize) -> [u8; 3] {
    let [left, top] = [planes.part.x as usize, planes.part.y as usize];
    let luma = samples[(y - top) * planes.pitches[0] + x - left];
    if planes.is_gray {
        return [luma; 3];
    }
    let [h, v] = planes.ratio;
    let [wide, high] = planes.chroma_size;
    let [blue, red] = planes.chroma.map(|plane| {
        let of = |x: usize, y: usize| {
            let (x, y) = (x.min(wide - 1) - left / h, y.min(high - 1) - top / v);
            u32::from(samples[plane + y * planes.pitches[1] + x])
        };
        // The nearest sample and the second nearest.
        let axis = |at: usize| match at % 2 {
            0 => (at / 2, (at / 2).saturating_sub(1)),
            _ => (at / 2, at / 2 + 1),
        };
        let ((near, far), (row, other)) = (axis(x), axis(y));
        match [h, v] {
            [1, 1] => of(x, y),
            [2, 1] => (3 * of(near, y) + of(far, y) + 1 + x as u32 % 2) >> 2,
            [1, 2] => (3 * of(x, row) + of(x, other) + 1 + y as u32 % 2) >> 2,
            [4, 1] => of(x / 4, y),
            _ => {
                let sum = |x: usize| 3 * of(x, row) + of(x, other);
                (3 * sum(near) + sum(far) + 8 - x as u32 % 2) >> 4
            }
        }
    });
    let [cb, cr] = [blue, red].map(|it| it as i32 - 128);
    let [r, b] = [(91881 * cr + 32768) >> 16, (116130 * cb + 32768) >> 16];
    let g = (-22554 * cb - 46802 * cr + 32768) >> 16;
    [r, g, b].map(|it| (i32::from(luma) + it).clamp(0, 255) as u8)
}
