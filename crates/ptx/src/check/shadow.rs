//! Last accesses to each byte of a memory.

/// Thread and time of an access, packed into 64 bits. 0 means no access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

/// Flag of a stamp: the access is atomic, or strong in the memory model.
const ATOMIC: u64 = 1;
/// Flag of a stamp: several lanes of the warp have read the bytes.
const MANY: u64 = 2;
/// Flag of a stamp: the access is an asynchronous copy for which no thread has waited yet.
const PENDING: u64 = 4;

impl Stamp {
    /// Creates the stamp of a thread of a block at a time of its warp. Times start at 1. Times from
    /// 2^24 on are stored as 2^24 - 1.
    pub fn new(block: u32, thread: u32, time: u32) -> Self {
        let time = time.min((1 << 24) - 1);
        Self(u64::from(block) << 40 | u64::from(time) << 16 | u64::from(thread & 0x3ff) << 4)
    }

    pub fn atomic(self, atomic: bool) -> Self {
        Self(self.0 | if atomic { ATOMIC } else { 0 })
    }

    pub fn pending(self) -> Self {
        Self(self.0 | PENDING)
    }

    fn is_none(self) -> bool {
        self.0 == 0
    }

    pub fn block(self) -> u32 {
        (self.0 >> 40) as u32
    }

    pub fn time(self) -> u32 {
        (self.0 >> 16) as u32 & 0xff_ffff
    }

    /// Number of the thread in the block: 32 times the warp's number, plus the lane.
    pub fn thread(self) -> u32 {
        (self.0 >> 4) as u32 & 0x3ff
    }

    pub fn warp(self) -> u32 {
        self.thread() / 32
    }

    pub fn is_many(self) -> bool {
        self.0 & MANY != 0
    }

    pub fn is_pending(self) -> bool {
        self.0 & PENDING != 0
    }

    fn same_warp(self, other: Self) -> bool {
        (self.0 ^ other.0) & !(0xff_ffff << 16 | 0x1f << 4 | 0xf) == 0
    }

    fn are_atomic(self, other: Self) -> bool {
        self.0 & other.0 & ATOMIC != 0
    }
}

/// Last accesses to some bytes: one write, and two reads by different warps.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    write: Stamp,
    reads: [Stamp; 2],
}

/// Two accesses whose order no synchronization determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub other: Stamp,
    pub other_wrote: bool,
}

const PAGE: u64 = 1024;

/// Last accesses to a memory. Pages are allocated at their first use.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    pages: Vec<Option<Page>>,
}

/// Last accesses to the bytes of a page. There is one cell for each unit of 4, 2 or 1 bytes. The
/// unit is the size of the smallest access to the page so far.
#[derive(Debug)]
struct Page {
    shift: u32,
    cells: Vec<Cell>,
}

impl Page {
    fn refine(&mut self, shift: u32) {
        let copies = 1 << (self.shift - shift);
        self.cells =
            self.cells.iter().flat_map(|cell| std::iter::repeat_n(*cell, copies)).collect();
        self.shift = shift;
    }
}

impl Shadow {
    pub fn new(bytes: u64) -> Self {
        let mut pages = Vec::new();
        pages.resize_with(bytes.div_ceil(PAGE) as usize, || None);
        Self { pages }
    }

    /// Records an access that is aligned to its size. Returns a conflict with an earlier access, if
    /// any. `ordered` returns whether an earlier access happened before this one.
    #[inline]
    pub fn access(
        &mut self,
        offset: u64,
        bytes: u64,
        me: Stamp,
        write: bool,
        ordered: impl Fn(Stamp) -> bool,
    ) -> Option<Conflict> {
        let page = &mut self.pages[(offset / PAGE) as usize];
        let shift = bytes.trailing_zeros().min(2);
        let page = page.get_or_insert_with(|| Page {
            shift,
            cells: vec![Cell::default(); (PAGE >> shift) as usize],
        });
        if shift < page.shift {
            page.refine(shift);
        }
        let first = ((offset % PAGE) >> page.shift) as usize;
        let count = (bytes >> page.shift) as usize;
        let mut found = None;
        for cell in &mut page.cells[first..first + count] {
            let conflict = if write { cell.write(me, &ordered) } else { cell.read(me, &ordered) };
            found = found.or(conflict);
        }
        found
    }
}

