//! CPU decoding of JPEG, PNG, WebP, PNM, BMP, GIF, TIFF and `.npy`. Decoders return the rows of a
//! window, with the same pixels as Pillow.
//!
//! By default, the pixels are those of Pillow's `Image.open(file).convert("RGB")` before any
//! orientation is applied. Alpha is dropped, decoded, or composed with a background. Gray becomes
//! three equal channels. CMYK becomes RGB by Pillow's formula.
//!
//! [`Strict`](Decoders::strict) decoders return a [`DataError`] for corrupt data, also where Pillow
//! returns an image with gray or smeared parts after a libjpeg warning. Harmless oddities are
//! accepted, such as stray bytes between segments, or unknown JFIF or Adobe versions. Decoding ends
//! with the last row that the window needs, so corrupt data below the window is not detected.
//!
//! Decoders that are not [`strict`](Decoders::strict) accept the files that Pillow accepts (with
//! `LOAD_TRUNCATED_IMAGES` at its default, false) and return Pillow's pixels.
//! [`tolerated`](Decoders::tolerated) returns the damage that they accepted. Files that Pillow
//! refuses are errors for these decoders too.
//!
//! To add a decoder, add a file here with a type that implements [`HostDecoder`], and one line in
//! `decoders!`.

use std::fmt;

use crate::error::{DataError, Reason, Tolerated};
use crate::geometry::{Roi, Size};
use crate::header::{Format, Header};
use crate::image::PixelFormat;
use crate::tensor::CHANNELS;

pub use floats::{FloatPart, FloatSink};
pub use jpeg::device::{
    DeviceFile, DeviceImage, DeviceMemory, DeviceProblem, DeviceRefusal, DeviceRoom, JPEG_KERNELS,
    JpegKernel, JpegParams, jpeg_kernels_text,
};
pub use jpeg::{is_indexable, refusal};
pub use jpeg_choice::{JpegBy, JpegDecoder, JpegRefusal};
pub use memory::{Buffers, DecodeMemory};
pub use row_index::{
    FileKey, Fingerprint, ROWS_ENDING, RowIndex, RowIndexOutcome, RowIndexTask, begin_row_indexes,
    read_row_indexes, write_row_index,
};
pub use rows::{MOST_ROWS, RowLayout, RowSink, Rows};
pub use value_image::ValueImage;

mod floats;
mod formats;
mod indices;
mod jpeg_choice;
mod memory;
mod row_index;
mod rows;
mod value_image;

/// Defines the list of decoders. Dispatch and memory predictions use it. The first decoder that
/// accepts an image decodes it.
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
    npy::Npy,
    #[cfg(feature = "bmp")]
    bmp::Bmp,
    #[cfg(feature = "gif")]
    gif::Gif,
    #[cfg(feature = "tiff")]
    tiff::Tiff,
    pixels::Pixels,
}

/// Decoder of one image format, with the state for one thread.
///
/// `Default` creates the state without an allocation. The state has a fixed size. Memory that grows
/// with an image belongs in [`Buffers`], which all decoders of a thread share.
pub trait HostDecoder: fmt::Debug {
    /// Name of the decoder in tests and messages.
    fn name(&self) -> &'static str;

    /// Whether to try this decoder for images with this header. The answer holds for every factor
    /// by which the format can be decoded smaller. Decoding may still fail because the image is
    /// unsupported.
    fn accepts(&self, header: &Header) -> bool;

    /// Maximum host memory for an image with this header; see [`memory_bytes`].
    fn memory(&self, header: &Header, head: &[u8], file_bytes: u64) -> DecodeMemory;

