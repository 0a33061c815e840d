//! Measurements of the fields that columns read.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::{ThreadMeter, bump, nanoseconds};

/// Measurements of one thread, by field.
#[derive(Debug)]
pub struct FieldMeters {
    /// Number of samples whose fields were read.
    samples: AtomicU64,
    fields: Vec<FieldMeter>,
}

#[derive(Debug)]
struct FieldMeter {
    column: String,
    field: String,
    count: AtomicU64,
    bytes: AtomicU64,
    read: AtomicU64,
    convert: AtomicU64,
    follow: AtomicU64,
}

/// Counts of one field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldCounts {
    /// Name of the column or view.
    pub column: String,
    /// Name of the field, with a path into its value.
    pub field: String,
    /// Number of samples whose fields were read.
    pub samples: u64,
    /// Number of these samples that have the field.
    pub count: u64,
    /// Number of bytes of the values.
    pub bytes: u64,
    /// Nanoseconds in which the source read the values.
    pub read: u64,
    /// Nanoseconds in which values were converted to elements of their column.
    pub convert: u64,
    /// Nanoseconds in which masks were decoded, and values were moved like their image.
    pub follow: u64,
}

impl FieldMeters {
    /// Meters of fields, each with the name of its column.
    pub fn new(names: impl Iterator<Item = (String, String)>) -> Self {
        let meter = |(column, field)| FieldMeter {
            column,
            field,
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            read: AtomicU64::new(0),
            convert: AtomicU64::new(0),
            follow: AtomicU64::new(0),
        };
        Self { samples: AtomicU64::new(0), fields: names.map(meter).collect() }
    }

    pub(super) fn counts(&self) -> Vec<FieldCounts> {
        let of = |it: &AtomicU64| it.load(Relaxed);
        let counts = self.fields.iter().map(|it| FieldCounts {
            column: it.column.clone(),
            field: it.field.clone(),
            samples: of(&self.samples),
            count: of(&it.count),
            bytes: of(&it.bytes),
            read: of(&it.read),
            convert: of(&it.convert),
            follow: of(&it.follow),
        });
        counts.collect()
    }
}

impl FieldCounts {
    /// Adds the counts of another thread.
    pub(in crate::measure) fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.count += other.count;
        self.bytes += other.bytes;
        self.read += other.read;
        self.convert += other.convert;
        self.follow += other.follow;
    }

    /// Counts since `then`.
    pub(in crate::measure) fn since(&self, then: &Self) -> Self {
        Self {
            column: self.column.clone(),
            field: self.field.clone(),
            samples: self.samples - then.samples,
            count: self.count - then.count,
            bytes: self.bytes - then.bytes,
            read: self.read - then.read,
            convert: self.convert - then.convert,
            follow: self.follow - then.follow,
        }
    }

    /// Share of the samples that have the field, from 0 to 1.
    pub fn share(&self) -> f64 {
        if self.samples > 0 { self.count as f64 / self.samples as f64 } else { 0.0 }
    }
}

/// Clock of the fields of one sample. It is read only if the sample is timed.
#[derive(Debug)]
pub struct FieldClock<'a> {
    meter: &'a ThreadMeter,
    last: Instant,
}

impl<'a> FieldClock<'a> {
    /// Begins to read the fields of a sample.
    pub fn begin(meter: &'a ThreadMeter) -> Self {
        if let Some(fields) = meter.fields() {
            bump(&fields.samples, 1);
        }
        Self { meter, last: meter.now() }
    }

    /// Returns the time since the last call, or since the clock began.
    pub fn lap(&mut self) -> Duration {
        let took = self.meter.since(self.last);
        self.last += took;
        took
    }

    /// Records that a value of `bytes` bytes, which was read in the time `read`, is converted.
    pub fn add_converted(&mut self, number: usize, bytes: u64, read: Duration) {
        let convert = self.lap();
        let field = self.meter.fields().and_then(|it| it.fields.get(number));
        let Some(field) = field else { return };
        bump(&field.count, 1);
        bump(&field.bytes, bytes);
        let weight = self.meter.weight();
        if weight > 0 {
            bump(&field.read, nanoseconds(read) * weight);
            bump(&field.convert, nanoseconds(convert) * weight);
        }
    }

    /// Records that the column with this number was moved like its image.
    pub fn add_followed(&mut self, number: usize) {
        let took = self.lap();
        if let Some(field) = self.meter.fields().and_then(|it| it.fields.get(number)) {
            bump(&field.follow, nanoseconds(took) * self.meter.weight());
        }
    }

    /// Continues the clock of a sample, whose fields were read earlier.
    pub fn resume(meter: &'a ThreadMeter) -> Self {
        Self { meter, last: meter.now() }
    }
}
