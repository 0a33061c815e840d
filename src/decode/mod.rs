//! CPU decoding: a window of rows of a JPEG, PNG, WebP, PNM, BMP, GIF or TIFF, bit-identical to Pillow.
//!
//! The pixels are those of Pillow's `Image.open(file).convert("RGB")` before any orientation is applied. Alpha is
//! dropped, gray becomes three equal channels, inks become RGB by Pillow's formula.
//!
//! Damage is reported, never hidden: if Pillow returns an image with gray or smeared parts after a libjpeg warning
//! about corrupt data, a decoder here returns a [`DataError`]. Harmless oddities (stray bytes between segments,
//! unknown JFIF or Adobe versions) pass. Decoding ends with the last row that the window needs, so damage below the
//! window is not detected.
//!
//! Decoders that are not [`strict`](Decoders::strict) accept what Pillow accepts (with `LOAD_TRUNCATED_IMAGES` at its
//! default, false), return Pillow's pixels and report what they [`tolerated`](Decoders::tolerated). They refuse as
//! damaged what Pillow refuses.
//!
//! To add a decoder, add a file here with a type that implements [`HostDecoder`], and one line in `decoders!`.

use std::fmt;

use crate::error::{DataError, Reason, Tolerated};
use crate::geometry::{Roi, Size};
use crate::header::{Format, Header};

pub use jpeg::{is_indexable, refusal};
pub use jpeg_choice::{JpegBy, JpegDecoder, JpegRefusal};
pub use row_index::{
    FileKey, Fingerprint, ROWS_ENDING, RowIndex, RowIndexOutcome, RowIndexTask, begin_row_indexes,
    read_row_indexes, write_row_index,
};
pub use rows::{MOST_ROWS, RowLayout, RowSink, Rows};

mod jpeg_choice;
mod row_index;
mod rows;

