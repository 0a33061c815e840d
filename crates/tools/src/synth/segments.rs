//! Marker segments of a JPEG.

/// One marker segment of a JPEG file.
pub struct Segment<'a> {
    /// Second byte of the marker, such as 0xc4 for DHT.
    pub marker: u8,
    /// Contents of the segment without its marker and length.
    pub body: &'a [u8],
    /// All bytes of the segment, including its marker and length.
    pub whole: &'a [u8],
    /// All bytes of the file after the segment.
    pub rest: &'a [u8],
}

/// Marker SOS: start of scan.
pub const SOS: u8 = 0xda;
/// Marker DHT: definition of Huffman tables.
pub const DHT: u8 = 0xc4;
/// Marker EOI: end of the image.
pub const EOI: u8 = 0xd9;

/// Returns the segment at the start of `bytes`. Fill bytes (0xff) may precede the marker. SOI, EOI,
/// RST and TEM have no contents.
pub fn segment(bytes: &[u8]) -> Result<Segment<'_>, String> {
    let fill = bytes.iter().take_while(|&&byte| byte == 0xff).count();
    let &marker = bytes.get(fill).ok_or("the file ends before a marker")?;
    if fill == 0 || marker == 0 {
        return Err("a marker is missing".into());
    }
    let (_, rest) = bytes.split_at(fill + 1);
    if matches!(marker, 0x01 | 0xd0..=EOI) {
        return Ok(Segment { marker, body: &[], whole: &bytes[fill - 1..=fill], rest });
    }
    let len = rest.first_chunk().map_or(0, |&len| usize::from(u16::from_be_bytes(len)));
    let parts = rest.split_at_checked(len).filter(|_| len >= 2);
    let (body, rest) =
        parts.ok_or_else(|| format!("the file ends inside segment 0xff{marker:02x}"))?;
    Ok(Segment { marker, body: &body[2..], whole: &bytes[fill - 1..=fill + len], rest })
}

/// Huffman table as a DHT segment defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub is_ac: bool,
    /// Number of the table, 0 to 3.
    pub number: u8,
    /// Number of codes of each length from 1 to 16 bits.
    pub counts: [u8; 16],
    /// Symbols in the order of their codes.
    pub symbols: Vec<u8>,
}

impl Table {
    /// Parses the contents of a DHT segment, which may define several tables.
    pub fn parse(mut body: &[u8]) -> Result<Vec<Self>, String> {
        let mut tables = Vec::new();
        while let Some((&head, rest)) = body.split_first() {
            let cut_off = "a Huffman table is cut off";
            let (counts, rest) = rest.split_first_chunk::<16>().ok_or(cut_off)?;
            let count = counts.iter().map(|&it| usize::from(it)).sum();
            let (symbols, rest) = rest.split_at_checked(count).ok_or(cut_off)?;
            if head & 0xec != 0 || count > 256 {
                return Err(format!(
                    "a Huffman table has the invalid class and number 0x{head:02x}, or too many \
                     codes"
                ));
            }
            let (is_ac, number) = (head & 0x10 != 0, head & 3);
            tables.push(Self { is_ac, number, counts: *counts, symbols: symbols.to_vec() });
            body = rest;
        }
        Ok(tables)
    }

    /// Appends the table as a separate DHT segment, as libjpeg writes it.
    pub fn write(&self, out: &mut Vec<u8>) {
        // At most 19 + 256 bytes, so the length fits in 16 bits.
        let len = (19 + self.symbols.len()) as u16;
        out.extend([0xff, DHT]);
        out.extend(len.to_be_bytes());
        out.push(u8::from(self.is_ac) << 4 | self.number);
        out.extend(self.counts);
        out.extend(&self.symbols);
    }
}
