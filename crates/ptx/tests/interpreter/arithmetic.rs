//! Compares arithmetic, bit operations and conversions with Rust's.

use crate::common::{evaluate, operands};

fn check(text: &str, kind: char, result: char, expected: impl Fn([u64; 3]) -> u64) {
    let inputs = operands(512, text.len() as u64);
    let found = evaluate(text, kind, result, &inputs);
    for (input, found) in inputs.iter().zip(found) {
        let mask = if matches!(result, 'd' | 'x') { u64::MAX } else { 0xffff_ffff };
        assert_eq!(found & mask, expected(*input) & mask, "{text} of {input:x?}");
    }
}

fn words(text: &str, expected: impl Fn(u32, u32, u32) -> u32) {
    check(text, 'r', 'r', |[a, b, c]| expected(a as u32, b as u32, c as u32).into());
}

fn longs(text: &str, expected: impl Fn(u64, u64, u64) -> u64) {
    check(text, 'd', 'd', |[a, b, c]| expected(a, b, c));
}

/// Compares the result of an f32 operation. NaN is expected in the form that devices return.
fn singles(text: &str, expected: impl Fn(f32, f32, f32) -> f32) {
    check(text, 'f', 'f', |[a, b, c]| {
        let [a, b, c] = [a, b, c].map(|it| f32::from_bits(it as u32));
        let value = expected(a, b, c);
        u64::from(if value.is_nan() { 0x7fff_ffff } else { value.to_bits() })
    });
}

#[test]
fn integers() {
    words("add.s32 %r4, %r1, %r2;", |a, b, _| a.wrapping_add(b));
    words("add.sat.s32 %r4, %r1, %r2;", |a, b, _| (a as i32).saturating_add(b as i32) as u32);
    words("sub.u32 %r4, %r1, %r2;", |a, b, _| a.wrapping_sub(b));
    words("mul.lo.s32 %r4, %r1, %r2;", |a, b, _| a.wrapping_mul(b));
    words("mul.hi.u32 %r4, %r1, %r2;", |a, b, _| ((u64::from(a) * u64::from(b)) >> 32) as u32);
    words("mul.hi.s32 %r4, %r1, %r2;", |a, b, _| {
        ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32
    });
    words("mad.lo.u32 %r4, %r1, %r2, %r3;", |a, b, c| a.wrapping_mul(b).wrapping_add(c));
    words("sad.s32 %r4, %r1, %r2, %r3;", |a, b, c| (a as i32).abs_diff(b as i32).wrapping_add(c));
    words("min.s32 %r4, %r1, %r2;", |a, b, _| (a as i32).min(b as i32) as u32);
    words("max.u32 %r4, %r1, %r2;", |a, b, _| a.max(b));
    words("abs.s32 %r4, %r1;", |a, _, _| (a as i32).wrapping_abs() as u32);
    words("neg.s32 %r4, %r1;", |a, _, _| a.wrapping_neg());
    words("or.b32 %r2, %r2, 1; div.s32 %r4, %r1, %r2;", |a, b, _| {
        (a as i32).wrapping_div((b | 1) as i32) as u32
    });
    words("or.b32 %r2, %r2, 1; rem.u32 %r4, %r1, %r2;", |a, b, _| a % (b | 1));
    longs("mul.hi.u64 %d5, %d2, %d3;", |a, b, _| ((u128::from(a) * u128::from(b)) >> 64) as u64);
    longs("mad.lo.s64 %d5, %d2, %d3, %d4;", |a, b, c| a.wrapping_mul(b).wrapping_add(c));
    check("mul.wide.s32 %d5, %r1, %r2;", 'r', 'd', |[a, b, _]| {
        (i64::from(a as i32) * i64::from(b as i32)) as u64
    });
    check("cvt.u64.u32 %d2, %r3; mad.wide.u32 %d5, %r1, %r2, %d2;", 'r', 'd', |[a, b, c]| {
        (u64::from(a as u32) * u64::from(b as u32)).wrapping_add(u64::from(c as u32))
    });
    // Two 32-bit additions with a carry must give the 64-bit sum.
    longs(
        "mov.b64 {%r1, %r2}, %d2; mov.b64 {%r3, %r4}, %d3; add.cc.u32 %r5, %r1, %r3;\
           addc.u32 %r6, %r2, %r4; mov.b64 %d5, {%r5, %r6};",
        |a, b, _| a.wrapping_add(b),
    );
    longs(
        "mov.b64 {%r1, %r2}, %d2; mov.b64 {%r3, %r4}, %d3; sub.cc.u32 %r5, %r1, %r3;\
           subc.u32 %r6, %r2, %r4; mov.b64 %d5, {%r5, %r6};",
        |a, b, _| a.wrapping_sub(b),
    );
    words("dp4a.u32.s32 %r4, %r1, %r2, %r3;", |a, b, c| {
        let pairs = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
        let sum: i32 = pairs.map(|(a, b)| i32::from(a) * i32::from(b as i8)).sum();
        (sum as u32).wrapping_add(c)
    });
}

