//! Fields that columns read, as lines of text.

use crate::profile::{FieldProfile, Profile};
use crate::text::{bytes, counted};

use super::percent;

/// A line for each field: bytes, times, and the share of the samples that have it. Times are means
/// over the samples that have the field.
pub fn lines(profile: &Profile) -> impl Iterator<Item = String> {
    let workers = f64::from(profile.setup.workers) * profile.seconds.max(1e-9);
    profile.fields.iter().map(move |field| {
        let FieldProfile { column, field: name, count, share, read, convert, follow, .. } = field;
        let name = if name == column { String::new() } else { format!(" ({name})") };
        let each = |seconds: f64| 1e3 * seconds / (*count).max(1) as f64;
        let moved = match each(*follow) {
            0.0 => String::new(),
            moved => format!(", decode and move {moved:.3} ms"),
        };
        format!(
            "field {column}{name}: {} of the workers' time; {} of {} with {} in total; read {:.3} ms, \
             convert {:.3} ms{moved}",
            percent((read + convert + follow) / workers),
            percent(*share),
            counted(field.samples, "sample"),
            bytes(field.bytes),
            each(*read),
            each(*convert),
        )
    })
}
