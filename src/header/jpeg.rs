//! JPEG headers: all marker segments up to the first scan, and a check that the file has an end
//! marker.
//!
//! As in libjpeg, a second start marker, a second frame and a scan without a frame are errors.
//! Bytes between segments are skipped.

use super::exif::{Joined, Metadata};
use super::{Format, Header, be16, corrupt};
use crate::error::{DataError, Reason, Tolerated};
use crate::geometry::Size;

pub use layout::{JpegLayout, JpegScan, JpegScanComponent};

use markers::{DRI, EOI, Markers, SOI, SOS};

pub(super) mod layout;
pub(super) mod markers;
mod segments;

/// Properties of a JPEG that decide which decoders support it.
#[derive(Clone, Debug, PartialEq)]
pub struct JpegHeader {
    /// Coding process of the frame.
    pub frame: FrameKind,
    /// Whether coding is arithmetic instead of Huffman.
    pub arithmetic: bool,
    /// Number of bits per sample: almost always 8, but 12 or 2 to 16 in medical images.
    pub precision: u8,
    /// Number of MCUs between two restart markers, or 0 without restart markers.
    pub restart_interval: u16,
    /// Number of components in the first scan. In a sequential frame, a first scan with all
    /// components is the only scan.
    pub scan_components: u8,
    /// Whether an APP0 segment declares JFIF.
    pub jfif: bool,
    /// Color transform in Adobe's APP14 segment: 0 none, 1 YCbCr, 2 YCCK.
    pub adobe_transform: Option<u8>,
    /// Whether the file has at least a part of an ICC profile.
    pub icc: bool,
    /// Damage that [`Header::parse`] refuses and [`Header::parse_as`] has tolerated.
    pub tolerated: Option<Tolerated>,
    components: [Component; 4],
    component_count: u8,
}

/// Component of the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Component {
    /// Identifier that scans use for the component.
    pub id: u8,
    /// Horizontal sampling factor, 1 to 4.
    pub h: u8,
    /// Vertical sampling factor, 1 to 4.
    pub v: u8,
}

/// Coding processes of ITU-T T.81, table B.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// SOF0: baseline.
    Baseline,
    /// SOF1 and SOF9: sequential, extended beyond baseline.
    Extended,
    /// SOF2 and SOF10: progressive.
    Progressive,
    /// SOF3 and SOF11: lossless.
    Lossless,
    /// SOF5 to SOF7 and SOF13 to SOF15: differential frames.
    Hierarchical,
}

/// Chroma subsampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sampling {
    /// Gray: one component.
    Gray,
    /// 4:4:4: chroma of full size.
    S444,
    /// 4:2:2: chroma of half the width.
    S422,
    /// 4:2:0: chroma of half the width and half the height.
    S420,
    /// 4:4:0: chroma of half the height.
    S440,
    /// 4:1:1: chroma of a quarter of the width.
    S411,
    /// 4:1:0: chroma of a quarter of the width and half the height.
    S410,
    /// All other samplings, and every image with two or four components.
    Other,
}

/// Meaning of the components, by libjpeg's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColorSpace {
    /// Gray: one component.
    Gray,
    /// Luma and two chroma components.
    YCbCr,
    /// Red, green and blue.
    Rgb,
    /// Cyan, magenta, yellow and black.
    Cmyk,
    /// Cyan, magenta and yellow, converted to luma and chroma, and black.
    Ycck,
    /// Two components without a specified meaning.
    Unknown,
}

impl JpegHeader {
    /// Components of the frame, one to four, in order.
    pub fn components(&self) -> &[Component] {
        &self.components[..usize::from(self.component_count)]
    }

    /// Whether the image is coded in several refining scans.
    pub const fn is_progressive(&self) -> bool {
        matches!(self.frame, FrameKind::Progressive)
    }

    /// Whether the first scan has all components.
    pub const fn is_interleaved(&self) -> bool {
        self.scan_components == self.component_count
    }

