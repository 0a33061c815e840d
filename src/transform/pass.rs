//! One pass: reads the rows of its input, applies pointwise actions, and stores the result.

use std::ops::Range;

use crate::error::DataError;
use crate::geometry::Roi;
use crate::image::{HostImage, Image, PixelType};
use crate::op::kind::Executor;
use crate::op::kind::statistics::Made;
use crate::op::kind::table::Floats;
use crate::op::wide::writer::{LineBuffer, TensorWriter};
use crate::op::wide::{Instructions, bytes};
use crate::op::{Actions, resample};
use crate::output::{RowPlace, Tail};
use crate::tensor::{CHANNELS, DType, Layout, TensorShape};

use super::images::Images;
use super::run::{Pixels, Row, Run};

/// Buffers of the passes of one thread.
pub struct Passes {
    shape: TensorShape,
    run: Run,
    /// Conversions of rows of bytes to tensors, one per number of channels, element type and
    /// layout. Views may have different ones, and their conversions alternate.
    bytes: Vec<LastTail>,
    /// Conversion of rows of floats to the tensor.
    floats: Tail,
    /// Row buffer for non-temporal stores. Without this buffer, tensors are written with ordinary
    /// stores.
    line: Option<Box<LineBuffer>>,
}

/// Conversion of bytes to tensor elements through a table of floats. It is kept for the next pass,
/// which often has the same table.
struct LastTail {
    channels: usize,
    dtype: DType,
    layout: Layout,
    values: Box<Floats>,
    tail: Tail,
}

/// Table that maps every byte to the same value as a float.
static PLAIN: Floats = {
    let mut values = [[0.0; 256]; CHANNELS];
    let mut at = 0;
    while at < 256 * CHANNELS {
        values[at / 256][at % 256] = (at % 256) as f32;
        at += 1;
    }
    values
};

/// One pass over the rows of its input. `source` is the window of the input.
pub struct Pass<'a> {
    run: &'a mut Run,
    source: Roi,
    sink: Sink<'a>,
}

enum Sink<'a> {
    Tensor { tail: &'a Tail, shape: TensorShape, out: TensorWriter<'a> },
    Image(HostImage),
}

/// Input of a pass: the rows that it reads.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Window of the rows.
    pub window: Roi,
    /// Pixel type of the rows.
    pub pixels: PixelType,
    /// Table that was computed for the first action, if that action needs statistics of the image.
    pub made: Option<&'a Made>,
}

impl Passes {
    pub fn new(shape: TensorShape) -> Self {
        let floats = Tail::of_floats(shape);
        Self { shape, run: Run::default(), bytes: Vec::new(), floats, line: None }
    }

    /// Shape of the tensors.
    pub fn shape(&self) -> TensorShape {
        self.shape
    }

    /// Sets the shape of the tensors.
    pub fn set_shape(&mut self, shape: TensorShape) {
        self.floats = Tail::of_floats(shape);
        self.shape = shape;
    }

    /// Sets whether tensors are written with non-temporal stores. This is faster if nothing reads
    /// them soon. Default: false.
    pub fn set_past_caches(&mut self, is_past: bool) {
        self.line = is_past.then(LineBuffer::new);
    }

    /// Begins a pass with the pointwise actions `which`. The pass stores the sample's tensor in
    /// `out`, or an image if `out` is `None`.
    pub fn begin<'a>(
        &'a mut self,
        actions: &Actions,
        which: Range<usize>,
        source: Source<'_>,
        out: Option<&'a mut [u8]>,
        images: &mut Images,
    ) -> Result<Pass<'a>, DataError> {
        let Self { shape, run, bytes, floats, line } = self;
        let Source { window, pixels, made } = source;
        let is_floats = pixels == PixelType::F32;
        run.begin(actions, which.clone(), window, is_floats, out.is_none(), made)?;
        let sink = match out {
            Some(out) => {
                let tail = match run.gives_floats() {
                    true => &*floats,
                    false => tail_for(bytes, run.values(), *shape),
                };
                Sink::Tensor {
                    tail,
                    shape: *shape,
                    out: TensorWriter::new(out, line.as_deref_mut()),
                }
            }
            None => {
                let pixels = if run.gives_floats() { PixelType::F32 } else { PixelType::U8 };
                let last = which.last();
                let window = last.map_or(window, |last| actions.list[last].output);
                Sink::Image(images.next(pixels, window)?)
            }
        };
        Ok(Pass { run, source: window, sink })
    }

    /// Returns the memory of the buffers, in bytes. The tables of the last conversion are not
    /// counted.
    pub fn capacity_bytes(&self) -> usize {
        self.run.capacity_bytes() + self.line.as_ref().map_or(0, |_| size_of::<LineBuffer>())
    }

    /// Frees the row buffers.
    pub fn release(&mut self) {
        self.run = Run::default();
    }
}

