//! Masks as run lengths (COCO's RLE).

use crate::geometry::Size;

/// Mask as the lengths of its runs, in column-major order: alternately background and object, starting with background.
///
/// Pixels not covered by runs are background, as in pycocotools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLengths {
    size: Size,
    /// End of each run, in pixels from the first.
    ends: Vec<u64>,
}

impl RunLengths {
    /// Creates a mask from run lengths.
    ///
    /// # Errors
    ///
    /// A message, if they cover more pixels than the image has.
    pub fn new(size: Size, lengths: impl IntoIterator<Item = u64>) -> Result<Self, String> {
        let mut at = 0u64;
        let mut end = |length: u64| {
            at = at.checked_add(length).filter(|&end| end <= size.pixels()).ok_or_else(|| {
                format!("its runs cover more than the {} pixels of {size}", size.pixels())
            })?;
            Ok(at)
        };
        let ends = lengths.into_iter().map(&mut end).collect::<Result<_, String>>()?;
        Ok(Self { size, ends })
    }

    /// Parses pycocotools' compressed form (`rleFrString` of `maskApi.c`): five bits per character from `0` on, lowest first; a
    /// sixth bit means that more follow. From the fourth length on, each is the difference to the one before the previous.
    ///
    /// # Errors
    ///
    /// A message, with the position of the character.
    pub fn from_compressed(size: Size, text: &[u8]) -> Result<Self, String> {
        let mut lengths: Vec<u64> = Vec::new();
        let (mut value, mut bits) = (0i64, 0);
        for (at, &byte) in text.iter().enumerate() {
            let digit = byte.wrapping_sub(b'0');
            if digit >= 64 {
                return Err(format!(
                    "byte {at} of its counts is {byte}, which is not a valid digit"
                ));
            }
            // The limit of 12 digits is far above any valid length; images have fewer than 2^64 pixels.
            if bits >= 60 {
                return Err(format!(
                    "a length in its counts, at byte {at}, has more than 12 digits"
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
            let before = if lengths.len() > 2 { lengths[lengths.len() - 2] } else { 0 };
            let length = before.checked_add_signed(value).filter(|&it| it <= size.pixels());
            lengths.push(length.ok_or_else(|| {
                format!("a length in its counts, at byte {at}, is {before} {value:+} of {size}")
            })?);
            (value, bits) = (0, 0);
        }
        match bits {
            0 => Self::new(size, lengths),
            _ => Err("its counts end within a length".into()),
        }
    }

    /// Size of the image.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Run lengths, background first.
    pub fn lengths(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        let mut last = 0;
        self.ends.iter().map(move |&end| end - std::mem::replace(&mut last, end))
    }

    pub(super) fn reader(&self) -> Reader<'_> {
        Reader { runs: self, run: 0 }
    }
}

/// Cursor for mask lookups, which are fast near the previous pixel.
pub(super) struct Reader<'a> {
    runs: &'a RunLengths,
    /// Run of the previous pixel.
    run: usize,
}

impl Reader<'_> {
    /// Whether a pixel is in the object; false outside of the mask.
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
