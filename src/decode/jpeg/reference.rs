//! Reference JPEG decoder for tests. It is short, decodes pixel by pixel, and returns the same
//! bytes as libjpeg-turbo for all files that it accepts.
//!
//! This decoder accepts sequential Huffman JPEGs of 8 bits with one scan: gray, and YCbCr with
//! 4:4:4, 4:2:2, 4:4:0, 4:2:0 or 4:1:1 chroma. It refuses every anomaly, because libjpeg-turbo
//! handles anomalies in its own ways. The formulas come from ITU T.81 and from libjpeg-turbo's
//! `jdhuff.c`, `jidctint.c`, `jdsample.c` and `jdcolor.c`. Sums wrap and saturate as in
//! libjpeg-turbo's vector code (`jidctint-avx2.asm`).

use super::frame::ZIGZAG;
use super::kernels::plain::inverse_transform;
use crate::geometry::Size;
use crate::image::Image;

/// Returns the pixels of a file, or `None` if the file is not accepted.
pub fn decode(bytes: &[u8]) -> Option<Image<u8>> {
    let mut file = File::default();
    let scan = file.read_segments(bytes.strip_prefix(&[0xff, 0xd8])?)?;
    file.read_scan(scan)?;
    Some(file.image())
}

#[derive(Default)]
struct File {
    size: Size,
    components: Vec<Component>,
    /// Quantization tables, row by row.
    quantization: [Option<[u16; 64]>; 4],
    dc: [Option<Huffman>; 4],
    ac: [Option<Huffman>; 4],
    restart_interval: usize,
    has_jfif: bool,
}

/// A color channel.
struct Component {
    id: u8,
    /// Number of blocks per MCU (minimum coded unit).
    across: usize,
    down: usize,
    quantization: usize,
    dc: usize,
    ac: usize,
    /// Size in samples, without those that fill the last MCUs.
    width: usize,
    height: usize,
    /// All samples, including those that fill the last MCUs.
    plane: Vec<u8>,
    /// Number of samples per row of `plane`.
    pitch: usize,
}

