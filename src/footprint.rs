//! Memory as named rows: predicted before the run, taken once, compared with what was taken.

use std::fmt;

use serde::Serialize;

#[doc(hidden)]
pub use available::Available;
#[doc(hidden)]
pub use feedwater_insight::text::bytes;
pub(crate) use size::{byte_size, some_byte_size};

mod available;
mod size;

/// Where bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Memory {
    /// Ordinary host memory.
    Host,
    /// Page-locked host memory that the device reads.
    Pinned,
    /// Device memory.
    Device,
}

impl Memory {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Memory::Host => "host",
            Memory::Pinned => "pinned",
            Memory::Device => "device",
        }
    }
}

/// One sort of buffer: what it is, how large one is, how many there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// Where it lies.
    pub memory: Memory,
    /// What it is.
    pub name: String,
    /// Bytes of one.
    pub each_bytes: u64,
    /// How many there are.
    pub count: u64,
    /// How the size comes about.
    pub note: String,
}

impl Row {
    /// Bytes of all of them.
    pub const fn total_bytes(&self) -> u64 {
        self.each_bytes.saturating_mul(self.count)
    }
}

/// All memory that a plan takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Footprint {
    /// The rows, in the order in which they are taken.
    pub rows: Vec<Row>,
}

impl Footprint {
    /// Adds a row.
    pub fn add(
        &mut self,
        memory: Memory,
        name: impl Into<String>,
        each_bytes: u64,
        count: u64,
        note: impl Into<String>,
    ) {
        self.rows.push(Row { memory, name: name.into(), each_bytes, count, note: note.into() });
    }

    /// Bytes of one sort of memory.
    pub fn total_bytes(&self, memory: Memory) -> u64 {
        let rows = self.rows.iter().filter(|row| row.memory == memory);
        rows.fold(0, |sum, row| sum.saturating_add(row.total_bytes()))
    }

    /// The row of that name.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<8}{:<26}{:>12}{:>7}{:>12}", "memory", "row", "each", "count", "total")?;
        for row in &self.rows {
            writeln!(
                f,
                "{:<8}{:<26}{:>12}{:>7}{:>12}   {}",
                row.memory.name(),
                row.name,
                bytes(row.each_bytes),
                row.count,
                bytes(row.total_bytes()),
                row.note
            )?;
        }
        for memory in [Memory::Host, Memory::Pinned, Memory::Device] {
            let total = self.total_bytes(memory);
            if total > 0 {
                writeln!(f, "{:<8}{:<26}{:>31}", memory.name(), "total", bytes(total))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_sums_per_memory() {
        let mut footprint = Footprint::default();
        footprint.add(Memory::Host, "pages", 10, 3, "");
        footprint.add(Memory::Device, "slots", 100, 2, "");
        footprint.add(Memory::Device, "params", 1, 5, "");
        assert_eq!(footprint.total_bytes(Memory::Host), 30);
        assert_eq!(footprint.total_bytes(Memory::Device), 205);
        assert_eq!(footprint.row("slots").unwrap().total_bytes(), 200);
    }

    #[test]
    fn totals_saturate() {
        let mut footprint = Footprint::default();
        footprint.add(Memory::Host, "slots", u64::MAX / 2, 3, "");
        footprint.add(Memory::Host, "pages", 1, 1, "");
        assert_eq!(footprint.total_bytes(Memory::Host), u64::MAX);
    }

    #[test]
    fn bytes_are_written_in_binary_units() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(73 * 1024 * 1024 + 512 * 1024), "73.5 MiB");
    }
}
