//! Comparison, selection, moves and conversions.

use super::registers::{ALL, Lane, Lanes, Registers};
use super::window;
use crate::float::{Format, canonical, flush, integral};
use crate::isa::{Compare, Instruction, Logic, Op, Operand, Rounding, Type};

pub(super) fn execute(r: &mut Registers<'_>, i: &Instruction) {
    match i.op {
        Op::Setp { compare, unordered, combine } => {
            let holds = comparison(r, i, compare, unordered);
            let (first, second) = combined(r, i, holds, combine);
            r.set_mask(i.dst, first);
            r.set_mask(i.dst2, second);
        }
        Op::Set { compare, unordered, combine } => {
            let holds = comparison(r, i, compare, unordered);
            let (holds, _) = combined(r, i, holds, combine);
            let one = if i.from == Type::F32 { 1f32.to_bits() } else { u32::MAX };
            let values: Lanes<u32> =
                std::array::from_fn(|lane| if holds >> lane & 1 == 1 { one } else { 0 });
            r.set(i.dst, &values);
        }
        Op::Selp => {
            let (a, b): (Lanes<u64>, Lanes<u64>) = (r.get(i.src[0]), r.get(i.src[1]));
            let mask = r.get_mask(i.src[2]);
            let mut values = b;
            for (lane, value) in values.iter_mut().enumerate() {
                if mask >> lane & 1 == 1 {
                    *value = a[lane];
                }
            }
            r.set(i.dst, &values);
        }
        Op::Slct if i.from == Type::F32 => {
            let ftz = i.mode.ftz;
            // `slct` selects by the sign of `c`: -0 counts as not negative, and NaN counts as
            // negative.
            r.map3(
                i,
                |a: u64, b: u64, c: f32| {
                    if (if ftz { flush(c) } else { c }) >= 0.0 { a } else { b }
                },
            );
        }
        Op::Slct => r.map3(i, |a: u64, b: u64, c: i32| if c >= 0 { a } else { b }),
        Op::Mov if i.ty == Type::Pred => {
            let mask = r.get_mask(i.src[0]);
            r.set_mask(i.dst, mask);
        }
        Op::Mov if i.ty.bits() == 64 => r.map1(i, |a: u64| a),
        Op::Mov => r.map1(i, |a: u32| a),
        Op::Pack => {
            let mut values: Lanes<u64> = [0; 32];
            for (at, operand) in i.list.iter().enumerate() {
                let part: Lanes<u64> = r.get(*operand);
                for lane in 0..32 {
                    values[lane] |= i.from.extend(part[lane]) << (at as u32 * i.from.bits());
                }
            }
            r.set(i.dst, &values);
        }
        Op::Unpack => {
            let value: Lanes<u64> = r.get(i.src[0]);
            for (at, operand) in i.list.iter().enumerate() {
                let shift = at as u32 * i.from.bits();
                r.set(*operand, &value.map(|it| i.from.extend(it >> shift)));
            }
        }
        Op::Cvt => convert(r, i),
        Op::CvtPair => {
            let format = Format::of(i.ty).expect("a packed floating-point type");
            let (rounding, relu) = (i.mode.rounding, i.mode.relu);
            let half = |value: f32| {
                let value = if relu && value <= 0.0 { 0.0 } else { value };
                format.encode(f64::from(value), rounding) as u32
            };
            r.map2(i, |a: f32, b: f32| half(a) << 16 | half(b));
        }
        Op::CvtPack => pack(r, i),
        Op::Cvta { space, to_space } => {
            let base = window::base(space);
            if to_space {
                r.map1(i, |a: u64| a.wrapping_sub(base));
            } else {
                r.map1(i, |a: u64| a.wrapping_add(base));
            }
        }
        Op::Isspacep(space) => r.map1(i, |a: u64| u32::from(window::of(a).0 == space)),
        op => unreachable!("not a move: {op:?}"),
    }
}

/// Returns the lanes in which a comparison is true.
fn comparison(r: &mut Registers<'_>, i: &Instruction, compare: Compare, unordered: bool) -> u32 {
    match i.ty {
        Type::F32 => {
            let ftz = i.mode.ftz;
            let number = |value: f32| if ftz { flush(value) } else { value };
            floats(r, i, compare, unordered, |bits| f64::from(number(f32::of(bits))))
        }
        Type::F64 => floats(r, i, compare, unordered, f64::from_bits),
        Type::F16 | Type::Bf16 => {
            let format = Format::of(i.ty).expect("a floating-point type");
            floats(r, i, compare, unordered, |bits| format.decode(bits & 0xffff))
        }
        Type::S16 => ordered::<i16>(r, i, compare),
        Type::S32 => ordered::<i32>(r, i, compare),
        Type::S64 => ordered::<i64>(r, i, compare),
        ty => match ty.bits() {
            16 => ordered::<u16>(r, i, compare),
            32 => ordered::<u32>(r, i, compare),
            _ => ordered::<u64>(r, i, compare),
        },
    }
}

#[inline(always)]
fn ordered<T: Lane + Ord>(r: &mut Registers<'_>, i: &Instruction, compare: Compare) -> u32 {
    let (a, b): (Lanes<T>, Lanes<T>) = (r.get(i.src[0]), r.get(i.src[1]));
    match compare {
        Compare::Equal => mask_of(&a, &b, |a, b| a == b),
        Compare::NotEqual => mask_of(&a, &b, |a, b| a != b),
        Compare::Less => mask_of(&a, &b, |a, b| a < b),
        Compare::LessEqual => mask_of(&a, &b, |a, b| a <= b),
        Compare::Greater => mask_of(&a, &b, |a, b| a > b),
        _ => mask_of(&a, &b, |a, b| a >= b),
    }
}

