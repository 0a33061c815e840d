//! Segments of a JPEG before its coded data: the tables that the decoder needs, and the reasons for
//! which it refuses an image.

use super::blocks::MOST_BLOCKS;
use super::huffman::Code;
use crate::decode::jpeg_choice::JpegRefusal;
use crate::geometry::Size;
use crate::header::{ColorSpace, Format, FrameKind, Header, Sampling};

/// Position in a block, counted row by row, of each coefficient in zigzag order (T.81, figure A.6).
pub const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// Maximum width and height of an image, as in libjpeg (`JPEG_MAX_DIMENSION`).
const MOST_SIDE: u32 = 65500;

/// Shape of an image and of its MCUs (minimum coded units).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub size: Size,
    pub is_gray: bool,
    /// Blocks of luma per MCU, horizontally and vertically. Each chroma component has one block
    /// per MCU.
    pub sampling: [usize; 2],
    /// Rows of MCUs that libjpeg reads together: the vertical sampling factor of a gray image,
    /// otherwise 1.
    pub rows_together: usize,
    pub is_progressive: bool,
}

impl Shape {
    /// Returns the shape of an image that the decoder accepts, or the reason why the decoder
    /// refuses it.
    pub fn of(header: &Header) -> Result<Self, JpegRefusal> {
        let jpeg = header.jpeg.as_ref().filter(|_| header.format == Format::Jpeg);
        let jpeg = jpeg.ok_or(JpegRefusal::Header)?;
        match jpeg.frame {
            FrameKind::Lossless | FrameKind::Hierarchical => return Err(JpegRefusal::Process),
            FrameKind::Baseline | FrameKind::Extended | FrameKind::Progressive => {}
        }
        if header.size.width.max(header.size.height) > MOST_SIDE {
            return Err(JpegRefusal::Header);
        }
        if jpeg.arithmetic {
            return Err(JpegRefusal::Arithmetic);
        }
        if jpeg.precision != 8 {
            return Err(JpegRefusal::Process);
        }
        if !matches!(jpeg.color_space(), ColorSpace::Gray | ColorSpace::YCbCr) {
            return Err(JpegRefusal::Color);
        }
        if !jpeg.is_progressive() && !jpeg.is_interleaved() {
            return Err(JpegRefusal::Scans);
        }
        let (is_gray, sampling) = match (jpeg.sampling(), jpeg.components()) {
            // The blocks of a single component are always in raster order.
            (Sampling::Gray, _) => (true, [1, 1]),
            (
                Sampling::S444 | Sampling::S422 | Sampling::S420 | Sampling::S440 | Sampling::S411,
                [luma, cb, _],
            ) if [cb.h, cb.v] == [1, 1] => (false, [luma.h.into(), luma.v.into()]),
            _ => return Err(JpegRefusal::Sampling),
        };
        let is_progressive = jpeg.is_progressive();
        let rows_together = if is_gray { jpeg.components()[0].v.into() } else { 1 };
        let shape = Self { size: header.size, is_gray, sampling, rows_together, is_progressive };
        if shape.enlarges_otherwise(1) { Err(JpegRefusal::Sampling) } else { Ok(shape) }
    }

    /// Whether libjpeg-turbo upsamples chroma in a way that this decoder does not implement.
    /// libjpeg-turbo uses that way if luma has one sample per block, or if chroma of half the width
    /// has at most two samples per row (`jdsample.c`, `jinit_upsampler`).
    pub fn enlarges_otherwise(&self, reduction: usize) -> bool {
        let [luma, chroma] = self.sides(reduction);
        match self.sampling.map(|blocks| blocks * luma / chroma) {
            [2, _] => {
                let samples = (self.size.width as usize).div_ceil(2 * reduction);
                !self.is_gray && (samples <= 2 || luma == 1)
            }
            [1, 2] => !self.is_gray && luma == 1,
            _ => false,
        }
    }

