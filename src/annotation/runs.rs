//! Masks as run lengths (COCO's RLE).

use crate::geometry::Size;

/// Mask as the lengths of its runs, in column-major order. Runs of background and object alternate,
/// starting with background. Their sum is the number of pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLengths {
    size: Size,
    /// End of each run, as a number of pixels from the start of the mask.
    ends: Vec<u64>,
}

impl RunLengths {
    /// Creates a mask from run lengths.
    ///
    /// # Errors
    ///
    /// Returns a message if the runs cover more or fewer pixels than the image has. pycocotools
    /// leaves pixels after the last run undefined.
    pub fn new(size: Size, lengths: impl IntoIterator<Item = u64>) -> Result<Self, String> {
        let mut at = 0u64;
        let mut end = |length: u64| {
            at = at.checked_add(length).filter(|&end| end <= size.pixels()).ok_or_else(|| {
                format!(
                    "the runs of the mask cover more than the {} pixels of an image of {size}",
                    size.pixels()
                )
            })?;
            Ok(at)
        };
        let ends = lengths.into_iter().map(&mut end).collect::<Result<_, String>>()?;
        if at != size.pixels() {
            return Err(format!(
                "the runs of the mask cover {at} pixels, and an image of {size} has {}; their sum \
                 must be the number of pixels",
                size.pixels()
            ));
        }
        Ok(Self { size, ends })
    }

    /// Parses the compressed form of pycocotools (`rleFrString` of `maskApi.c`). Each character
    /// stores five bits of a length, lowest first, as an offset from `0`. A sixth bit marks that
    /// more bits follow. From the fourth length on, the stored value is the difference from the
    /// length two places before.
    ///
    /// # Errors
    ///
    /// Returns a message with the position of the invalid character. Errors of [`new`](Self::new).
    pub fn from_compressed(size: Size, text: &[u8]) -> Result<Self, String> {
        let mut lengths = Vec::new();
        decompress(size, text, |length| {
            lengths.push(length);
            Ok(())
        })?;
        Self::new(size, lengths)
    }

    /// Computes the run lengths of a mask. The mask has one byte per pixel, row by row, with 0
    /// outside the object.
    ///
    /// # Panics
    ///
    /// Panics if the length of `mask` is not the number of pixels.
    pub fn from_mask(size: Size, mask: &[u8]) -> Self {
        let [width, height] = [size.width, size.height].map(|side| side as usize);
        assert_eq!(mask.len(), width * height, "a byte per pixel of {size}");
        let (mut ends, mut inside) = (Vec::new(), false);
        let columns = (0..width).flat_map(|x| (0..height).map(move |y| y * width + x));
        for (at, pixel) in (0..).zip(columns) {
            if (mask[pixel] != 0) != inside {
                inside = !inside;
                ends.push(at);
            }
        }
        if !mask.is_empty() {
            ends.push(size.pixels());
        }
        Self { size, ends }
    }

    /// Returns the compressed form of pycocotools (`rleToString` of `maskApi.c`), which
    /// [`from_compressed`](Self::from_compressed) parses.
    pub fn to_compressed(&self) -> Vec<u8> {
        let lengths: Vec<i64> = self.lengths().map(|length| length as i64).collect();
        let mut text = Vec::new();
        for (at, &length) in lengths.iter().enumerate() {
            let mut value = if at > 2 { length - lengths[at - 2] } else { length };
            loop {
                let digit = (value & 0x1f) as u8;
                value >>= 5;
                // The fifth bit of a digit is its sign. If all remaining bits equal the sign, this
                // digit is the last one.
                let more = if digit & 0x10 != 0 { value != -1 } else { value != 0 };
                text.push(b'0' + (digit | u8::from(more) << 5));
                if !more {
                    break;
                }
            }
        }
        text
    }

    /// Size of the mask.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Lengths of the runs, starting with background.
    pub fn lengths(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        let mut last = 0;
        self.ends.iter().map(move |&end| end - std::mem::replace(&mut last, end))
    }

    pub(super) fn reader(&self) -> Reader<'_> {
        Reader { runs: self, run: 0 }
    }
}

/// Parses the compressed form of pycocotools ([`RunLengths::from_compressed`]), and calls `each`
/// with one length after another.
///
/// # Errors
///
/// Returns a message with the position of the invalid character. Errors of `each`.
pub fn decompress(
    size: Size,
    text: &[u8],
    mut each: impl FnMut(u64) -> Result<(), String>,
) -> Result<(), String> {
    let (mut value, mut bits) = (0i64, 0);
    // The last two lengths, and the number of all lengths.
    let (mut last, mut count) = ([0u64; 2], 0u64);
    for (at, &byte) in text.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit >= 64 {
            return Err(format!(
                "byte {at} of the mask's counts is {byte}, which is not a valid digit"
            ));
        }
        // Valid lengths have fewer digits than this limit of 12, because images have far fewer than
        // 2^60 pixels.
        if bits >= 60 {
            return Err(format!(
                "a run length in the mask's counts, at byte {at}, has more than 12 digits"
            ));
        }
        value |= i64::from(digit & 0x1f) << bits;
        bits += 5;
        if digit & 0x20 != 0 {
            continue;
        }
        if digit & 0x10 != 0 {
            value |= -1 << bits;
        }
        let before = if count > 2 { last[0] } else { 0 };
        let length = before.checked_add_signed(value).filter(|&it| it <= size.pixels());
        let length = length.ok_or_else(|| {
            format!(
                "the run length at byte {at} of the mask's counts adds {value} to {before}, which \
                 is no length within an image of {size}"
            )
        })?;
        each(length)?;
        (last, count) = ([last[1], length], count + 1);
        (value, bits) = (0, 0);
    }
    match bits {
        0 => Ok(()),
        _ => Err("its counts end within a length".into()),
    }
}

/// Cursor for mask look-ups. Look-ups near the previous pixel are fast.
pub(super) struct Reader<'a> {
    runs: &'a RunLengths,
    /// Index of the run that contains the previous pixel.
    run: usize,
}

impl Reader<'_> {
    /// Whether a pixel lies in the object; false outside the mask.
    pub fn at(&mut self, x: u32, y: u32) -> bool {
        let RunLengths { size, ends } = self.runs;
        if x >= size.width || y >= size.height {
            return false;
        }
        let at = u64::from(x) * u64::from(size.height) + u64::from(y);
        while self.run > 0 && at < ends[self.run - 1] {
            self.run -= 1;
        }
        while self.run < ends.len() && ends[self.run] <= at {
            self.run += 1;
        }
        self.run < ends.len() && self.run % 2 == 1
    }
}