/// Returns the lanes in which `f` is true.
#[inline(always)]
fn mask_of<T: Copy>(a: &Lanes<T>, b: &Lanes<T>, f: impl Fn(T, T) -> bool) -> u32 {
    let mut mask = 0;
    for (lane, (a, b)) in a.iter().zip(b).enumerate() {
        mask |= u32::from(f(*a, *b)) << lane;
    }
    mask
}

fn floats(
    r: &mut Registers<'_>,
    i: &Instruction,
    compare: Compare,
    unordered: bool,
    number: impl Fn(u64) -> f64,
) -> u32 {
    let (a, b): (Lanes<u64>, Lanes<u64>) = (r.get(i.src[0]), r.get(i.src[1]));
    let mut mask = 0;
    for lane in 0..32 {
        let (a, b) = (number(a[lane]), number(b[lane]));
        let nan = a.is_nan() || b.is_nan();
        let holds = match compare {
            Compare::Number => !nan,
            Compare::NotANumber => nan,
            _ if nan => unordered,
            Compare::Equal => a == b,
            Compare::NotEqual => a != b,
            Compare::Less => a < b,
            Compare::LessEqual => a <= b,
            Compare::Greater => a > b,
            Compare::GreaterEqual => a >= b,
        };
        mask |= u32::from(holds) << lane;
    }
    mask
}

/// Returns two masks of lanes: where the comparison is true, and where it is false. Each is
/// combined with the predicate in the third operand.
fn combined(
    r: &mut Registers<'_>,
    i: &Instruction,
    holds: u32,
    logic: Option<Logic>,
) -> (u32, u32) {
    let Some(logic) = logic else { return (holds, !holds) };
    let other = r.get_mask(i.src[2]);
    let both = |it: u32| match logic {
        Logic::And => it & other,
        Logic::Or => it | other,
        Logic::Xor => it ^ other,
    };
    (both(holds), both(!holds))
}

/// Executes `cvt` (PTX ISA, "Data Movement and Conversion Instructions").
fn convert(r: &mut Registers<'_>, i: &Instruction) {
    let (to, from, mode) = (i.ty, i.from, i.mode);
    match (Format::of(to), Format::of(from)) {
        (None, None) if !mode.saturate => r.map1(i, |a: u64| to.extend(from.extend(a))),
        (None, None) => r.map1(i, |a: u64| clamp(to, exact(from, a))),
        (None, Some(format)) => {
            let rounding = mode.integer.unwrap_or(Rounding::Zero);
            r.map1(i, |a: u64| {
                let value = format.decode(cut(a, from));
                let tiny = mode.ftz && from == Type::F32 && (value as f32).is_subnormal();
                let value = integral(if tiny { 0.0 } else { value }, rounding);
                if value.is_nan() { nan_as_integer(to, from) } else { clamp(to, value as i128) }
            });
        }
        (Some(format), None) => r.map1(i, |a: u64| {
            let bits = format.encode_integer(exact(from, a), mode.rounding);
            if !mode.saturate {
                return bits;
            }
            format.encode(format.decode(bits).clamp(0.0, 1.0), Rounding::Nearest)
        }),
        (Some(format), Some(source)) => r.map1(i, |a: u64| {
            let value = source.decode(cut(a, from));
            let tiny = mode.ftz && from == Type::F32 && (value as f32).is_subnormal();
            let value = if tiny { 0f64.copysign(value) } else { value };
            let value = mode.integer.map_or(value, |rounding| integral(value, rounding));
            let value = match (mode.saturate, mode.relu) {
                (true, _) if value.is_nan() || value <= 0.0 => 0.0,
                (true, _) => value.min(1.0),
                (_, true) if value <= 0.0 => 0.0,
                _ => value,
            };
            let bits = format.encode(value, mode.rounding);
            if to == Type::F32 {
                let result = canonical(f32::of(bits));
                return (if mode.ftz { flush(result) } else { result }).bits();
            }
            bits
        }),
    }
}

fn cut(value: u64, ty: Type) -> u64 {
    value << (64 - ty.bits()) >> (64 - ty.bits())
}

/// Returns the value of an integer's bits.
fn exact(ty: Type, bits: u64) -> i128 {
    let extended = ty.extend(bits);
    if ty.is_signed() { i128::from(extended as i64) } else { i128::from(extended) }
}

/// Returns the nearest integer that the type can hold, extended to 64 bits.
fn clamp(ty: Type, value: i128) -> u64 {
    let (low, high) = if ty.is_signed() {
        (-(1i128 << (ty.bits() - 1)), (1i128 << (ty.bits() - 1)) - 1)
    } else {
        (0, (1i128 << ty.bits()) - 1)
    };
    value.clamp(low, high) as u64
}

/// Returns the integer to which a NaN is converted: 0, or a number with only the highest bit set if
/// either type has 64 bits.
fn nan_as_integer(to: Type, from: Type) -> u64 {
    if to.bits() == 64 || from == Type::F64 { to.extend(1 << (to.bits() - 1)) } else { 0 }
}

/// Executes `cvt.pack`: puts `a` above `b` and, for bytes, the lower half of `c` above both.
fn pack(r: &mut Registers<'_>, i: &Instruction) {
    let ty = i.ty;
    let part = |value: i32| clamp(ty, i128::from(value)) as u32 & (ALL >> (32 - ty.bits()));
    if i.src[2] == Operand::None {
        r.map2(i, |a: i32, b: i32| part(a) << 16 | part(b));
    } else if ty == Type::U8 {
        r.map3(i, |a: i32, b: i32, c: u32| {
            c << 16 | (a.clamp(0, 255) as u32) << 8 | b.clamp(0, 255) as u32
        });
    } else {
        r.map3(i, |a: i32, b: i32, c: u32| c << 16 | part(a) << 8 | part(b));
    }
}