    /// Row layouts that the decoder supports for an image that it accepts. [`RowLayout::Rgb`] is
    /// always one of them.
    fn layouts(&self, header: &Header) -> &'static [RowLayout] {
        let _ = header;
        &[RowLayout::Rgb]
    }

    /// Decodes an accepted image in one of its layouts and returns the damage that was tolerated.
    /// An error in this image does not affect how the next image is decoded.
    fn decode(
        &mut self,
        image: &EncodedImage<'_>,
        buffers: &mut Buffers,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<Tolerated>, DataError>;

    /// Decoder of the last image, if the image was a JPEG.
    fn jpeg_by(&self) -> Option<JpegBy> {
        None
    }

    /// Size in bytes of the memory that the decoder keeps between images, without the [`Buffers`].
    fn capacity_bytes(&self) -> usize {
        0
    }
}

/// Image for a decoder, with the part of it to decode.
#[derive(Clone, Copy, Debug)]
pub struct EncodedImage<'a> {
    /// The whole file.
    pub bytes: &'a [u8],
    /// Result of [`Header::parse_as`] for these bytes.
    pub header: &'a Header,
    /// Window to decode, in stored pixels after the reduction and before the orientation. Lies
    /// inside the image and is not empty.
    pub window: Roi,
    /// Factor by which both sides are reduced: one of
    /// [`Format::reductions`](crate::header::Format::reductions).
    pub reduction: u32,
    /// Whether damage that Pillow accepts is an error.
    pub strict: bool,
    /// Layout of the rows.
    pub layout: RowLayout,
    /// Whether another decoder may decode the image if this one refuses it.
    pub may_fall_back: bool,
}

/// Memory that libraries allocate for any image, in bytes: tables, states and small chunks.
const LIBRARY_BYTES: u64 = 96 << 10;

/// Returns the maximum memory for decoding an image. `head` is the file or its first bytes.
/// `file_bytes` is the length of the whole file. The result is an upper bound if `head` is the
/// whole file. If `head` is shorter, the size of a lossless WebP's code tables is an estimate.
///
/// * A JPEG with one scan needs memory for rows and tables. With several scans, progressive or not,
///   it also needs memory for all coefficients.
/// * A PNG needs memory for rows, or for the whole image if it is interlaced.
/// * A WebP needs memory for the whole image, and for libwebp's planes and tables.
/// * A GIF, and a BMP with run-length coding, need memory for the whole image, one byte per pixel.
/// * A TIFF needs memory for one row of strips or tiles. If `head` does not contain the directory,
///   the result is an upper bound for every TIFF.
/// * A PNM, and a BMP without run-length coding, need memory for rows.
/// * An image that is already decoded (from a cache) needs no memory.
pub fn memory_bytes(header: &Header, head: &[u8], file_bytes: u64) -> DecodeMemory {
    Decoders::new().memory(header, head, file_bytes)
}

/// CPU decoders for one thread. Their buffers grow to the size that the largest image needs, and
/// are reused. [`memory_bytes`] is an upper bound for one image.
///
/// An error in one image has no effect on later images.
#[derive(Debug, Default)]
pub struct Decoders {
    tolerant: bool,
    jpeg: JpegDecoder,
    background: Option<[u8; CHANNELS]>,
    tolerated: Option<Tolerated>,
    jpeg_by: Option<JpegBy>,
    only: Option<&'static str>,
    all: All,
    buffers: Buffers,
}

impl Decoders {
    /// Creates strict decoders, which refuse damaged images. Buffers are allocated when an image
    /// needs them.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates only the decoder with this name, for tests. Images that it does not accept are
    /// refused. Returns `None` if no decoder has this name.
    #[doc(hidden)]
    pub fn only(name: &str) -> Option<Self> {
        let this = Self::default();
        let names = this.all.list().map(HostDecoder::name);
        let only = Some(names.into_iter().find(|it| *it == name)?);
        Some(Self { only, ..this })
    }

