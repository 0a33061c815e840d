//! Logic, shifts, bit fields and bytes.

use super::registers::{Lanes, Registers};
use crate::isa::{Instruction, Op, Permute, Type};

pub(super) fn execute(r: &mut Registers<'_>, i: &Instruction) {
    match (i.op, i.ty.bits()) {
        (op, 1) => {
            let a = r.get_mask(i.src[0]);
            let b = if op == Op::Not { 0 } else { r.get_mask(i.src[1]) };
            let mask = match op {
                Op::And => a & b,
                Op::Or => a | b,
                Op::Xor => a ^ b,
                _ => !a,
            };
            r.set_mask(i.dst, mask);
        }
        (Op::And, 64) => r.map2(i, |a: u64, b: u64| a & b),
        (Op::Or, 64) => r.map2(i, |a: u64, b: u64| a | b),
        (Op::Xor, 64) => r.map2(i, |a: u64, b: u64| a ^ b),
        (Op::Not, 64) => r.map1(i, |a: u64| !a),
        // Operations on 16 bits are computed with 32 bits too. Their destination registers keep
        // only the lower half.
        (Op::And, _) => r.map2(i, |a: u32, b: u32| a & b),
        (Op::Or, _) => r.map2(i, |a: u32, b: u32| a | b),
        (Op::Xor, _) => r.map2(i, |a: u32, b: u32| a ^ b),
        (Op::Not, _) => r.map1(i, |a: u32| !a),
        (Op::Cnot, 64) => r.map1(i, |a: u64| u64::from(a == 0)),
        (Op::Cnot, _) => r.map1(i, |a: u32| u32::from(a == 0)),
        (Op::Shl, 16) => r.map2(i, |a: u16, n: u32| a.checked_shl(n).unwrap_or(0)),
        (Op::Shl, 32) => r.map2(i, |a: u32, n: u32| a.checked_shl(n).unwrap_or(0)),
        (Op::Shl, _) => r.map2(i, |a: u64, n: u32| a.checked_shl(n).unwrap_or(0)),
        (Op::Shr, _) => shift_right(r, i),
        (Op::Shf { left, wrap }, _) => {
            let count = |n: u32| if wrap { n & 31 } else { n.min(32) };
            let pair = |a: u32, b: u32| u64::from(b) << 32 | u64::from(a);
            if left {
                r.map3(i, |a: u32, b: u32, n: u32| (pair(a, b) << count(n) >> 32) as u32);
            } else {
                r.map3(i, |a: u32, b: u32, n: u32| (pair(a, b) >> count(n)) as u32);
            }
        }
        (Op::Prmt(permute), _) => {
            r.map3(i, |a: u32, b: u32, c: u32| {
                permuted(permute, u64::from(b) << 32 | u64::from(a), c)
            });
        }
        (Op::Lop3, _) => {
            let table: Lanes<u32> = r.get(i.src[3]);
            let table = table[0];
            r.map3(i, |a: u32, b: u32, c: u32| {
                (0..8).filter(|row| table >> row & 1 == 1).fold(0, |found, row| {
                    let pick =
                        |value: u32, bit: u32| if row >> bit & 1 == 1 { value } else { !value };
                    found | pick(a, 2) & pick(b, 1) & pick(c, 0)
                })
            });
        }
        (Op::Bfe, _) => {
            let ty = i.ty;
            r.map3(i, |a: u64, at: u32, count: u32| field(ty, a, at & 0xff, count & 0xff));
        }
        (Op::Bfi, bits) => insert_field(r, i, bits),
        (Op::Bfind { shift }, bits) => {
            let ty = i.ty;
            r.map1(i, |a: u64| {
                let a = ty.extend(a);
                let a = if ty.is_signed() && (a as i64) < 0 { !a } else { a };
                match a.checked_ilog2() {
                    None => u32::MAX,
                    Some(at) if shift => bits - 1 - at,
                    Some(at) => at,
                }
            });
        }
        (Op::Bmsk { wrap }, _) => r.map2(i, |at: u32, count: u32| {
            if wrap {
                (((1u64 << (count & 31)) - 1) << (at & 31)) as u32
            } else {
                let ones = u32::MAX.checked_shr(32 - count.min(32)).unwrap_or(0);
                ones.checked_shl(at).unwrap_or(0)
            }
        }),
        (Op::Szext { wrap }, _) => {
            let signed = i.ty.is_signed();
            r.map2(i, |a: u32, count: u32| {
                let count = if wrap { count & 31 } else { count.min(32) };
                match (count, signed) {
                    (0, _) => 0,
                    (_, true) => ((a << (32 - count)) as i32 >> (32 - count)) as u32,
                    (_, false) => a << (32 - count) >> (32 - count),
                }
            });
        }
        (Op::Popc, _) => {
            let ty = i.ty;
            r.map1(i, |a: u64| (a << (64 - ty.bits())).count_ones());
        }
        (Op::Clz, bits) => r.map1(i, |a: u64| (a << (64 - bits)).leading_zeros().min(bits)),
        (Op::Brev, bits) => r.map1(i, |a: u64| (a << (64 - bits)).reverse_bits()),
        (Op::Dp4a, _) => {
            let (left, right) = (byte_of(i.ty), byte_of(i.from));
            r.map3(i, |a: u32, b: u32, c: i32| {
                (0..4).fold(c, |sum, at| sum.wrapping_add(left(a, at) * right(b, at)))
            });
        }
        (Op::Dp2a { high }, _) => {
            let signed = i.ty.is_signed();
            let right = byte_of(i.from);
            r.map3(i, |a: u32, b: u32, c: i32| {
                (0..2).fold(c, |sum, at| {
                    let half = (a >> (16 * at)) as u16;
                    let half = if signed { i32::from(half as i16) } else { i32::from(half) };
                    sum.wrapping_add(half.wrapping_mul(right(b, at + 2 * u32::from(high))))
                })
            });
        }
        (op, _) => unreachable!("{op:?} is not a bit operation"),
    }
}

