//! Floating-point arithmetic.
//!
//! f32 and f64 results are rounded exactly. Instructions that a device approximates (`.approx`,
//! `.full`) are computed in double precision and rounded to nearest. Their results can differ from
//! a device's by the error that the PTX ISA states for the instruction.

use super::registers::{Lane, Registers};
use crate::float::{Format, add_odd, canonical, div_odd, flush, sqrt_odd};
use crate::isa::{Class, Function, Instruction, Mode, Op, Rounding, Type};

pub(super) fn execute(r: &mut Registers<'_>, i: &Instruction) {
    match i.ty {
        Type::F32 => single(r, i),
        Type::F64 => double(r, i),
        Type::F16 | Type::Bf16 => half::<u16>(r, i),
        _ => half::<u32>(r, i),
    }
}

fn single(r: &mut Registers<'_>, i: &Instruction) {
    let plain = i.mode.rounding == Rounding::Nearest && !i.mode.ftz && !i.mode.saturate;
    match i.op {
        // If the instruction has no modifiers, the host's arithmetic returns the same bits as a
        // device.
        Op::Add { .. } if plain => r.map2(i, |a: f32, b: f32| canonical(a + b)),
        Op::Sub { .. } if plain => r.map2(i, |a: f32, b: f32| canonical(a - b)),
        Op::Mul(_) if plain => r.map2(i, |a: f32, b: f32| canonical(a * b)),
        Op::Fma if plain => r.map3(i, |a: f32, b: f32, c: f32| canonical(a.mul_add(b, c))),
        Op::Div if plain => r.map2(i, |a: f32, b: f32| canonical(a / b)),
        Op::Add { .. } => two(r, i, add_odd),
        Op::Sub { .. } => two(r, i, |a, b| add_odd(a, -b)),
        Op::Mul(_) => two(r, i, |a, b| a * b),
        Op::Div => two(r, i, div_odd),
        Op::Fma => {
            let mode = i.mode;
            r.map3(i, |a: f32, b: f32, c: f32| {
                let [a, b, c] = [a, b, c].map(|it| input(it, mode));
                output(add_odd(a * b, c), mode)
            });
        }
        Op::Min | Op::Max => {
            let (mode, max) = (i.mode, i.op == Op::Max);
            let pick = |a: f32, b: f32| extreme(input(a, mode), input(b, mode), max, mode.nan);
            if i.src[2] == crate::isa::Operand::None {
                r.map2(i, |a: f32, b: f32| canonical(pick(a, b) as f32));
            } else {
                r.map3(i, |a: f32, b: f32, c: f32| canonical(pick(pick(a, b) as f32, c) as f32));
            }
        }
        Op::Abs => {
            let ftz = i.mode.ftz;
            r.map1(i, |a: f32| (if ftz { flush(a) } else { a }).abs());
        }
        Op::Neg => {
            let ftz = i.mode.ftz;
            r.map1(i, |a: f32| -(if ftz { flush(a) } else { a }));
        }
        Op::Copysign => r.map2(i, |a: f32, b: f32| b.copysign(a)),
        Op::Testp(class) => r.map1(i, |a: f32| {
            u32::from(match class {
                Class::Finite => a.is_finite(),
                Class::Infinite => a.is_infinite(),
                Class::Number => !a.is_nan(),
                Class::NotANumber => a.is_nan(),
                // Zero counts as normal (PTX ISA, `testp`).
                Class::Normal => a.is_normal() || a == 0.0,
                Class::Subnormal => a.is_subnormal(),
            })
        }),
        Op::Function(function) => {
            let mode = i.mode;
            r.map1(i, |a: f32| {
                let a = input(a, mode);
                output(
                    if mode.approximate { approximate(function, a) } else { exact(function, a) },
                    mode,
                )
            });
        }
        _ => unreachable!("not floating-point arithmetic: {:?}", i.op),
    }
}

fn two(r: &mut Registers<'_>, i: &Instruction, f: impl Fn(f64, f64) -> f64) {
    let mode = i.mode;
    r.map2(i, |a: f32, b: f32| output(f(input(a, mode), input(b, mode)), mode));
}

fn input(value: f32, mode: Mode) -> f64 {
    f64::from(if mode.ftz { flush(value) } else { value })
}

/// Rounds to f32, then flushes and clamps to 0..1. A clamped NaN is 0.
fn output(value: f64, mode: Mode) -> f32 {
    let bits = crate::float::F32.encode(value, mode.rounding) as u32;
    let value = canonical(f32::from_bits(bits));
    let value = if mode.ftz { flush(value) } else { value };
    match mode.saturate {
        true if value.is_nan() => 0.0,
        // Clamping also changes -0 to +0.
        true if value <= 0.0 => 0.0,
        true => value.min(1.0),
        false => value,
    }
}

