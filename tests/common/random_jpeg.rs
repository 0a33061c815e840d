//! Random JPEGs for fuzzing. In most files, tables, frame, restart markers and coded data are
//! valid, so decoders reach the end of the file. Some files have optimal Huffman tables. In some
//! files, header or coded data are corrupted afterwards.

use feedwater_tools::synth::optimized;

use crate::Random;

/// Sampling factors of the components. feedwater's own decoder supports the first seven entries.
const SAMPLINGS: [&[(u8, u8)]; 10] = [
    &[(1, 1)],
    &[(1, 1), (1, 1), (1, 1)],
    &[(2, 1), (1, 1), (1, 1)],
    &[(2, 2), (1, 1), (1, 1)],
    &[(1, 2), (1, 1), (1, 1)],
    &[(4, 1), (1, 1), (1, 1)],
    &[(2, 2)],
    &[(2, 2), (2, 1), (1, 2)],
    &[(1, 1), (1, 1)],
    &[(1, 1), (1, 1), (1, 1), (1, 1)],
];

/// Number of codes of each length in the Huffman tables of T.81, annex K: DC and AC of luma, then
/// DC and AC of chroma.
const COUNTS: [[u8; 16]; 4] = [
    [0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0],
    [0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125],
    [0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0],
    [0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119],
];

/// A Huffman table, with the codes that the writer of the coded data uses.
struct Table {
    counts: [u8; 16],
    symbols: Vec<u8>,
    /// Length and bits of each symbol, in the order of `symbols`.
    codes: Vec<(u32, u32)>,
}

impl Table {
    fn new(counts: [u8; 16], symbols: Vec<u8>) -> Self {
        let mut codes = Vec::with_capacity(symbols.len());
        let mut next = 0;
        for (count, len) in counts.iter().zip(1..) {
            for _ in 0..*count {
                codes.push((len, next));
                next += 1;
            }
            next <<= 1;
        }
        Self { counts, symbols, codes }
    }

    /// Returns the Huffman table with the code lengths `COUNTS[number]` of annex K and its symbols
    /// in a fixed order.
    fn usual(number: usize) -> Self {
        let is_dc = number.is_multiple_of(2);
        let symbols = if is_dc {
            (0..12).collect()
        } else {
            // The symbols are sorted by run + 2 * size, which is nearly the order of falling
            // frequency.
            let mut symbols: Vec<u8> =
                (0..16).flat_map(|run| (1..=10).map(move |size| run << 4 | size)).collect();
            symbols.extend([0, 0xf0]);
            symbols.sort_by_key(|it| match it {
                0 => (0, 0),
                it => (u32::from(it >> 4) + 2 * u32::from(it & 15), u32::from(*it)),
            });
            symbols
        };
        Self::new(COUNTS[number], symbols)
    }

    /// Returns a random prefix code for `symbols`.
    fn any(mut symbols: Vec<u8>, random: &mut Random) -> Self {
        for at in (1..symbols.len()).rev() {
            symbols.swap(at, random.below(at + 1));
        }
        // The code tree has one leaf more than there are symbols, because JPEG reserves the code
        // that consists of ones only.
        let mut leaves = [0u32; 17];
        leaves[0] = 1;
        let is_deep = random.below(3) == 0;
        for _ in 0..symbols.len() {
            let splits = |len: &usize| leaves[*len] > 0;
            let from = if is_deep { random.below(16) } else { random.below(9) };
            let len = (from..16).find(splits).or_else(|| (0..16).find(splits));
            let len = len.expect("there are 65,536 codes");
            leaves[len] -= 1;
            leaves[len + 1] += 2;
        }
        let longest = (0..17).rev().find(|len| leaves[*len] > 0).expect("there is a leaf");
        leaves[longest] -= 1;
        let counts = std::array::from_fn(|at| leaves[at + 1] as u8);
        Self::new(counts, symbols)
    }

    fn write(&self, out: &mut Vec<u8>, class: u8) {
        out.push(class);
        out.extend(self.counts);
        out.extend(&self.symbols);
    }
}