impl File {
    /// Reads everything before the scan's data and returns the data.
    fn read_segments<'a>(&mut self, mut rest: &'a [u8]) -> Option<&'a [u8]> {
        loop {
            let &[0xff, marker, high, low, ..] = rest else { return None };
            let (segment, after) = rest.split_at_checked(2 + word(high, low))?;
            let body = segment.get(4..)?;
            rest = after;
            match marker {
                0xdb => self.read_quantization(body)?,
                0xc4 => self.read_huffman(body)?,
                0xc0 | 0xc1 => self.read_frame(body)?,
                0xdd => self.restart_interval = word(*body.first()?, *body.get(1)?),
                0xda => return self.read_scan_header(body).map(|()| rest),
                0xe0 => self.has_jfif |= body.starts_with(b"JFIF\0"),
                // An Adobe segment can declare other channels than YCbCr.
                0xee if body.starts_with(b"Adobe") && body.get(11) != Some(&1) => return None,
                0xe1..=0xef | 0xfe => {}
                _ => return None,
            }
        }
    }

    fn read_quantization(&mut self, mut body: &[u8]) -> Option<()> {
        while let [first, rest @ ..] = body {
            let words = first >> 4 == 1;
            let (values, rest) = rest.split_at_checked(if words { 128 } else { 64 })?;
            let mut table = [0; 64];
            for (at, place) in ZIGZAG.into_iter().enumerate() {
                table[usize::from(place)] = match words {
                    true => word(values[2 * at], values[2 * at + 1]) as u16,
                    false => values[at].into(),
                };
            }
            *self.quantization.get_mut(usize::from(first & 15))? = Some(table);
            body = rest;
        }
        Some(())
    }

    fn read_huffman(&mut self, mut body: &[u8]) -> Option<()> {
        while let [first, rest @ ..] = body {
            let (counts, rest) = rest.split_first_chunk::<16>()?;
            let len = counts.iter().map(|count| usize::from(*count)).sum();
            let (symbols, rest) = rest.split_at_checked(len)?;
            let tables = if first >> 4 == 0 { &mut self.dc } else { &mut self.ac };
            let table = Huffman { counts: *counts, symbols: symbols.to_vec() };
            *tables.get_mut(usize::from(first & 15))? = Some(table);
            body = rest;
        }
        Some(())
    }

    fn read_frame(&mut self, body: &[u8]) -> Option<()> {
        let &[8, h1, h2, w1, w2, count, ref components @ ..] = body else { return None };
        let [width, height] = [word(w1, w2), word(h1, h2)];
        let chunks = components.as_chunks::<3>().0;
        if !self.components.is_empty()
            || width == 0
            || height == 0
            || chunks.len() != usize::from(count)
        {
            return None;
        }
        let sampling = |sides: u8| [usize::from(sides >> 4), usize::from(sides & 15)];
        let most = match chunks {
            // The blocks of a single channel are always in raster order.
            [_] => [1, 1],
            [[_, luma, _], [_, 0x11, _], [_, 0x11, _]] => sampling(*luma),
            _ => return None,
        };
        if ![[1, 1], [2, 1], [1, 2], [4, 1], [2, 2]].contains(&most) {
            return None;
        }
        self.size = Size::new(width as u32, height as u32);
        let units = [width.div_ceil(8 * most[0]), height.div_ceil(8 * most[1])];
        for &[id, sides, quantization] in chunks {
            let [across, down] = if chunks.len() == 1 { [1, 1] } else { sampling(sides) };
            let [wide, high] =
                [(width * across).div_ceil(most[0]), (height * down).div_ceil(most[1])];
            // libjpeg-turbo uses a different upsampling for chroma of at most two columns, so such
            // files are refused.
            if 2 * across == most[0] && wide <= 2 {
                return None;
            }
            let pitch = 8 * across * units[0];
            self.components.push(Component {
                id,
                across,
                down,
                quantization: quantization.into(),
                dc: 0,
                ac: 0,
                width: wide,
                height: high,
                plane: vec![0; pitch * 8 * down * units[1]],
                pitch,
            });
        }
        // Without JFIF, the channel identifiers `RGB` declare red, green and blue.
        let ids: Vec<u8> = self.components.iter().map(|it| it.id).collect();
        (self.has_jfif || ids != *b"RGB").then_some(())
    }

    fn read_scan_header(&mut self, body: &[u8]) -> Option<()> {
        let (count, rest) = body.split_first()?;
        let (tables, spectrum) = rest.split_at_checked(2 * usize::from(*count))?;
        if usize::from(*count) != self.components.len() || spectrum != [0, 63, 0] {
            return None;
        }
        for (component, [id, tables]) in self.components.iter_mut().zip(tables.as_chunks().0) {
            (component.dc, component.ac) = ((tables >> 4).into(), (tables & 15).into());
            if component.id != *id {
                return None;
            }
        }
        Some(())
    }

    fn read_scan(&mut self, scan: &[u8]) -> Option<()> {
        let Self { components, quantization, dc, ac, restart_interval, .. } = self;
        let (first, mut bits) = (components.first()?, Bits { bytes: scan, buffer: 0, count: 0 });
        let units_across = first.pitch / (8 * first.across);
        let units = units_across * (first.plane.len() / first.pitch) / (8 * first.down);
        let mut predictions = [0i32; 3];
        for unit in 0..units {
            if *restart_interval > 0 && unit > 0 && unit % *restart_interval == 0 {
                bits.restart(unit / *restart_interval - 1)?;
                predictions = [0; 3];
            }
            let (column, row) = (unit % units_across, unit / units_across);
            for (component, prediction) in components.iter_mut().zip(&mut predictions) {
                let quantization = (*quantization.get(component.quantization)?)?;
                let dc = dc.get(component.dc)?.as_ref()?;
                let ac = ac.get(component.ac)?.as_ref()?;
                for block in 0..component.across * component.down {
                    let coefficients = bits.block(dc, ac, prediction)?;
                    let samples = samples(&coefficients, &quantization)?;
                    let x = 8 * (column * component.across + block % component.across);
                    let y = 8 * (row * component.down + block / component.across);
                    for (at, line) in samples.iter().enumerate() {
                        component.plane[(y + at) * component.pitch + x..][..8]
                            .copy_from_slice(line);
                    }
                }
            }
        }
        Some(())
    }

    fn image(&self) -> Image<u8> {
        let mut image = Image::new(self.size.window());
        for y in 0..self.size.height {
            for x in 0..self.size.width {
                image.set_pixel(x, y, self.pixel(x as usize, y as usize));
            }
        }
        image
    }

    fn pixel(&self, x: usize, y: usize) -> [u8; 3] {
        let [luma, chroma @ ..] = &*self.components else { unreachable!("there is a channel") };
        let value = luma.sample(x, y);
        let [blue, red] = chroma else { return [value; 3] };
        let [cb, cr] = [blue, red].map(|it| i32::from(it.enlarged(luma, x, y)) - 128);
        // JFIF's factors, which have 16 fractional bits (`jdcolor.c`).
        let [r, b] = [(91881 * cr + 32768) >> 16, (116130 * cb + 32768) >> 16];
        let g = (-22554 * cb - 46802 * cr + 32768) >> 16;
        [r, g, b].map(|it| (i32::from(value) + it).clamp(0, 255) as u8)
    }
}

impl Component {
    /// Returns a sample. Positions beyond the right or lower edge return the nearest sample at the
    /// edge.
    fn sample(&self, x: usize, y: usize) -> u8 {
        self.plane[y.min(self.height - 1) * self.pitch + x.min(self.width - 1)]
    }

