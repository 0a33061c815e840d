//! Replaces the Huffman tables of a JPEG by optimal ones, like libjpeg's `optimize_coding`, without
//! decoding its pixels.

use std::ops::Range;

use feedwater::error::{Error, Result};

use super::huffman::{SymbolDecoder, codes, optimal};
use super::segments::{DHT, EOI, SOS, Segment, Table, segment};

/// Replaces the Huffman codes of a sequential JPEG with 8 bits per value by optimal ones for each
/// scan. The coefficients and all other segments stay the same.
///
/// The tables are those of libjpeg's `jpeg_gen_optimal_table`. Components that share a table in the
/// file also share one in the result.
///
/// # Errors
///
/// Fails with [`Error::Config`] for progressive, lossless, hierarchical and arithmetic-coded files,
/// for 12 bits per value, for files whose height follows the first scan (DNL), and for corrupt
/// data.
pub fn optimized(jpeg: &[u8]) -> Result<Vec<u8>> {
    recode(jpeg).map_err(|problem| Error::config("jpeg", problem))
}

fn recode(jpeg: &[u8]) -> Result<Vec<u8>, String> {
    let mut rest = jpeg.strip_prefix(b"\xff\xd8").ok_or("it does not begin with SOI")?;
    let mut out = Vec::with_capacity(jpeg.len());
    out.extend(b"\xff\xd8");
    let mut tables = Vec::new();
    let mut frame = None;
    let mut restart_interval = 0;
    loop {
        let Segment { marker, body, whole, rest: after } = segment(rest)?;
        rest = after;
        match marker {
            DHT => {
                for table in Table::parse(body)? {
                    tables.retain(|it| !is_same_place(it, &table));
                    tables.push(table);
                }
                continue;
            }
            0xc0 | 0xc1 if frame.is_some() => return Err("it has two frames".into()),
            0xc0 | 0xc1 => frame = Some(Frame::parse(body)?),
            0xc2 => return Err("it is progressive".into()),
            0xc3 | 0xc5..=0xc7 | 0xcb | 0xcd..=0xcf => {
                return Err("it is lossless or hierarchical".into());
            }
            0xc9 | 0xca | 0xcc => return Err("it is arithmetic-coded".into()),
            0xdc => return Err("a DNL segment gives its height".into()),
            0xdd => {
                let interval = body.first_chunk().ok_or("DRI is cut off")?;
                restart_interval = u16::from_be_bytes(*interval);
            }
            SOS => {
                let frame = frame.as_ref().ok_or("a scan precedes the frame")?;
                let scan = Scan::parse(body, frame)?;
                let (symbols, len) = Symbols::read(rest, &scan, &tables, restart_interval)?;
                rest = &rest[len..];
                let made = symbols.tables();
                made.iter().for_each(|table| table.write(&mut out));
                out.extend(whole);
                symbols.write(&made, &mut out);
                continue;
            }
            // A file without a scan has no Huffman codes to replace.
            EOI => {
                out.extend(whole);
                out.extend(rest);
                return Ok(out);
            }
            _ => {}
        }
        out.extend(whole);
    }
}

fn is_same_place(a: &Table, b: &Table) -> bool {
    (a.is_ac, a.number) == (b.is_ac, b.number)
}

/// Component of a frame, such as luma or one of the chromas.
struct Component {
    id: u8,
    /// Horizontal and vertical sampling factor: the number of blocks of this component, across and
    /// down, in an MCU (minimum coded unit) of several components.
    factors: [usize; 2],
}

struct Frame {
    size: [usize; 2],
    components: Vec<Component>,
}

impl Frame {
    fn parse(body: &[u8]) -> Result<Self, String> {
        let (&[bits, high, low, wide, narrow, count], rest) =
            body.split_first_chunk().ok_or("the frame is cut off")?;
        if bits != 8 {
            return Err(format!("the JPEG has {bits} bits per sample; only 8 are supported"));
        }
        let size = [[wide, narrow], [high, low]].map(|it| usize::from(u16::from_be_bytes(it)));
        if size.contains(&0) {
            return Err("its height or width is 0".into());
        }
        let (parts, []) = rest.as_chunks::<3>() else { return Err("the frame is cut off".into()) };
        if parts.len() != usize::from(count) || !(1..=4).contains(&count) {
            return Err(format!(
                "the frame header gives {count} components; from 1 to 4 are supported"
            ));
        }
        let components = parts.iter().map(|&[id, factors, _]| {
            let factors = [factors >> 4, factors & 15].map(usize::from);
            Component { id, factors }
        });
        let components: Vec<_> = components.collect();
        if components.iter().flat_map(|it| it.factors).any(|it| !(1..=4).contains(&it)) {
            return Err("a sampling factor is not 1 to 4".into());
        }
        Ok(Self { size, components })
    }

    /// Largest horizontal and vertical sampling factor of all components.
    fn factors(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.components.iter().map(|it| it.factors[axis]).max().unwrap_or(1))
    }
}

/// Numbers of the two Huffman tables with which a block is coded.
#[derive(Clone, Copy)]
struct Coded {
    dc: u8,
    ac: u8,
}