/// Returns a random JPEG file. Some of the files are corrupt.
pub fn draw(random: &mut Random) -> Vec<u8> {
    let usual = [0, 1, 2, 3].map(|_| random.below(24));
    let sampling = SAMPLINGS[if usual[0] == 0 { random.below(10) } else { random.below(6) }];
    let side = |random: &mut Random| match random.below(400) {
        0 => 1 + random.below(600),
        1..40 => 1 + random.below(48),
        _ => 1 + random.below(20),
    };
    let (width, height) = (side(random), if usual[1] == 0 { 8 } else { side(random) });
    let height = if width > 100 { 1 + height % 20 } else { height };
    // If an image is at most 4 pixels wide and its chroma has half the width, feedwater leaves it
    // to libjpeg-turbo. So images this narrow are kept rare.
    let width = if width <= 4 && random.below(8) > 0 { width + 4 } else { width };

    let tables = draw_tables(random);
    let mut segments: Vec<(u8, Vec<u8>)> = Vec::new();
    match random.below(8) {
        0 => {}
        1 => segments.push((0xee, [b"Adobe\0\x64\0\0\0\0" as &[u8], &[1]].concat())),
        _ => segments.push((0xe0, b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0".to_vec())),
    }
    if random.below(16) == 0 {
        segments.push(([0xe1, 0xe2, 0xed, 0xfe][random.below(4)], vec![0xff; random.below(40)]));
    }
    let quantizations = 1 + random.below(2);
    let range = [1, 2, 8, 30, 255][random.below(5)];
    for number in 0..quantizations {
        let is_wide = random.below(12) == 0;
        let mut body = vec![number as u8 | if is_wide { 16 } else { 0 }];
        for _ in 0..64 {
            let step = 1 + random.below(range);
            if is_wide {
                let is_large = random.below(64) == 0;
                body.extend((if is_large { 257 * step } else { step } as u16).to_be_bytes());
            } else {
                body.push(step as u8);
            }
        }
        segments.push((0xdb, body));
    }
    let mut huffman: Vec<u8> = Vec::new();
    for (table, class) in tables.iter().zip([0x00, 0x10, 0x01, 0x11]) {
        table.write(&mut huffman, class);
        if random.below(2) == 0 {
            segments.push((0xc4, std::mem::take(&mut huffman)));
        }
    }
    let interval = if random.below(3) == 0 { 1 + random.below(6) } else { 0 };
    if interval > 0 || usual[2] == 0 {
        segments.push((0xdd, (interval as u16).to_be_bytes().to_vec()));
    }
    let mut frame = vec![8];
    frame.extend((height as u16).to_be_bytes());
    frame.extend((width as u16).to_be_bytes());
    frame.push(sampling.len() as u8);
    let first_id = if usual[3] == 0 { random.below(250) as u8 } else { 1 };
    let mut scan = vec![sampling.len() as u8];
    let mut numbers = Vec::new();
    for (at, (h, v)) in sampling.iter().enumerate() {
        let id = first_id + at as u8;
        frame.extend([id, h << 4 | v, random.below(quantizations) as u8]);
        let [dc, ac] = if random.below(8) == 0 {
            [random.below(2), random.below(2)]
        } else {
            [usize::from(at > 0); 2]
        };
        scan.extend([id, (dc << 4 | ac) as u8]);
        numbers.push([2 * dc, 2 * ac + 1]);
    }
    scan.extend([0, 63, 0]);
    let sof = (0xc0 + u8::from(random.below(6) == 0), frame);
    let place = random.below(segments.len() + 1);
    segments.insert(if random.below(4) == 0 { place } else { segments.len() }, sof);
    if !huffman.is_empty() {
        segments.push((0xc4, huffman));
    }
    segments.push((0xda, scan));

    let mut out = vec![0xff, 0xd8];
    for (marker, body) in segments {
        if random.below(64) == 0 {
            out.push(0xff);
        }
        out.extend([0xff, marker]);
        out.extend((body.len() as u16 + 2).to_be_bytes());
        out.extend(body);
    }
    let coded = out.len();
    let mut bits = Bits { out, buffer: 0, count: 0 };
    let tables = numbers.iter().map(|[dc, ac]| [&tables[*dc], &tables[*ac]]).collect::<Vec<_>>();
    // In seven of eight files, coefficients stay within the range in which libjpeg-turbo's vector
    // code and C code give the same pixels.
    let most_size = if random.below(8) > 0 { (8191 / range).ilog2() } else { 15 };
    let drawn = Drawn {
        fill: random.below(9),
        most_size,
        runs_over: random.below(64) == 0,
        padding: u64::from(random.below(16) > 0),
    };
    write_scan(&mut bits, sampling, [width, height], interval, &tables, &drawn, random);
    let mut out = bits.out;
    if random.below(32) == 0 {
        out.push(0xff);
    }
    out.extend([0xff, 0xd9]);
    if random.below(16) == 0 {
        out.extend(vec![random.next() as u8; random.below(20)]);
    }
    let mut coded = coded;
    if random.below(4) == 0 {
        // Nearly all photographs have optimal tables. `optimized` returns an error for files that
        // are not baseline.
        if let Ok(optimal) = optimized(&out) {
            out = optimal;
            coded = start_of_data(&out);
        }
    }
    damage(&mut out, coded, random);
    out
}

/// Returns the offset of the coded data in an intact file.
fn start_of_data(file: &[u8]) -> usize {
    let mut at = 2;
    loop {
        at += file[at..].iter().take_while(|&&byte| byte == 0xff).count();
        let marker = file[at];
        at += 1 + usize::from(u16::from_be_bytes([file[at + 1], file[at + 2]]));
        if marker == 0xda {
            return at;
        }
    }
}

/// Corrupts the header or the coded data of one file in four.
fn damage(out: &mut Vec<u8>, coded: usize, random: &mut Random) {
    let len = out.len() - coded;
    match random.below(24) {
        0 => out[2 + random.below(coded - 2)] ^= 1 << random.below(8),
        1 => out[2 + random.below(coded - 2)] = random.next() as u8,
        2 => out[coded + random.below(len)] ^= 1 << random.below(8),
        3 => out[coded + random.below(len)] = [0, 0xff, 0xd0, 0xd9][random.below(4)],
        4 => {
            for _ in 0..1 + random.below(4) {
                let at = coded + random.below(len);
                out.insert(at, random.next() as u8);
            }
        }
        5 => {
            let at = coded + random.below(len);
            out.drain(at..(at + 1 + random.below(6)).min(coded + len));
        }
        _ => {}
    }
}

/// Returns DC and AC tables for luma, then for chroma: those of annex K or random ones.
fn draw_tables(random: &mut Random) -> [Table; 4] {
    let is_usual = random.below(2) == 0;
    [0, 1, 2, 3].map(|number| {
        if is_usual {
            return Table::usual(number);
        }
        if number % 2 == 0 {
            let most = 1 + random.below(12) as u8;
            return Table::any((0..most).collect(), random);
        }
        // Besides random symbols, each table has either end of block (0x00) or a coefficient of one
        // bit without a preceding zero (0x01). With one of these, every block can be completed.
        let end = u8::from(random.below(8) == 0);
        let most_size = [2, 4, 8, 10, 15][random.below(5)];
        let mut symbols = vec![end];
        let most_symbols = [3, 20, 120][random.below(3)];
        for _ in 0..random.below(most_symbols) {
            let symbol = (random.below(16) << 4 | (1 + random.below(most_size))) as u8;
            if !symbols.contains(&symbol) {
                symbols.push(symbol);
            }
        }
        if random.below(4) > 0 {
            symbols.push(0xf0);
        }
        Table::any(symbols, random)
    })
}

/// Random properties that all blocks of a file share.
struct Drawn {
    /// How densely blocks are filled with coefficients, from 0 to 8.
    fill: usize,
    /// Maximum number of bits of a coefficient.
    most_size: u32,
    /// Whether runs of zeros may extend beyond the last coefficient, which makes the file corrupt.
    runs_over: bool,
    /// Value of the bits that fill up the last byte: 0 or 1.
    padding: u64,
}

fn write_scan(
    bits: &mut Bits,
    sampling: &[(u8, u8)],
    [width, height]: [usize; 2],
    interval: usize,
    tables: &[[&Table; 2]],
    drawn: &Drawn,
    random: &mut Random,
) {
    let most = |of: fn(&(u8, u8)) -> u8| usize::from(sampling.iter().map(of).max().unwrap());
    let [h, v] = if sampling.len() == 1 { [1, 1] } else { [most(|it| it.0), most(|it| it.1)] };
    let units = width.div_ceil(8 * h) * height.div_ceil(8 * v);
    let mut predictions = [0; 4];
    for unit in 0..units {
        if interval > 0 && unit > 0 && unit % interval == 0 {
            bits.flush(drawn.padding);
            if random.below(64) == 0 {
                bits.out.push(0xff);
            }
            bits.out.extend([0xff, 0xd0 + (unit / interval - 1) as u8 % 8]);
            predictions = [0; 4];
        }
        for (at, ([dc, ac], (h, v))) in tables.iter().zip(sampling).enumerate() {
            let blocks = if sampling.len() == 1 { 1 } else { h * v };
            for _ in 0..blocks {
                write_block(bits, dc, ac, &mut predictions[at], drawn, random);
            }
        }
    }
    bits.flush(drawn.padding);
}

fn write_block(
    bits: &mut Bits,
    dc: &Table,
    ac: &Table,
    prediction: &mut i64,
    drawn: &Drawn,
    random: &mut Random,
) {
    // Draws the DC difference up to eight times, until the DC value is in the range of 8-bit
    // samples.
    for attempt in 0..8 {
        let place = random.below(dc.symbols.len());
        let size = u32::from(dc.symbols[place]);
        let value = random.next() & ((1 << size) - 1);
        let is_negative = size > 0 && value >> (size - 1) == 0;
        let difference = value as i64 - if is_negative { (1 << size) - 1 } else { 0 };
        let sum = *prediction + difference;
        if attempt < 7 && sum.unsigned_abs() >= 1 << drawn.most_size.min(10) {
            continue;
        }
        *prediction = sum;
        bits.put_code(dc.codes[place]);
        bits.put(value, size);
        break;
    }
    let end = ac.symbols.iter().position(|it| *it <= 1).expect("blocks can end");
    let mut at = 1;
    while at < 64 {
        let is_over = random.below(16) >= 2 * drawn.fill;
        let place = if is_over { end } else { random.below(ac.symbols.len()) };
        let symbol = ac.symbols[place];
        let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        let (place, run, size) = if at + run > 63 && !drawn.runs_over || size > drawn.most_size {
            (end, 0, u32::from(ac.symbols[end]))
        } else {
            (place, run, size)
        };
        bits.put_code(ac.codes[place]);
        if size == 0 && run == 0 {
            return;
        }
        // Any `size` bits encode a coefficient of this size, so random bits give a random
        // coefficient.
        bits.put(random.next() & ((1 << size) - 1), size);
        at += run + 1;
    }
}

/// Writer of a scan's bits, with byte stuffing.
struct Bits {
    out: Vec<u8>,
    buffer: u64,
    count: u32,
}

impl Bits {
    fn put_code(&mut self, (len, code): (u32, u32)) {
        self.put(code.into(), len);
    }

    fn put(&mut self, value: u64, len: u32) {
        self.buffer = self.buffer << len | value;
        self.count += len;
        while self.count >= 8 {
            self.count -= 8;
            let byte = (self.buffer >> self.count) as u8;
            self.out.push(byte);
            if byte == 0xff {
                self.out.push(0);
            }
        }
    }

    /// Fills the last byte with ones, as encoders do, or with zeros.
    fn flush(&mut self, padding: u64) {
        while self.count > 0 {
            self.put(padding, 1);
        }
    }
}