fn shift_right(r: &mut Registers<'_>, i: &Instruction) {
    match i.ty {
        Type::S16 => r.map2(i, |a: i16, n: u32| a >> n.min(15)),
        Type::S32 => r.map2(i, |a: i32, n: u32| a >> n.min(31)),
        Type::S64 => r.map2(i, |a: i64, n: u32| a >> n.min(63)),
        ty if ty.bits() == 16 => r.map2(i, |a: u16, n: u32| a.checked_shr(n).unwrap_or(0)),
        ty if ty.bits() == 32 => r.map2(i, |a: u32, n: u32| a.checked_shr(n).unwrap_or(0)),
        _ => r.map2(i, |a: u64, n: u32| a.checked_shr(n).unwrap_or(0)),
    }
}

/// Returns the bytes of `value` that the selector chooses (PTX ISA, `prmt`).
fn permuted(permute: Permute, value: u64, selector: u32) -> u32 {
    let byte = |at: u32| (value >> (8 * (at & 7))) as u32 & 0xff;
    let at = selector & 3;
    let pick =
        |which: &dyn Fn(u32) -> u32| (0..4).fold(0, |all, n| all | byte(which(n)) << (8 * n));
    match permute {
        Permute::Index => (0..4).fold(0, |all, n| {
            let nibble = selector >> (4 * n) & 15;
            let found = byte(nibble);
            let found = if nibble & 8 == 0 { found } else { 0xff * (found >> 7) };
            all | found << (8 * n)
        }),
        Permute::Forward4 => pick(&|n| at + n),
        Permute::Backward4 => pick(&|n| at.wrapping_sub(n)),
        Permute::Replicate8 => pick(&|_| at),
        Permute::EdgeClampLeft => pick(&|n| n.max(at)),
        Permute::EdgeClampRight => pick(&|n| n.min(at)),
        Permute::Replicate16 => pick(&|n| 2 * (at & 1) + (n & 1)),
    }
}

/// Returns a bit field, sign-extended for signed types (PTX ISA, `bfe`).
fn field(ty: Type, value: u64, at: u32, count: u32) -> u64 {
    let bits = ty.bits();
    let value = ty.extend(value);
    if count == 0 {
        return 0;
    }
    let shifted = if ty.is_signed() {
        ((value as i64) >> at.min(63)) as u64
    } else {
        value.checked_shr(at).unwrap_or(0)
    };
    // Beyond the register, a signed field consists of copies of the sign bit.
    let count = count.min(bits.saturating_sub(at).max(1));
    if count >= 64 {
        return shifted;
    }
    let free = 64 - count;
    if ty.is_signed() { ((shifted << free) as i64 >> free) as u64 } else { shifted << free >> free }
}

fn insert_field(r: &mut Registers<'_>, i: &Instruction, bits: u32) {
    let (a, b): (Lanes<u64>, Lanes<u64>) = (r.get(i.src[0]), r.get(i.src[1]));
    let (at, count): (Lanes<u32>, Lanes<u32>) = (r.get(i.src[2]), r.get(i.src[3]));
    let values: Lanes<u64> = std::array::from_fn(|lane| {
        let (at, count) = (at[lane] & 0xff, count[lane] & 0xff);
        if at >= bits || count == 0 {
            return b[lane];
        }
        let ones = u64::MAX >> (64 - count.min(64)) << at;
        b[lane] & !ones | a[lane] << at & ones
    });
    r.set(i.dst, &values);
}

fn byte_of(ty: Type) -> impl Fn(u32, u32) -> i32 {
    let signed = ty.is_signed();
    move |value, at| {
        let byte = (value >> (8 * at)) as u8;
        if signed { i32::from(byte as i8) } else { i32::from(byte) }
    }
}