#[test]
fn bits() {
    words("shl.b32 %r4, %r1, %r2;", |a, b, _| a.checked_shl(b).unwrap_or(0));
    words("shr.s32 %r4, %r1, %r2;", |a, b, _| ((a as i32) >> b.min(31)) as u32);
    words("shr.u32 %r4, %r1, %r2;", |a, b, _| a.checked_shr(b).unwrap_or(0));
    longs("cvt.u32.u64 %r1, %d3; shl.b64 %d5, %d2, %r1;", |a, b, _| {
        a.checked_shl(b as u32).unwrap_or(0)
    });
    words("shf.r.wrap.b32 %r4, %r1, %r2, %r3;", |a, b, c| {
        ((u64::from(b) << 32 | u64::from(a)) >> (c & 31)) as u32
    });
    words("shf.l.clamp.b32 %r4, %r1, %r2, %r3;", |a, b, c| {
        ((u128::from(u64::from(b) << 32 | u64::from(a)) << c.min(32)) >> 32) as u32
    });
    words("prmt.b32 %r4, %r1, %r2, %r3;", |a, b, c| {
        let bytes = [a.to_le_bytes(), b.to_le_bytes()].concat();
        u32::from_le_bytes(std::array::from_fn(|at| {
            let nibble = c >> (4 * at) & 15;
            let byte = bytes[nibble as usize & 7];
            if nibble < 8 { byte } else { (byte as i8 >> 7) as u8 }
        }))
    });
    words("lop3.b32 %r4, %r1, %r2, %r3, 0xca;", |a, b, c| a & b | !a & c);
    words("bfi.b32 %r4, %r1, %r2, %r3, 7;", |a, b, c| {
        (0..32).fold(0, |all, bit| {
            let at = c & 0xff;
            let inside = bit >= at && bit < at + 7;
            all | (if inside { a >> (bit - at) } else { b >> bit } & 1) << bit
        })
    });
    for (ty, signed) in [("u32", false), ("s32", true)] {
        words(&format!("and.b32 %r3, %r3, 63; bfe.{ty} %r4, %r1, %r2, %r3;"), |a, b, c| {
            let (at, count) = (b & 0xff, c & 63);
            let last = (at + count).saturating_sub(1).min(31);
            let sign = if signed && count > 0 { a >> last & 1 } else { 0 };
            (0..32).fold(0, |all, bit| {
                let inside = bit < count && at + bit < 32;
                all | (if inside { a >> (at + bit) & 1 } else { sign }) << bit
            })
        });
    }
    words("popc.b32 %r4, %r1;", |a, _, _| a.count_ones());
    words("clz.b32 %r4, %r1;", |a, _, _| a.leading_zeros());
    words("brev.b32 %r4, %r1;", |a, _, _| a.reverse_bits());
    words("bfind.u32 %r4, %r1;", |a, _, _| a.checked_ilog2().unwrap_or(u32::MAX));
    words("bfind.s32 %r4, %r1;", |a, _, _| {
        (if (a as i32) < 0 { !a } else { a }).checked_ilog2().unwrap_or(u32::MAX)
    });
    words(
        "and.b32 %r2, %r2, 31; and.b32 %r3, %r3, 31; bmsk.clamp.b32 %r4, %r2, %r3;",
        |_, b, c| (((1u64 << (c & 31)) - 1) << (b & 31)) as u32,
    );
}

