//! Writes a sample's actions as data of the program kernel.

use std::ops::Range;

use bytemuck::{Zeroable, bytes_of};

use crate::geometry::Orientation;
use crate::image::PixelType;
use crate::op::kernel_text::{FloatsParams, RoiParams};
use crate::op::kind::{Change, Execution, Executor, Move, Pointwise};
use crate::op::{Action, Actions, ParamBytes};

use super::data::{Addresses, Along, FillParams, Pass, Program, SourceBytes, Step, read, step};
use super::launches::Extent;
use super::passes::{self, Image, Passes, Reader};
use super::text::ProgramText;

impl ProgramText {
    /// Checks that the kernel can execute a sample's actions from number `first` on. An error if an
    /// operator drew more actions or other kinds than it declares.
    pub fn takes(&self, actions: &Actions, first: usize) -> Result<(), &'static str> {
        let list = &actions.list[first..];
        let passes: usize = list.iter().map(|it| Passes::most(it.params.kind())).sum();
        let known = list.iter().all(|it| self.has(it.params.kind()));
        let (most_passes, most_steps) = self.room();
        (known && passes < most_passes && list.len() <= most_steps)
            .then_some(())
            .ok_or("an operator drew actions that it does not declare")
    }

    /// Size in bytes of the larger scratch image that a sample's actions from number `first` on
    /// need. If `is_scratch`, `source` is in scratch memory too.
    pub fn scratch_bytes(actions: &Actions, first: usize, source: Image, is_scratch: bool) -> u64 {
        let passes = Passes::new(actions, first, source);
        let stored = passes.filter(|pass| !pass.is_last).map(|pass| pass.output.bytes());
        stored.fold(if is_scratch { source.bytes() } else { 0 }, u64::max)
    }

    /// Writes a sample's actions from number `first` on as data of the kernel. `leaf` has the
    /// parameters with which the source is read from memory. Without `leaf`, the source is the
    /// first scratch image. `header` is [`sample_bytes`](Self::sample_bytes) long, `body`
    /// [`passes_bytes`](Self::passes_bytes). The passes are added to `extent`.
    pub fn write(
        &self,
        (actions, first): (&Actions, usize),
        (source, leaf): (Image, Option<&[u8]>),
        at: &Addresses,
        (header, body): (&mut [u8], &mut [u8]),
        extent: &mut Extent,
    ) {
        let (most_passes, _) = self.room();
        let (body, statistics) = body.split_at_mut(self.statistics_at());
        // The memory may hold statistics of other samples.
        statistics.fill(0);
        let (pass_bytes, step_bytes) = body.split_at_mut(most_passes * size_of::<Pass>());
        let (mut count, mut steps) = (0, 0);
        let mut next = usize::from(leaf.is_none());
        let mut leaf = match leaf {
            Some(leaf) => ParamBytes::copied(leaf),
            None => scratch_leaf(at.scratch[0], &source),
        };
        for pass in Passes::new(actions, first, source) {
            let out = if pass.is_last { at.out } else { at.scratch[next] };
            let number = steps;
            let (columns, rows) = self.steps(actions, &pass, at, |step| {
                put(step_bytes, steps, &step);
                steps += 1;
            });
            let data = self.pass(
                actions,
                &pass,
                at,
                &leaf,
                Pass { out, steps: [number as i32, steps as i32], columns, rows, ..Pass::zeroed() },
            );
            put(pass_bytes, count, &data);
            let counted = if data.statistics >= 0 { pass.readable.size().pixels() } else { 0 };
            extent.add_pass(count, pass.output.window.size().pixels(), counted);
            count += 1;
            leaf = scratch_leaf(out, &pass.output);
            next = 1 - next;
        }
        let steps = at.passes + (most_passes * size_of::<Pass>()) as u64;
        let statistics = at.passes + self.statistics_at() as u64;
        let (passes, count) = (at.passes, count as i32);
        let program = Program { passes, steps, statistics, count, unused: 0 };
        header.copy_from_slice(bytes_of(&program));
    }

    /// Adds the rest of a pass's data: how the pass reads its input image, which statistics it
    /// needs, and its sizes.
    fn pass(
        &self,
        actions: &Actions,
        pass: &passes::Pass,
        at: &Addresses,
        leaf: &ParamBytes,
        data: Pass,
    ) -> Pass {
        let passes::Pass { source, readable, output, .. } = pass;
        let (reader, through) = match pass.reader {
            Reader::Source if source.pixels == PixelType::F32 => (read::FLOATS, None),
            Reader::Source => (read::BYTES, None),
            Reader::Across(place) => (read::ACROSS, Some(place)),
            Reader::Down(place) => (read::DOWN, Some(place)),
            Reader::Action(place) => {
                let kind = actions.list[place].params.kind();
                let own = kind.facts().program.reader;
                (own.unwrap_or_else(|| self.code(kind, source.pixels)), Some(place))
            }
        };
        let mut source_bytes: SourceBytes = padded(leaf.as_bytes());
        if let Some(place) = through {
            let params = action_params(actions, place, at);
            let params = params.as_bytes();
            source_bytes[leaf.as_bytes().len()..][..params.len()].copy_from_slice(params);
        }
        let first = actions.list[pass.actions.clone()].first().map(|it| it.params.kind());
        let statistics = match first.filter(|kind| kind.is_executed(Execution::Statistics)) {
            Some(kind) => self.code(kind, PixelType::U8),
            None => -1,
        };
        Pass {
            reader,
            statistics,
            floats: i32::from(output.pixels == PixelType::F32),
            stores_tensor: pass.is_last.into(),
            width: output.window.width as i32,
            height: output.window.height as i32,
            readable: [readable.x, readable.y, readable.right(), readable.bottom()]
                .map(|at| at as i32),
            whole: [source.whole.width, source.whole.height].map(|len| len as i32),
            planes: (source.pixels == PixelType::U8 && RoiParams::has_planes(leaf.as_bytes()))
                .into(),
            source: source_bytes,
            ..data
        }
    }

    /// Calls `put` with each step of a pass. Returns the positions that the pass reads.
    fn steps(
        &self,
        actions: &Actions,
        pass: &passes::Pass,
        at: &Addresses,
        mut put: impl FnMut(Step),
    ) -> (Along, Along) {
        let mut pixels = pass.read;
        for place in pass.actions.clone() {
            let action = &actions.list[place];
            let (columns, rows) = positions(actions, place..pass.actions.end, &pass.output);
            let own = || padded(action_params(actions, place, at).as_bytes());
            let (code, params) = match action.params.executor() {
                Executor::Pointwise(Pointwise { change, .. }) => match change {
                    Change::None => continue,
                    Change::Table => (step::TABLE, own()),
                    Change::FloatTable => (step::FLOAT_TABLE, own()),
                    Change::Pixel(..) => (self.code(action.params.kind(), pixels), own()),
                    Change::Fill { input: (right, bottom), fill } => {
                        let code = match pixels {
                            PixelType::U8 => step::FILL,
                            PixelType::F32 => step::FILL_FLOATS,
                        };
                        let (right, bottom) = (right as i32, bottom as i32);
                        let inside = FillParams { left: 0, top: 0, right, bottom, fill, unused: 0 };
                        (code, padded(bytes_of(&inside)))
                    }
                },
                Executor::Statistics(_) => match action.pixels(pixels) {
                    PixelType::U8 => (step::MADE, own()),
                    PixelType::F32 => (step::FLOATS_MADE, own()),
                },
                _ => continue,
            };
            pixels = action.pixels(pixels);
            put(Step { code, columns, rows, unused: 0, params });
        }
        positions(actions, pass.actions.clone(), &pass.output)
    }
}