    /// Returns the number of MCUs in a row, and the number of rows of MCUs.
    pub fn units(&self) -> [usize; 2] {
        let [h, v] = self.sampling;
        [(self.size.width as usize).div_ceil(8 * h), (self.size.height as usize).div_ceil(8 * v)]
    }

    /// Returns the number of samples along a side of a transformed block, of luma and of chroma. If
    /// chroma has half as many samples as luma along both sides, its blocks are reduced by half as
    /// much (`jdmaster.c`, `jpeg_calc_output_dimensions`).
    pub fn sides(&self, reduction: usize) -> [usize; 2] {
        let luma = 8 / reduction;
        let has_less = self.sampling == [2, 2] && reduction > 1;
        [luma, if has_less { 2 * luma } else { luma }]
    }

    pub fn component_count(&self) -> usize {
        if self.is_gray { 1 } else { 3 }
    }

    /// Returns the number of blocks of a component per MCU, horizontally and vertically.
    pub fn blocks_of(&self, component: usize) -> [usize; 2] {
        if component == 0 { self.sampling } else { [1, 1] }
    }

    /// Returns the component of each block, for all MCUs that are decoded together, and the number
    /// of blocks per MCU.
    pub fn blocks(&self) -> (&'static [u8; MOST_BLOCKS], usize) {
        match (self.is_gray, self.sampling[0] * self.sampling[1]) {
            (true, _) => (&[0; MOST_BLOCKS], 1),
            (_, 1) => (&[0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2], 3),
            (_, 2) => (&[0, 0, 1, 2, 0, 0, 1, 2, 0, 0, 1, 2], 4),
            _ => (&[0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 2], 6),
        }
    }
}

/// Tables and coded data of a sequential JPEG.
#[derive(Debug)]
pub struct Frame<'a> {
    /// Tables of each component. In a gray image all three are equal.
    pub components: [Component; 3],
    /// Number of MCUs between restart markers, or 0 without restart markers.
    pub restart_interval: usize,
    /// Coded data and everything after it, up to the end of the file.
    pub scan: &'a [u8],
}

/// Tables of a component.
#[derive(Clone, Debug)]
pub struct Component {
    /// Quantization steps, row by row.
    pub quantization: [u16; 64],
    pub dc: Code,
    pub ac: Code,
}

impl<'a> Frame<'a> {
    /// Reads the segments of a file whose header has this shape. Returns `None` for unusual or
    /// corrupt segments.
    pub fn parse(bytes: &'a [u8], shape: Shape) -> Option<Self> {
        let mut segments = Segments::new(bytes, shape)?;
        let scan_header = segments.next_scan()??;
        let Segments { tables, rest, .. } = &segments;
        let component_count = shape.component_count();
        let (named, spectrum) = scan_header.get(1..)?.split_at_checked(2 * component_count)?;
        if usize::from(scan_header[0]) != component_count || spectrum != [0, 63, 0] {
            return None;
        }
        let named = named.as_chunks::<2>().0;
        let entries = segments.entries()?;
        let component = |at: usize| {
            let at = at.min(component_count - 1);
            let ([id, _, quantization], [name, codes]) = (entries[at], named[at]);
            (id == name).then_some(())?;
            Some(Component {
                quantization: (*tables.quantization.get(usize::from(quantization))?)?,
                dc: tables.dc.get(usize::from(codes >> 4))?.clone().filter(Code::is_dc)?,
                ac: tables.ac.get(usize::from(codes & 15))?.clone()?,
            })
        };
        Some(Self {
            components: [component(0)?, component(1)?, component(2)?],
            restart_interval: tables.restart_interval,
            scan: rest,
        })
    }
}

/// Reader of the segments of a file. Everything except coded data is a segment.
pub struct Segments<'a> {
    /// Tables that were defined so far. A later definition replaces an earlier one.
    pub tables: Tables,
    /// Bytes that are not read yet.
    pub rest: &'a [u8],
    frame: Option<&'a [u8]>,
    shape: Shape,
}

