//! Atomic operations on global and shared memory.

use super::Machine;
use super::access::{LaneAccess, resolve};
use super::block::Block;
use super::registers::Lanes;
use super::step::{At, registers};
use crate::fault::FaultKind;
use crate::float::{Format, add_odd, canonical};
use crate::isa::{Instruction, Op, Operand, Reduce, Rounding, Space, Type};
use crate::launch::Schedule;

impl Machine<'_> {
    /// Executes `atom` and `red`. The lanes of a warp execute one after another, in an order that
    /// depends on the schedule.
    pub(super) fn atomic(&mut self, block: &mut Block, at: At, i: &Instruction) {
        let Op::Atom { space, reduce } = i.op else { unreachable!("called for atomics") };
        let addresses = self.addresses(block, at, i);
        let (b, c): (Lanes<u64>, Lanes<u64>) =
            self.read(block, at, |r| (r.get(i.src[1]), r.get(i.src[2])));
        let bytes = i.ty.bytes();
        let mut old: Lanes<u64> = [0; 32];
        let reverse = self.options.schedule == Schedule::Reverse;
        for step in 0..32 {
            let lane = if reverse { 31 - step } else { step };
            if at.on >> lane & 1 == 0 {
                continue;
            }
            let (space, address) = resolve(space, addresses[lane]);
            if !matches!(space, Space::Global | Space::Shared) {
                self.fault(block, at, FaultKind::OutOfBounds, Some(lane as u32), || {
                    format!(
                        "an atomic operation accesses {space:?} memory at {address:#x}, which is \
                         neither global nor shared memory"
                    )
                });
                continue;
            }
            let access = LaneAccess { lane, address, bytes: bytes as u64, atomic: true };
            let mut value = [0; 8];
            self.load_lane(block, at, space, access, &mut value[..bytes]);
            old[lane] = u64::from_le_bytes(value);
            let new = if reduce == Reduce::CompareSwap {
                if old[lane] == cut(b[lane], i.ty) { c[lane] } else { old[lane] }
            } else {
                combine(reduce, i.ty, old[lane], b[lane])
            };
            self.store_lane(block, at, space, access, &new.to_le_bytes()[..bytes]);
        }
        self.count(at, space, &addresses, bytes as u64);
        if i.dst != Operand::None {
            registers(block, at).set(i.dst, &old);
        }
    }
}

/// Returns the new value of an atomic operation or of a reduction.
pub(super) fn combine(reduce: Reduce, ty: Type, a: u64, b: u64) -> u64 {
    let (a, b) = (cut(a, ty), cut(b, ty));
    let less = if ty.is_signed() { (ty.extend(a) as i64) < ty.extend(b) as i64 } else { a < b };
    match reduce {
        Reduce::Add => add(ty, a, b),
        Reduce::Min => {
            if less {
                a
            } else {
                b
            }
        }
        Reduce::Max => {
            if less {
                b
            } else {
                a
            }
        }
        Reduce::Inc => {
            if a >= b {
                0
            } else {
                a + 1
            }
        }
        Reduce::Dec => {
            if a == 0 || a > b {
                b
            } else {
                a - 1
            }
        }
        Reduce::And => a & b,
        Reduce::Or => a | b,
        Reduce::Xor => a ^ b,
        Reduce::Exchange | Reduce::CompareSwap => b,
    }
}

fn add(ty: Type, a: u64, b: u64) -> u64 {
    match ty {
        Type::F32 => {
            let sum = f32::from_bits(a as u32) + f32::from_bits(b as u32);
            u64::from(canonical(sum).to_bits())
        }
        Type::F64 => (f64::from_bits(a) + f64::from_bits(b)).to_bits(),
        Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2 => {
            let format = Format::of(ty).expect("a floating-point type");
            let sum = |at: u32| {
                let [a, b] = [a, b].map(|it| format.decode(it >> at & 0xffff));
                format.encode(add_odd(a, b), Rounding::Nearest) << at
            };
            cut(sum(0) | sum(16), ty)
        }
        _ => a.wrapping_add(b),
    }
}

fn cut(value: u64, ty: Type) -> u64 {
    value << (64 - ty.bits()) >> (64 - ty.bits())
}
