//! Packs a source on several machines. The resulting files equal those that [`pack`](super::pack())
//! writes on one machine.
//!
//! * One process owns the [`Coordinator`]. The coordinator locks the directory, determines where
//!   shards end, and lists finished shards in the manifest.
//! * Other processes [`encode`] parts of the source into pieces, on any machine and in any order. A
//!   piece can be sent as bytes.
//! * The coordinator receives the sizes of the samples in source order. From these it computes
//!   where each shard ends, and returns the shards that are complete. Other processes write these
//!   shards with [`write_shard`] from the pieces that contain their samples.
//! * Encoding and writing are deterministic. If a machine is lost, its work can be repeated
//!   elsewhere.
//!
//! All machines must reach the source and the directory of the shards under the same paths.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use feedwater::error::{Error, Result};
use feedwater::source::Source;

use super::encode::{EncodedImage, Sample, in_order};
use super::fields::FieldPlan;
use super::layout::{SampleFields, StoredField};
use super::lock::Lock;
use super::manifest::remove_leftovers;
use super::origin::Origin;
use super::shard::Facts;
use super::writer::{Writer, Written};
use super::{Manifest, Settings};

/// Encoded samples of a contiguous range of the source.
pub struct Piece {
    begin: u64,
    samples: Vec<Sample>,
}

/// Range of the source's samples that one shard contains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardRange {
    /// Number of the shard.
    pub number: u64,
    /// Source index of the shard's first sample.
    pub begin: u64,
    /// Source index of the first sample after the shard.
    pub end: u64,
    /// Number of samples in the whole source.
    pub samples: u64,
}

/// Reads and encodes a range of the source's samples.
///
/// # Errors
///
/// Fails with [`Error::Config`] for invalid settings, and with [`Error::Sample`] for the first
/// unusable sample unless unusable samples are skipped.
pub fn encode(source: &dyn Source, settings: &Settings, samples: Range<u64>) -> Result<Piece> {
    settings.check()?;
    let end = samples.end.min(source.len());
    let begin = samples.start.min(end);
    let mut piece = Piece { begin, samples: Vec::new() };
    let fields = FieldPlan::new(source, settings)?;
    in_order(source, settings, &fields, begin..end, |_, sample| {
        piece.samples.push(sample);
        Ok(())
    })?;
    Ok(piece)
}

/// Writes a shard and the hidden files beside it. `pieces` are the pieces that contain the shard's
/// samples, in source order. Their samples that do not belong to the shard are ignored.
///
/// # Errors
///
/// Fails with [`Error::Config`] if `pieces` lacks a sample of the shard, and with [`Error::Io`] if
/// a file cannot be written.
pub fn write_shard(
    directory: &Path,
    settings: &Settings,
    shard: &ShardRange,
    pieces: impl IntoIterator<Item = Result<Piece>>,
) -> Result<Written> {
    let ShardRange { number, begin, end, samples } = *shard;
    // The coordinator writes the manifest before it returns any shard range.
    let (classes, fields) = Manifest::read(directory)?
        .map_or(Default::default(), |manifest| (manifest.classes, manifest.made.fields));
    let facts = Facts { classes: &classes, fields: &fields };
    let mut writer = Writer::new(directory, settings, (samples, facts), number);
    let mut next = begin;
    for piece in pieces {
        let piece = piece?;
        for (index, sample) in (piece.begin..).zip(&piece.samples) {
            if index == next && index < end {
                writer.append(index, sample)?;
                next += 1;
            }
        }
    }
    if next < end {
        let problem = format!(
            "do not contain sample {next}, which belongs to shard {number}; pass all pieces of \
             the shard"
        );
        return Err(Error::config("pieces", problem));
    }
    writer.finish(end)
}