struct Scan {
    /// Number of MCUs (minimum coded units) in the scan.
    units: usize,
    /// Huffman tables of each block of an MCU, in the order of the blocks.
    blocks: Vec<Coded>,
}

impl Scan {
    fn parse(body: &[u8], frame: &Frame) -> Result<Self, String> {
        let (&count, rest) = body.split_first().ok_or("the scan's header is cut off")?;
        let rest = rest.split_at_checked(2 * usize::from(count));
        let (parts, &[0, 63, 0]) = rest.ok_or("the scan's header is cut off")? else {
            return Err("its scan is not sequential".into());
        };
        let (parts, _) = parts.as_chunks::<2>();
        let mut blocks = Vec::new();
        let mut units = 0;
        for &[id, tables] in parts {
            let found = frame.components.iter().find(|it| it.id == id);
            let found = found.ok_or("its scan has a component that the frame lacks")?;
            let coded = Coded { dc: tables >> 4, ac: tables & 15 };
            let most = frame.factors();
            let [across, down] = found.factors;
            let count = if parts.len() == 1 {
                // A scan of a single component has no blocks that only pad an MCU.
                let side = |axis: usize| {
                    (frame.size[axis] * found.factors[axis]).div_ceil(most[axis]).div_ceil(8)
                };
                units = side(0) * side(1);
                1
            } else {
                let side = |axis: usize| frame.size[axis].div_ceil(8 * most[axis]);
                units = side(0) * side(1);
                across * down
            };
            blocks.extend([coded].repeat(count));
        }
        // T.81, B.2.3 limits an MCU to ten blocks.
        if blocks.is_empty() || parts.len() > 1 && blocks.len() > 10 {
            return Err(format!(
                "an MCU of the scan has {} blocks; from 1 to 10 are allowed",
                blocks.len()
            ));
        }
        Ok(Self { units, blocks })
    }
}

/// Huffman symbols of a scan, in file order.
struct Symbols {
    /// One entry per symbol. Bits 24 and up are the index of its table in `used`, bits 16 to 23 the
    /// symbol, and bits 0 to 15 the value bits that follow the symbol.
    stream: Vec<u32>,
    /// For each Huffman table of the scan, its class (true for AC) and its number.
    used: Vec<(bool, u8)>,
    /// For each table in `used`, how often each symbol occurs.
    counts: Vec<[u64; 256]>,
    /// For each restart marker, the number of symbols before it.
    restarts: Vec<usize>,
}

impl Symbols {
    /// Reads the symbols of a scan. Also returns the size of the scan's data in bytes.
    fn read(
        data: &[u8],
        scan: &Scan,
        tables: &[Table],
        restart_interval: u16,
    ) -> Result<(Self, usize), String> {
        let mut it = Self {
            stream: Vec::with_capacity(data.len()),
            used: Vec::new(),
            counts: Vec::new(),
            restarts: Vec::new(),
        };
        let mut decoders = Vec::new();
        let mut place = |is_ac: bool, number: u8, it: &mut Self| {
            if let Some(place) = it.used.iter().position(|&used| used == (is_ac, number)) {
                return Ok(place);
            }
            let table = tables.iter().find(|it| (it.is_ac, it.number) == (is_ac, number));
            decoders.push(SymbolDecoder::new(
                table.ok_or("its scan refers to a missing Huffman table")?,
            )?);
            it.used.push((is_ac, number));
            it.counts.push([0; 256]);
            Ok::<_, String>(decoders.len() - 1)
        };
        let mut blocks = Vec::new();
        for block in &scan.blocks {
            blocks.push([place(false, block.dc, &mut it)?, place(true, block.ac, &mut it)?]);
        }
        let interval = usize::from(restart_interval);
        let mut bits = Bits { data, at: 0, held: 0, len: 0, missing: 0 };
        for unit in 0..scan.units {
            if interval > 0 && unit > 0 && unit % interval == 0 {
                bits.restart((unit / interval - 1) as u8)?;
                it.restarts.push(it.stream.len());
            }
            for &[dc, ac] in &blocks {
                it.block(&mut bits, &decoders, dc, ac)?;
            }
        }
        Ok((it, bits.end()?))
    }

    fn block(
        &mut self,
        bits: &mut Bits<'_>,
        decoders: &[SymbolDecoder],
        dc: usize,
        ac: usize,
    ) -> Result<(), String> {
        if self.symbol(bits, decoders, dc)? > 11 {
            return Err("a DC difference has more than 11 bits".into());
        }
        let mut coefficient = 1;
        while coefficient < 64 {
            let symbol = self.symbol(bits, decoders, ac)?;
            match symbol {
                0x00 => break,
                0xf0 => coefficient += 16,
                _ if symbol & 15 == 0 => return Err("an AC symbol is not sequential".into()),
                _ => coefficient += 1 + usize::from(symbol >> 4),
            }
        }
        if coefficient > 64 {
            return Err("a run of zeros exceeds its block".into());
        }
        Ok(())
    }

