//! Borders of the operator `pad` that repeat or mirror the image.

use bytemuck::{Pod, Zeroable};
use serde::Serialize;

use crate::geometry::{Roi, Size};
use crate::image::{HostImage, Image};
use crate::op::kind::{ActionKind, ImageFormula, Kind, Kinds, Movement, crop};
use crate::op::shared::padding::{Direction, PadMode, PaddedAxis, Padding, Run};
use crate::op::wide::{Instructions, bytes};
use crate::op::{Cuda, Draw, FieldError, Trace, Wanted};
use crate::tensor::CHANNELS;

/// Formula that adds a border of repeated or mirrored pixels: the modes `edge`, `reflect` and
/// `symmetric`.
pub enum Border {}

/// Kinds of the actions that [`draw_padded`] draws.
pub fn kinds_of_padded(mode: PadMode) -> Kinds {
    match mode {
        PadMode::Constant => Kinds::exactly([Kind::Crop]),
        _ => Kinds::up_to(2, [Kind::image::<Border>(), Kind::Crop]),
    }
}

/// Draws the actions that pad an image and then crop `size` pixels at position `(x, y)` of the
/// padded image. In the mode `constant`, one crop does both.
pub fn draw_padded(
    draw: &mut Draw<'_>,
    padding: Padding,
    mode: PadMode,
    fill: [f32; CHANNELS],
    (x, y): (i64, i64),
    size: Size,
) {
    let input = draw.size();
    match (padding.output(input), Params::new(padding, input, mode)) {
        (Some(padded), Some(params)) => {
            if padding != Padding::default() {
                draw.image::<Border>(&params, padded);
            }
            draw.crop((x, y), size, fill);
        }
        _ => draw.crop((x - i64::from(padding.left), y - i64::from(padding.top)), size, fill),
    }
}

/// Checks that a fill colour is set only in the mode `constant`, which is the only mode that uses
/// it.
pub fn check_mode(mode: PadMode, fill: [f32; CHANNELS]) -> Result<(), FieldError> {
    if mode != PadMode::Constant && fill != [0.0; CHANNELS] {
        let problem = format!(
            "is {fill:?}, but only mode = \"constant\" uses a fill colour; remove fill, or set \
             that mode"
        );
        return Err(FieldError::new("fill", problem));
    }
    Ok(())
}

/// Parameters of the border of one sample: padding on the left and at the top, size of the input,
/// and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable, Serialize)]
#[repr(C)]
pub struct Params {
    left: i32,
    top: i32,
    width: i32,
    height: i32,
    mode: i32,
    unused: i32,
}

impl Params {
    /// Parameters of a border around an image of size `input`. `None` for the mode `constant`,
    /// which a crop with a fill colour implements.
    pub fn new(padding: Padding, input: Size, mode: PadMode) -> Option<Self> {
        let mode = match mode {
            PadMode::Constant => return None,
            PadMode::Edge => 0,
            PadMode::Reflect => 1,
            PadMode::Symmetric => 2,
        };
        let Padding { left, top, .. } = padding;
        let (width, height) = (input.width as i32, input.height as i32);
        Some(Self { left, top, width, height, mode, unused: 0 })
    }

    fn mode(&self) -> PadMode {
        match self.mode {
            0 => PadMode::Edge,
            1 => PadMode::Reflect,
            _ => PadMode::Symmetric,
        }
    }

    fn padding(&self) -> Padding {
        Padding { left: self.left, top: self.top, right: 0, bottom: 0 }
    }

    fn input(&self) -> Size {
        Size::new(self.width as u32, self.height as u32)
    }

    fn axes(&self) -> (PaddedAxis, PaddedAxis) {
        let (padding, mode, input) = (self.padding(), self.mode(), self.input());
        (padding.columns(mode, input), padding.rows(mode, input))
    }
}

impl ImageFormula for Border {
    type Params = Params;
    const TAKES_DECODED_FLOATS: bool = true;
    const MOVEMENT: Movement = Movement::Axes;
    const CUDA: Option<Cuda> =
        Some(Cuda::new("Border", include_str!("../../../kernels/border.cu")));

    fn reference(params: &Params, src: &HostImage, out: &mut HostImage) {
        match (src, out) {
            (HostImage::U8(src), HostImage::U8(out)) => each(params, src, out),
            (HostImage::F32(src), HostImage::F32(out)) => each(params, src, out),
            _ => unreachable!("a border preserves the pixel type"),
        }
    }

    fn apply(params: &Params, src: &HostImage, out: &mut HostImage) {
        match (src, out) {
            (HostImage::U8(src), HostImage::U8(out)) => {
                let instructions = Instructions::here();
                rows(params, src, out, |from, to| bytes::reverse(from, to, instructions));
            }
            (HostImage::F32(src), HostImage::F32(out)) => {
                rows(params, src, out, bytes::reverse_each)
            }
            _ => unreachable!("a border preserves the pixel type"),
        }
    }

    fn demand(params: &mut Params, wanted: Wanted) -> Roi {
        params.padding().demand(params.mode(), params.input(), wanted.output)
    }

    /// Boxes move as with a border of one colour. Mirrored copies of an object have no box.
    fn trace(params: &Params, output: Size, trace: &mut Trace) {
        let position = (-i64::from(params.left), -i64::from(params.top));
        crop::Params::new(position, output, params.input(), [0.0; CHANNELS]).trace(output, trace);
    }

    fn origin(params: &Params, x: u32, y: u32) -> Option<(u32, u32)> {
        let (columns, rows) = params.axes();
        Some((columns.at(x)?, rows.at(y)?))
    }
}

fn each<T: Copy + Default>(params: &Params, src: &Image<T>, out: &mut Image<T>) {
    let (columns, rows) = params.axes();
    let window = out.window();
    for y in window.y..window.bottom() {
        for x in window.x..window.right() {
            // Every output pixel has an input pixel: only the mode `constant` has pixels without
            // one, and `constant` is a crop.
            if let (Some(column), Some(row)) = (columns.at(x), rows.at(y)) {
                out.set_pixel(x, y, src.pixel(column, row));
            }
        }
    }
}

/// Computes the same border as `each`, but copies each row in runs of adjacent columns.
fn rows<T: Copy + Default>(
    params: &Params,
    src: &Image<T>,
    out: &mut Image<T>,
    reverse: impl Fn(&[T], &mut [T]),
) {
    let (columns, rows) = params.axes();
    let (window, first) = (out.window(), src.window().x);
    for y in window.y..window.bottom() {
        // Every output row has an input row: only the mode `constant` has rows without one, and
        // `constant` is a crop.
        let Some(row) = rows.at(y) else { continue };
        let (row, mut out) = (src.row(row), out.row_mut(y));
        for Run { input, step, count } in columns.runs(window.x..window.right()) {
            let (at, len) = (CHANNELS * (input - first) as usize, CHANNELS * count as usize);
            let (to, after) = out.split_at_mut(len);
            out = after;
            match step {
                Direction::Up => to.copy_from_slice(&row[at..][..len]),
                Direction::Down => reverse(&row[..at + CHANNELS][at + CHANNELS - len..], to),
                Direction::Stays => {
                    let pixel = [row[at], row[at + 1], row[at + 2]];
                    to.as_chunks_mut().0.fill(pixel);
                }
            }
        }
    }
}