impl Piece {
    /// Bytes that each sample of the piece adds to a shard, or 0 if the sample is skipped.
    /// `samples` is the number of samples in the whole source.
    pub fn sizes(&self, settings: &Settings, samples: u64) -> Vec<u64> {
        let size =
            |(index, sample): (u64, &Sample)| sample.shard_bytes(settings.format, index, samples);
        (self.begin..).zip(&self.samples).map(size).collect()
    }

    /// Serializes the piece. Only a machine with the same version of feedwater can read the bytes.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Internal`] if the piece cannot be serialized.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let entries = self.samples.iter().map(|Sample { origin, image }| {
            let image = image.as_ref().map_err(Clone::clone);
            let image =
                image.map(|EncodedImage { bytes, extension, row_index, fields }| EntryImage {
                    bytes: bytes.len(),
                    extension: extension.clone(),
                    row_index: row_index.as_ref().map(Vec::len),
                    fields: fields
                        .stored
                        .iter()
                        .map(|it| (it.name.clone(), it.bytes.len()))
                        .collect(),
                    fields_crc: fields.crc,
                });
            Entry { origin: origin.clone(), image }
        });
        let header =
            PieceHeader { version: VERSION.into(), begin: self.begin, entries: entries.collect() };
        let header = serde_json::to_vec(&header)
            .map_err(|error| Error::Internal { problem: error.to_string() })?;
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        for image in self.samples.iter().filter_map(|it| it.image.as_ref().ok()) {
            bytes.extend(&image.bytes);
            bytes.extend(image.row_index.iter().flatten());
            bytes.extend(image.fields.stored.iter().flat_map(|field| &field.bytes));
        }
        Ok(bytes)
    }

    /// Reads a piece that [`to_bytes`](Self::to_bytes) serialized.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Config`] if the bytes are damaged or come from a different version of
    /// feedwater.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let damaged = || Error::config("piece", "is damaged; encode it again");
        let mut rest = bytes;
        let mut take = |len: usize| -> Result<&[u8]> {
            let (taken, after) = rest.split_at_checked(len).ok_or_else(damaged)?;
            rest = after;
            Ok(taken)
        };
        let len = take(8)?.try_into().map(u64::from_le_bytes).map_err(|_| damaged())?;
        let header = take(usize::try_from(len).map_err(|_| damaged())?)?;
        let Versioned { version } = serde_json::from_slice(header).map_err(|_| damaged())?;
        if version != VERSION {
            let problem = format!(
                "was encoded by feedwater {version}, but this is feedwater {VERSION}; install the \
                 same version on all machines"
            );
            return Err(Error::config("piece", problem));
        }
        let header: PieceHeader = serde_json::from_slice(header).map_err(|_| damaged())?;
        let samples = header.entries.into_iter().map(|Entry { origin, image }| {
            let image = match image {
                Ok(EntryImage { bytes, extension, row_index, fields, fields_crc }) => {
                    let mut take = |len| take(len).map(<[u8]>::to_vec);
                    let (bytes, row_index) = (take(bytes)?, row_index.map(&mut take).transpose()?);
                    let stored = fields.into_iter().map(|(name, len)| {
                        let bytes = take(len)?;
                        Ok(StoredField { name, bytes })
                    });
                    let stored = stored.collect::<Result<_>>()?;
                    let fields = SampleFields { stored, crc: fields_crc };
                    Ok(EncodedImage { bytes, extension, row_index, fields })
                }
                Err(problem) => Err(problem),
            };
            Ok(Sample { origin, image })
        });
        Ok(Self { begin: header.begin, samples: samples.collect::<Result<_>>()? })
    }
}

/// Plans a pack on several machines: it determines where shards end and lists finished shards.
pub struct Coordinator {
    directory: PathBuf,
    manifest: Manifest,
    settings: Settings,
    /// Number of samples in the source.
    samples: u64,
    /// The unfinished shard: its number, the index of its first sample, and its size in bytes so
    /// far.
    open: (u64, u64, u64),
    /// Index of the first sample whose size is still unknown.
    next: u64,
    /// Number of the shard that the manifest must list next.
    listed: u64,
    _lock: Lock,
}