    /// Chroma subsampling.
    pub fn sampling(&self) -> Sampling {
        match *self.components() {
            [_] => Sampling::Gray,
            [luma, cb, cr] if (cb.h, cb.v) == (cr.h, cr.v) => {
                if luma.h % cb.h != 0 || luma.v % cb.v != 0 {
                    return Sampling::Other;
                }
                match (luma.h / cb.h, luma.v / cb.v) {
                    (1, 1) => Sampling::S444,
                    (2, 1) => Sampling::S422,
                    (2, 2) => Sampling::S420,
                    (1, 2) => Sampling::S440,
                    (4, 1) => Sampling::S411,
                    (4, 2) => Sampling::S410,
                    _ => Sampling::Other,
                }
            }
            _ => Sampling::Other,
        }
    }

    /// Returns the meaning of the components by libjpeg's rules (jdapimin.c,
    /// `default_decompress_parms`).
    pub fn color_space(&self) -> ColorSpace {
        match (self.components(), self.jfif, self.adobe_transform) {
            ([_], ..) => ColorSpace::Gray,
            ([_, _, _], true, _) => ColorSpace::YCbCr,
            ([_, _, _], false, Some(0)) => ColorSpace::Rgb,
            ([_, _, _], false, Some(_)) => ColorSpace::YCbCr,
            ([r, g, b], false, None) if [r.id, g.id, b.id] == *b"RGB" => ColorSpace::Rgb,
            ([_, _, _], false, None) => ColorSpace::YCbCr,
            ([_, _, _, _], _, None | Some(0)) => ColorSpace::Cmyk,
            ([_, _, _, _], _, Some(_)) => ColorSpace::Ycck,
            _ => ColorSpace::Unknown,
        }
    }
}

pub(super) fn parse(bytes: &[u8], strict: bool) -> Result<Header, DataError> {
    let (mut header, rest) = parse_head(bytes, strict)?;
    if !ends(rest) {
        if strict {
            let problem = "no end-of-image marker: the file ends before the image does";
            return Err(DataError::new(Reason::Truncated, problem));
        }
        if let Some(jpeg) = &mut header.jpeg {
            jpeg.tolerated = jpeg.tolerated.or(Some(Tolerated::JpegEnd));
        }
    }
    Ok(header)
}

/// Parses the header. Returns the header, and the bytes after the header of the first scan.
pub(super) fn parse_head(bytes: &[u8], strict: bool) -> Result<(Header, &[u8]), DataError> {
    let mut markers = Markers::new(bytes);
    let mut frame: Option<(Size, JpegHeader)> = None;
    let mut seen = Seen::default();
    loop {
        let marker = markers.find()?;
        match marker {
            SOI => return Err(corrupt("the JPEG has a second start-of-image marker")),
            EOI => {
                return Err(corrupt("the JPEG has an end-of-image marker before its first scan"));
            }
            // TEM and the restart markers have no segment.
            0x01 | 0xD0..=0xD7 => continue,
            0x02..=0xBF | 0xF0..=0xFD => {
                return Err(corrupt(format!("the JPEG has the unknown marker ff {marker:02x}")));
            }
            0xC8 | 0xDE | 0xDF => {
                let problem = format!(
                    "the JPEG has the marker ff {marker:02x} of a hierarchical JPEG or an \
                         extension, which is not supported"
                );
                return Err(DataError::new(Reason::Unsupported, problem));
            }
            _ => {}
        }
        // libjpeg treats a segment with an impossible length as empty, unless it interprets the
        // segment's content.
        if !strict && matches!(marker, 0xE0..=0xEF | 0xFE) && markers.is_short() {
            seen.short_segment = true;
            markers.skip_length();
            continue;
        }
        let body = markers.segment(marker)?;
        seen.checks.check(marker, body)?;
        match marker {
            SOS => {
                seen.scan_components = body.first().copied().unwrap_or(0);
                break;
            }
            0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                if frame.is_some() {
                    return Err(corrupt("a second frame header"));
                }
                seen.checks.at_frame()?;
                frame = Some(read_frame(marker, body)?);
            }
            DRI => {
                seen.restart_interval =
                    be16(body, 0).ok_or_else(|| corrupt("a restart interval without a value"))?;
            }
            0xE0 => seen.jfif |= body.len() >= 14 && body.starts_with(b"JFIF\0"),
            // As in Pillow, all EXIF segments are joined, but only the last XMP packet is used.
            0xE1 if body.starts_with(b"Exif\0\0") => seen.exif.push(&body[6..]),
            0xE1 if body.starts_with(b"http://ns.adobe.com/xap/1.0/\0") => {
                seen.metadata.set_xmp(body)
            }
            0xE2 => seen.icc |= body.starts_with(b"ICC_PROFILE\0"),
            0xEE if body.len() >= 12 && body.starts_with(b"Adobe") => {
                seen.adobe_transform = Some(body[11])
            }
            _ => {}
        }
    }
    let Some((size, mut jpeg)) = frame else {
        return Err(corrupt("a scan without a frame header"));
    };
    jpeg.tolerated = seen.short_segment.then_some(Tolerated::JpegData);
    jpeg.restart_interval = seen.restart_interval;
    jpeg.scan_components = seen.scan_components;
    jpeg.jfif = seen.jfif;
    jpeg.adobe_transform = seen.adobe_transform;
    jpeg.icc = seen.icc;
    seen.metadata.set_exif(&seen.exif);
    let orientation = seen.metadata.orientation();
    Ok((Header { format: Format::Jpeg, size, orientation, jpeg: Some(jpeg) }, markers.rest()))
}

