//! Statistics of JPEGs: bytes per pixel, zero coefficients, dense blocks and entropy.
//!
//! `cargo run --release -p feedwater-tools --example statistics -- DIR...` prints one line of
//! figures for each baseline JPEG below a directory. For each directory it prints the spread of
//! these figures, and the census of the files (sizes, qualities, chroma samplings). Synthetic
//! images are tuned so that their figures lie within the spread of photographs:
//! [figures](../../../benches/results/synthetic-2026-11-27.md).

use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use feedwater_tools::synth::census::{Census, jpegs};

/// A block is dense if the zigzag index of its last nonzero coefficient is greater than this.
const DENSE: usize = 48;

/// Statistics of one JPEG file, or means over several files.
#[derive(Clone, Copy)]
struct Figures {
    /// Luma quality, 1 to 100 as in libjpeg. It is the quality whose luma table is closest to the
    /// table of the file.
    quality: f64,
    bytes_per_pixel: f64,
    /// Share of the luma AC coefficients that are zero.
    zeros: f64,
    /// Share of the luma blocks whose last nonzero coefficient is above index 48.
    dense: f64,
    /// Bits per pixel that an ideal code for single Huffman symbols would need (zeroth-order
    /// entropy), plus the value bits that follow the symbols.
    entropy: f64,
}

impl Figures {
    fn all(self) -> [f64; 5] {
        [self.quality, self.bytes_per_pixel, self.zeros, self.dense, self.entropy]
    }
}

