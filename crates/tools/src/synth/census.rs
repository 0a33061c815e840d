//! Counts the composition of a set of JPEGs: chroma samplings, Huffman tables, qualities and sizes.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use feedwater::error::{Error, Result};
use feedwater::internals::header::Header;
use jpeg_encoder::{ColorType, Encoder};
use serde::{Deserialize, Serialize};

use super::segments::{DHT, EOI, SOS, Table, segment};
use crate::probe::sampling_name;

/// Composition of a set of JPEGs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Census {
    /// Number of JPEGs.
    pub files: u64,
    /// Number of files without an intact JPEG header. The other fields do not count these files.
    pub others: u64,
    /// Total bytes of the JPEGs.
    pub bytes: u64,
    /// Total pixels of the JPEGs.
    pub pixels: u64,
    /// Number of files by chroma sampling, such as `4:4:4` or `gray`.
    pub samplings: BTreeMap<String, u64>,
    /// Number of files with a Huffman table that is not one of the standard tables of T.81, Annex
    /// K.
    pub own_tables: u64,
    /// Progressive files.
    pub progressive: u64,
    /// Number of files with restart markers.
    pub restart_markers: u64,
    /// Width and height in pixels of three files: the file with the fewest pixels, the median file,
    /// and the file with the most pixels.
    pub sizes: Option<[[u32; 2]; 3]>,
    /// Lowest, median and highest luma quality, 1 to 100 as in libjpeg. If a file's quantization
    /// table is not one that libjpeg writes, the quality with the most similar table counts.
    pub qualities: Option<[u8; 3]>,
}

/// Properties of one JPEG that a [`Census`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileFacts {
    bytes: u64,
    size: [u32; 2],
    sampling: &'static str,
    own_tables: bool,
    progressive: bool,
    restart_markers: bool,
    quality: u8,
}

impl Census {
    /// Counts the composition of all JPEGs below a folder. Reads only their headers, up to the
    /// first scan.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Io`] if a folder or a file cannot be read.
    pub fn of_folder(folder: &Path) -> Result<Self> {
        Self::of_files(&jpegs(folder)?)
    }

    /// Counts the given files as [`Census::of_folder`] does.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Io`] if a file cannot be read.
    pub fn of_files(files: &[PathBuf]) -> Result<Self> {
        let mut facts = Vec::new();
        for file in files {
            let bytes = fs::read(file).map_err(|error| Error::io(file, &error))?;
            facts.push(FileFacts::of(&bytes));
        }
        Ok(Self::of(&facts))
    }

    pub(super) fn of(files: &[Option<FileFacts>]) -> Self {
        let mut facts: Vec<FileFacts> = files.iter().flatten().copied().collect();
        let count =
            |like: fn(&FileFacts) -> bool| facts.iter().filter(|it| like(it)).count() as u64;
        let mut census = Self {
            files: facts.len() as u64,
            others: (files.len() - facts.len()) as u64,
            bytes: facts.iter().map(|it| it.bytes).sum(),
            pixels: facts.iter().map(FileFacts::pixels).sum(),
            own_tables: count(|it| it.own_tables),
            progressive: count(|it| it.progressive),
            restart_markers: count(|it| it.restart_markers),
            ..Self::default()
        };
        for file in &facts {
            *census.samplings.entry(file.sampling.into()).or_default() += 1;
        }
        if !facts.is_empty() {
            let places = [0, facts.len() / 2, facts.len() - 1];
            facts.sort_by_key(|it| (it.pixels(), it.size));
            census.sizes = Some(places.map(|place| facts[place].size));
            facts.sort_by_key(|it| it.quality);
            census.qualities = Some(places.map(|place| facts[place].quality));
        }
        census
    }

    /// Mean bytes per pixel over all files. 0 if there are no files.
    pub fn bytes_per_pixel(&self) -> f64 {
        self.bytes as f64 / self.pixels.max(1) as f64
    }
}

/// Prints two lines, without a line break after the second.
impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share =
            |count: u64| format!("{:.1} %", 100.0 * count as f64 / self.files.max(1) as f64);
        let mut samplings: Vec<_> = self.samplings.iter().collect();
        samplings.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (name, &count) in samplings {
            write!(f, "{name} {}, ", share(count))?;
        }
        write!(f, "own Huffman tables {}, ", share(self.own_tables))?;
        write!(f, "progressive {}, ", share(self.progressive))?;
        write!(f, "restart markers {}", share(self.restart_markers))?;
        if let (Some(sizes), Some([low, median, high])) = (self.sizes, self.qualities) {
            let [small, middle, large] = sizes.map(|[width, height]| format!("{width}x{height}"));
            write!(
                f,
                "\n{small} to {large}, median {middle}; quality {low} to {high}, median {median}; "
            )?;
            write!(f, "{:.2} bytes per pixel", self.bytes_per_pixel())?;
        }
        if self.others > 0 {
            write!(f, "; {} other files", self.others)?;
        }
        Ok(())
    }
}

