//! Decoding on the CPU: a window of rows out of a JPEG, PNG, WebP or PNM, bit for bit what Pillow gives.
//!
//! The pixels are those of Pillow's `Image.open(file).convert("RGB")` before any orientation is applied. Alpha is
//! dropped, gray becomes three equal channels, inks become RGB by Pillow's formula.
//!
//! Damage is reported, never painted over: where Pillow returns an image with gray or smeared parts after a
//! libjpeg warning about corrupt data, a decoder here returns a [`DataError`]. Harmless oddities (stray bytes between
//! segments, unknown JFIF or Adobe versions) pass. A decode ends with the last row that its window needs, so
//! damage below the window is not seen.
//!
//! Decoders that are not [`strict`](Decoders::strict) take what Pillow takes (with its `LOAD_TRUNCATED_IMAGES` at the
//! default, false), give Pillow's pixels and say what they [`tolerated`](Decoders::tolerated). What Pillow refuses as
//! damaged they refuse too.
//!
//! To add a decoder: a file here whose type implements [`HostDecoder`], and one word in `decoders!`.

use std::fmt;

use crate::error::{DataError, Reason, Tolerated};
use crate::geometry::{Roi, Size};
use crate::header::Header;

pub use rows::{MOST_ROWS, RowLayout, RowSink, Rows};

mod rows;

/// The decoders: the one list from which dispatch and memory predictions follow. Of those that accept an image the first one
/// decodes it.
macro_rules! decoders {
    ($($module:ident :: $type:ident),+ $(,)?) => {
        $(mod $module;)+

        /// Every decoder with its state.
        #[derive(Debug, Default)]
        struct All {
            $($module: $module::$type,)+
        }

        impl All {
            const COUNT: usize = [$(stringify!($module)),+].len();

            fn list(&self) -> [&dyn HostDecoder; Self::COUNT] {
                [$(&self.$module),+]
            }

            fn list_mut(&mut self) -> [&mut dyn HostDecoder; Self::COUNT] {
                [$(&mut self.$module),+]
            }
        }
    };
}

decoders! {
    libjpeg::LibjpegTurbo,
    png::Png,
    libwebp::Libwebp,
    pnm::Pnm,
    pixels::Pixels,
}

/// A decoder of one format, with its state for one thread.
///
/// `Default` makes the state without an allocation. The state has a fixed size: what grows with an image lies in [`Buffers`],
/// which all decoders of a thread share.
pub trait HostDecoder: fmt::Debug {
    /// Name in tests and messages.
    fn name(&self) -> &'static str;

    /// Whether it takes images with this header, at every reduction of the format. What it takes it may still refuse as
    /// unsupported.
    fn accepts(&self, header: &Header) -> bool;

    /// Most host memory that an image with this header takes; see [`memory_bytes`].
    fn memory(&self, header: &Header, head: &[u8], file_bytes: u64) -> DecodeMemory;

    /// The layouts in which it can give an image that it accepts. [`RowLayout::Rgb`] is always among them.
    fn layouts(&self, header: &Header) -> &'static [RowLayout] {
        let _ = header;
        &[RowLayout::Rgb]
    }

    /// Decodes an image that it accepts, in one of its layouts, and returns the damage that it passed over. An image that fails
    /// does not change how the next one is decoded.
    fn decode(
        &mut self,
        image: &EncodedImage<'_>,
        buffers: &mut Buffers,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<Tolerated>, DataError>;
}

/// An image for a decoder, and the part of it that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct EncodedImage<'a> {
    /// The whole file.
    pub bytes: &'a [u8],
    /// What [`Header::parse_as`] said about it.
    pub header: &'a Header,
    /// The window that is wanted, in stored pixels after the reduction and before the orientation. It lies inside the image and
    /// is not empty.
    pub window: Roi,
    /// Both sides are divided by this, which is one of [`Format::reductions`](crate::header::Format::reductions).
    pub reduction: u32,
    /// Whether damage that Pillow takes is a fault.
    pub strict: bool,
    /// Layout of the rows.
    pub layout: RowLayout,
}

/// Memory that the decoders of a thread share and keep from image to image.
#[derive(Debug, Default)]
pub struct Buffers {
    /// A whole image, where the format can be decoded in no other way.
    pub scratch: Vec<u8>,
    /// The rows that are handed on together.
    pub rows: Vec<u8>,
}

/// What decoding one image takes of host memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeMemory {
    /// [`Buffers::scratch`].
    pub scratch: u64,
    /// [`Buffers::rows`].
    pub rows: u64,
    /// What the format's library allocates, and frees with the image.
    pub library: u64,
}

impl DecodeMemory {
    /// All together.
    pub const fn total(self) -> u64 {
        self.scratch.saturating_add(self.rows).saturating_add(self.library)
    }
}

/// What libraries allocate for any image: tables, states and small chunks.
const LIBRARY_BYTES: u64 = 96 << 10;

/// Most bytes that decoding an image takes. `head` is the file or its first bytes, and `file_bytes` the length of the
/// whole file. The answer is a bound where `head` is the whole file. From first bytes alone, the code tables of a lossless
/// WebP are an estimate.
///
/// * JPEG of one scan: rows. Of several scans, progressive or not: all coefficients too.
/// * PNG: rows; the whole image where it is interlaced.
/// * WebP: the whole image, and the planes and tables of its library.
/// * PNM: rows. What is decoded already: nothing.
pub fn memory_bytes(header: &Header, head: &[u8], file_bytes: u64) -> DecodeMemory {
    Decoders::new().memory(header, head, file_bytes)
}