impl Coordinator {
    /// Begins to pack a source into a directory, or resumes an interrupted pack.
    ///
    /// # Errors
    ///
    /// Fails with those errors that [`pack`](super::pack()) returns before it reads the first
    /// sample.
    pub fn begin(source: &dyn Source, directory: &Path, settings: &Settings) -> Result<Self> {
        settings.check()?;
        std::fs::create_dir_all(directory).map_err(|error| Error::io(directory, &error))?;
        let lock = Lock::take(directory)?;
        let fields = FieldPlan::new(source, settings)?;
        let manifest = Manifest::begin(directory, source, settings, &fields)?;
        let samples = source.len();
        let next = if manifest.complete { samples } else { manifest.end() };
        Ok(Self {
            directory: directory.into(),
            open: (manifest.shards.len() as u64, next, 0),
            listed: manifest.shards.len() as u64,
            manifest,
            settings: settings.clone(),
            samples,
            next,
            _lock: lock,
        })
    }

    /// Number of samples in the source.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Index of the first sample whose size is still unknown, where encoding continues. If all
    /// sizes are known, this is the number of samples.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Adds the [sizes](Piece::sizes) of the next samples, from index [`next`](Self::next) on.
    /// Returns the shards that these samples complete.
    pub fn sized(&mut self, sizes: &[u64]) -> Vec<ShardRange> {
        let mut ended = Vec::new();
        for size in sizes {
            let (number, begin, bytes) = &mut self.open;
            *bytes += size;
            self.next += 1;
            if self.settings.is_full(*bytes) || self.next == self.samples {
                let (number, begin) = (*number, *begin);
                ended.push(ShardRange { number, begin, end: self.next, samples: self.samples });
                self.open = (number + 1, self.next, 0);
            }
        }
        ended
    }

    /// Lists a written shard in the manifest. Call it in the order of the shard numbers.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Config`] if `written` is not the next shard, and with [`Error::Io`] if
    /// the manifest cannot be written.
    pub fn written(&mut self, written: Written) -> Result<()> {
        if written.number != self.listed {
            let problem = format!(
                "has the number {}, but the next shard to list has the number {}",
                written.number, self.listed
            );
            return Err(Error::config("shard", problem));
        }
        self.listed += 1;
        self.manifest.list(&self.directory, written)
    }

    /// Marks the pack as complete. Requires that all shards are listed. Removes temporary files
    /// that killed processes left behind.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Config`] if sizes or shards are missing, and with [`Error::Io`] if the
    /// manifest cannot be written.
    pub fn finish(mut self) -> Result<Manifest> {
        if self.manifest.complete {
            return Ok(self.manifest);
        }
        if self.next < self.samples || self.listed < self.open.0 {
            let problem = format!("{} is not written", self.listed);
            return Err(Error::config("shard", problem));
        }
        remove_leftovers(&self.directory, &self.settings.name)?;
        self.manifest.complete = true;
        self.manifest.write(&self.directory)?;
        Ok(self.manifest)
    }
}

/// Version of feedwater. A piece records the version that wrote it.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// JSON header of a serialized piece. The bytes of a piece are: the length of the header, the
/// header, and the images, row indexes and fields of the samples.
#[derive(Serialize, Deserialize)]
struct PieceHeader {
    version: String,
    begin: u64,
    entries: Vec<Entry>,
}

/// The only header field that the pieces of all versions have.
#[derive(Deserialize)]
struct Versioned {
    version: String,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    origin: Origin,
    image: Result<EntryImage, String>,
}

/// Image of a sample in the header: its file name extension, the lengths of the image, of its row
/// index and of its fields in bytes, and the names and the checksum of the fields.
#[derive(Serialize, Deserialize)]
struct EntryImage {
    bytes: usize,
    extension: String,
    row_index: Option<usize>,
    fields: Vec<(String, usize)>,
    fields_crc: Option<u32>,
}
