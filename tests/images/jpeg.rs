//! Valid JPEGs with random coefficients, in every sampling, coding process and scan order. The
//! coefficients are written directly, without a forward transform. The files are harder to decode
//! than photographs, because neighbouring blocks are unrelated.

/// Properties of a JPEG to be written.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub width: u16,
    pub height: u16,
    /// Sampling factors of each component.
    pub sampling: Vec<(u8, u8)>,
    /// Identifiers of the components.
    pub ids: [u8; 4],
    pub scans: Scans,
    /// Number of MCUs between restart markers; 0 for a file without restart markers.
    pub restart: u16,
    pub adobe: Option<u8>,
    /// Value of every entry of the quantization table.
    pub step: u8,
    /// Maximum number of bits of an AC coefficient, 4 to 15. Values above 4 also give more nonzero
    /// AC coefficients and DC coefficients of any size.
    pub most_bits: u8,
    pub seed: u64,
}

/// Distribution of the coefficients over scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scans {
    /// One baseline scan with all components.
    Interleaved,
    /// One baseline scan per component.
    Separate,
    /// Progressive: one scan for DC, two bands of AC for each component, and a last scan that
    /// refines DC by one bit.
    Progressive,
    /// Progressive, but only the DC scan.
    OnlyDc,
    /// Progressive, with this number of scans that repeat the same coefficients.
    Repeated(usize),
}

impl Recipe {
    pub fn new(width: u16, height: u16, sampling: &[(u8, u8)]) -> Self {
        Self {
            width,
            height,
            sampling: sampling.to_vec(),
            ids: [1, 2, 3, 4],
            scans: Scans::Interleaved,
            restart: 0,
            adobe: None,
            step: 8,
            most_bits: 4,
            seed: 1,
        }
    }

    /// Returns the bytes of a JPEG file with these properties.
    pub fn make(&self) -> Vec<u8> {
        let mut out = vec![0xFF, 0xD8];
        if let Some(transform) = self.adobe {
            segment(&mut out, 0xEE, &[b"Adobe\0\x64\0\0\0\0" as &[u8], &[transform]].concat());
        }
        let progressive = !matches!(self.scans, Scans::Interleaved | Scans::Separate);
        self.frame(&mut out, if progressive { 0xC2 } else { 0xC0 });
        let mut dc = vec![0; 17];
        dc[4] = 12;
        dc.extend(0..12);
        segment(&mut out, 0xC4, &dc);
        let mut ac = vec![0; 17];
        ac[0] = 0x10;
        ac[8] = 2 + 16 * self.most_bits;
        ac.extend([0x00, 0xF0]);
        ac.extend((0..16).flat_map(|run| (1..=self.most_bits).map(move |size| run << 4 | size)));
        segment(&mut out, 0xC4, &ac);
        if self.restart > 0 {
            segment(&mut out, 0xDD, &self.restart.to_be_bytes());
        }
        let all: Vec<usize> = (0..self.sampling.len()).collect();
        match self.scans {
            Scans::Interleaved => self.scan(&mut out, &all, 0, 63, 0, 0),
            Scans::Separate => all.iter().for_each(|&c| self.scan(&mut out, &[c], 0, 63, 0, 0)),
            Scans::OnlyDc => self.scan(&mut out, &all, 0, 0, 0, 1),
            Scans::Repeated(count) => {
                self.scan(&mut out, &all, 0, 0, 0, 0);
                (1..count).for_each(|_| self.scan(&mut out, &[0], 1, 63, 0, 0));
            }
            Scans::Progressive => {
                self.scan(&mut out, &all, 0, 0, 0, 1);
                for (first, last) in [(1, 5), (6, 63)] {
                    all.iter().for_each(|&c| self.scan(&mut out, &[c], first, last, 0, 0));
                }
                self.scan(&mut out, &all, 0, 0, 1, 0);
            }
        }
        out.extend([0xFF, 0xD9]);
        out
    }

    /// Writes the quantization table and the frame header.
    pub fn frame(&self, out: &mut Vec<u8>, marker: u8) {
        segment(out, 0xDB, &[&[0u8] as &[u8], &[self.step; 64]].concat());
        let mut frame = vec![8];
        frame.extend(self.height.to_be_bytes());
        frame.extend(self.width.to_be_bytes());
        frame.push(self.sampling.len() as u8);
        for (&(h, v), id) in self.sampling.iter().zip(self.ids) {
            frame.extend([id, h << 4 | v, 0]);
        }
        segment(out, marker, &frame);
    }

    /// Returns the MCUs per row and the rows of MCUs of a scan with these components. If the scan
    /// has a single component, an MCU is one block.
    pub fn units(&self, components: &[usize]) -> [u32; 2] {
        let h_max = u32::from(self.sampling.iter().map(|s| s.0).max().unwrap());
        let v_max = u32::from(self.sampling.iter().map(|s| s.1).max().unwrap());
        let (width, height) = (u32::from(self.width), u32::from(self.height));
        match components {
            &[c] => {
                let (h, v) = (u32::from(self.sampling[c].0), u32::from(self.sampling[c].1));
                [(width * h).div_ceil(h_max).div_ceil(8), (height * v).div_ceil(v_max).div_ceil(8)]
            }
            _ => [width.div_ceil(8 * h_max), height.div_ceil(8 * v_max)],
        }
    }

