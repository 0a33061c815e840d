//! What a source may do besides reading its samples. Each ability is a trait that [`Source`] gives as an object.

use super::{Expected, HostPage, LeftOut, Sample, Source, own_label};
use crate::annotation::{Canvas, Object};
use crate::error::{DataError, Result};
use crate::storage::Storage;

/// Objects in the images: boxes, categories, masks.
pub trait Annotations {
    /// The objects in an image, in the order of its annotations.
    fn objects(&self, index: u64) -> Vec<Object>;

    /// Which image the positions of [`objects`](Self::objects) mean. An image of another size is a sample that cannot
    /// be used.
    fn canvas(&self, index: u64) -> Canvas {
        let _ = index;
        Canvas::default()
    }
}

/// Samples that come over a network, so that it pays to ask for many at once.
pub trait RemoteReads {
    /// Begins to read a sample that will be wanted soon; at most `limit` bytes of it are held. What it gives does what
    /// [`Source::read`] does. Dropping it gives the request up. `None` where this sample need not be asked for.
    fn expect(&self, index: u64, limit: u64) -> Option<Expected>;
}

/// Reading the first bytes of a sample without the rest, so that the headers of many samples can be looked at.
pub trait Heads {
    /// Reads the first bytes of a sample into `page`, `most` of them or as many as there are, and gives the length of the whole
    /// sample, which is at most `limit`.
    ///
    /// # Errors
    ///
    /// Those of [`Source::read`].
    fn read_head(
        &self,
        index: u64,
        page: &mut HostPage,
        most: usize,
        limit: u64,
    ) -> Result<u64, DataError>;
}

/// What is known of the samples before they are read, for the plan and the order.
pub trait Hints {
    /// Bytes of the largest sample: exact where it is cheap, else of a fixed choice of samples. `None`, the default, where that
    /// is not known: the plan then takes the largest sample that it looked at.
    fn largest_bytes(&self) -> Option<u64> {
        None
    }

    /// The samples with the most pixels, as a table says that the source has at hand: at most `most` indices, each with its
    /// pixels, roughly, the largest first. Plans look at them besides others, and read their headers: a table that is wrong does
    /// no harm. Empty, the default, where no table says.
    fn largest_samples(&self, most: usize) -> Vec<(u64, u64)> {
        let _ = most;
        Vec::new()
    }

    /// Host memory that the source itself holds, in bytes. Default 0.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Where files hold many samples, one after another, so that reading in sequence is cheaper: the first sample after
    /// each file, in the order of the samples; the last is [`Source::len`]. Empty, the default, where there are no such files.
    /// `loader.shuffle_window` needs it.
    fn file_ends(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Why reading the samples in any order but their own is slow, with the way out; `None`, the default, where it is
    /// not.
    fn slow_shuffled(&self) -> Option<String> {
        None
    }

    /// Handles through which the source reads files. A loader counts their requests as its own and shows their warnings. Empty,
    /// the default, where it reads none through a [`Storage`].
    fn storages(&self) -> Vec<Storage> {
        Vec::new()
    }
}

/// When samples have the same bytes: over time, and at several indices.
pub trait Identity {
    /// What changes whenever the bytes of a sample do, without reading them: the length and the time of its file, the tag
    /// of its object. `None`, the default, where only the bytes tell. `feedwater pack` asks it before it goes on.
    fn version(&self, index: u64) -> Option<String> {
        let _ = index;
        None
    }

    /// A number that indices with the same bytes share, below [`Self::originals`]: caches keep such bytes once. The default is
    /// the index itself.
    fn original(&self, index: u64) -> u64 {
        index
    }

    /// One more than the largest number of an original that there may be; `None`, the default, for [`Source::len`].
    fn originals(&self) -> Option<u64> {
        None
    }
}

/// What a source tells people of what it met.
pub trait Notes {
    /// What the source met and left out of its samples, counted by reason and kind: the keys of an archive that have no image,
    /// say. Samples that `filter` or `subset` leave out are not counted. Default empty.
    fn left_out(&self) -> Vec<LeftOut> {
        Vec::new()
    }