    /// Reads a symbol and the value bits that follow it.
    fn symbol(
        &mut self,
        bits: &mut Bits<'_>,
        decoders: &[SymbolDecoder],
        table: usize,
    ) -> Result<u8, String> {
        let decoded = decoders[table].decode(bits.peek(16));
        let (len, symbol) = decoded.ok_or("a code is not in its Huffman table")?;
        bits.skip(len);
        let size = u32::from(symbol & 15);
        let value = bits.peek(size);
        bits.skip(size);
        if bits.missing > bits.len {
            return Err("the coded data ends early".into());
        }
        self.counts[table][usize::from(symbol)] += 1;
        self.stream.push((table as u32) << 24 | u32::from(symbol) << 16 | value);
        Ok(symbol)
    }

    /// Returns the optimal tables in the order in which libjpeg writes them: by component, DC
    /// first.
    fn tables(&self) -> Vec<Table> {
        let tables = self.used.iter().zip(&self.counts).map(|(&(is_ac, number), symbols)| {
            let (counts, symbols) = optimal(symbols);
            Table { is_ac, number, counts, symbols }
        });
        tables.collect()
    }

    /// Writes the entropy-coded data with the given tables.
    fn write(&self, tables: &[Table], out: &mut Vec<u8>) {
        let codes: Vec<_> = tables.iter().map(codes).collect();
        let mut part = 0..0;
        let mut writer = Writer { out, held: 0, len: 0 };
        for (number, &end) in self.restarts.iter().chain([&self.stream.len()]).enumerate() {
            if number > 0 {
                writer.pad();
                writer.out.extend([0xff, 0xd0 + ((number - 1) & 7) as u8]);
            }
            part = Range { start: part.end, end };
            for &entry in &self.stream[part.clone()] {
                let symbol = (entry >> 16) as u8;
                let (len, code) = codes[(entry >> 24) as usize][usize::from(symbol)];
                let size = symbol & 15;
                let value = u64::from(code) << size | u64::from(entry & 0xffff);
                writer.put(value, u32::from(len + size));
            }
        }
        writer.pad();
    }
}

/// Reads bits of entropy-coded data. Skips stuffed bytes (0x00 after 0xff), and returns ones after
/// the end of the data.
struct Bits<'a> {
    data: &'a [u8],
    /// Position of the next byte in `data`.
    at: usize,
    held: u64,
    len: u32,
    /// Number of bits in `held` that lie after the end of the data.
    missing: u32,
}

impl Bits<'_> {
    /// Returns the next `count` bits, at most 16, without consuming them.
    fn peek(&mut self, count: u32) -> u32 {
        while self.len < 32 {
            let byte = match (self.data.get(self.at), self.data.get(self.at + 1)) {
                (Some(0xff), Some(0)) => {
                    self.at += 2;
                    0xff
                }
                (Some(&byte), _) if byte != 0xff => {
                    self.at += 1;
                    byte
                }
                _ => {
                    self.missing += 8;
                    0xff
                }
            };
            self.held = self.held << 8 | u64::from(byte);
            self.len += 8;
        }
        (self.held >> (self.len - count)) as u32 & ((1 << count) - 1)
    }

    fn skip(&mut self, count: u32) {
        self.len -= count;
    }

    /// Skips the padding bits, and reads a restart marker. The marker's number must be `number`
    /// modulo 8.
    fn restart(&mut self, number: u8) -> Result<(), String> {
        let at = self.end()?;
        let found = segment(&self.data[at..])?;
        if found.marker != 0xd0 + (number & 7) {
            return Err("a restart marker is missing".into());
        }
        let at = self.data.len() - found.rest.len();
        *self = Bits { data: self.data, at, held: 0, len: 0, missing: 0 };
        Ok(())
    }

    /// Returns the position of the marker that follows the last code.
    fn end(&self) -> Result<usize, String> {
        // A marker must follow immediately after the last code, so no whole byte may be left.
        if (self.len - self.missing) / 8 > 0 {
            return Err("bytes follow the last block of a scan".into());
        }
        match (self.data.get(self.at), self.data.get(self.at + 1)) {
            (Some(0xff), Some(1..)) => Ok(self.at),
            (None, _) => Err("the file ends without EOI".into()),
            _ => Err("bytes follow the last block of a scan".into()),
        }
    }
}

/// Bit writer of entropy-coded data.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    held: u64,
    len: u32,
}

impl Writer<'_> {
    /// Appends the lowest `count` bits of `bits`; `count` is at most 32.
    fn put(&mut self, bits: u64, count: u32) {
        self.held = self.held << count | bits;
        self.len += count;
        while self.len >= 8 {
            self.len -= 8;
            let byte = (self.held >> self.len) as u8;
            self.out.push(byte);
            if byte == 0xff {
                self.out.push(0);
            }
        }
    }

    /// Fills the last byte with ones, as JPEG requires.
    fn pad(&mut self) {
        if self.len > 0 {
            let count = 8 - self.len;
            self.put((1 << count) - 1, count);
        }
    }
}

#[cfg(test)]
mod tests;
