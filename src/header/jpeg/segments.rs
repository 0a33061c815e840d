//! Pillow's checks of segments that do not affect pixels. Pillow refuses the whole image if such a
//! segment ends too early.

use super::{be16, corrupt};
use crate::error::DataError;
use crate::header::be32;

const ICC: &[u8] = b"ICC_PROFILE\0";
const PHOTOSHOP: &[u8] = b"Photoshop 3.0\0";
/// Identifier of Photoshop's resolution block.
const RESOLUTION: u16 = 0x03ED;
/// Number of bytes of the resolution block that Pillow reads.
const RESOLUTION_BYTES: usize = 14;

/// Checks segments in file order.
#[derive(Default)]
pub(super) struct Checks<'a> {
    /// First part of an ICC profile when all parts are sorted by their bytes.
    first_icc: Option<&'a [u8]>,
}

impl<'a> Checks<'a> {
    pub fn check(&mut self, marker: u8, body: &'a [u8]) -> Result<(), DataError> {
        match marker {
            // Pillow reads a version from bytes 5 and 6 of both segments, so they need seven bytes.
            0xE0 if body.starts_with(b"JFIF") => at_least(7, "JFIF", body),
            0xEE if body.starts_with(b"Adobe") => at_least(7, "Adobe", body),
            0xE2 if body.starts_with(ICC) => {
                self.first_icc = Some(self.first_icc.map_or(body, |first| first.min(body)));
                Ok(())
            }
            0xED if body.starts_with(PHOTOSHOP) && ends_in_a_block(body) => {
                Err(corrupt("a Photoshop segment ends inside the header of a resource block"))
            }
            _ => Ok(()),
        }
    }

    /// Checks the ICC profile. At the frame header, Pillow reads the number of the first part and
    /// the count of parts, so the first part must contain both.
    pub fn at_frame(&self) -> Result<(), DataError> {
        self.first_icc.map_or(Ok(()), |first| at_least(ICC.len() + 2, "ICC profile", first))
    }
}

fn at_least(least: usize, name: &str, body: &[u8]) -> Result<(), DataError> {
    if body.len() < least {
        let problem =
            format!("the {name} segment has {} bytes; at least {least} are needed", body.len());
        return Err(corrupt(problem));
    }
    Ok(())
}

/// Whether the segment ends directly before the length of a block's name, which is an error in
/// Pillow. If the segment ends anywhere else, Pillow only stops reading.
fn ends_in_a_block(body: &[u8]) -> bool {
    let mut at = PHOTOSHOP.len();
    while body.get(at..).is_some_and(|rest| rest.starts_with(b"8BIM")) {
        let Some(code) = be16(body, at + 4) else { return false };
        let Some(&name) = body.get(at + 6) else { return true };
        // A name together with its length field is padded to an even position. So is the content of
        // a block.
        at = (at + 7 + usize::from(name)).next_multiple_of(2);
        let Some(size) = be32(body, at) else { return false };
        let content = body.get(at + 4..).unwrap_or_default();
        if code == RESOLUTION && content.len().min(size as usize) < RESOLUTION_BYTES {
            return false;
        }
        at = (at + 4).saturating_add(size as usize).saturating_add(1) & !1;
    }
    false
}