    /// What looks like a mistake in what was named, with the way out. Default empty.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The abilities of a source, with the default of each that it lacks.
impl dyn Source + '_ {
    /// Everything known about a sample without reading it.
    pub fn sample(&self, index: u64) -> Sample {
        Sample { index, location: self.location(index), label: own_label(self, index) }
    }

    /// [`Annotations::objects`]; none without that ability.
    pub fn objects(&self, index: u64) -> Vec<Object> {
        self.annotations().map_or(Vec::new(), |it| it.objects(index))
    }

    /// [`Annotations::canvas`]; one that fits every image without that ability.
    pub fn canvas(&self, index: u64) -> Canvas {
        self.annotations().map_or(Canvas::default(), |it| it.canvas(index))
    }

    /// Whether samples come over a network.
    pub fn is_remote(&self) -> bool {
        self.remote().is_some()
    }

    /// [`RemoteReads::expect`]; `None` without that ability.
    pub fn expect(&self, index: u64, limit: u64) -> Option<Expected> {
        self.remote()?.expect(index, limit)
    }

    /// Whether `read_head` reads less than the whole sample.
    pub fn has_heads(&self) -> bool {
        self.heads().is_some()
    }

    /// [`Heads::read_head`]; the whole sample is read without that ability.
    ///
    /// # Errors
    ///
    /// Those of [`Source::read`].
    pub fn read_head(
        &self,
        index: u64,
        page: &mut HostPage,
        most: usize,
        limit: u64,
    ) -> Result<u64, DataError> {
        match self.heads() {
            Some(heads) => heads.read_head(index, page, most, limit),
            None => self.read(index, page, limit).map(|()| page.bytes().len() as u64),
        }
    }

    /// [`Hints::largest_bytes`]; `None` without that ability.
    pub fn largest_bytes(&self) -> Option<u64> {
        self.hints()?.largest_bytes()
    }

    /// [`Hints::largest_samples`]; none without that ability.
    pub fn largest_samples(&self, most: usize) -> Vec<(u64, u64)> {
        self.hints().map_or(Vec::new(), |it| it.largest_samples(most))
    }

    /// [`Hints::memory_bytes`]; 0 without that ability.
    pub fn memory_bytes(&self) -> u64 {
        self.hints().map_or(0, |it| it.memory_bytes())
    }

    /// [`Hints::file_ends`]; none without that ability.
    pub fn file_ends(&self) -> Vec<u64> {
        self.hints().map_or(Vec::new(), |it| it.file_ends())
    }

    /// [`Hints::slow_shuffled`]; `None` without that ability.
    pub fn slow_shuffled(&self) -> Option<String> {
        self.hints()?.slow_shuffled()
    }

    /// [`Hints::storages`]; none without that ability.
    pub fn storages(&self) -> Vec<Storage> {
        self.hints().map_or(Vec::new(), |it| it.storages())
    }

    /// [`Identity::version`]; `None` without that ability.
    pub fn version(&self, index: u64) -> Option<String> {
        self.identity()?.version(index)
    }

    /// [`Identity::original`]; the index itself without that ability.
    pub fn original(&self, index: u64) -> u64 {
        self.identity().map_or(index, |it| it.original(index))
    }

    /// [`Identity::originals`], or the number of samples.
    pub fn originals(&self) -> u64 {
        self.identity().and_then(|it| it.originals()).unwrap_or_else(|| self.len())
    }

    /// [`Notes::left_out`]; nothing without that ability.
    pub fn left_out(&self) -> Vec<LeftOut> {
        self.notes().map_or(Vec::new(), |it| it.left_out())
    }

    /// [`Notes::warnings`]; none without that ability.
    pub fn warnings(&self) -> Vec<String> {
        self.notes().map_or(Vec::new(), |it| it.warnings())
    }
}
