//! Where samples come from.
//!
//! To add a source: a file here that implements [`Source`], and one line in `config.rs` for its TOML key.

use crate::annotation::{Canvas, Object};
use crate::error::Fault;

mod directory;
mod list;
mod memory;
mod records;
mod tfrecord;
mod webdataset;

pub use directory::Directory;
pub use list::FileList;
pub use memory::Memory;
pub use tfrecord::{TfRecord, TfRecordSettings};
pub use webdataset::{WebDataset, WebDatasetSettings};

/// A numbered set of encoded pictures, each with a label. Numbers and order never change.
pub trait Source: Send + Sync {
    /// How many samples there are.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The label of a sample: the number of its class, -1 where it has none. `index` is below [`Self::len`].
    fn label(&self, index: u64) -> i64;

    /// The path of a sample, or what stands for it in messages.
    fn location(&self, index: u64) -> String;

    /// Reads a sample's encoded bytes into `page`, at most `limit` of them. May be called from many threads
    /// at once. An empty sample is not a fault here: the header's parser names it.
    fn read(&self, index: u64, page: &mut dyn Page, limit: u64) -> Result<(), Fault>;

    /// Names of the classes, in the order of their labels; empty where there are none.
    fn classes(&self) -> &[String] {
        &[]
    }

    /// The objects in a picture, in the order of its annotations; none where the source knows of none. A source that wraps
    /// another must hand on both this and [`canvas`](Self::canvas).
    fn objects(&self, index: u64) -> Vec<Object> {
        let _ = index;
        Vec::new()
    }

    /// Which picture the positions of [`objects`](Self::objects) mean. A picture of another size is a sample that cannot
    /// be used.
    fn canvas(&self, index: u64) -> Canvas {
        let _ = index;
        Canvas::default()
    }

    /// Bytes of the largest sample, for the footprint: exact where it is cheap, else of a fixed choice of
    /// samples.
    fn largest_bytes(&self) -> u64;

    /// Host memory that the source itself holds.
    fn memory_bytes(&self) -> u64;

    /// One line for people: what it is and how many samples it has.
    fn describe(&self) -> String;
}

/// One sample of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its number, from 0.
    pub index: u64,
    /// Path, or what stands for it.
    pub location: String,
    /// Number of its class, or -1.
    pub label: i64,
}

impl dyn Source + '_ {
    /// Everything known about a sample without reading it.
    pub fn sample(&self, index: u64) -> Sample {
        Sample { index, location: self.location(index), label: self.label(index) }
    }
}

/// Where a source puts encoded bytes: memory that was taken before.
pub trait Page {
    /// Room for `len` bytes; what was there is gone.
    fn space(&mut self, len: usize) -> &mut [u8];
    /// Keeps the first `len` bytes of the space.
    fn truncate(&mut self, len: usize);
}

/// A page in ordinary host memory: grows to the largest sample that it met, and stays.
#[derive(Debug, Default)]
pub struct HostPage {
    data: Vec<u8>,
    len: usize,
}

impl HostPage {
    /// A page with room for `bytes` without growing.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { data: Vec::with_capacity(bytes), len: 0 }
    }

    /// The bytes of the sample.
    pub fn bytes(&self) -> &[u8] {
        &self.data[..self.len]
    }
}

impl Page for HostPage {
    fn space(&mut self, len: usize) -> &mut [u8] {
        if self.data.len() < len {
            self.data.resize(len, 0);
        }
        self.len = len;
        &mut self.data[..len]
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

mod file {
    //! Reading one regular file into a page.

    use std::fs::File;
    use std::io::{ErrorKind, Read};
    use std::path::Path;

    use super::Page;
    use crate::error::{Fault, Reason};

    /// Reads the whole file. A file that shrinks meanwhile gives what it has; one that grows, its old size.
    pub fn read(path: &Path, page: &mut dyn Page, limit: u64) -> Result<(), Fault> {
        let unreadable = |error: std::io::Error| Fault::new(Reason::Unreadable, error.to_string());
        let mut file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(Fault::new(Reason::Unreadable, "not a regular file"));
        }
        check_size(metadata.len(), limit)?;
        let space = page.space(metadata.len() as usize);
        let mut len = 0;
        while len < space.len() {
            match file.read(&mut space[len..]) {
                Ok(0) => break,
                Ok(count) => len += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(error)),
            }
        }
        page.truncate(len);
        Ok(())
    }

    /// Refuses a sample before memory is taken for it.
    pub fn check_size(bytes: u64, limit: u64) -> Result<(), Fault> {
        if bytes > limit {
            let problem = format!("{bytes} bytes, limits.max_file_bytes is {limit}");
            return Err(Fault::new(Reason::Oversized, problem));
        }
        Ok(())
    }

    /// The largest of at most 4096 files, evenly spread: a few milliseconds, whatever the set.
    pub fn largest(count: u64, path: impl Fn(u64) -> std::path::PathBuf) -> u64 {
        const MOST: u64 = 4096;
        (0..count.min(MOST))
            .map(|i| {
                if count <= MOST {
                    i
                } else {
                    (u128::from(i) * u128::from(count) / u128::from(MOST)) as u64
                }
            })
            .filter_map(|index| std::fs::metadata(path(index)).ok())
            .map(|metadata| metadata.len())
            .max()
            .unwrap_or(0)
    }
}
