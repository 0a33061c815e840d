//! Loads and stores.

use super::block::Block;
use super::registers::{Lanes, each};
use super::step::At;
use super::{Machine, window};
use crate::check::{Conflict, Stamp};
use crate::counts;
use crate::fault::FaultKind;
use crate::isa::{Instruction, Op, Space};
use crate::memory::Access;

/// Size of the largest vector in bytes.
const MOST: usize = 32;

/// Bit that marks an address in parameter space that was computed from a generic address. Such an
/// address always belongs to the kernel's own parameters.
const KERNEL_PARAMETER: u64 = 1 << 41;

/// Access of one lane.
#[derive(Clone, Copy)]
pub(super) struct LaneAccess {
    pub lane: usize,
    /// Address within the memory space that the lane accesses.
    pub address: u64,
    pub bytes: u64,
    pub atomic: bool,
}

impl Machine<'_> {
    pub(super) fn load(&mut self, block: &mut Block, at: At, i: &Instruction) {
        let Op::Load { space, strong, .. } = i.op else { unreachable!("called for loads") };
        let addresses = self.addresses(block, at, i);
        let (count, size) = (i.list.len(), i.ty.bytes());
        let bytes = count * size;
        let mut data = [[0u8; MOST]; 32];
        for lane in (0..32).filter(|lane| at.on >> lane & 1 == 1) {
            let (space, address) = resolve(space, addresses[lane]);
            let access = LaneAccess { lane, address, bytes: bytes as u64, atomic: strong };
            self.load_lane(block, at, space, access, &mut data[lane][..bytes]);
        }
        self.count(at, space, &addresses, bytes as u64);
        let ty = i.ty;
        let mut r = super::step::registers(block, at);
        for (number, operand) in i.list.iter().enumerate() {
            let start = number * size;
            let values: Lanes<u64> = match size {
                1 => each(&data, |it| ty.extend(it[start].into())),
                2 => each(&data, |it| ty.extend(u16::from_le_bytes(part(&it, start)).into())),
                4 => each(&data, |it| ty.extend(u32::from_le_bytes(part(&it, start)).into())),
                _ => each(&data, |it| u64::from_le_bytes(part(&it, start))),
            };
            r.set(*operand, &values);
        }
    }

    pub(super) fn store(&mut self, block: &mut Block, at: At, i: &Instruction) {
        let Op::Store { space, strong } = i.op else { unreachable!("called for stores") };
        let addresses = self.addresses(block, at, i);
        let size = i.ty.bytes();
        let bytes = i.list.len() * size;
        let mut data = [[0u8; MOST]; 32];
        for (number, operand) in i.list.iter().enumerate() {
            let values: Lanes<u64> = self.read(block, at, |r| r.get(*operand));
            for lane in 0..32 {
                let value = &values[lane].to_le_bytes()[..size];
                data[lane][number * size..(number + 1) * size].copy_from_slice(value);
            }
            if size == 8 && matches!(space, Space::Global | Space::Generic) {
                self.check_leak(block, at, space, &addresses, &values);
            }
        }
        for lane in (0..32).filter(|lane| at.on >> lane & 1 == 1) {
            let (space, address) = resolve(space, addresses[lane]);
            let access = LaneAccess { lane, address, bytes: bytes as u64, atomic: strong };
            self.store_lane(block, at, space, access, &data[lane][..bytes]);
        }
        self.count(at, space, &addresses, bytes as u64);
    }

    /// Returns the addresses of an instruction with one address operand.
    pub(super) fn addresses(&mut self, block: &mut Block, at: At, i: &Instruction) -> Lanes<u64> {
        let base: Lanes<u64> = self.read(block, at, |r| r.get(i.src[0]));
        each(&base, |it| it.wrapping_add_signed(i.offset))
    }

    /// Counts an access of a warp.
    pub(super) fn count(&mut self, at: At, space: Space, addresses: &Lanes<u64>, bytes: u64) {
        let space = match space {
            Space::Generic => window::of(addresses[at.on.trailing_zeros() as usize]).0,
            other => other,
        };
        let place = &mut self.places[at.pc as usize];
        match space {
            Space::Shared => {
                let (passes, ideal) = counts::wavefronts(addresses, at.on, bytes);
                place.wavefronts += passes;
                place.ideal += ideal;
            }
            Space::Global => place.sectors += counts::sectors(addresses, at.on, bytes),
            _ => {}
        }
    }

    /// Loads the bytes of one lane. A fault leaves `into` unchanged.
    #[inline]
    pub(super) fn load_lane(
        &mut self,
        block: &mut Block,
        at: At,
        space: Space,
        access: LaneAccess,
        into: &mut [u8],
    ) {
        if !self.is_aligned(block, at, access) {
            return;
        }
        let LaneAccess { lane, address, bytes, .. } = access;
        let written = match space {
            Space::Global | Space::Const | Space::Generic => {
                let Some((range, offset)) = self.global(block, at, access) else { return };
                self.global_race(block, at, range, offset, access, false);
                let range = &self.memory.ranges()[range];
                match bytes {
                    1 => into.copy_from_slice(&range.host.get::<1>(offset)),
                    2 => into.copy_from_slice(&range.host.get::<2>(offset)),
                    4 => into.copy_from_slice(&range.host.get::<4>(offset)),
                    8 => into.copy_from_slice(&range.host.get::<8>(offset)),
                    _ => range.host.read(offset, into),
                }
                range.is_written(offset, bytes)
            }
            Space::Shared => {
                if !self.is_in_bounds(block, at, access, block.shared.data.len() as u64, "shared") {
                    return;
                }
                self.shared_race(block, at, access, false);
                let start = address as usize;
                into.copy_from_slice(&block.shared.data[start..start + into.len()]);
                block.shared.written.has(address, bytes)
            }
            Space::Local => {
                let size = block.warps[at.warp].local.size;
                if !self.is_in_bounds(block, at, access, size, "local") {
                    return;
                }
                block.warps[at.warp].local.read(lane, address, into)
            }
            Space::Param => {
                if self.is_kernel_parameter(block, at, address) {
                    let address = address & !KERNEL_PARAMETER;
                    return self.load_parameter(block, at, LaneAccess { address, ..access }, into);
                }
                let size = block.warps[at.warp].frame(at.frame).params.size;
                if !self.is_in_params(block, at, access, size) {
                    return;
                }
                block.warps[at.warp].frame(at.frame).params.read(lane, address, into)
            }
        };
        if !written {
            self.fault(block, at, FaultKind::Unwritten, Some(lane as u32), || {
                format!(
                    "the kernel reads {bytes} bytes of {space:?} memory at {address:#x} that were \
                     never written"
                )
            });
        }
    }

    /// Stores the bytes of one lane.
    #[inline]
    pub(super) fn store_lane(
        &mut self,
        block: &mut Block,
        at: At,
        space: Space,
        access: LaneAccess,
        from: &[u8],
    ) {
        if !self.is_aligned(block, at, access) {
            return;
        }
        let LaneAccess { lane, address, bytes, .. } = access;
        match space {
            Space::Global | Space::Const | Space::Generic => {
                let Some((number, offset)) = self.global(block, at, access) else { return };
                if self.memory.ranges()[number].access == Access::ReadOnly {
                    let memory = &self.memory;
                    let place = memory.describe(address);
                    return self.fault(block, at, FaultKind::ReadOnly, Some(lane as u32), || {
                        format!("the kernel stores {bytes} bytes to read-only memory: {place}")
                    });
                }
                let conflict = self.global_access(block, at, number, offset, access, true);
                let range = &mut self.memory.ranges_mut()[number];
                let mut before = [0; MOST];
                if let Some(conflict) = conflict {
                    let before = &mut before[..from.len()];
                    range.host.read(offset, before);
                    let same = before == from;
                    self.report_race(block, at, access, conflict, same, FaultKind::GlobalRace);
                }
                let range = &mut self.memory.ranges_mut()[number];
                range.set_written(offset, bytes);
                match bytes {
                    1 => range.host.put(offset, [from[0]]),
                    2 => range.host.put::<2>(offset, from.try_into().expect("two bytes")),
                    4 => range.host.put::<4>(offset, from.try_into().expect("four bytes")),
                    8 => range.host.put::<8>(offset, from.try_into().expect("eight bytes")),
                    _ => range.host.write(offset, from),
                }
            }
            Space::Shared => {
                if !self.is_in_bounds(block, at, access, block.shared.data.len() as u64, "shared") {
                    return;
                }
                let conflict = shared_access(block, at, access, true);
                let start = address as usize;
                if let Some(conflict) = conflict {
                    let same = block.shared.data[start..start + from.len()] == *from;
                    self.report_race(block, at, access, conflict, same, FaultKind::SharedRace);
                }
                block.shared.data[start..start + from.len()].copy_from_slice(from);
                block.shared.written.set(address, bytes, true);
            }
            Space::Local => {
                let size = block.warps[at.warp].local.size;
                if self.is_in_bounds(block, at, access, size, "local") {
                    block.warps[at.warp].local.write(lane, address, from);
                }
            }
            Space::Param => {
                if self.is_kernel_parameter(block, at, address) {
                    return self.fault(block, at, FaultKind::Parameter, Some(lane as u32), || {
                        let address = address & !KERNEL_PARAMETER;
                        format!(
                            "the kernel stores to byte {address} of its own parameters, which are \
                             read-only"
                        )
                    });
                }
                let size = block.warps[at.warp].frame(at.frame).params.size;
                if self.is_in_params(block, at, access, size) {
                    block.warps[at.warp].frame(at.frame).params.write(lane, address, from);
                }
            }
        }
    }

    /// Returns the range of global memory that contains an access.
    #[inline]
    pub(super) fn global(
        &mut self,
        block: &Block,
        at: At,
        access: LaneAccess,
    ) -> Option<(usize, u64)> {
        let LaneAccess { lane, address, bytes, .. } = access;
        if let Some(range) = self.memory.ranges().get(self.last_range) {
            let offset = address.wrapping_sub(range.host.address());
            if offset < range.host.bytes() && bytes <= range.host.bytes() - offset {
                return Some((self.last_range, offset));
            }
        }
        if let Some(found) = self.memory.find(address, bytes) {
            self.last_range = found.0;
            return Some(found);
        }
        let place = self.memory.describe(address);
        self.fault(block, at, FaultKind::OutOfBounds, Some(lane as u32), || {
            format!("the kernel accesses {bytes} bytes of global memory at {address:#x}: {place}")
        });
        None
    }

    #[inline]
    pub(super) fn global_access(
        &mut self,
        block: &Block,
        at: At,
        range: usize,
        offset: u64,
        access: LaneAccess,
        write: bool,
    ) -> Option<Conflict> {
        let shadow = self.shadows[range].as_mut()?;
        let clocks = &block.clocks;
        let me = clocks.stamp(at.warp, access.lane).atomic(access.atomic);
        let ordered = |other: Stamp| clocks.ordered(at.warp, access.lane, other);
        shadow.access(offset, access.bytes, me, write, ordered)
    }

    #[inline]
    fn global_race(
        &mut self,
        block: &Block,
        at: At,
        range: usize,
        offset: u64,
        access: LaneAccess,
        write: bool,
    ) {
        if let Some(conflict) = self.global_access(block, at, range, offset, access, write) {
            self.report_race(block, at, access, conflict, false, FaultKind::GlobalRace);
        }
    }

    #[inline]
    pub(super) fn shared_race(
        &mut self,
        block: &mut Block,
        at: At,
        access: LaneAccess,
        write: bool,
    ) {
        if let Some(conflict) = shared_access(block, at, access, write) {
            self.report_race(block, at, access, conflict, false, FaultKind::SharedRace);
        }
    }

    /// Reports a race. Lanes that store the same value with one instruction do not race.
    #[inline(never)]
    pub(super) fn report_race(
        &mut self,
        block: &Block,
        at: At,
        access: LaneAccess,
        conflict: Conflict,
        same_value: bool,
        kind: FaultKind,
    ) {
        let Conflict { other, other_wrote } = conflict;
        let me = block.clocks.stamp(at.warp, access.lane);
        let same_block = other.block() == me.block();
        let same_warp = same_block && other.warp() == me.warp();
        let together =
            same_warp && other.time() == me.time() && at.on >> (other.thread() % 32) & 1 == 1;
        if same_value && together && other_wrote && !other.is_pending() {
            return;
        }
        let kind = if same_warp && !other.is_pending() { FaultKind::WarpRace } else { kind };
        let i = &self.module.instructions[at.pc as usize];
        let what = match i.op {
            Op::Store { .. } => "stores",
            Op::Load { .. } => "loads",
            _ => "accesses",
        };
        let before = match (other.is_pending(), other_wrote) {
            (true, _) => "is still copying to it",
            (_, true) => "has stored",
            (_, false) => "has loaded",
        };
        let thread = at.warp * 32 + access.lane;
        self.fault(block, at, kind, Some(access.lane as u32), || {
            format!(
                "thread {thread} {what} {} bytes at {:#x}, where thread {}{} {before}, and no \
                 synchronization orders the two accesses",
                access.bytes,
                access.address,
                other.thread(),
                if same_block { String::new() } else { format!(" of block {}", other.block()) },
            )
        });
    }

    #[inline]
    fn is_aligned(&mut self, block: &Block, at: At, access: LaneAccess) -> bool {
        let LaneAccess { lane, address, bytes, .. } = access;
        if address % bytes == 0 {
            return true;
        }
        self.fault(block, at, FaultKind::Misaligned, Some(lane as u32), || {
            format!(
                "the kernel accesses {bytes} bytes at {address:#x}, but this address is not a \
                 multiple of {bytes}"
            )
        });
        false
    }

    #[inline]
    pub(super) fn is_in_bounds(
        &mut self,
        block: &Block,
        at: At,
        access: LaneAccess,
        size: u64,
        name: &str,
    ) -> bool {
        let LaneAccess { lane, address, bytes, .. } = access;
        if address.checked_add(bytes).is_some_and(|end| end <= size) {
            return true;
        }
        self.fault(block, at, FaultKind::OutOfBounds, Some(lane as u32), || {
            format!(
                "the kernel accesses {bytes} bytes at {address:#x} of {name} memory, which has \
                 {size} bytes"
            )
        });
        false
    }

    fn is_in_params(&mut self, block: &Block, at: At, access: LaneAccess, size: u64) -> bool {
        let LaneAccess { lane, address, bytes, .. } = access;
        if address.checked_add(bytes).is_some_and(|end| end <= size) {
            return true;
        }
        self.fault(block, at, FaultKind::Parameter, Some(lane as u32), || {
            format!(
                "the kernel accesses {bytes} bytes at {address:#x} of a call's parameters, which \
                 have {size} bytes"
            )
        });
        false
    }

    /// Whether an address in parameter space belongs to the kernel's own parameters, not to the
    /// parameters of a call.
    fn is_kernel_parameter(&self, block: &mut Block, at: At, address: u64) -> bool {
        let outermost = block.warps[at.warp].frame(at.frame).outermost;
        address & KERNEL_PARAMETER != 0 || outermost && address < self.function.1.parameter_bytes
    }

    /// Loads from the kernel's own parameters. The bytes must lie in one declared parameter, and
    /// the launch must have passed them.
    fn load_parameter(&mut self, block: &Block, at: At, access: LaneAccess, into: &mut [u8]) {
        let LaneAccess { lane, address, bytes, .. } = access;
        let inside = |start: u64, size: u64| address >= start && address + bytes <= start + size;
        let declared = self.function.1.parameters.iter().any(|it| inside(it.offset, it.bytes));
        let start = address as usize;
        match self.launch.params.get(start..start + into.len()) {
            Some(given) if declared => into.copy_from_slice(given),
            given => {
                let what = if given.is_none() { "not given" } else { "not declared" };
                self.fault(block, at, FaultKind::Parameter, Some(lane as u32), || {
                    format!(
                        "the kernel reads {bytes} bytes at {address} of its own parameters, which \
                         are {what}"
                    )
                });
            }
        }
    }

    /// Reports a fault if a value that is stored in global memory is an address of a parameter or
    /// of shared or local memory.
    fn check_leak(
        &mut self,
        block: &Block,
        at: At,
        space: Space,
        addresses: &Lanes<u64>,
        values: &Lanes<u64>,
    ) {
        for lane in (0..32).filter(|lane| at.on >> lane & 1 == 1) {
            let pointed = window::of(values[lane]).0;
            if pointed != Space::Global && resolve(space, addresses[lane]).0 == Space::Global {
                let address = addresses[lane];
                return self.fault(block, at, FaultKind::AddressLeak, Some(lane as u32), || {
                    format!(
                        "the kernel stores the address of {pointed:?} memory at {address:#x} in \
                         global memory"
                    )
                });
            }
        }
    }
}

/// Returns the space of an access, and the address in it.
#[inline]
pub(super) fn resolve(space: Space, address: u64) -> (Space, u64) {
    match (space, window::of(address)) {
        (Space::Generic, (Space::Param, address)) => (Space::Param, address | KERNEL_PARAMETER),
        (Space::Generic, found) => found,
        _ => (space, address),
    }
}

/// Records an access to shared memory that is in bounds.
#[inline]
pub(super) fn shared_access(
    block: &mut Block,
    at: At,
    access: LaneAccess,
    write: bool,
) -> Option<Conflict> {
    let clocks = &block.clocks;
    let me = clocks.stamp(at.warp, access.lane).atomic(access.atomic);
    let ordered = |other: Stamp| clocks.ordered(at.warp, access.lane, other);
    block.shared.shadow.access(access.address, access.bytes, me, write, ordered)
}

/// Returns the bytes of one value in a lane's data.
#[inline(always)]
fn part<const N: usize>(data: &[u8; MOST], start: usize) -> [u8; N] {
    data[start..start + N].try_into().expect("the value lies inside of the vector")
}