impl<'a> Segments<'a> {
    /// Starts at the beginning of a file whose header has this shape.
    pub fn new(bytes: &'a [u8], shape: Shape) -> Option<Self> {
        let rest = bytes.strip_prefix(&[0xff, 0xd8])?;
        Some(Self { tables: Tables::default(), rest, frame: None, shape })
    }

    /// Reads up to the next scan and returns the scan's header. Returns `Some(None)` at the end of
    /// the image and `None` for unusual or corrupt segments.
    pub fn next_scan(&mut self) -> Option<Option<&'a [u8]>> {
        loop {
            while let [0xff, 0xff, ..] = self.rest {
                self.rest = &self.rest[1..];
            }
            if let [0xff, 0xd9, ..] = self.rest {
                return Some(None);
            }
            let &[0xff, marker, high, low, ..] = self.rest else { return None };
            let (segment, after) = self.rest.split_at_checked(2 + word(high, low))?;
            let body = segment.get(4..)?;
            self.rest = after;
            match (marker, self.shape.is_progressive) {
                (0xdb, _) => self.tables.read_quantization(body)?,
                (0xc4, _) => self.tables.read_huffman(body)?,
                (0xc0 | 0xc1, false) | (0xc2, true) if self.frame.is_none() => {
                    self.frame = Some(body);
                }
                (0xdd, _) => match *body {
                    [high, low] => self.tables.restart_interval = word(high, low),
                    _ => return None,
                },
                (0xda, _) => return Some(Some(body)),
                (0xe0..=0xef | 0xfe, _) => {}
                _ => return None,
            }
        }
    }

    /// Returns identifier, sampling factors and quantization table number of each component.
    pub fn entries(&self) -> Option<&'a [[u8; 3]]> {
        let &[8, h1, h2, w1, w2, count, ref entries @ ..] = self.frame? else { return None };
        let entries = entries.as_chunks::<3>().0;
        let size = Size::new(word(w1, w2) as u32, word(h1, h2) as u32);
        let counts = [usize::from(count), entries.len()];
        if size != self.shape.size || counts != [self.shape.component_count(); 2] {
            return None;
        }
        if let [[a, ..], [b, ..], [c, ..]] = entries
            && (a == b || b == c || a == c)
        {
            return None;
        }
        Some(entries)
    }
}

/// Tables, indexed by their numbers in the file.
#[derive(Default)]
pub struct Tables {
    /// Quantization steps, row by row.
    pub quantization: [Option<[u16; 64]>; 4],
    pub dc: [Option<Code>; 4],
    pub ac: [Option<Code>; 4],
    /// Number of MCUs between restart markers, or 0 without restart markers.
    pub restart_interval: usize,
}

impl Tables {
    fn read_quantization(&mut self, mut body: &[u8]) -> Option<()> {
        while let [first, rest @ ..] = body {
            let bytes = match first >> 4 {
                0 => 1,
                1 => 2,
                _ => return None,
            };
            let (values, rest) = rest.split_at_checked(64 * bytes)?;
            let mut table = [0; 64];
            let places = ZIGZAG.map(usize::from);
            match bytes {
                1 => places.iter().zip(values).for_each(|(at, value)| table[*at] = (*value).into()),
                _ => {
                    let values = values.as_chunks().0.iter().map(|word| u16::from_be_bytes(*word));
                    places.iter().zip(values).for_each(|(at, value)| table[*at] = value);
                }
            }
            *self.quantization.get_mut(usize::from(first & 15))? = Some(table);
            body = rest;
        }
        Some(())
    }

    fn read_huffman(&mut self, mut body: &[u8]) -> Option<()> {
        while let [first, rest @ ..] = body {
            let (code, rest) = Code::read(rest)?;
            let tables = match first >> 4 {
                0 => &mut self.dc,
                1 => &mut self.ac,
                _ => return None,
            };
            *tables.get_mut(usize::from(first & 15))? = Some(code);
            body = rest;
        }
        Some(())
    }
}

fn word(high: u8, low: u8) -> usize {
    usize::from(high) << 8 | usize::from(low)
}