/// Content of the segments other than the frame header.
#[derive(Default)]
struct Seen<'a> {
    restart_interval: u16,
    scan_components: u8,
    jfif: bool,
    adobe_transform: Option<u8>,
    icc: bool,
    /// Whether an application segment or a comment has a length that is less than the size of the
    /// length field.
    short_segment: bool,
    checks: segments::Checks<'a>,
    exif: Joined<'a>,
    metadata: Metadata,
}

fn read_frame(marker: u8, body: &[u8]) -> Result<(Size, JpegHeader), DataError> {
    let &[precision, y1, y0, x1, x0, count, ref table @ ..] = body else {
        return Err(corrupt(format!(
            "the frame header has {} bytes; at least 6 are needed",
            body.len()
        )));
    };
    let size = Size::new(u16::from_be_bytes([x1, x0]).into(), u16::from_be_bytes([y1, y0]).into());
    if size.width == 0 || size.height == 0 {
        return Err(corrupt(format!(
            "the frame header gives the size {size}; width and height must be at least 1"
        )));
    }
    if !(1..=4).contains(&count) {
        return Err(corrupt(format!(
            "the frame header gives {count} components; the number must be from 1 to 4"
        )));
    }
    if table.len() != 3 * usize::from(count) {
        let problem = format!(
            "the frame header has {} bytes for {count} components; each needs 3",
            table.len()
        );
        return Err(corrupt(problem));
    }
    let mut components = [Component::default(); 4];
    for (component, entry) in components.iter_mut().zip(table.chunks_exact(3)) {
        *component = Component { id: entry[0], h: entry[1] >> 4, v: entry[1] & 15 };
        let Component { id, h, v } = *component;
        if !(1..=4).contains(&h) || !(1..=4).contains(&v) {
            let problem = format!(
                "component {id} has the sampling factors {h}x{v}; each factor must be from 1 to 4"
            );
            return Err(corrupt(problem));
        }
    }
    let frame = match marker & 7 {
        _ if marker & 4 != 0 => FrameKind::Hierarchical,
        0 => FrameKind::Baseline,
        1 => FrameKind::Extended,
        2 => FrameKind::Progressive,
        _ => FrameKind::Lossless,
    };
    let jpeg = JpegHeader {
        frame,
        arithmetic: marker >= 0xC8,
        precision,
        restart_interval: 0,
        scan_components: 0,
        jfif: false,
        adobe_transform: None,
        icc: false,
        tolerated: None,
        components,
        component_count: count,
    };
    Ok((size, jpeg))
}

/// Whether the data contains an end-of-image marker. Searches backwards, because nearly every file
/// has it at the end.
fn ends(scans: &[u8]) -> bool {
    scans.windows(2).rev().any(|pair| pair == [0xFF, EOI])
}