    /// Returns column and row of each block that `component` has in MCU number `unit`.
    pub fn blocks(
        &self,
        components: &[usize],
        component: usize,
        unit: u32,
        columns: u32,
    ) -> impl Iterator<Item = [u32; 2]> + use<> {
        let (h, v) = if components.len() == 1 { (1, 1) } else { self.sampling[component] };
        let [h, v] = [h, v].map(u32::from);
        let [column, row] = [unit % columns, unit / columns];
        (0..v).flat_map(move |y| (0..h).map(move |x| [column * h + x, row * v + y]))
    }

    fn scan(&self, out: &mut Vec<u8>, components: &[usize], ss: usize, se: usize, ah: u8, al: u8) {
        let mut head = vec![components.len() as u8];
        components.iter().for_each(|&c| head.extend([self.ids[c], 0]));
        head.extend([ss as u8, se as u8, ah << 4 | al]);
        segment(out, 0xDA, &head);
        let mut bits = Bits::new(out);
        let mut last_dc = [0; 4];
        let [columns, rows] = self.units(components);
        for mcu in 0..columns * rows {
            if self.restart > 0 && mcu > 0 && mcu % u32::from(self.restart) == 0 {
                bits.restart(mcu / u32::from(self.restart) - 1);
                last_dc = [0; 4];
            }
            for &c in components {
                for [x, y] in self.blocks(components, c, mcu, columns) {
                    let block = self.block(c, x, y);
                    if ah > 0 {
                        bits.put((block[0] >> al & 1) as u32, 1);
                        continue;
                    }
                    if ss == 0 {
                        let dc = block[0] >> al;
                        let difference = dc - last_dc[c];
                        last_dc[c] = dc;
                        let size = size_of_value(difference);
                        bits.put(size, 4);
                        bits.put_value(difference, size);
                    }
                    bits.put_ac(&block, (ss.max(1), se), self.most_bits.into());
                }
            }
        }
        bits.flush();
    }

    /// Returns the coefficients of one block in zigzag order. They depend only on the seed and the
    /// block's position, so all scans of a file agree on them.
    pub fn block(&self, component: usize, x: u32, y: u32) -> [i32; 64] {
        let place = u64::from(x) << 32 | u64::from(y) << 8 | component as u64;
        let mut state = self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ place;
        let mut next = |bound: u64| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ z >> 31) % bound) as i32
        };
        let mut block = [0; 64];
        if self.most_bits > 4 {
            block[0] = next(2047) - 1023;
            for _ in 0..next(80) {
                let most = (1 << (1 + next(self.most_bits.into()))) - 1;
                block[1 + next(63) as usize] = next(2 * most + 1) - most as i32;
            }
            return block;
        }
        block[0] = next(241) - 120;
        for _ in 0..next(5) {
            block[1 + next(63) as usize] = next(31) - 15;
        }
        block
    }
}

/// Writes a marker segment.
pub fn segment(out: &mut Vec<u8>, marker: u8, body: &[u8]) {
    out.extend([0xFF, marker]);
    out.extend((body.len() as u16 + 2).to_be_bytes());
    out.extend(body);
}

/// Number of bits of a coefficient's magnitude, the size category of T.81.
pub fn size_of_value(value: i32) -> u32 {
    32 - value.unsigned_abs().leading_zeros()
}

/// Writer of entropy-coded data, bit by bit.
pub struct Bits<'a> {
    out: &'a mut Vec<u8>,
    value: u32,
    count: u32,
}

impl<'a> Bits<'a> {
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, value: 0, count: 0 }
    }

    pub fn put(&mut self, value: u32, count: u32) {
        for bit in (0..count).rev() {
            self.value = self.value << 1 | (value >> bit & 1);
            self.count += 1;
            if self.count == 8 {
                self.out.push(self.value as u8);
                if self.value as u8 == 0xFF {
                    self.out.push(0);
                }
                (self.value, self.count) = (0, 0);
            }
        }
    }

    pub fn put_value(&mut self, value: i32, size: u32) {
        let value = if value < 0 { value - 1 } else { value };
        self.put(value as u32 & ((1 << size) - 1), size);
    }

    fn put_ac(&mut self, block: &[i32; 64], (first, last): (usize, usize), most_bits: u32) {
        let mut run = 0;
        for &value in block.get(first..=last).unwrap_or_default() {
            if value == 0 {
                run += 1;
                continue;
            }
            while run > 15 {
                self.put(1, 8);
                run -= 16;
            }
            let size = size_of_value(value);
            self.put(2 + most_bits * run + size - 1, 8);
            self.put_value(value, size);
            run = 0;
        }
        if run > 0 {
            self.put(0, 8);
        }
    }

    /// Writes a restart marker.
    pub fn restart(&mut self, number: u32) {
        self.flush();
        self.out.extend([0xFF, 0xD0 + (number % 8) as u8]);
    }

    pub fn flush(&mut self) {
        while self.count != 0 {
            self.put(1, 1);
        }
    }
}