    /// Returns the value of a component at a pixel. Along each axis on which the component has half
    /// as many samples as luma, the value is interpolated between the two nearest samples with
    /// weights 3 and 1 (`fancy_upsampling` of `jdsample.c`).
    fn enlarged(&self, luma: &Self, x: usize, y: usize) -> u8 {
        let ratio = [luma.across / self.across, luma.down / self.down];
        // Returns the positions of the nearest sample and of the second nearest.
        let axis = |at: usize| match at % 2 {
            0 => (at / 2, (at / 2).saturating_sub(1)),
            _ => (at / 2, at / 2 + 1),
        };
        let ((near, far), (row, other)) = (axis(x), axis(y));
        let of = |x: usize, y: usize| u32::from(self.sample(x, y));
        let value = match ratio {
            [1, 1] => of(x, y),
            [2, 1] => (3 * of(near, y) + of(far, y) + 1 + x as u32 % 2) >> 2,
            [1, 2] => (3 * of(x, row) + of(x, other) + 1 + y as u32 % 2) >> 2,
            [4, 1] => of(x / 4, y),
            _ => {
                let sum = |x: usize| 3 * of(x, row) + of(x, other);
                (3 * sum(near) + sum(far) + 8 - x as u32 % 2) >> 4
            }
        };
        value as u8
    }
}

/// Huffman code: the number of codes of each length, and their symbols.
struct Huffman {
    counts: [u8; 16],
    symbols: Vec<u8>,
}

/// Bit reader of a scan.
struct Bits<'a> {
    bytes: &'a [u8],
    buffer: u8,
    count: u32,
}

impl Bits<'_> {
    fn bit(&mut self) -> Option<u32> {
        if self.count == 0 {
            let (byte, mut rest) = self.bytes.split_first()?;
            if *byte == 0xff {
                // After 0xff, every byte other than 0 forms a marker.
                rest = rest.strip_prefix(&[0])?;
            }
            (self.buffer, self.count, self.bytes) = (*byte, 8, rest);
        }
        self.count -= 1;
        Some(u32::from(self.buffer >> self.count & 1))
    }

    fn symbol(&mut self, huffman: &Huffman) -> Option<u8> {
        let (mut code, mut first, mut begin) = (0, 0, 0);
        for count in huffman.counts.map(u32::from) {
            code = code << 1 | self.bit()?;
            first <<= 1;
            if code - first < count {
                return huffman.symbols.get((begin + code - first) as usize).copied();
            }
            (begin, first) = (begin + count, first + count);
        }
        None
    }

    /// Reads a signed number of `size` bits. Numbers with a leading 0 are negative.
    fn number(&mut self, size: u8) -> Option<i32> {
        let mut bits = 0;
        for _ in 0..size {
            bits = bits << 1 | self.bit()? as i32;
        }
        let is_negative = size > 0 && bits >> (size - 1) == 0;
        Some(if is_negative { bits - (1 << size) + 1 } else { bits })
    }

    fn block(&mut self, dc: &Huffman, ac: &Huffman, prediction: &mut i32) -> Option<[i16; 64]> {
        let mut block = [0; 64];
        let size = self.symbol(dc).filter(|size| *size <= 11)?;
        *prediction += self.number(size)?;
        block[0] = *prediction as i16;
        let mut at = 1;
        while at < 64 {
            let symbol = self.symbol(ac)?;
            let (zeros, size) = (usize::from(symbol >> 4), symbol & 15);
            if size == 0 && zeros < 15 {
                break;
            }
            at += zeros;
            *block.get_mut(usize::from(*ZIGZAG.get(at)?))? = self.number(size)? as i16;
            at += 1;
        }
        Some(block)
    }

    /// Reads the marker between restart intervals.
    fn restart(&mut self, number: usize) -> Option<()> {
        self.count = 0;
        self.bytes = self.bytes.strip_prefix(&[0xff, 0xd0 + (number % 8) as u8])?;
        Some(())
    }
}

/// Dequantizes a block and transforms it to samples.
fn samples(coefficients: &[i16; 64], quantization: &[u16; 64]) -> Option<[[u8; 8]; 8]> {
    let mut block = [[0i16; 8]; 8];
    for (at, coefficient) in coefficients.iter().enumerate() {
        block[at / 8][at % 8] = coefficient.wrapping_mul(quantization[at] as i16);
    }
    // For larger coefficients, the code paths of libjpeg-turbo give different results.
    let is_sane = block[0].iter().all(|coefficient| (-8192..8192).contains(coefficient));
    is_sane.then(|| inverse_transform(&block))
}

fn word(high: u8, low: u8) -> usize {
    usize::from(high) << 8 | usize::from(low)
}