impl Cell {
    #[inline]
    fn write(&mut self, me: Stamp, ordered: &impl Fn(Stamp) -> bool) -> Option<Conflict> {
        let mut found = None;
        if !self.write.is_none() && self.write != me {
            found = conflict(self.write, true, me, ordered);
        }
        for read in self.reads {
            if found.is_none() && !read.is_none() && read != me {
                found = conflict(read, false, me, ordered);
            }
        }
        *self = Self { write: me, reads: [Stamp::default(); 2] };
        found
    }

    #[inline]
    fn read(&mut self, me: Stamp, ordered: &impl Fn(Stamp) -> bool) -> Option<Conflict> {
        let mut found = None;
        if !self.write.is_none() && self.write != me {
            found = conflict(self.write, true, me, ordered);
        }
        let last = self.reads[0];
        if last == me {
            return found;
        }
        if last.is_none() || last.same_warp(me) {
            let other_lane = !last.is_none() && last.thread() != me.thread();
            let many = other_lane && !ordered(last) || last.is_many() && last.time() == me.time();
            let flags = if last.is_none() { me.0 & ATOMIC } else { me.0 & last.0 & ATOMIC };
            self.reads[0] = Stamp(me.0 & !ATOMIC | flags | if many { MANY } else { 0 });
        } else {
            if !ordered(last) || self.reads[1].is_none() {
                self.reads[1] = last;
            }
            self.reads[0] = me;
        }
        found
    }
}

#[inline]
fn conflict(
    other: Stamp,
    other_wrote: bool,
    me: Stamp,
    ordered: &impl Fn(Stamp) -> bool,
) -> Option<Conflict> {
    let clash = other.is_pending() || !other.are_atomic(me) && !ordered(other);
    clash.then_some(Conflict { other, other_wrote })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never(_: Stamp) -> bool {
        false
    }

    #[test]
    fn a_write_conflicts_with_reads_of_other_warps() {
        let mut shadow = Shadow::new(64);
        let (a, b, c) = (Stamp::new(0, 0, 1), Stamp::new(0, 32, 1), Stamp::new(0, 64, 1));
        assert_eq!(shadow.access(0, 4, a, false, never), None);
        assert_eq!(shadow.access(0, 4, b, false, never), None);
        assert_eq!(shadow.access(0, 4, c, false, never), None);
        let found = shadow.access(0, 4, c, true, |it| it.warp() == 2).unwrap();
        assert!(!found.other_wrote && found.other == b);
    }

    #[test]
    fn neighbouring_bytes_do_not_conflict() {
        let mut shadow = Shadow::new(64);
        for byte in 0..4 {
            let me = Stamp::new(0, byte * 32, 1);
            assert_eq!(shadow.access(byte.into(), 1, me, true, never), None);
        }
        let me = Stamp::new(0, 0, 1);
        let found = shadow.access(0, 4, me, false, |it| it.thread() == 0).unwrap();
        assert!(found.other_wrote && found.other.warp() == 1);
    }

    #[test]
    fn atomics_conflict_only_with_other_accesses() {
        let mut shadow = Shadow::new(64);
        let (a, b) = (Stamp::new(0, 0, 1), Stamp::new(1, 0, 1));
        assert_eq!(shadow.access(0, 4, a.atomic(true), true, never), None);
        assert_eq!(shadow.access(0, 4, b.atomic(true), true, never), None);
        assert!(shadow.access(0, 4, a, false, never).is_some());
    }

    #[test]
    fn a_stamp_keeps_its_parts() {
        let stamp = Stamp::new(70_000, 1023, 5_000);
        assert_eq!((stamp.block(), stamp.thread(), stamp.time()), (70_000, 1023, 5_000));
        assert!(stamp.same_warp(Stamp::new(70_000, 992, 3)));
        assert!(!stamp.same_warp(Stamp::new(70_000, 991, 5_000)));
    }
}