    /// Returns the instruction sets of this CPU, from narrowest to widest, for tests and benchmarks
    /// of JPEG decoding.
    #[doc(hidden)]
    pub fn jpeg_instructions() -> Vec<&'static str> {
        jpeg::Feedwater::instructions()
    }

    /// Restricts feedwater's JPEG decoder to an instruction set. Returns `None` if this CPU does
    /// not have it.
    #[doc(hidden)]
    pub fn with_jpeg_instructions(mut self, name: &str) -> Option<Self> {
        self.all.jpeg.set_instructions(name)?;
        Some(self)
    }

    /// Sets the decoder for JPEGs (setting `decode.jpeg`).
    pub fn jpeg(self, jpeg: JpegDecoder) -> Self {
        Self { jpeg, ..self }
    }

    /// Returns the decoder of the last image, if the image was a JPEG.
    pub const fn jpeg_by(&self) -> Option<JpegBy> {
        self.jpeg_by
    }

    /// Sets the row index task of the next JPEG. Only feedwater's own JPEG decoder uses row
    /// indexes.
    pub fn set_row_index(&mut self, task: RowIndexTask) {
        self.all.jpeg.set_row_index(task);
    }

    /// Returns the row index outcome of the last JPEG.
    pub fn row_index(&self) -> RowIndexOutcome<'_> {
        self.all.jpeg.row_index()
    }

    /// Sets whether corrupt data is an error (the default), or is tolerated as in Pillow (setting
    /// `decode.strict`).
    ///
    /// For PNGs, the tests in `tests/images/png_damage/` compare results and pixels with Pillow's.
    /// The files are truncated anywhere, have any byte changed, have wrong or missing checksums, or
    /// have malformed chunks. A strict decoder refuses every PNG that Pillow refuses, even because
    /// of a chunk that does not affect pixels (a `gAMA` chunk of three bytes).
    ///
    /// Strict and tolerant decoders both refuse a PNG whose header violates the standard, although
    /// Pillow guesses the header's meaning: IHDR is not the first chunk or has more than 13 bytes;
    /// a second IHDR differs; the compression or interlace method is unknown; there is no IDAT
    /// chunk; or the first frame of an animation is only a part of the image.
    ///
    /// One difference from Pillow is known. Damage after the last pixel that only zlib detects, in
    /// a chunk with a correct checksum, may be accepted here.
    pub fn strict(self, strict: bool) -> Self {
        Self { tolerant: !strict, ..self }
    }

    /// Returns the kind of damage that the last [`decode`](Self::decode) tolerated, or one of the
    /// kinds if there were several. Always `None` for strict decoders.
    pub const fn tolerated(&self) -> Option<Tolerated> {
        self.tolerated
    }

    /// Returns [`memory_bytes`] for the decoder that would decode the image, or 0 if no decoder
    /// accepts it.
    pub fn memory(&self, header: &Header, head: &[u8], file_bytes: u64) -> DecodeMemory {
        let place = self.place(header);
        place.map_or_else(Default::default, |at| {
            self.all.list()[at].memory(header, head, file_bytes)
        })
    }

    /// Row layouts in which an image with this header can be decoded. Empty if no decoder accepts
    /// it.
    pub fn layouts(&self, header: &Header) -> &'static [RowLayout] {
        self.place(header).map_or(&[], |at| self.all.list()[at].layouts(header))
    }

    /// Decodes the pixels of `window` and passes them to `sink`, from top to bottom, as RGB rows.
    ///
    /// `header` is the result of [`Header::parse_as`] for the same `bytes`. The caller must check
    /// limits on its size first. `reduction` reduces both sides inside a JPEG's inverse transform
    /// and is one of [`Format::reductions`](crate::header::Format::reductions). `window` is in
    /// stored pixels, before the EXIF orientation and after the reduction, and lies inside
    /// [`Size::reduced`]. The pixels equal the same window of a decode of the whole image, bit for
    /// bit.
    ///
    /// Needs at most the memory that [`memory`](Self::memory) returns. `sink` may receive some rows
    /// before an error is detected.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        header: &Header,
        window: Roi,
        reduction: u32,
        sink: &mut RowSink<'_>,
    ) -> Result<(), DataError> {
        self.decode_format(PixelFormat::U8x3, bytes, header, (window, reduction), sink)
    }

    /// Like [`decode`](Self::decode), with rows of another layout, which must be one of
    /// [`layouts`](Self::layouts).
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
            if header.format == Format::Pfm {
                let problem = "the file is a PFM, which has floats; set pixels to f32 or f32x3 \
                               (decode.pixels, or pixels of the view)";
                return Err(unsupported(problem));
            }
            let (name, only) = (header.format.name(), self.only.unwrap_or("any decoder"));
            return Err(unsupported(format!("a {name} cannot be decoded by {only}")));
        };
        let decoder = &mut self.all.list_mut()[place];
        if !decoder.layouts(header).contains(&layout) {
            let name = decoder.name();
            return Err(unsupported(format!(
                "the decoder {name} cannot decode this image to {layout:?} rows"
            )));
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

    /// Whether a gray value of 16 bits was clipped to 255 since
    /// [`forget_clipped`](Self::forget_clipped). Gray images of 16 bits are clipped in pixel
    /// formats of 8 bits, as Pillow clips the mode `I;16`.
    pub const fn has_clipped(&self) -> bool {
        self.buffers.clipped
    }

    /// Forgets whether values were clipped.
    pub fn forget_clipped(&mut self) {
        self.buffers.clipped = false;
    }

    /// Returns the size in bytes of the memory that is kept between images.
    pub fn capacity_bytes(&self) -> usize {
        let of_decoders: usize = self.all.list().iter().map(|it| it.capacity_bytes()).sum();
        of_decoders + self.buffers.capacity_bytes()
    }

    /// Frees all memory. The decoders keep their settings.
    pub fn release(&mut self) {
        let Self { tolerant, jpeg, background, only, .. } = *self;
        *self = Self { tolerant, jpeg, background, only, ..Self::default() };
    }

    fn place(&self, header: &Header) -> Option<usize> {
        let list = &self.all.list();
        let only = match (self.jpeg, header.format) {
            (JpegDecoder::Feedwater, Format::Jpeg) => {
                // feedwater's own decoder is chosen even if it does not accept the image. It then
                // returns the reason why it refuses the image.
                return list.iter().position(|it| it.name() == jpeg::NAME);
            }
            (JpegDecoder::Libjpeg, Format::Jpeg) => Some(libjpeg::NAME),
            _ => self.only,
        };
        place(list, only, header)
    }
}

