//! Integer arithmetic.

use super::registers::{Lane, Lanes, Registers};
use crate::isa::{Instruction, Op, ProductPart, Type};

/// Executes an integer instruction. Returns the lanes that divide by zero.
pub(super) fn execute(r: &mut Registers<'_>, i: &Instruction) -> u32 {
    match i.ty {
        Type::U16 | Type::B16 => narrow::<u16>(r, i),
        Type::S16 => narrow::<i16>(r, i),
        Type::U32 | Type::B32 => narrow::<u32>(r, i),
        Type::S32 => narrow::<i32>(r, i),
        Type::S64 => narrow::<i64>(r, i),
        _ => narrow::<u64>(r, i),
    }
}

/// Rust integer type with the operations of PTX.
trait Integer: Lane + Ord {
    type Wide: Lane;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn low(self, other: Self) -> Self;
    fn high(self, other: Self) -> Self;
    fn wide(self, other: Self) -> Self::Wide;
    fn add_wide(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn saturating_add(self, other: Self) -> Self;
    fn saturating_sub(self, other: Self) -> Self;
    fn quotient(self, other: Self) -> Option<Self>;
    fn rest(self, other: Self) -> Option<Self>;
    fn magnitude(self) -> Self;
}

macro_rules! integers {
    ($($ty:ty, $wide:ty, $product:ty, $abs:expr;)*) => {
        $(impl Integer for $ty {
            type Wide = $wide;
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn low(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn high(self, other: Self) -> Self {
                ((self as $product * other as $product) >> <$ty>::BITS) as $ty
            }
            #[inline(always)]
            fn wide(self, other: Self) -> $wide { (self as $wide).wrapping_mul(other as $wide) }
            #[inline(always)]
            fn add_wide(a: $wide, b: $wide) -> $wide { a.wrapping_add(b) }
            #[inline(always)]
            fn saturating_add(self, other: Self) -> Self { <$ty>::saturating_add(self, other) }
            #[inline(always)]
            fn saturating_sub(self, other: Self) -> Self { <$ty>::saturating_sub(self, other) }
            #[inline(always)]
            fn quotient(self, other: Self) -> Option<Self> {
                (other != 0).then(|| self.wrapping_div(other))
            }
            #[inline(always)]
            fn rest(self, other: Self) -> Option<Self> {
                (other != 0).then(|| self.wrapping_rem(other))
            }
            #[inline(always)]
            fn magnitude(self) -> Self { $abs(self) }
        })*
    };
}
integers! {
    u16, u32, u32, |it| it;
    i16, i32, i32, i16::wrapping_abs;
    u32, u64, u64, |it| it;
    i32, i64, i64, i32::wrapping_abs;
    u64, u64, u128, |it| it;
    i64, i64, i128, i64::wrapping_abs;
}

fn narrow<T: Integer>(r: &mut Registers<'_>, i: &Instruction) -> u32 {
    match i.op {
        Op::Add { carry_in: false, carry_out: false } if i.mode.saturate => {
            r.map2(i, |a: T, b: T| a.saturating_add(b));
        }
        Op::Sub { carry_in: false, carry_out: false } if i.mode.saturate => {
            r.map2(i, |a: T, b: T| a.saturating_sub(b));
        }
        Op::Add { carry_in: false, carry_out: false } => r.map2(i, |a: T, b: T| a.add(b)),
        Op::Sub { carry_in: false, carry_out: false } => r.map2(i, |a: T, b: T| a.sub(b)),
        Op::Add { carry_in, carry_out } => carry(r, i, carry_in, carry_out, false),
        Op::Sub { carry_in, carry_out } => carry(r, i, carry_in, carry_out, true),
        Op::Mul(ProductPart::Low) => r.map2(i, |a: T, b: T| a.low(b)),
        Op::Mul(ProductPart::High) => r.map2(i, |a: T, b: T| a.high(b)),
        Op::Mul(ProductPart::Wide) => r.map2(i, |a: T, b: T| a.wide(b)),
        Op::Mad(ProductPart::Low) => r.map3(i, |a: T, b: T, c: T| a.low(b).add(c)),
        Op::Mad(ProductPart::High) => r.map3(i, |a: T, b: T, c: T| a.high(b).add(c)),
        Op::Mad(ProductPart::Wide) => r.map3(i, |a: T, b: T, c: T::Wide| T::add_wide(a.wide(b), c)),
        Op::Mul24(part) | Op::Mad24(part) => product_24(r, i, part),
        Op::Sad => r.map3(i, |a: T, b: T, c: T| a.max(b).sub(a.min(b)).add(c)),
        Op::Min => r.map2(i, |a: T, b: T| a.min(b)),
        Op::Max => r.map2(i, |a: T, b: T| a.max(b)),
        Op::Abs => r.map1(i, |a: T| a.magnitude()),
        Op::Neg => r.map1(i, |a: T| T::of(0).sub(a)),
        Op::Div => return quotient(r, i, T::quotient),
        Op::Rem => return quotient(r, i, T::rest),
        _ => unreachable!("not integer arithmetic: {:?}", i.op),
    }
    0
}

/// Divides. For a divisor of zero, a device returns an unspecified value. The interpreter returns a
/// value with all bits set.
fn quotient<T: Lane>(r: &mut Registers<'_>, i: &Instruction, f: impl Fn(T, T) -> Option<T>) -> u32 {
    let (a, b): (Lanes<T>, Lanes<T>) = (r.get(i.src[0]), r.get(i.src[1]));
    let results: Lanes<Option<T>> = std::array::from_fn(|lane| f(a[lane], b[lane]));
    r.set(i.dst, &results.map(|it| it.unwrap_or(T::of(u64::MAX))));
    let zeros = (0..32).filter(|lane| results[*lane].is_none());
    zeros.fold(0, |mask, lane| mask | 1 << lane) & r.on
}

/// Computes a sum or difference with a carry, in 32 or 64 bits.
fn carry(r: &mut Registers<'_>, i: &Instruction, carry_in: bool, carry_out: bool, sub: bool) {
    let (a, b): (Lanes<u64>, Lanes<u64>) = (r.get(i.src[0]), r.get(i.src[1]));
    let bits = i.ty.bits();
    let before = if carry_in { r.frame.carry } else { 0 };
    let mut after = 0;
    let results: Lanes<u64> = std::array::from_fn(|lane| {
        let (a, b) = (i.ty.extend(a[lane]), i.ty.extend(b[lane]));
        let low = |value: u64| u128::from(value & (u64::MAX >> (64 - bits)));
        let carry = u128::from(before >> lane & 1);
        let sum = if sub {
            low(a).wrapping_sub(low(b)).wrapping_sub(carry)
        } else {
            low(a) + low(b) + carry
        };
        after |= ((sum >> bits & 1) as u32) << lane;
        sum as u64
    });
    r.set(i.dst, &results);
    if carry_out {
        r.frame.carry = r.frame.carry & !r.on | after & r.on;
    }
}

/// Multiplies the low 24 bits. Of the 48-bit product, the low part is bits 31..0 and the high part
/// bits 47..16 (PTX ISA, `mul24`).
fn product_24(r: &mut Registers<'_>, i: &Instruction, part: ProductPart) {
    let signed = i.ty.is_signed();
    let product = |a: u32, b: u32| {
        let extend = |it: u32| {
            if signed { i64::from((it << 8) as i32 >> 8) } else { i64::from(it & 0xff_ffff) }
        };
        let product = extend(a) * extend(b);
        if part == ProductPart::High { (product >> 16) as u32 } else { product as u32 }
    };
    if matches!(i.op, Op::Mad24(_)) {
        r.map3(i, |a: u32, b: u32, c: u32| product(a, b).wrapping_add(c));
    } else {
        r.map2(i, product);
    }
}
