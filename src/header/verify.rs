//! Strict check of a JPEG, marker by marker up to its end; see [`super::Header::verify`].
//!
//! The limits of symbols and of a block's bits apply to 8-bit samples (T.81, tables F.1, F.2, F.6,
//! G.1 and annex C).

use super::jpeg::layout::ScanRestarts;
use super::jpeg::markers::{DHT, DQT, DRI, EOI, Markers, SOI, SOS};
use super::{FrameKind, JpegHeader, JpegLayout, JpegScan, JpegScanComponent, be16, corrupt};
use crate::error::{DataError, Reason};
use crate::geometry::Size;

/// Value that marks a coefficient of which no bit is coded yet.
const UNSEEN: i8 = -1;
/// Maximum number of bits of a block: a DC coefficient (a code of 16 bits and 11 value bits) and 63
/// AC coefficients (a code of 16 bits and 10 value bits each).
const MOST_BITS: u64 = 16 + 11 + 63 * (16 + 10);

/// Verifies a file, and records its scans in `layout` if given.
pub(super) fn verify(
    bytes: &[u8],
    size: Size,
    jpeg: &JpegHeader,
    layout: Option<&mut JpegLayout>,
) -> Result<(), DataError> {
    let process = match jpeg.frame {
        FrameKind::Baseline => Process::Baseline,
        FrameKind::Extended => Process::Extended,
        FrameKind::Progressive => Process::Progressive,
        FrameKind::Lossless | FrameKind::Hierarchical => return Err(unknown("such frames")),
    };
    if jpeg.arithmetic {
        return Err(unknown("arithmetic coding"));
    }
    if jpeg.precision != 8 {
        return Err(unknown("samples of other than 8 bits"));
    }
    if !bytes.starts_with(&[0xFF, 0xD8]) {
        return Err(corrupt("the file does not begin with a start-of-image marker"));
    }
    let mut walk = Walk {
        markers: Markers::new(bytes),
        layout,
        size,
        jpeg,
        process,
        frame: None,
        quantisers: [None; 4],
        codes: [[None; 4]; 2],
        restart: 0,
        seen: [[UNSEEN; 64]; 4],
    };
    loop {
        let marker = walk.markers.expect()?;
        match marker {
            EOI => return walk.end(),
            0xC0..=0xC2 => walk.frame(marker)?,
            DHT => walk.huffman_tables()?,
            SOS => walk.scan()?,
            DQT => walk.quantisers()?,
            DRI => walk.restart_interval()?,
            // Application segments and comments are only skipped.
            0xE0..=0xEF | 0xFE => drop(walk.markers.segment(marker)?),
            SOI => return Err(corrupt("the JPEG has a second start-of-image marker")),
            0xD0..=0xD7 => return Err(corrupt("the JPEG has a restart marker outside of a scan")),
            _ => {
                return Err(corrupt(format!(
                    "the JPEG has marker ff {marker:02x} between two segments, where it is not \
                     allowed"
                )));
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Process {
    Baseline,
    Extended,
    Progressive,
}

/// Reading position and state of the check.
struct Walk<'a> {
    markers: Markers<'a>,
    layout: Option<&'a mut JpegLayout>,
    size: Size,
    jpeg: &'a JpegHeader,
    process: Process,
    /// Number of each component's quantization table.
    frame: Option<[u8; 4]>,
    /// Offset of each quantization table.
    quantisers: [Option<usize>; 4],
    /// Huffman tables: first the DC tables, then the AC tables.
    codes: [[Option<HuffmanTable>; 4]; 2],
    restart: u16,
    /// Lowest coded bit of each component's coefficients.
    seen: [[i8; 64]; 4],
}

#[derive(Clone, Copy)]
struct HuffmanTable {
    /// Offset of the table's counts.
    at: usize,
    /// Length of the shortest code in bits.
    shortest: u64,
}

/// Checked header of a scan.
struct Scan {
    parts: JpegScan,
    mcus: u64,
    /// Minimum number of bits of an MCU, multiplied by [`Scan::RUN`]. One code can end up to `RUN`
    /// blocks, so a block may take a fraction of a code. The factor makes the number whole.
    least_bits: u64,
    /// Maximum number of bits of an MCU.
    most_bits: u64,
}

impl Scan {
    /// Maximum number of blocks that one code can end (EOB14 of progressive scans).
    const RUN: u64 = 32767;

    /// Whether `bytes` coded bytes can hold `mcus` MCUs.
    fn can_be(&self, mcus: u64, bytes: u64) -> bool {
        let bits = 8 * bytes;
        bits * Self::RUN >= mcus * self.least_bits && bits <= mcus * self.most_bits + 7
    }
}

impl<'a> Walk<'a> {
    fn frame(&mut self, marker: u8) -> Result<(), DataError> {
        let body = self.markers.segment(marker)?;
        let expected = match self.process {
            Process::Baseline => 0xC0,
            Process::Extended => 0xC1,
            Process::Progressive => 0xC2,
        };
        if self.frame.is_some() {
            return Err(corrupt("a second frame header"));
        }
        let components = self.jpeg.components();
        let sides = [self.size.height, self.size.width];
        let same = marker == expected
            && body.len() == 6 + 3 * components.len()
            && body[0] == self.jpeg.precision
            && [be16(body, 1), be16(body, 3)].map(|side| side.map(u32::from)) == sides.map(Some)
            && usize::from(body[5]) == components.len();
        if !same {
            return Err(corrupt(
                "the frame header differs from the one that was parsed from the same file before",
            ));
        }
        let mut tables = [0; 4];
        for (index, (component, entry)) in components.iter().zip(body[6..].chunks(3)).enumerate() {
            if [component.id, component.h << 4 | component.v] != entry[..2] {
                return Err(corrupt(
                    "the frame header differs from the one that was parsed from the same file \
                     before",
                ));
            }
            if components[..index].iter().any(|other| other.id == component.id) {
                return Err(corrupt(format!(
                    "two components have the identifier {}",
                    component.id
                )));
            }
            if entry[2] > 3 {
                return Err(corrupt(format!(
                    "the frame header names quantisation table {}; the number must be from 0 to 3",
                    entry[2]
                )));
            }
            tables[index] = entry[2];
        }
        self.frame = Some(tables);
        Ok(())
    }

    fn quantisers(&mut self) -> Result<(), DataError> {
        let mut rest = self.markers.segment(DQT)?;
        while let Some((&kind, table)) = rest.split_first() {
            if kind > 3 {
                let problem = format!(
                    "a quantisation table has precision and number {kind:02x}; the precision must \
                     be 0 (8 bits), the number 0 to 3"
                );
                return Err(corrupt(problem));
            }
            let Some((steps, after)) = table.split_at_checked(64) else {
                return Err(corrupt(format!("a quantisation table of {} steps", table.len())));
            };
            if steps.contains(&0) {
                return Err(corrupt("a quantisation step of 0"));
            }
            self.quantisers[usize::from(kind)] = Some(self.markers.at() - table.len());
            rest = after;
        }
        Ok(())
    }

    fn huffman_tables(&mut self) -> Result<(), DataError> {
        let mut rest = self.markers.segment(DHT)?;
        while let Some((&kind, table)) = rest.split_first() {
            let (class, index) = (usize::from(kind >> 4), usize::from(kind & 15));
            let most = if self.process == Process::Baseline { 1 } else { 3 };
            if class > 1 || index > most {
                return Err(corrupt(format!(
                    "a Huffman table has the invalid class and number {kind:02x}"
                )));
            }
            let Some((counts, after)) = table.split_at_checked(16) else {
                return Err(corrupt("a Huffman table ends before its 16 counts are complete"));
            };
            let codes: usize = counts.iter().map(|&count| usize::from(count)).sum();
            let Some((symbols, after)) = after.split_at_checked(codes) else {
                return Err(corrupt(format!(
                    "a Huffman table ends before its {codes} symbols are complete"
                )));
            };
            // A code of `length` bits takes a share of 2^(16 - `length`) of the code space. The
            // code of all ones is reserved.
            let space =
                counts.iter().zip(1..).map(|(&count, length)| u32::from(count) << (16 - length));
            if space.sum::<u32>() >= 1 << 16 {
                return Err(corrupt("a Huffman table has more codes than their lengths allow"));
            }
            if let Some(symbol) = symbols.iter().find(|&&symbol| !self.is_symbol(class, symbol)) {
                return Err(corrupt(format!(
                    "the symbol {symbol:02x} in Huffman table {kind:02x} is invalid"
                )));
            }
            let at = self.markers.at() - table.len();
            let shortest = counts.iter().position(|&count| count > 0);
            let found = shortest.map(|length| HuffmanTable { at, shortest: length as u64 + 1 });
            self.codes[class][index] = found;
            rest = after;
        }
        Ok(())
    }

    fn is_symbol(&self, class: usize, symbol: u8) -> bool {
        match (class, symbol & 15) {
            (0, _) => symbol <= 11,
            // These symbols mean the end of a block and sixteen zeros. In progressive scans, other
            // symbols mean the ends of several blocks.
            (_, 0) => self.process == Process::Progressive || matches!(symbol, 0x00 | 0xF0),
            (_, bits) => bits <= 10,
        }
    }

    fn restart_interval(&mut self) -> Result<(), DataError> {
        match *self.markers.segment(DRI)? {
            [high, low] => {
                self.restart = u16::from_be_bytes([high, low]);
                Ok(())
            }
            ref body => Err(corrupt(format!("a restart interval of {} bytes", body.len()))),
        }
    }

    fn scan(&mut self) -> Result<(), DataError> {
        let body = self.markers.segment(SOS)?;
        let mut scan = self.scan_header(body)?;
        let begin = self.markers.at();
        let mut restarts = ScanRestarts::default();
        let restart = match u64::from(self.restart) {
            0 => scan.mcus,
            interval => interval,
        };
        let mut left = scan.mcus;
        let mut number = 0;
        loop {
            let mcus = left.min(restart);
            let coded = self.markers.coded_data()?;
            if !scan.can_be(mcus, coded) {
                return Err(corrupt(format!(
                    "a scan has {coded} bytes of coded data for {mcus} MCUs, which is impossible"
                )));
            }
            left -= mcus;
            if left == 0 {
                break;
            }
            let marker = self.markers.expect()?;
            if marker != 0xD0 + number {
                let problem = format!(
                    "a scan has marker ff {marker:02x} where restart marker {number} is expected"
                );
                return Err(corrupt(problem));
            }
            number = (number + 1) % 8;
            if let Some(layout) = &mut self.layout {
                layout.add_restart(&mut restarts, self.markers.at())?;
            }
        }
        if let Some(layout) = &mut self.layout {
            scan.parts.data = begin..self.markers.at();
            layout.add_scan(scan.parts, restarts)?;
        }
        Ok(())
    }

    fn scan_header(&mut self, body: &[u8]) -> Result<Scan, DataError> {
        let Some(tables) = self.frame else {
            return Err(corrupt("a scan without a frame header"));
        };
        let wrong = || {
            corrupt(format!(
                "the scan header has {} bytes, which does not match its number of components",
                body.len()
            ))
        };
        let (&count, rest) = body.split_first().ok_or_else(wrong)?;
        let (entries, band) = rest.split_at_checked(2 * usize::from(count)).ok_or_else(wrong)?;
        let &[first, last, bits] = band else { return Err(wrong()) };
        let (before, low) = (bits >> 4, bits & 15);
        if !(1..=4).contains(&count) {
            return Err(corrupt(format!("a scan of {count} components")));
        }
        let legal = match self.process {
            Process::Baseline | Process::Extended => (first, last, bits) == (0, 63, 0),
            Process::Progressive => {
                let band =
                    if first == 0 { last == 0 } else { first <= last && last <= 63 && count == 1 };
                band && low <= 13 && (before == 0 || before == low + 1)
            }
        };
        if !legal {
            let problem = format!(
                "a scan header is invalid: coefficients {first} to {last}, successive \
                 approximation {before} to {low}"
            );
            return Err(corrupt(problem));
        }
        let components = self.jpeg.components();
        let mut parts = JpegScan {
            band: [first, last],
            bits: [before, low],
            restart_interval: self.restart,
            component_count: count,
            ..JpegScan::default()
        };
        let (mut next, mut blocks, mut least_bits) = (0, 0, 0);
        let mut sampling = (1, 1);
        for (entry, part) in entries.chunks(2).zip(&mut parts.components) {
            // A scan must list its components in the order of the frame header.
            let found = components.iter().skip(next).position(|it| it.id == entry[0]);
            let Some(found) = found else {
                let problem = format!(
                    "a scan names component {}, which is unknown or out of order",
                    entry[0]
                );
                return Err(corrupt(problem));
            };
            let index = next + found;
            next = index + 1;
            let Some(quantization) = self.quantisers[usize::from(tables[index])] else {
                return Err(corrupt(format!("quantisation table {} is missing", tables[index])));
            };
            self.refine(index, [first, last, before, low])?;
            sampling = (u32::from(components[index].h), u32::from(components[index].v));
            let of_component = if count == 1 { 1 } else { u64::from(sampling.0 * sampling.1) };
            blocks += of_component;
            let codes = self.codes(entry[1], [first == 0 && before == 0, last > 0])?;
            least_bits += of_component * self.least_bits(codes, first);
            let [dc, ac] = codes.map(|table| table.map(|it| it.at));
            *part = JpegScanComponent { place: index, quantization, dc, ac };
        }
        if count > 1 && blocks > 10 {
            return Err(corrupt(format!("an MCU has {blocks} blocks; at most 10 are allowed")));
        }
        let Size { width, height } = self.size;
        let h_max = components.iter().map(|it| u32::from(it.h)).max().unwrap_or(1);
        let v_max = components.iter().map(|it| u32::from(it.v)).max().unwrap_or(1);
        // A scan with one component codes only the blocks inside the image. A scan with several
        // components codes whole MCUs.
        let (columns, rows) = if count == 1 {
            let (h, v) = sampling;
            ((width * h).div_ceil(h_max).div_ceil(8), (height * v).div_ceil(v_max).div_ceil(8))
        } else {
            (width.div_ceil(8 * h_max), height.div_ceil(8 * v_max))
        };
        parts.mcus = Size::new(columns, rows);
        let mcus = parts.mcus.pixels();
        Ok(Scan { parts, mcus, least_bits, most_bits: blocks * MOST_BITS })
    }

    /// Returns the DC and the AC table of a component of a scan, if the scan needs them.
    fn codes(
        &self,
        names: u8,
        [dc, ac]: [bool; 2],
    ) -> Result<[Option<HuffmanTable>; 2], DataError> {
        let table = |class: usize, index: u8| {
            let table = self.codes[class].get(usize::from(index)).copied().flatten();
            let kind = ["DC", "AC"][class];
            table.ok_or_else(|| {
                corrupt(format!(
                    "a scan needs {kind} table {index}, which is not defined before it"
                ))
            })
        };
        let dc = dc.then(|| table(0, names >> 4)).transpose()?;
        Ok([dc, ac.then(|| table(1, names & 15)).transpose()?])
    }

    /// Returns the minimum number of bits of a block, multiplied by [`Scan::RUN`], for the tables
    /// that the scan needs.
    fn least_bits(&self, [dc, ac]: [Option<HuffmanTable>; 2], first: u8) -> u64 {
        let dc = match dc {
            Some(table) => Scan::RUN * table.shortest,
            // A refining scan codes one bit of DC per block, without a Huffman table.
            None if first == 0 => Scan::RUN,
            None => 0,
        };
        let of_one = if self.process == Process::Progressive { 1 } else { Scan::RUN };
        dc + ac.map_or(0, |table| of_one * table.shortest)
    }

    /// Records which bits of a component's coefficients a scan codes. Checks that each bit is coded
    /// once, from the highest bit to the lowest, and DC before AC.
    fn refine(
        &mut self,
        component: usize,
        [first, last, before, low]: [u8; 4],
    ) -> Result<(), DataError> {
        let seen = &mut self.seen[component];
        if first > 0 && seen[0] == UNSEEN {
            return Err(corrupt(
                "a scan codes AC coefficients of a component before its DC coefficient",
            ));
        }
        let expected = if before == 0 { UNSEEN } else { before as i8 };
        let band = &mut seen[usize::from(first)..=usize::from(last)];
        if band.iter().any(|&bit| bit != expected) {
            return Err(corrupt(format!(
                "a scan codes bits of the coefficients {first} to {last} out of order"
            )));
        }
        band.fill(low as i8);
        Ok(())
    }

    fn end(&mut self) -> Result<(), DataError> {
        let count = self.jpeg.components().len();
        if self.seen[..count].iter().any(|seen| seen[0] == UNSEEN) {
            return Err(corrupt(
                "the JPEG has an end-of-image marker before all components are coded",
            ));
        }
        if let Some(layout) = &mut self.layout {
            layout.finish(self.markers.at());
        }
        Ok(())
    }
}

fn unknown(what: &str) -> DataError {
    DataError::new(Reason::Unsupported, format!("{what} cannot be verified"))
}