/// Returns the maps from the pixels of a pass's output window to the positions that the pass reads.
/// These are positions in the input of the first of the pointwise actions `which`.
fn positions(actions: &Actions, which: Range<usize>, output: &Image) -> (Along, Along) {
    let mut columns = Along { at: output.window.x as i32, step: 1 };
    let mut rows = Along { at: output.window.y as i32, step: 1 };
    for Action { params, .. } in actions.list[which].iter().rev() {
        let Executor::Pointwise(Pointwise { moves, .. }) = params.executor() else { continue };
        match moves {
            Move::None => {}
            Move::Window { position: (x, y), .. } => {
                columns.at = columns.at.wrapping_add(x as i32);
                rows.at = rows.at.wrapping_add(y as i32);
            }
            Move::Mirror { horizontal, vertical, input: (width, height) } => {
                if horizontal {
                    columns = columns.mirrored(width as i32);
                }
                if vertical {
                    rows = rows.mirrored(height as i32);
                }
            }
        }
    }
    (columns, rows)
}

impl Along {
    fn mirrored(self, len: i32) -> Self {
        Self { at: (len - 1).wrapping_sub(self.at), step: -self.step }
    }
}

/// Parameters of an action, with the address of its table.
fn action_params(actions: &Actions, place: usize, at: &Addresses) -> ParamBytes {
    let action = &actions.list[place];
    let table = at.tables + (size_of::<i32>() * action.table.start) as u64;
    action.params.bytes(table)
}

/// Parameters for reading an image from scratch memory.
fn scratch_leaf(address: u64, image: &Image) -> ParamBytes {
    let Image { window, whole, pixels } = *image;
    let pitch = 3 * window.width;
    match pixels {
        PixelType::U8 => {
            ParamBytes::new(&RoiParams::new(address, pitch, window, whole, Orientation::UPRIGHT))
        }
        PixelType::F32 => ParamBytes::new(&FloatsParams::new(address, pitch, window)),
    }
}

fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut padded = [0; N];
    padded[..bytes.len()].copy_from_slice(bytes);
    padded
}

fn put<T: bytemuck::Pod>(all: &mut [u8], number: usize, one: &T) {
    all[number * size_of::<T>()..][..size_of::<T>()].copy_from_slice(bytes_of(one));
}