/// Returns the index of the decoder for an image: the first that accepts it, or the one named
/// `only`.
fn place(list: &[&dyn HostDecoder], only: Option<&str>, header: &Header) -> Option<usize> {
    let allowed = |name: &str| only.is_none_or(|only| only == name);
    list.iter().position(|it| allowed(it.name()) && it.accepts(header))
}

/// Whether libjpeg-turbo's SIMD code was built in. On x86-64 the build needs nasm for this code.
/// Without SIMD code the pixels are the same, but decoding is slower.
pub fn simd() -> bool {
    libjpeg::simd()
}

fn check(header: &Header, window: Roi, reduction: u32) -> Result<(), DataError> {
    let name = header.format.name();
    match header.format.reductions() {
        known if known.contains(&reduction) => {}
        [_] => {
            return Err(unsupported(format!("a {name} cannot be downscaled while it is decoded")));
        }
        known => {
            let problem = format!(
                "a {name} can be downscaled by one of the factors {known:?} while it is decoded, \
                 not by {reduction}"
            );
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

/// Returns the error for a file whose decoder finds another size than the header.
fn size_changed(header: Size, decoder: Size) -> DataError {
    DataError::new(
        Reason::Corrupt,
        format!("the header gives {header} pixels, but the decoded image has {decoder} pixels"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fake decoder that accepts every image of its format.
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