/// Returns the smaller or the larger number. -0 is less than +0. The result is NaN if both numbers
/// are NaN, or if one is NaN and `propagate` is set.
fn extreme(a: f64, b: f64, max: bool, propagate: bool) -> f64 {
    if a.is_nan() || b.is_nan() {
        let both = a.is_nan() && b.is_nan();
        return if both || propagate {
            f64::NAN
        } else if a.is_nan() {
            b
        } else {
            a
        };
    }
    let a_first = a.total_cmp(&b).is_lt();
    if a_first != max { a } else { b }
}

fn exact(function: Function, a: f64) -> f64 {
    match function {
        Function::Reciprocal => div_odd(1.0, a),
        _ => sqrt_odd(a),
    }
}

fn approximate(function: Function, a: f64) -> f64 {
    match function {
        Function::Reciprocal => 1.0 / a,
        Function::SquareRoot => a.sqrt(),
        Function::ReciprocalSquareRoot => 1.0 / a.sqrt(),
        Function::Sine => a.sin(),
        Function::Cosine => a.cos(),
        Function::Log2 => a.log2(),
        Function::Exp2 => a.exp2(),
        Function::Tanh => a.tanh(),
    }
}

fn double(r: &mut Registers<'_>, i: &Instruction) {
    match i.op {
        Op::Add { .. } => r.map2(i, |a: f64, b: f64| a + b),
        Op::Sub { .. } => r.map2(i, |a: f64, b: f64| a - b),
        Op::Mul(_) => r.map2(i, |a: f64, b: f64| a * b),
        Op::Div => r.map2(i, |a: f64, b: f64| a / b),
        Op::Fma => r.map3(i, |a: f64, b: f64, c: f64| a.mul_add(b, c)),
        Op::Min | Op::Max => {
            let max = i.op == Op::Max;
            r.map2(i, |a: f64, b: f64| extreme(a, b, max, false));
        }
        Op::Abs => r.map1(i, f64::abs),
        Op::Neg => r.map1(i, |a: f64| -a),
        Op::Copysign => r.map2(i, |a: f64, b: f64| b.copysign(a)),
        Op::Testp(class) => r.map1(i, |a: f64| {
            u32::from(match class {
                Class::Finite => a.is_finite(),
                Class::Infinite => a.is_infinite(),
                Class::Number => !a.is_nan(),
                Class::NotANumber => a.is_nan(),
                Class::Normal => a.is_normal() || a == 0.0,
                Class::Subnormal => a.is_subnormal(),
            })
        }),
        Op::Function(Function::Reciprocal) => r.map1(i, |a: f64| 1.0 / a),
        Op::Function(Function::SquareRoot) => r.map1(i, f64::sqrt),
        _ => unreachable!("not double-precision arithmetic: {:?}", i.op),
    }
}

/// Executes instructions on f16 and bf16, with one number (`u16`) or two (`u32`) per lane.
fn half<T: Lane>(r: &mut Registers<'_>, i: &Instruction) {
    let format = Format::of(i.ty).expect("a floating-point type");
    let mode = i.mode;
    let number = |bits: u64| {
        let value = format.decode(bits & 0xffff);
        let smallest = format.decode(1 << (format_digits(i.ty) - 1));
        if mode.ftz && value.abs() < smallest { 0f64.copysign(value) } else { value }
    };
    let result = |value: f64| -> u64 {
        let value = match (mode.saturate, mode.relu) {
            (true, _) if value.is_nan() || value <= 0.0 => 0.0,
            (true, _) => value.min(1.0),
            (_, true) if value <= 0.0 => 0.0,
            _ => value,
        };
        let bits = format.encode(value, Rounding::Nearest);
        let flushed =
            mode.ftz && format.decode(bits).abs() < format.decode(1 << (format_digits(i.ty) - 1));
        if flushed { bits & 0x8000 } else { bits }
    };
    // Computes both halves of a 32-bit register. For 16-bit registers, the upper half of the result
    // is dropped.
    let each = |f: &dyn Fn(u64) -> u64| T::of(f(0) | f(16) << 16);
    match i.op {
        Op::Abs => r.map1(i, |a: T| T::of(a.bits() & 0x7fff_7fff)),
        Op::Neg => r.map1(i, |a: T| T::of(a.bits() ^ 0x8000_8000)),
        Op::Fma => r.map3(i, |a: T, b: T, c: T| {
            each(&|at| {
                let [a, b, c] = [a, b, c].map(|it| number(it.bits() >> at));
                result(add_odd(a * b, c))
            })
        }),
        op => r.map2(i, |a: T, b: T| {
            each(&|at| {
                let (a, b) = (number(a.bits() >> at), number(b.bits() >> at));
                result(match op {
                    Op::Add { .. } => add_odd(a, b),
                    Op::Sub { .. } => add_odd(a, -b),
                    Op::Mul(_) => a * b,
                    Op::Min => extreme(a, b, false, mode.nan),
                    Op::Max => extreme(a, b, true, mode.nan),
                    other => {
                        unreachable!("{other:?} is not an operation of half-precision arithmetic")
                    }
                })
            })
        }),
    }
}

/// Number of digits of the significand, including the leading one.
fn format_digits(ty: Type) -> u32 {
    if matches!(ty, Type::F16 | Type::F16x2) { 11 } else { 8 }
}
