//! Compares rarely used instructions with their definitions in the PTX ISA.

use crate::common::{STORE, assert_fault, evaluate, operands, words};
use feedwater_ptx::FaultKind;

fn check(text: &str, expected: impl Fn(u32, u32, u32) -> u32) {
    let inputs = operands(512, text.len() as u64);
    for (input, found) in inputs.iter().zip(evaluate(text, 'r', 'r', &inputs)) {
        let [a, b, c] = input.map(|it| it as u32);
        assert_eq!(found as u32, expected(a, b, c), "{text} of {input:x?}");
    }
}

#[test]
fn products_of_24_bits() {
    let signed = |it: u32| i64::from((it << 8) as i32 >> 8);
    let unsigned = |it: u32| u64::from(it & 0xff_ffff);
    check("mul24.lo.u32 %r4, %r1, %r2;", |a, b, _| (unsigned(a) * unsigned(b)) as u32);
    check("mul24.hi.u32 %r4, %r1, %r2;", |a, b, _| ((unsigned(a) * unsigned(b)) >> 16) as u32);
    check("mul24.lo.s32 %r4, %r1, %r2;", |a, b, _| (signed(a) * signed(b)) as u32);
    check("mad24.lo.s32 %r4, %r1, %r2, %r3;", |a, b, c| {
        ((signed(a) * signed(b)) as u32).wrapping_add(c)
    });
}

#[test]
fn products_of_halves_and_bytes() {
    let byte = |it: u32, at: u32| it >> (8 * at) & 255;
    for (which, first) in [("lo", 0), ("hi", 2)] {
        check(&format!("dp2a.{which}.u32.u32 %r4, %r1, %r2, %r3;"), |a, b, c| {
            c.wrapping_add((a & 0xffff) * byte(b, first))
                .wrapping_add((a >> 16) * byte(b, first + 1))
        });
        check(&format!("dp2a.{which}.s32.s32 %r4, %r1, %r2, %r3;"), |a, b, c| {
            let half = |at: u32| i32::from((a >> (16 * at)) as i16);
            let byte = |at: u32| i32::from(byte(b, at) as i8);
            (c as i32).wrapping_add(half(0) * byte(first)).wrapping_add(half(1) * byte(first + 1))
                as u32
        });
    }
}

#[test]
fn extensions_of_the_sign() {
    let extended = |a: u32, bits: u32| match bits {
        0 => 0,
        bits => (a << (32 - bits)) as i32 >> (32 - bits),
    };
    check("szext.wrap.s32 %r4, %r1, %r2;", |a, b, _| extended(a, b % 32) as u32);
    check("szext.clamp.s32 %r4, %r1, %r2;", |a, b, _| extended(a, b.min(32)) as u32);
    check("szext.clamp.u32 %r4, %r1, %r2;", |a, b, _| if b >= 32 { a } else { a & ((1 << b) - 1) });
}

/// `prmt` with a mode selects bytes by the lowest two bits of its last operand. For each mode and
/// each value of these bits, the table has the numbers of the four selected bytes, the highest byte
/// first.
#[test]
fn modes_of_byte_permutation() {
    let modes: [(&str, [[u32; 4]; 4]); 6] = [
        ("f4e", [[3, 2, 1, 0], [4, 3, 2, 1], [5, 4, 3, 2], [6, 5, 4, 3]]),
        ("b4e", [[5, 6, 7, 0], [6, 7, 0, 1], [7, 0, 1, 2], [0, 1, 2, 3]]),
        ("rc8", [[0; 4], [1; 4], [2; 4], [3; 4]]),
        ("ecl", [[3, 2, 1, 0], [3, 2, 1, 1], [3, 2, 2, 2], [3, 3, 3, 3]]),
        ("ecr", [[0, 0, 0, 0], [1, 1, 1, 0], [2, 2, 1, 0], [3, 2, 1, 0]]),
        ("rc16", [[1, 0, 1, 0], [3, 2, 3, 2], [1, 0, 1, 0], [3, 2, 3, 2]]),
    ];
    for (mode, places) in modes {
        check(&format!("prmt.b32.{mode} %r4, %r1, %r2, %r3;"), |a, b, c| {
            let bytes = u64::from(a) | u64::from(b) << 32;
            let picked = places[c as usize & 3].map(|at| (bytes >> (8 * at)) as u8);
            u32::from_be_bytes(picked)
        });
    }
}