/// Decodes images on the CPU. One per thread; its buffers grow to what the largest image needs and serve every image.
/// [`memory_bytes`] bounds what an image needs.
///
/// An image that fails leaves nothing behind: the next one decodes as if it were the first.
#[derive(Debug, Default)]
pub struct Decoders {
    tolerant: bool,
    tolerated: Option<Tolerated>,
    only: Option<&'static str>,
    all: All,
    buffers: Buffers,
}

impl Decoders {
    /// Strict decoders without buffers yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The decoder of this name alone, for tests. Images that it does not accept are refused.
    ///
    /// # Panics
    /// If no decoder has this name.
    #[doc(hidden)]
    pub fn only(name: &str) -> Self {
        let this = Self::default();
        let names = this.all.list().map(HostDecoder::name);
        let found = names.into_iter().find(|it| *it == name);
        Self { only: Some(found.unwrap_or_else(|| panic!("{name} is none of {names:?}"))), ..this }
    }

    /// The same decoders, which take damage for a fault (the default), or take what Pillow takes; `decode.strict` is the
    /// setting.
    ///
    /// Of PNGs, `tests/png_damage/` compares with Pillow's outcomes and pixels: cut anywhere, with any byte changed, with wrong and
    /// missing checksums, and with malformed chunks. Where Pillow refuses a PNG, a strict decoder does too, also for a chunk that
    /// says nothing of pixels (a `gAMA` of three bytes). A PNG whose header breaks the standard is refused in both cases,
    /// though Pillow guesses what is meant: IHDR is not the first chunk or has more than 13 bytes; a second IHDR differs; the
    /// compression or interlace method is unknown; there is no IDAT chunk, or the first frame of an animation is a part of the image.
    /// One difference is known the other way: damage behind the last pixel that only zlib sees, in a chunk whose checksum is right,
    /// can pass here.
    pub fn strict(self, strict: bool) -> Self {
        Self { tolerant: !strict, ..self }
    }

    /// The damage that the last [`decode`](Self::decode) met and passed over; never any where decoders are strict. Of
    /// several sorts it is one.
    pub const fn tolerated(&self) -> Option<Tolerated> {
        self.tolerated
    }

    /// [`memory_bytes`] of the decoder that these decoders choose for the image; 0 where none accepts it.
    pub fn memory(&self, header: &Header, head: &[u8], file_bytes: u64) -> DecodeMemory {
        let place = self.place(header);
        place.map_or_else(Default::default, |at| {
            self.all.list()[at].memory(header, head, file_bytes)
        })
    }

    /// The layouts in which an image with this header can be decoded. Empty where no decoder accepts it.
    pub fn layouts(&self, header: &Header) -> &'static [RowLayout] {
        self.place(header).map_or(&[], |at| self.all.list()[at].layouts(header))
    }

    /// Decodes the pixels of `window` and hands them to `sink`, top to bottom, as rows of RGB.
    ///
    /// `header` is what [`Header::parse_as`] said about the same `bytes`; limits on its size are the caller's to
    /// check first. `reduction` divides both sides inside a JPEG's inverse transform and is one of
    /// [`Format::reductions`](crate::header::Format::reductions). `window` counts stored pixels, before the EXIF orientation and
    /// after the reduction, and lies inside [`Size::reduced`]. Equal, bit for bit, to the same window of a whole decode.
    ///
    /// Memory: at most [`memory`](Self::memory). `sink` may have been called for some rows before a fault shows.
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
        self.tolerated = None;
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
        let image = EncodedImage { bytes, header, window, reduction, strict, layout };
        self.tolerated = decoder.decode(&image, &mut self.buffers, sink)?;
        Ok(())
    }

    /// Bytes of memory held between images.
    pub fn capacity_bytes(&self) -> usize {
        self.buffers.scratch.capacity() + self.buffers.rows.capacity()
    }

    /// Gives all memory back. The decoders stay as [`strict`](Self::strict) as they are.
    pub fn release(&mut self) {
        *self = Self { tolerant: self.tolerant, only: self.only, ..Self::default() };
    }

    fn place(&self, header: &Header) -> Option<usize> {
        place(&self.all.list(), self.only, header)
    }
}

/// The place in the list of the decoder for an image: the first that accepts it, or `only` that of this name.
fn place(list: &[&dyn HostDecoder], only: Option<&str>, header: &Header) -> Option<usize> {
    let allowed = |name: &str| only.is_none_or(|only| only == name);
    list.iter().position(|it| allowed(it.name()) && it.accepts(header))
}

/// Whether libjpeg-turbo's SIMD code was built in (on x86-64 that needs nasm at build time). Without it the
/// pixels are the same and decoding takes longer.
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

/// The fault for a file whose own decoder sees another size than its header said.
fn size_changed(header: Size, decoder: Size) -> DataError {
    DataError::new(
        Reason::Corrupt,
        format!("the header says {header}, the image has {decoder} pixels"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Format;

    /// Takes every image of its format.
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