/// List of decoders, from which dispatch and memory predictions are derived. The first decoder that accepts an image
/// decodes it.
macro_rules! decoders {
    ($($(#[$gate:meta])? $module:ident :: $type:ident),+ $(,)?) => {
        $($(#[$gate])? mod $module;)+

        /// All decoders with their state.
        #[derive(Debug, Default)]
        struct All {
            $($(#[$gate])? $module: $module::$type,)+
        }

        impl All {
            const COUNT: usize = [$($(#[$gate])? stringify!($module)),+].len();

            fn list(&self) -> [&dyn HostDecoder; Self::COUNT] {
                [$($(#[$gate])? &self.$module),+]
            }

            fn list_mut(&mut self) -> [&mut dyn HostDecoder; Self::COUNT] {
                [$($(#[$gate])? &mut self.$module),+]
            }
        }
    };
}

decoders! {
    jpeg::Feedwater,
    libjpeg::LibjpegTurbo,
    png::Png,
    libwebp::Libwebp,
    pnm::Pnm,
    #[cfg(feature = "bmp")]
    bmp::Bmp,
    #[cfg(feature = "gif")]
    gif::Gif,
    #[cfg(feature = "tiff")]
    tiff::Tiff,
    pixels::Pixels,
}

/// Decoder of one format, with its state for one thread.
///
/// `Default` creates the state without an allocation. The state has a fixed size: memory that grows with an image
/// belongs in [`Buffers`], which all decoders of a thread share.
pub trait HostDecoder: fmt::Debug {
    /// Name in tests and messages.
    fn name(&self) -> &'static str;

    /// Whether it accepts images with this header, at every reduction of the format. It may still refuse an accepted
    /// image as unsupported.
    fn accepts(&self, header: &Header) -> bool;

    /// Maximum host memory for an image with this header; see [`memory_bytes`].
    fn memory(&self, header: &Header, head: &[u8], file_bytes: u64) -> DecodeMemory;

    /// Row layouts that it supports for an image that it accepts. [`RowLayout::Rgb`] is always among them.
    fn layouts(&self, header: &Header) -> &'static [RowLayout] {
        let _ = header;
        &[RowLayout::Rgb]
    }

    /// Decodes an image that it accepts, in one of its layouts, and returns the damage that it tolerated. An error
    /// does not affect how the next image is decoded.
    fn decode(
        &mut self,
        image: &EncodedImage<'_>,
        buffers: &mut Buffers,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<Tolerated>, DataError>;

    /// What decoded the last image, if it was a JPEG.
    fn jpeg_by(&self) -> Option<JpegBy> {
        None
    }

    /// Bytes of memory held between images, the [`Buffers`] aside.
    fn capacity_bytes(&self) -> usize {
        0
    }
}

/// Image for a decoder, and the wanted part of it.
#[derive(Clone, Copy, Debug)]
pub struct EncodedImage<'a> {
    /// The whole file.
    pub bytes: &'a [u8],
    /// Result of [`Header::parse_as`] for these bytes.
    pub header: &'a Header,
    /// Wanted window, in stored pixels after the reduction and before the orientation. Lies inside the image and is
    /// not empty.
    pub window: Roi,
    /// Factor by which both sides are reduced: one of [`Format::reductions`](crate::header::Format::reductions).
    pub reduction: u32,
    /// Whether damage that Pillow accepts is an error.
    pub strict: bool,
    /// Layout of the rows.
    pub layout: RowLayout,
    /// Whether another decoder may decode it instead.
    pub may_fall_back: bool,
}

/// Memory that the decoders of a thread share and reuse.
#[derive(Debug, Default)]
pub struct Buffers {
    /// Whole image, for formats that cannot be decoded otherwise.
    pub scratch: Vec<u8>,
    /// Rows that are passed to the sink together.
    pub rows: Vec<u8>,
}

/// Host memory for decoding one image, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeMemory {
    /// [`Buffers::scratch`].
    pub scratch: u64,
    /// [`Buffers::rows`].
    pub rows: u64,
    /// Memory that the format's library allocates, and frees with the image, and tables that our own decoder keeps.
    pub library: u64,
}

impl DecodeMemory {
    /// Sum of all parts.
    pub const fn total(self) -> u64 {
        self.scratch.saturating_add(self.rows).saturating_add(self.library)
    }
}

/// Memory that libraries allocate for any image, in bytes: tables, states and small chunks.
const LIBRARY_BYTES: u64 = 96 << 10;

/// Maximum memory for decoding an image. `head` is the file or its first bytes, and `file_bytes` the length of the
/// whole file. The result is a bound if `head` is the whole file. From first bytes alone, the code tables of a
/// lossless WebP are an estimate.
///
/// * JPEG with one scan: rows and tables. With several scans, progressive or not: also all coefficients.
/// * PNG: rows; the whole image if it is interlaced.
/// * WebP: the whole image, and libwebp's planes and tables.
/// * GIF: the whole image, one byte per pixel; a BMP with runs too.
/// * TIFF: a row of strips or tiles. If the directory is not among the first bytes, a bound for any.
/// * PNM and other BMPs: rows. Decoded pixels: nothing.
pub fn memory_bytes(header: &Header, head: &[u8], file_bytes: u64) -> DecodeMemory {
    Decoders::new().memory(header, head, file_bytes)
}

/// CPU decoders for one thread. Buffers grow to what the largest image needs and are reused. [`memory_bytes`] bounds
/// what an image needs.
///
/// An error has no effect on later images.
#[derive(Debug, Default)]
pub struct Decoders {
    tolerant: bool,
    jpeg: JpegDecoder,
    tolerated: Option<Tolerated>,
    jpeg_by: Option<JpegBy>,
    only: Option<&'static str>,
    all: All,
    buffers: Buffers,
}

impl Decoders {
    /// Strict decoders without buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only the decoder of this name, for tests. Images that it does not accept are refused. `None` if no decoder has this name.
    #[doc(hidden)]
    pub fn only(name: &str) -> Option<Self> {
        let this = Self::default();
        let names = this.all.list().map(HostDecoder::name);
        let only = Some(names.into_iter().find(|it| *it == name)?);
        Some(Self { only, ..this })
    }

    /// Instructions that this CPU has, from the least to the most, for tests and benches of JPEG decoding.
    #[doc(hidden)]
    pub fn jpeg_instructions() -> Vec<&'static str> {
        jpeg::Feedwater::instructions()
    }

    /// Lets our own JPEG decoder use no more than these instructions. `None` if this CPU does not have them.
    #[doc(hidden)]
    pub fn with_jpeg_instructions(mut self, name: &str) -> Option<Self> {
        self.all.jpeg.set_instructions(name)?;
        Some(self)
    }

    /// Sets what decodes JPEGs; `decode.jpeg` is the setting.
    pub fn jpeg(self, jpeg: JpegDecoder) -> Self {
        Self { jpeg, ..self }
    }

    /// What decoded the last image, if it was a JPEG.
    pub const fn jpeg_by(&self) -> Option<JpegBy> {
        self.jpeg_by
    }

    /// Sets what is done with row indexes at the next JPEG. Only our own JPEG decoder has them.
    pub fn set_row_index(&mut self, task: RowIndexTask) {
        self.all.jpeg.set_row_index(task);
    }

    /// What was done with row indexes at the last JPEG.
    pub fn row_index(&self) -> RowIndexOutcome<'_> {
        self.all.jpeg.row_index()
    }

    /// Sets whether damage is an error (the default) or Pillow's tolerance applies; `decode.strict` is the setting.
    ///
    /// For PNGs, `tests/png_damage/` compares with Pillow's results and pixels: truncated anywhere, with any byte
    /// changed, with wrong and missing checksums, and with malformed chunks. If Pillow refuses a PNG, a strict decoder
    /// does too, even for a chunk that does not affect pixels (a `gAMA` of three bytes). A PNG whose header violates
    /// the standard is refused in both modes, though Pillow guesses its meaning: IHDR is not the first chunk or has
    /// more than 13 bytes; a second IHDR differs; the compression or interlace method is unknown; there is no IDAT
    /// chunk, or the first frame of an animation is a part of the image. One difference is known the other way: damage
    /// after the last pixel that only zlib detects, in a chunk with a correct checksum, may pass here.
    pub fn strict(self, strict: bool) -> Self {
        Self { tolerant: !strict, ..self }
    }

    /// Damage that the last [`decode`](Self::decode) tolerated, one kind if there were several. Always `None` for
    /// strict decoders.
    pub const fn tolerated(&self) -> Option<Tolerated> {
        self.tolerated
    }

    /// [`memory_bytes`] for the decoder that would decode the image; 0 if none accepts it.
    pub fn memory(&self, header: &Header, head: &[u8], file_bytes: u64) -> DecodeMemory {
        let place = self.place(header);
        place.map_or_else(Default::default, |at| {
            self.all.list()[at].memory(header, head, file_bytes)
        })
    }

    /// Row layouts in which an image with this header can be decoded. Empty if no decoder accepts it.
    pub fn layouts(&self, header: &Header) -> &'static [RowLayout] {
        self.place(header).map_or(&[], |at| self.all.list()[at].layouts(header))
    }

    /// Decodes the pixels of `window` and passes them to `sink`, top to bottom, as rows of RGB.
    ///
    /// `header` is the result of [`Header::parse_as`] for the same `bytes`; the caller checks limits on its size
    /// first. `reduction` reduces both sides inside a JPEG's inverse transform and is one of
    /// [`Format::reductions`](crate::header::Format::reductions). `window` is in stored pixels, before the EXIF
    /// orientation and after the reduction, and lies inside [`Size::reduced`]. The pixels equal the same window of a
    /// whole decode bit for bit.
    ///
    /// Memory: at most [`memory`](Self::memory). `sink` may receive some rows before an error is detected.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        header: &Header,
        window: Roi,
        reduction: u32,
        sink: &mut RowSink<'_>,
    ) -> Result<(), DataError> {
        self.decode_as(RowLayout::Rgb, bytes, header, window, reduction, sink)
    }

    /// [`decode`](Self::decode) as rows of another layout, which must be one of [`layouts`](Self::layouts).
    pub fn decode_as(
        &mut self,
        layout: RowLayout,
        bytes: &[u8],
        header: &Header,
        window: Roi,
        reduction: u32,
        sink: &mut RowSink<'_>,
    ) -> Result<(), DataError> {
        check(header, window, reduction)?;
        (self.tolerated, self.jpeg_by) = (None, None);
        let Some(place) = self.place(header) else {
            let (name, only) = (header.format.name(), self.only.unwrap_or("no decoder"));
            return Err(unsupported(format!("a {name}: {only} does not decode it")));
        };
        let decoder = &mut self.all.list_mut()[place];
        if !decoder.layouts(header).contains(&layout) {
            let name = decoder.name();
            return Err(unsupported(format!("{name} does not give this image as {layout:?}")));
        }
        if window.is_empty() {
            return Ok(());
        }
        let strict = !self.tolerant;
        let may_fall_back = self.jpeg != JpegDecoder::Feedwater;
        let image =
            EncodedImage { bytes, header, window, reduction, strict, layout, may_fall_back };
        let result = decoder.decode(&image, &mut self.buffers, sink);
        self.jpeg_by = decoder.jpeg_by();
        if let (JpegDecoder::Auto, Some(JpegBy::Libjpeg)) = (self.jpeg, self.jpeg_by) {
            self.jpeg_by = jpeg::refusal(header).map(JpegBy::Refused).or(self.jpeg_by);
        }
        self.tolerated = result?;
        Ok(())
    }

    /// Bytes of memory held between images.
    pub fn capacity_bytes(&self) -> usize {
        let of_decoders: usize = self.all.list().iter().map(|it| it.capacity_bytes()).sum();
        of_decoders + self.buffers.scratch.capacity() + self.buffers.rows.capacity()
    }

    /// Frees all memory. The decoders keep their settings.
    pub fn release(&mut self) {
        let Self { tolerant, jpeg, only, .. } = *self;
        *self = Self { tolerant, jpeg, only, ..Self::default() };
    }

    fn place(&self, header: &Header) -> Option<usize> {
        let list = &self.all.list();
        let only = match (self.jpeg, header.format) {
            (JpegDecoder::Feedwater, Format::Jpeg) => {
                // It names the reason if it does not decode the image.
                return list.iter().position(|it| it.name() == jpeg::NAME);
            }
            (JpegDecoder::Libjpeg, Format::Jpeg) => Some(libjpeg::NAME),
            _ => self.only,
        };
        place(list, only, header)
    }
}

/// Index of the decoder for an image: the first that accepts it, or the one named `only`.
fn place(list: &[&dyn HostDecoder], only: Option<&str>, header: &Header) -> Option<usize> {
    let allowed = |name: &str| only.is_none_or(|only| only == name);
    list.iter().position(|it| allowed(it.name()) && it.accepts(header))
}

/// Whether libjpeg-turbo's SIMD code was built in (on x86-64 that needs nasm at build time). Without it the pixels are
/// the same and decoding is slower.
pub fn simd() -> bool {
    libjpeg::simd()
}

fn check(header: &Header, window: Roi, reduction: u32) -> Result<(), DataError> {
    let name = header.format.name();
    match header.format.reductions() {
        known if known.contains(&reduction) => {}
        [_] => return Err(unsupported(format!("a {name} cannot be reduced while it is decoded"))),
        known => {
            let problem =
                format!("a {name} can be reduced by one of {known:?}, not by {reduction}");
            return Err(unsupported(problem));
        }
    }
    let size = header.size.reduced(reduction);
    if u64::from(window.x) + u64::from(window.width) > size.width.into()
        || u64::from(window.y) + u64::from(window.height) > size.height.into()
    {
        let problem = format!("the window {window} is not inside the image of {size} pixels");
        return Err(unsupported(problem));
    }
    Ok(())
}

fn unsupported(problem: impl Into<String>) -> DataError {
    DataError::new(Reason::Unsupported, problem)
}

/// Error for a file whose decoder sees another size than its header.
fn size_changed(header: Size, decoder: Size) -> DataError {
    DataError::new(
        Reason::Corrupt,
        format!("the header says {header}, the image has {decoder} pixels"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts every image of its format.
    #[derive(Debug)]
    struct Fake(&'static str, Format);

    impl HostDecoder for Fake {
        fn name(&self) -> &'static str {
            self.0
        }

        fn accepts(&self, header: &Header) -> bool {
            header.format == self.1
        }

        fn memory(&self, _: &Header, _: &[u8], _: u64) -> DecodeMemory {
            DecodeMemory::default()
        }

        fn decode(
            &mut self,
            _: &EncodedImage<'_>,
            _: &mut Buffers,
            _: &mut RowSink<'_>,
        ) -> Result<Option<Tolerated>, DataError> {
            Ok(None)
        }
    }

    #[test]
    fn the_first_decoder_that_accepts_an_image_decodes_it_unless_one_is_forced() {
        let list: [&dyn HostDecoder; 3] =
            [&Fake("png", Format::Png), &Fake("ours", Format::Jpeg), &Fake("theirs", Format::Jpeg)];
        let header = |format| Header {
            format,
            size: Size::new(1, 1),
            orientation: Default::default(),
            jpeg: None,
        };
        let jpeg = header(Format::Jpeg);
        assert_eq!(place(&list, None, &jpeg), Some(1));
        assert_eq!(place(&list, Some("theirs"), &jpeg), Some(2));
        assert_eq!(place(&list, Some("png"), &jpeg), None);
        assert_eq!(place(&list, None, &header(Format::WebP)), None);
    }
}