#[test]
fn comparison_and_selection() {
    let set = |holds: bool| u32::from(holds);
    words("setp.lt.s32 %p1, %r1, %r2; selp.u32 %r4, 1, 0, %p1;", |a, b, _| {
        set((a as i32) < b as i32)
    });
    words("setp.hi.u32 %p1, %r1, %r2; selp.u32 %r4, 1, 0, %p1;", |a, b, _| set(a > b));
    words(
        "setp.eq.u32 %p1, %r1, 0; setp.ge.and.s32 %p2|%p3, %r2, %r3, !%p1; selp.u32 %r4, 1, 0, %p2;\
           selp.u32 %r5, 2, 0, %p3; or.b32 %r4, %r4, %r5;",
        |a, b, c| {
            let (one, holds) = (a != 0, b as i32 >= c as i32);
            set(holds && one) | (2 * set(!holds && one))
        },
    );
    check("setp.ltu.f32 %p4, %f1, %f2;", 'f', 'p', |[a, b, _]| {
        let (a, b) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
        u64::from(a < b || a.is_nan() || b.is_nan())
    });
    check("setp.neu.f64 %p4, %x1, %x2;", 'x', 'p', |[a, b, _]| {
        u64::from(f64::from_bits(a) != f64::from_bits(b))
    });
    words("slct.u32.s32 %r4, %r1, %r2, %r3;", |a, b, c| if c as i32 >= 0 { a } else { b });
    words("set.gt.u32.u32 %r4, %r1, %r2;", |a, b, _| if a > b { u32::MAX } else { 0 });
}

#[test]
fn floats() {
    singles("add.f32 %f4, %f1, %f2;", |a, b, _| a + b);
    singles("sub.rn.f32 %f4, %f1, %f2;", |a, b, _| a - b);
    singles("mul.f32 %f4, %f1, %f2;", |a, b, _| a * b);
    singles("fma.rn.f32 %f4, %f1, %f2, %f3;", f32::mul_add);
    singles("div.rn.f32 %f4, %f1, %f2;", |a, b, _| a / b);
    singles("sqrt.rn.f32 %f4, %f1;", |a, _, _| a.sqrt());
    singles("rcp.rn.f32 %f4, %f1;", |a, _, _| 1.0 / a);
    let flush = |it: f32| if it.is_subnormal() { 0f32.copysign(it) } else { it };
    singles("add.ftz.f32 %f4, %f1, %f2;", |a, b, _| flush(flush(a) + flush(b)));
    singles("mul.sat.f32 %f4, %f1, %f2;", |a, b, _| {
        let value = a * b;
        if value > 0.0 { value.min(1.0) } else { 0.0 }
    });
    // The modifiers `rm` and `rp` round down and up. For these operands, the sum in double
    // precision is exact.
    for (text, down) in [("add.rm.f32 %f4, %f1, %f2;", true), ("add.rp.f32 %f4, %f1, %f2;", false)]
    {
        let inputs: Vec<[u64; 3]> = (0..500u32)
            .map(|n| [1f32, 1e-3].map(|it| (it * (n as f32 + 0.7)).to_bits().into()))
            .map(|[a, b]: [u64; 2]| [a, b, 0])
            .collect();
        for (input, found) in inputs.iter().zip(evaluate(text, 'f', 'f', &inputs)) {
            let [a, b, _] = input.map(|it| f64::from(f32::from_bits(it as u32)));
            let found = f32::from_bits(found as u32);
            let (exact, value) = (a + b, f64::from(found));
            assert!(if down {
                value <= exact && f64::from(found.next_up()) > exact
            } else {
                value >= exact && f64::from(found.next_down()) < exact
            });
        }
    }
    let longs = |text: &str, f: fn(f64, f64, f64) -> f64| {
        let number = |it: u64| f64::from_bits(it);
        let inputs = operands(512, 9);
        for (input, found) in inputs.iter().zip(evaluate(text, 'x', 'x', &inputs)) {
            let expected = f(number(input[0]), number(input[1]), number(input[2]));
            assert!(number(found) == expected || expected.is_nan() && number(found).is_nan());
        }
    };
    longs("fma.rn.f64 %x4, %x1, %x2, %x3;", f64::mul_add);
    longs("div.rn.f64 %x4, %x1, %x2;", |a, b, _| a / b);
    longs("sub.f64 %x4, %x1, %x2;", |a, b, _| a - b);
}

