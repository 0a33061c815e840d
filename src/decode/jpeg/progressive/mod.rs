//! Progressive JPEGs. All scans are decoded to coefficients, then the window is transformed.
//!
//! An image is accepted if its scans code every bit of every coefficient once, from the highest to
//! the lowest. libjpeg-turbo decodes all other images: it smooths images in which bits are missing,
//! and has its own error recovery.
//!
//! `script` tracks which bits each scan codes. `scan` iterates over the blocks of a scan. `bands`,
//! in the parent folder, decodes AC coefficients. `store` holds the coefficients.

mod scan;
mod script;
mod store;

pub use store::memory_bytes;

use super::bands::AcCodes;
use super::frame::{Segments, Shape};
use super::huffman::{Code, DcTable};
use super::rows::{DecodedPart, Painter};
use super::{DecoderState, Feedwater, grown, most_rows};
use crate::decode::{Buffers, EncodedImage, JpegRefusal, RowSink};
use crate::error::DataError;
use crate::header::JpegLayout;

use scan::Walk;
use script::Script;
use store::Store;

/// Huffman tables of a scan.
#[derive(Debug)]
pub struct Tables {
    dc: [DcTable; 3],
    ac: AcCodes,
}

impl Tables {
    pub fn new() -> Self {
        let code = Code::EMPTY;
        Self { dc: std::array::from_fn(|_| DcTable::new(&code)), ac: AcCodes::new(&code) }
    }
}

impl Feedwater {
    /// Decodes the window of a progressive image. Returns a refusal if libjpeg-turbo must decode
    /// the image.
    pub(super) fn decode_progressive(
        &mut self,
        image: &EncodedImage<'_>,
        shape: Shape,
        buffers: &mut Buffers,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<JpegRefusal>, DataError> {
        let EncodedImage { bytes, window, reduction, layout, .. } = *image;
        let kernels = self.kernels;
        let state = self.state()?;
        let Some(mut segments) = Segments::new(bytes, shape) else {
            return Ok(Some(JpegRefusal::Header));
        };
        let part = DecodedPart::new(&shape, window, reduction as usize, kernels.step());
        let mut script = Script::new(shape);
        let mut store: Option<Store> = None;
        loop {
            let Some(found) = segments.next_scan() else { return Ok(Some(JpegRefusal::Header)) };
            let Some(body) = found else { break };
            let scan = match script.read(body, &segments) {
                Ok(scan) if script.scan_count <= JpegLayout::MOST_SCANS => scan,
                Ok(_) => return Ok(Some(JpegRefusal::Progressive)),
                Err(refusal) => return Ok(Some(refusal)),
            };
            let store = match &mut store {
                Some(store) => store,
                None => store.insert(Store::new(&shape, &part)?),
            };
            let DecoderState { clean, progressive, .. } = &mut *state;
            let walked = Walk::new(&scan, &segments, kernels, progressive, clean)
                .and_then(|mut walk| walk.run(&scan, store));
            let Some(len) = walked else { return Ok(Some(JpegRefusal::Data)) };
            segments.rest = &segments.rest[len..];
        }
        let (Some(steps), Some(store)) = (script.steps(), store) else {
            return Ok(Some(JpegRefusal::Progressive));
        };
        let planes = grown(&mut buffers.scratch, part.plane_bytes())?;
        let group = part.row_bytes(layout) * most_rows(window.height) as usize;
        let group = grown(&mut buffers.rows, group)?;
        state.set_quantization(&shape, steps);
        let DecoderState { blocks, sums, quantization, .. } = state;
        let mut painter = Painter {
            next: window.y,
            kernels,
            part: part.clone(),
            layout,
            quantization,
            planes,
            sums,
            group,
            sink,
        };
        for row in part.rows[0]..part.rows[1] {
            let [from, to] = part.columns;
            for column in (from..to).step_by(part.together) {
                let units = part.together.min(to - column);
                store.gather(row, column, units, blocks);
                if !painter.transform(column - from, blocks) {
                    return Ok(Some(JpegRefusal::Data));
                }
            }
            painter.paint(row);
        }
        Ok(None)
    }
}