/// Returns the sorted paths of the files below a folder whose names end with `.jpg` or `.jpeg`, in
/// upper or lower case.
///
/// # Errors
///
/// Fails with [`Error::Io`] if a folder cannot be read.
pub fn jpegs(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error: &std::io::Error| Error::io(folder, error);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| failed(&error))? {
        let path = entry.map_err(|error| failed(&error))?.path();
        let ending = path.extension().unwrap_or_default().to_ascii_lowercase();
        if path.is_dir() {
            files.extend(jpegs(&path)?);
        } else if ending == "jpg" || ending == "jpeg" {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

impl FileFacts {
    /// Returns the properties of a file, or `None` if the file has no intact JPEG header.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let header = Header::parse(bytes).ok()?;
        let jpeg = header.jpeg.as_ref()?;
        let mut facts = Self {
            bytes: bytes.len() as u64,
            size: [header.size.width, header.size.height],
            sampling: sampling_name(jpeg.sampling()),
            own_tables: false,
            progressive: jpeg.is_progressive(),
            restart_markers: jpeg.restart_interval > 0,
            quality: 0,
        };
        let (mut steps, mut luma) = ([0.0; 16], 0);
        let mut rest = bytes.get(2..)?;
        loop {
            let found = segment(rest).ok()?;
            rest = found.rest;
            match found.marker {
                DHT => {
                    let tables = Table::parse(found.body).ok()?;
                    facts.own_tables |= tables.iter().any(|it| !STANDARD_TABLES.contains(it));
                }
                0xdb => sums_of_steps(found.body, &mut steps)?,
                // Number of the quantization table that the first component uses.
                0xc0..=0xcf => luma = *found.body.get(8)?,
                SOS | EOI => break,
                _ => {}
            }
        }
        facts.quality = quality(steps[usize::from(luma & 15)]);
        Some(facts)
    }

    fn pixels(&self) -> u64 {
        u64::from(self.size[0]) * u64::from(self.size[1])
    }
}

/// Standard Huffman tables of T.81, Annex K. They are read from a JPEG that the encoder writes.
static STANDARD_TABLES: LazyLock<Vec<Table>> = LazyLock::new(|| {
    let mut jpeg = Vec::new();
    let encoded = Encoder::new(&mut jpeg, 90).encode(&[0; 3], 1, 1, ColorType::Rgb);
    let mut tables = Vec::new();
    let mut rest = jpeg.get(2..).filter(|_| encoded.is_ok()).unwrap_or_default();
    while let Ok(found) = segment(rest) {
        match found.marker {
            DHT => tables.extend(Table::parse(found.body).unwrap_or_default()),
            SOS => break,
            _ => {}
        }
        rest = found.rest;
    }
    tables
});

/// Adds up the quantization steps of each table of a DQT segment. `sums` is indexed by table
/// number.
fn sums_of_steps(mut body: &[u8], sums: &mut [f64; 16]) -> Option<()> {
    while let Some((&head, rest)) = body.split_first() {
        let wide = head >> 4 != 0;
        let (steps, rest) = rest.split_at_checked(if wide { 128 } else { 64 })?;
        let sum: u32 = if wide {
            steps.as_chunks().0.iter().map(|&step| u32::from(u16::from_be_bytes(step))).sum()
        } else {
            steps.iter().map(|&step| u32::from(step)).sum()
        };
        sums[usize::from(head & 15)] = f64::from(sum);
        body = rest;
    }
    Some(())
}

/// Returns the libjpeg quality whose luma table has nearly this sum of steps. The base table (T.81,
/// Annex K) has the sum 3688.
fn quality(sum: f64) -> u8 {
    // With a sum of at most 64, all of the 64 quantization steps are 1.
    if sum <= 64.0 {
        return 100;
    }
    let scale = 100.0 * sum / 3688.0;
    let quality = if scale <= 100.0 { (200.0 - scale) / 2.0 } else { 5000.0 / scale };
    // `quality` is between 1 and 100, so the conversion is exact.
    quality.round() as u8
}