/// Compares f16 results with f32 arithmetic, which is exact enough for a single operation.
#[test]
fn halves() {
    let decode = |bits: u64| -> f32 {
        let bits = evaluate("cvt.f32.f16 %f4, %h1;", 'h', 'f', &[[bits, 0, 0]])[0];
        f32::from_bits(bits as u32)
    };
    assert_eq!(
        [0x3c00, 0xc000, 0x7bff, 0x0001, 0x8000].map(decode),
        [1.0, -2.0, 65504.0, 5.9604645e-8, -0.0]
    );
    let encode =
        |text: &str, value: f32| evaluate(text, 'f', 'h', &[[value.to_bits().into(), 0, 0]])[0];
    assert_eq!(encode("cvt.rn.f16.f32 %h4, %f1;", 1.0 + 1.0 / 2048.0), 0x3c00);
    assert_eq!(encode("cvt.rz.f16.f32 %h4, %f1;", 65535.0), 0x7bff);
    assert_eq!(encode("cvt.rn.f16.f32 %h4, %f1;", 65535.0), 0x7c00);
    assert_eq!(encode("cvt.rn.bf16.f32 %h4, %f1;", 1.0 + 3.0 / 256.0), 0x3f82);
    assert_eq!(encode("cvt.rn.relu.bf16.f32 %h4, %f1;", -3.0), 0);
    assert_eq!(
        evaluate("add.f16 %h4, %h1, %h2;", 'h', 'h', &[[0x3c00, 0x1000, 0], [0x7bff, 0x7bff, 0]]),
        [0x3c00, 0x7c00]
    );
    assert_eq!(
        evaluate("fma.rn.f16 %h4, %h1, %h2, %h3;", 'h', 'h', &[[0x4000, 0x4200, 0x3c00]]),
        [0x4700]
    );
    assert_eq!(evaluate("mul.bf16 %h4, %h1, %h2;", 'h', 'h', &[[0x4040, 0x4040, 0]]), [0x4110]);
    let pair =
        evaluate("cvt.rn.f16x2.f32 %r4, %f1, %f2;", 'f', 'r', &[[0x3f80_0000, 0x4000_0000, 0]]);
    assert_eq!(pair, [0x3c00_4000]);
}

#[test]
fn conversions() {
    check("cvt.rzi.s32.f32 %r4, %f1;", 'f', 'r', |[a, ..]| {
        (f32::from_bits(a as u32) as i32) as u32 as u64
    });
    check("cvt.rni.u32.f32 %r4, %f1;", 'f', 'r', |[a, ..]| {
        (f32::from_bits(a as u32).round_ties_even() as u32).into()
    });
    check("cvt.rn.f32.s32 %f4, %r1;", 'r', 'f', |[a, ..]| (a as i32 as f32).to_bits().into());
    check("cvt.rn.f32.u64 %f4, %d2;", 'd', 'f', |[a, ..]| (a as f32).to_bits().into());
    check("cvt.rmi.f32.f32 %f4, %f1;", 'f', 'f', |[a, ..]| {
        let value = f32::from_bits(a as u32).floor();
        if value.is_nan() { 0x7fff_ffff } else { value.to_bits().into() }
    });
    check("cvt.sat.u8.s32 %r4, %r1;", 'r', 'r', |[a, ..]| (a as i32).clamp(0, 255) as u64);
    check("cvt.s32.s8 %r4, %r1;", 'r', 'r', |[a, ..]| (a as i8 as i32) as u32 as u64);
    check("cvt.s64.s32 %d5, %r1;", 'r', 'd', |[a, ..]| a as i32 as i64 as u64);
    check("cvt.u16.u32 %h4, %r1;", 'r', 'h', |[a, ..]| a & 0xffff);
    check("cvt.pack.sat.u8.s32.b32 %r4, %r1, %r2, %r3;", 'r', 'r', |[a, b, c]| {
        let byte = |it: u64| (it as i32).clamp(0, 255) as u64;
        c << 16 | byte(a) << 8 | byte(b)
    });
    check("cvt.pack.sat.s16.s32 %r4, %r1, %r2;", 'r', 'r', |[a, b, _]| {
        let half = |it: u64| u64::from((it as i32).clamp(-32768, 32767) as u16);
        half(a) << 16 | half(b)
    });
    // NaN is converted to 0. If the source or the target has 64 bits, NaN is converted to a number
    // with only the highest bit set (PTX ISA, `cvt`).
    let nan = [[f32::NAN.to_bits().into(), 0, 0]];
    assert_eq!(evaluate("cvt.rzi.s32.f32 %r4, %f1;", 'f', 'r', &nan), [0]);
    assert_eq!(evaluate("cvt.rzi.u64.f32 %d5, %f1;", 'f', 'd', &nan), [1 << 63]);
}