fn main() -> ExitCode {
    let mut good = true;
    println!("| file | quality | bytes/pixel | zero AC | dense blocks | entropy (bits/pixel) |");
    println!("|---|---|---|---|---|---|");
    for dir in env::args().skip(1) {
        let (files, census) = match jpegs(Path::new(&dir)).and_then(|files| {
            let census = Census::of_files(&files)?;
            Ok((files, census))
        }) {
            Ok(found) => found,
            Err(error) => {
                eprintln!("{error}");
                good = false;
                continue;
            }
        };
        let mut found = Vec::new();
        for file in files {
            match fs::read(&file).map_err(|error| error.to_string()).and_then(|it| figures(&it)) {
                Ok(figures) => {
                    line(&file.display().to_string(), figures.all());
                    found.push(figures.all());
                }
                Err(problem) => {
                    eprintln!("{}: {problem}", file.display());
                    good = false;
                }
            }
        }
        for (name, part) in [
            ("minimum", 0.0),
            ("first decile", 0.1),
            ("median", 0.5),
            ("last decile", 0.9),
            ("maximum", 1.0),
        ] {
            line(&format!("{dir}, {name} of {}", found.len()), quantile(&found, part));
        }
        println!("\n{dir}: {} JPEGs\n{census}\n", census.files);
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn line(name: &str, [quality, bytes, zeros, dense, entropy]: [f64; 5]) {
    println!("| {name} | {quality:.0} | {bytes:.3} | {zeros:.3} | {dense:.3} | {entropy:.2} |");
}

/// Returns the quantile `part` (0 to 1) of each of the five figures.
fn quantile(found: &[[f64; 5]], part: f64) -> [f64; 5] {
    [0, 1, 2, 3, 4].map(|figure| {
        let mut values: Vec<f64> = found.iter().map(|it| it[figure]).collect();
        values.sort_by(f64::total_cmp);
        let place = (part * values.len().saturating_sub(1) as f64).round() as usize;
        values.get(place).copied().unwrap_or(f64::NAN)
    })
}

/// Huffman table. Maps the length and the bits of a code to its symbol.
#[derive(Clone, Default)]
struct Huffman(HashMap<(u8, u16), u8>);

impl Huffman {
    fn new(counts: &[u8], symbols: &[u8]) -> Self {
        let (mut code, mut next) = (0u16, symbols.iter());
        let mut table = HashMap::new();
        for (len, &count) in (1..).zip(counts) {
            for &symbol in next.by_ref().take(count.into()) {
                table.insert((len, code), symbol);
                code = code.wrapping_add(1);
            }
            code <<= 1;
        }
        Self(table)
    }
}

/// Component of the frame.
#[derive(Clone, Copy, Default)]
struct Component {
    id: u8,
    across: usize,
    down: usize,
    quantization: usize,
    dc: usize,
    ac: usize,
}

/// Parses the segments of a baseline JPEG with one scan.
fn figures(file: &[u8]) -> Result<Figures, String> {
    let mut quantization = [[0u16; 64]; 4];
    let mut tables = vec![Huffman::default(); 8];
    let mut components: Vec<Component> = Vec::new();
    let (mut width, mut height) = (0usize, 0usize);
    let mut restart = 0usize;
    let mut at = 2;
    loop {
        let marker = *file.get(at + 1).ok_or("no scan")?;
        let len = usize::from(u16::from_be_bytes([
            *file.get(at + 2).ok_or("no scan")?,
            *file.get(at + 3).ok_or("no scan")?,
        ]));
        let mut body = file.get(at + 4..at + 2 + len).ok_or("a segment is cut off")?;
        at += 2 + len;
        match marker {
            0xdb => {
                while let Some((&head, rest)) = body.split_first() {
                    let bytes = if head >> 4 == 0 { 1 } else { 2 };
                    for (place, value) in rest.chunks_exact(bytes).take(64).enumerate() {
                        let value = value.iter().fold(0, |all, &it| all << 8 | u16::from(it));
                        quantization[usize::from(head & 3)][place] = value;
                    }
                    body = rest.get(64 * bytes..).ok_or("a table is cut off")?;
                }
            }
            0xc4 => {
                while body.len() > 17 {
                    let count = body[1..17].iter().map(|&it| usize::from(it)).sum::<usize>();
                    let symbols = body.get(17..17 + count).ok_or("a table is cut off")?;
                    let place = usize::from(body[0] & 3) + 4 * usize::from(body[0] >> 4 & 1);
                    tables[place] = Huffman::new(&body[1..17], symbols);
                    body = &body[17 + count..];
                }
            }
            0xc0 | 0xc1 => {
                let pair = |at: usize| usize::from(u16::from_be_bytes([body[at], body[at + 1]]));
                (height, width) = (pair(1), pair(3));
                components = body[6..]
                    .chunks_exact(3)
                    .map(|it| Component {
                        id: it[0],
                        across: usize::from(it[1] >> 4),
                        down: usize::from(it[1] & 15),
                        quantization: usize::from(it[2] & 3),
                        ..Component::default()
                    })
                    .collect();
            }
            0xc2..=0xcf => return Err("not baseline".into()),
            0xdd => restart = usize::from(u16::from_be_bytes([body[0], body[1]])),
            0xda => {
                for it in body[1..body.len() - 3].chunks_exact(2) {
                    for component in components.iter_mut().filter(|component| component.id == it[0])
                    {
                        component.dc = usize::from(it[1] >> 4 & 3);
                        component.ac = 4 + usize::from(it[1] & 3);
                    }
                }
                break;
            }
            _ => {}
        }
    }
    let mut count = Count::default();
    scan(&file[at..], &components, &tables, (width, height), restart, &mut count)?;
    let pixels = (width * height) as f64;
    let luma = components.first().map_or([0; 64], |it| quantization[it.quantization]);
    Ok(Figures {
        quality: quality(&luma),
        bytes_per_pixel: file.len() as f64 / pixels,
        zeros: 1.0 - count.nonzero as f64 / (63 * count.blocks) as f64,
        dense: count.dense as f64 / count.blocks as f64,
        entropy: count.bits() / pixels,
    })
}

/// Counts of symbols and blocks in the entropy-coded data of a scan.
#[derive(Default)]
struct Count {
    blocks: u64,
    nonzero: u64,
    dense: u64,
    /// Number of occurrences of each Huffman symbol. The key is the index of the table and the
    /// symbol.
    symbols: HashMap<(usize, u8), u64>,
    /// Number of value bits that follow the symbols.
    values: u64,
}

impl Count {
    fn bits(&self) -> f64 {
        let mut totals: HashMap<usize, u64> = HashMap::new();
        for (&(table, _), &count) in &self.symbols {
            *totals.entry(table).or_default() += count;
        }
        let cost = |(&(table, _), &count): (&(usize, u8), &u64)| {
            let (count, total) = (count as f64, totals[&table] as f64);
            -count * (count / total).log2()
        };
        self.symbols.iter().map(cost).sum::<f64>() + self.values as f64
    }
}

fn scan(
    data: &[u8],
    components: &[Component],
    tables: &[Huffman],
    (width, height): (usize, usize),
    restart: usize,
    count: &mut Count,
) -> Result<(), String> {
    let across = components.iter().map(|it| it.across).max().unwrap_or(1);
    let down = components.iter().map(|it| it.down).max().unwrap_or(1);
    let single = components.len() == 1;
    let (across, down) = if single { (1, 1) } else { (across, down) };
    let units = width.div_ceil(8 * across) * height.div_ceil(8 * down);
    let mut bits = Bits { data, at: 0, held: 0, len: 0 };
    for unit in 0..units {
        if restart > 0 && unit > 0 && unit % restart == 0 {
            bits.skip_marker();
        }
        for (number, component) in components.iter().enumerate() {
            let blocks = if single { 1 } else { component.across * component.down };
            for _ in 0..blocks {
                block(&mut bits, component, tables, number == 0, count)?;
            }
        }
    }
    Ok(())
}

fn block(
    bits: &mut Bits,
    component: &Component,
    tables: &[Huffman],
    luma: bool,
    count: &mut Count,
) -> Result<(), String> {
    let symbol = |table: usize, bits: &mut Bits, count: &mut Count| {
        let symbol = bits.symbol(&tables[table])?;
        *count.symbols.entry((table, symbol)).or_default() += 1;
        let len = symbol & 15;
        for _ in 0..len {
            bits.next()?;
        }
        count.values += u64::from(len);
        Ok::<_, String>(symbol)
    };
    symbol(component.dc, bits, count)?;
    let (mut place, mut last, mut nonzero) = (1, 0, 0);
    while place < 64 {
        let symbol = symbol(component.ac, bits, count)?;
        if symbol == 0 {
            break;
        }
        place += usize::from(symbol >> 4);
        if symbol & 15 != 0 {
            nonzero += 1;
            last = place;
        }
        place += 1;
    }
    if luma {
        count.blocks += 1;
        count.nonzero += nonzero;
        count.dense += u64::from(last > DENSE);
    }
    Ok(())
}

/// Reads bits of entropy-coded data, and skips stuffed bytes (0x00 after 0xff).
struct Bits<'a> {
    data: &'a [u8],
    at: usize,
    held: u8,
    len: u8,
}

impl Bits<'_> {
    fn next(&mut self) -> Result<u16, String> {
        if self.len == 0 {
            self.held = *self.data.get(self.at).ok_or("the scan is cut off")?;
            self.at += if self.held == 0xff { 2 } else { 1 };
            self.len = 8;
        }
        self.len -= 1;
        Ok(u16::from(self.held >> self.len & 1))
    }

    fn symbol(&mut self, table: &Huffman) -> Result<u8, String> {
        let mut code = 0;
        for len in 1..=16 {
            code = code << 1 | self.next()?;
            if let Some(&symbol) = table.0.get(&(len, code)) {
                return Ok(symbol);
            }
        }
        Err("a code that is not in its Huffman table".into())
    }

    /// Skips the padding bits of the current byte and the restart marker after it.
    fn skip_marker(&mut self) {
        self.len = 0;
        self.at += 2;
    }
}

/// Returns the libjpeg quality whose luma table has nearly the same sum of steps as `table`. The
/// base table (JPEG Annex K) has the sum 3688.
fn quality(table: &[u16; 64]) -> f64 {
    let sum: f64 = table.iter().map(|&it| f64::from(it)).sum();
    let scale = 100.0 * sum / 3688.0;
    if scale <= 100.0 { (200.0 - scale) / 2.0 } else { 5000.0 / scale }
}
