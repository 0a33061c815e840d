//! Memory footprint of a loader: a list of named entries, predicted before a run and compared with
//! the allocations.

use std::fmt;

use serde::Serialize;

pub(crate) use available::Available;
pub(crate) use feedwater_insight::text::{bytes, counted};
pub(crate) use size::{byte_size, some_byte_size};

pub(crate) mod available;
mod size;

/// Kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Memory {
    /// Pageable host memory.
    Host,
    /// Page-locked host memory that the device accesses.
    Pinned,
    /// Device memory.
    Device,
}

impl Memory {
    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Memory::Host => "host",
            Memory::Pinned => "pinned",
            Memory::Device => "device",
        }
    }
}

/// Entry of a footprint: buffers of one kind, with name, size and count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// Kind of memory.
    pub memory: Memory,
    /// Name of the buffers.
    pub name: String,
    /// Size of one buffer, in bytes.
    pub each_bytes: u64,
    /// Number of buffers.
    pub count: u64,
    /// Explanation of the size.
    pub note: String,
}

impl Row {
    /// Size of all buffers, in bytes.
    pub const fn total_bytes(&self) -> u64 {
        self.each_bytes.saturating_mul(self.count)
    }
}

/// Predicted memory of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Footprint {
    /// Entries, in the order of allocation.
    pub rows: Vec<Row>,
}

impl Footprint {
    /// Adds an entry.
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

    /// Total of one kind of memory, in bytes.
    pub fn total_bytes(&self, memory: Memory) -> u64 {
        let rows = self.rows.iter().filter(|row| row.memory == memory);
        rows.fold(0, |sum, row| sum.saturating_add(row.total_bytes()))
    }

    /// Returns the entry with this name, if there is one.
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
    fn sizes_are_formatted_in_binary_units() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(73 * 1024 * 1024 + 512 * 1024), "73.5 MiB");
    }
}