#[test]
fn smaller_and_larger_floats() {
    const NAN: u32 = 0x7fff_ffff;
    let inputs: Vec<[u64; 3]> = [0.0, -0.0, 1.5, -7.0, f32::INFINITY, f32::NAN, 1e-40]
        .iter()
        .flat_map(|a| [0.0f32, -0.0, 2.5, f32::NAN, -1e-40].map(|b| (*a, b)))
        .map(|(a, b): (f32, f32)| [a.to_bits().into(), b.to_bits().into(), 0])
        .collect();
    for (text, larger, keeps_nan) in [
        ("min.f32 %f4, %f1, %f2;", false, false),
        ("max.f32 %f4, %f1, %f2;", true, false),
        ("min.NaN.f32 %f4, %f1, %f2;", false, true),
        ("max.NaN.f32 %f4, %f1, %f2;", true, true),
    ] {
        for (input, found) in inputs.iter().zip(evaluate(text, 'f', 'f', &inputs)) {
            let [a, b] = [input[0], input[1]].map(|it| f32::from_bits(it as u32));
            let expected = match (a.is_nan(), b.is_nan()) {
                (true, true) => NAN,
                (true, false) | (false, true) if keeps_nan => NAN,
                (true, false) => b.to_bits(),
                (false, true) => a.to_bits(),
                // -0 counts as smaller than +0.
                _ if (a.total_cmp(&b).is_gt()) == larger => a.to_bits(),
                _ => b.to_bits(),
            };
            assert_eq!(found as u32, expected, "{text} of {a} and {b}");
        }
    }
}

/// The PTX ISA allows errors in the results of these instructions. The interpreter rounds a result
/// in double precision.
#[test]
fn approximations_are_within_their_bounds() {
    let inputs: Vec<[u64; 3]> =
        (1..500u32).map(|n| [(n as f32 * 0.037).to_bits().into(), 0, 0]).collect();
    let check = |text: &str, bound: f64, exact: fn(f64) -> f64| {
        for (input, found) in inputs.iter().zip(evaluate(text, 'f', 'f', &inputs)) {
            let a = f64::from(f32::from_bits(input[0] as u32));
            let (found, exact) = (f64::from(f32::from_bits(found as u32)), exact(a));
            let error = (found - exact).abs() / exact.abs().max(1.0);
            assert!(error <= bound, "{text} of {a}: {found}, not {exact}");
        }
    };
    check("rcp.approx.f32 %f4, %f1;", 1.2e-7, |a| 1.0 / a);
    check("sqrt.approx.f32 %f4, %f1;", 1.2e-7, f64::sqrt);
    check("rsqrt.approx.f32 %f4, %f1;", 2.4e-7, |a| 1.0 / a.sqrt());
    check("ex2.approx.f32 %f4, %f1;", 2.4e-7, f64::exp2);
    check("lg2.approx.f32 %f4, %f1;", 5e-7, f64::log2);
    check("sin.approx.f32 %f4, %f1;", 1e-6, f64::sin);
}

#[test]
fn one_lane_is_elected() {
    let body = format!("elect.sync %r2|%p1, -1; @%p1 add.u32 %r2, %r2, 100; {STORE}");
    let mut found = words(&body, 32);
    let leader = found.iter().position(|it| *it >= 100).unwrap();
    found[leader] -= 100;
    assert_eq!(found, vec![leader as u32; 32]);
}

#[test]
fn matrices_are_stored_to_shared_memory() {
    // Lane n holds columns 2 (n mod 4) and 2 (n mod 4) + 1 of row n / 4.
    let body = format!(
        "mov.u32 %r3, shared; shl.b32 %r4, %r0, 4; and.b32 %r4, %r4, 112; add.u32 %r4, %r4, %r3;
         shl.b32 %r5, %r0, 1; add.u32 %r6, %r5, 1; shl.b32 %r6, %r6, 16; or.b32 %r5, %r5, %r6;
         stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r4], {{%r5}}; bar.warp.sync -1;
         shl.b32 %r4, %r0, 2; add.u32 %r4, %r4, %r3; ld.shared.u32 %r2, [%r4]; {STORE}"
    );
    let expected: Vec<u32> = (0..32).map(|n| (2 * n) | ((2 * n + 1) << 16)).collect();
    assert_eq!(words(&body, 32), expected);
}

#[test]
fn an_index_without_a_target_and_a_barrier_that_does_not_exist() {
    assert_fault(
        "mov.u32 %r1, 2; targets: .branchtargets a, b; brx.idx %r1, targets; a: b:",
        FaultKind::Operand,
    );
    assert_fault("mov.u32 %r1, 16; bar.sync %r1;", FaultKind::Operand);
}