impl Pass<'_> {
    /// Processes row `y` of the pass's input.
    pub fn put(&mut self, y: u32, pixels: Pixels<'_>) {
        self.store(y.into(), self.source.x, Some(pixels));
    }

    /// Processes and stores row `y` of the pass's input. The first element of `pixels` is in column
    /// `first`.
    fn store(&mut self, y: i64, first: u32, pixels: Option<Pixels<'_>>) {
        if let Sink::Image(HostImage::U8(image)) = &mut self.sink
            && let Some(row) = self.run.straight(y)
        {
            self.run.bytes(y, first, pixels, image.row_mut(row));
        } else if let Some(row) = self.run.row(y, first, pixels) {
            self.sink.store(&row);
        }
    }

    /// Processes row `y` of the pass's input, whose bytes `make` computes. `make` writes directly
    /// into the result, or into `line` if the pass changes the columns.
    pub fn make(&mut self, y: u32, line: &mut [u8], make: impl FnOnce(&mut [u8])) {
        if let Sink::Image(HostImage::U8(image)) = &mut self.sink
            && self.run.keeps_columns(self.source)
            && let Some(row) = self.run.straight(y.into())
        {
            let out = image.row_mut(row);
            make(out);
            self.run.change(y.into(), out);
        } else {
            make(line);
            self.put_bytes(y, line);
        }
    }

    /// Processes all rows of `image`, which is the pass's input.
    pub fn put_image(&mut self, image: &Image<u8>) {
        match &mut self.sink {
            Sink::Image(HostImage::U8(out)) if self.run.keeps_places(self.source) => {
                self.run.image(image.data(), out.data_mut());
            }
            _ => {
                for y in self.source.y..self.source.bottom() {
                    self.put_bytes(y, image.row(y));
                }
            }
        }
    }

    /// Processes row `y` of the pass's input, which consists of bytes.
    pub fn put_bytes(&mut self, y: u32, row: &[u8]) {
        self.put(y, Pixels::Bytes(row));
    }

    /// Ends the pass after the last row of its input. Stores the rows of the result that lie
    /// outside the input. Returns the image, if one was stored.
    pub fn end(mut self) -> Option<HostImage> {
        let source = i64::from(self.source.y)..i64::from(self.source.bottom());
        for y in self.run.needed_rows().filter(|y| !source.contains(y)) {
            self.store(y, 0, None);
        }
        match self.sink {
            Sink::Tensor { .. } => None,
            Sink::Image(image) => Some(image),
        }
    }
}

impl Sink<'_> {
    fn store(&mut self, row: &Row<'_>) {
        match (self, row.pixels) {
            (Sink::Tensor { tail, shape, out }, pixels) => {
                let TensorShape { width, height, .. } = *shape;
                let (width, height) = (width as usize, height as usize);
                let place = RowPlace { width, height, y: row.y as usize, mirrored: row.mirrored };
                match pixels {
                    Pixels::Bytes(row) => tail.store_bytes(row, place, out),
                    Pixels::Floats(row) => tail.store_floats(row, place, out),
                }
            }
            (Sink::Image(HostImage::U8(image)), Pixels::Bytes(pixels)) => {
                let instructions = Instructions::here();
                keep(image, row, pixels, |from, to| bytes::reverse(from, to, instructions));
            }
            (Sink::Image(HostImage::F32(image)), Pixels::Floats(pixels)) => {
                keep(image, row, pixels, bytes::reverse_each);
            }
            (Sink::Image(_), _) => {
                unreachable!("the pixel type of the image equals that of its rows")
            }
        }
    }
}

/// Resampling with which a pass begins, and the crops before it.
#[derive(Clone, Copy, Debug)]
pub struct ResamplingAt<'a> {
    /// Index in the list of actions of the action that resamples.
    pub place: usize,
    pub params: &'a resample::Params,
    /// Number of columns on the left and of rows at the top that crops before the resampling cut
    /// off.
    pub cut: (u32, u32),
}

/// Finds the resampling at or after action `place`. Only crops inside the image may precede it.
/// Such a crop only selects pixels, so it needs no pass of its own.
pub fn resampling_at(actions: &Actions, place: usize, end: usize) -> Option<ResamplingAt<'_>> {
    let mut cut = (0, 0);
    for (at, action) in actions.list[..end].iter().enumerate().skip(place) {
        let executor = action.params.executor();
        if let Executor::Resample(params) = executor {
            return Some(ResamplingAt { place: at, params: &params.axes, cut });
        }
        let (x, y) = executor.inside_window()?;
        cut = (cut.0 + x, cut.1 + y);
    }
    None
}

/// Returns the conversion to tensor elements through the table `values`. It is computed again only
/// if the table differs from that of the previous pass.
fn tail_for<'a>(
    tails: &'a mut Vec<LastTail>,
    values: Option<&Floats>,
    shape: TensorShape,
) -> &'a Tail {
    let values = values.unwrap_or(&PLAIN);
    let TensorShape { channels, dtype, layout, .. } = shape;
    let is_same = |it: &LastTail| (it.channels, it.dtype, it.layout) == (channels, dtype, layout);
    let place = tails.iter().position(is_same).unwrap_or_else(|| {
        let (values, tail) = (Box::new(PLAIN), Tail::new(None, shape));
        tails.push(LastTail { channels, dtype, layout, values, tail });
        tails.len() - 1
    });
    let LastTail { values: of, tail, .. } = &mut tails[place];
    if **of != *values {
        **of = *values;
        tail.set(values);
    }
    tail
}

fn keep<T: Copy + Default>(
    image: &mut Image<T>,
    row: &Row<'_>,
    pixels: &[T],
    reverse: impl Fn(&[T], &mut [T]),
) {
    let out = image.row_mut(row.y);
    match row.mirrored {
        false => out.copy_from_slice(pixels),
        true => reverse(pixels, out),
    }
}
