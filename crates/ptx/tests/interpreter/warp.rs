//! Memory, atomics, exchange of values between lanes, and matrices.

use crate::common::{STORE, Setup, words};
use feedwater_ptx::Options;

fn lanes(f: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..32).map(f).collect()
}

#[test]
fn shuffles_follow_the_definition() {
    let shuffle = |kind: &str, step: u32, bounds: u32| {
        words(
            &format!(
                "shfl.sync.{kind}.b32 %r2|%p1, %r0, {step}, {bounds}, -1; @!%p1 add.u32 %r2, %r2, 100; {STORE}"
            ),
            32,
        )
    };
    assert_eq!(shuffle("down", 3, 31), lanes(|n| if n + 3 < 32 { n + 3 } else { n + 100 }));
    assert_eq!(shuffle("up", 2, 0), lanes(|n| if n >= 2 { n - 2 } else { n + 100 }));
    assert_eq!(shuffle("bfly", 5, 31), lanes(|n| n ^ 5));
    assert_eq!(shuffle("idx", 7, 31), lanes(|_| 7));
    // In these shuffles, segments have eight lanes.
    assert_eq!(shuffle("idx", 3, 0x181f), lanes(|n| n / 8 * 8 + 3));
    assert_eq!(shuffle("down", 6, 0x181f), lanes(|n| if n % 8 < 2 { n + 6 } else { n + 100 }));
}

#[test]
fn votes_matches_and_reductions() {
    let ballot = format!(
        "and.b32 %r1, %r0, 3; setp.eq.u32 %p1, %r1, 1; vote.sync.ballot.b32 %r2, %p1, -1; {STORE}"
    );
    assert_eq!(words(&ballot, 32), [0x2222_2222; 32]);
    let all = format!("setp.lt.u32 %p1, %r0, 31; vote.sync.all.pred %p2, %p1, -1; vote.sync.any.pred %p3, %p1, -1;
        selp.u32 %r2, 1, 0, %p2; selp.u32 %r3, 2, 0, %p3; add.u32 %r2, %r2, %r3; {STORE}");
    assert_eq!(words(&all, 32), [2; 32]);
    let same = format!("and.b32 %r1, %r0, 1; match.any.sync.b32 %r2, %r1, -1; {STORE}");
    assert_eq!(words(&same, 32), lanes(|n| 0x5555_5555 << (n & 1)));
    let all = format!(
        "mov.u32 %r1, 9; match.all.sync.b32 %r2|%p1, %r1, -1; @!%p1 mov.u32 %r2, 0; {STORE}"
    );
    assert_eq!(words(&all, 32), [u32::MAX; 32]);
    let sum = format!(
        "redux.sync.add.s32 %r2, %r0, -1; redux.sync.min.s32 %r3, %r0, -1; redux.sync.xor.b32 %r4, %r0, -1; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4; {STORE}"
    );
    assert_eq!(words(&sum, 32), [496; 32]);
    // Only some lanes take part.
    let half = format!(
        "mov.u32 %r2, 0; setp.lt.u32 %p1, %r0, 16; @!%p1 bra end; redux.sync.max.u32 %r2, %r0, 65535; end: {STORE}"
    );
    assert_eq!(words(&half, 32), lanes(|n| if n < 16 { 15 } else { 0 }));
}

#[test]
fn atomics_in_shared_and_global_memory() {
    let shared = |operation: &str, start: u32, value: &str| {
        words(&format!("mov.u32 %r1, {start}; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [shared], %r1; bar.sync 0;
            {value} red.shared.{operation} [shared], %r1; bar.sync 0; ld.shared.u32 %r2, [shared]; {STORE}"), 64)[63]
    };
    assert_eq!(shared("add.u32", 5, "mov.u32 %r1, 2;"), 133);
    assert_eq!(shared("max.s32", 0, "sub.u32 %r1, %r0, 100;"), 0);
    assert_eq!(shared("min.s32", 0, "sub.u32 %r1, %r0, 100;"), -100i32 as u32);
    assert_eq!(shared("xor.b32", 1, "mov.u32 %r1, %r0;"), 1);
    assert_eq!(shared("inc.u32", 0, "mov.u32 %r1, 9;"), 4);
    assert_eq!(
        shared("add.f32", 0, "mov.b32 %r1, 0f3FC00000; mov.b32 %f1, %r1;").to_string(),
        96f32.to_bits().to_string()
    );
    let swap = format!("mov.u32 %r1, 0; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [shared], %r1; bar.sync 0;
        atom.shared.cas.b32 %r2, [shared], %r0, 77; bar.sync 0; ld.shared.u32 %r2, [shared]; {STORE}");
    assert_eq!(words(&swap, 64), [77; 64]);
    let mut global = Setup::new("mov.u32 %r1, 3; red.global.add.u32 [%d1], %r1;", 64, &[]);
    global.launch.grid = [4, 1, 1];
    global.memory.write(global.output, &[0; 4]).unwrap();
    global.run(&Options::default()).expect_clean();
    assert_eq!(global.words()[0], 4 * 64 * 3);
}

#[test]
fn vectors_generic_addresses_and_local_memory() {
    let body = format!("mul.wide.u32 %d2, %r0, 16; mov.u64 %d3, shared; cvta.shared.u64 %d3, %d3; add.s64 %d3, %d3, %d2;
        add.u32 %r4, %r0, 1; mov.b64 %d4, {{%r0, %r4}}; st.v2.u64 [%d3], {{%d4, %d4}}; ld.v4.u32 {{%r5, %r6, %r7, %r8}}, [%d3];
        isspacep.shared %p1, %d3; isspacep.global %p2, %d3; cvta.to.shared.u64 %d3, %d3; ld.shared.s8 %r9, [%d3+8];
        mov.u64 %d5, local; cvta.local.u64 %d5, %d5; st.u16 [%d5+2], %r6; ld.local.u16 %h1, [local+2]; cvt.u32.u16 %r10, %h1;
        add.u32 %r2, %r5, %r8; add.u32 %r2, %r2, %r9; add.u32 %r2, %r2, %r10; @!%p1 mov.u32 %r2, 0; @%p2 mov.u32 %r2, 0; {STORE}");
    assert_eq!(words(&body, 64), (0..64).map(|n| 4 * n + 2).collect::<Vec<u32>>());
}

/// Compares products of bytes with loops over rows, columns and depth. Uses the fragment layout of
/// the PTX ISA.
#[test]
fn matrix_products_equal_a_naive_product() {
    for (shape, rows, depth) in
        [("m8n8k16", 8usize, 16usize), ("m16n8k16", 16, 16), ("m16n8k32", 16, 32)]
    {
        for (left, right) in [("u8", "u8"), ("u8", "s8"), ("s8", "u8"), ("s8", "s8")] {
            let byte = |at: usize, seed: usize| ((at * 2_654_435 + seed) >> 5) as u8;
            let number = |byte: u8, ty: &str| {
                if ty == "s8" { i32::from(byte as i8) } else { i32::from(byte) }
            };
            let (a, b): (Vec<u8>, Vec<u8>) = (
                (0..rows * depth).map(|at| byte(at, 1)).collect(),
                (0..8 * depth).map(|at| byte(at, 77)).collect(),
            );
            // The left matrix is stored by rows, the right one by columns. Lane `4 r + q` loads the
            // words `q + 4 n` of row or column `r`.
            let (sums, lefts, rights) = (rows / 4, rows / 8 * depth / 16, depth / 16);
            let mut body = "shr.u32 %r1, %r0, 2; and.b32 %r3, %r0, 3;".to_string();
            let mut load = |name: usize, base: usize, row: usize, word: usize| {
                body += &format!("add.u32 %r4, %r1, {row}; mul.lo.u32 %r4, %r4, {depth}; shl.b32 %r5, %r3, 2; add.u32 %r4, %r4, %r5;
                    cvt.u64.u32 %d2, %r4; add.s64 %d2, %d0, %d2; ld.global.u32 %r{name}, [%d2+{}];", base + 4 * word);
            };
            let groups = rows / 8;
            for n in 0..lefts {
                load(10 + n, 0, n % groups * 8, n / groups * 4);
            }
            for n in 0..rights {
                load(14 + n, rows * depth, 0, 4 * n);
            }
            let list = |first: usize, count: usize| {
                (first..first + count).map(|n| format!("%r{n}")).collect::<Vec<_>>().join(", ")
            };
            for n in 0..sums {
                body += &format!("add.u32 %r{}, %r0, {n};", 20 + n);
            }
            body += &format!(
                "mma.sync.aligned.{shape}.row.col.s32.{left}.{right}.s32 {{{}}}, {{{}}}, {{{}}}, {{{}}};",
                list(20, sums),
                list(10, lefts),
                list(14, rights),
                list(20, sums)
            );
            body += "mul.wide.u32 %d3, %r0, 16; add.s64 %d3, %d1, %d3;";
            for n in 0..sums {
                body += &format!("st.global.u32 [%d3+{}], %r{};", 4 * n, 20 + n);
            }
            let mut setup = Setup::new(&body, 32, &[a.clone(), b.clone()].concat());
            setup.run(&Options::default()).expect_clean();
            let found = setup.words();
            for lane in 0..32 {
                for n in 0..sums {
                    let (row, column) = (lane / 4 + n / 2 * 8, lane % 4 * 2 + n % 2);
                    let product: i32 = (0..depth)
                        .map(|k| {
                            number(a[row * depth + k], left) * number(b[column * depth + k], right)
                        })
                        .sum();
                    let expected = product + lane as i32 + n as i32;
                    assert_eq!(
                        found[4 * lane + n] as i32,
                        expected,
                        "{shape} {left} {right} {row},{column}"
                    );
                }
            }
        }
    }
}

#[test]
fn matrices_are_loaded_from_shared_memory() {
    // Row r of the matrix in shared memory has the 16-bit values from 8 r to 8 r + 7.
    let fill = "mov.u32 %r3, shared; shl.b32 %r4, %r0, 2; add.u32 %r4, %r4, %r3; shl.b32 %r5, %r0, 1; add.u32 %r6, %r5, 1;
        shl.b32 %r6, %r6, 16; or.b32 %r5, %r5, %r6; st.shared.u32 [%r4], %r5; bar.warp.sync -1;
        and.b32 %r4, %r0, 7; shl.b32 %r4, %r4, 4; add.u32 %r4, %r4, %r3;";
    let plain = format!("{fill} ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r2}}, [%r4]; {STORE}");
    assert_eq!(words(&plain, 32), lanes(|n| (2 * n) | ((2 * n + 1) << 16)));
    let transposed =
        format!("{fill} ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {{%r2}}, [%r4]; {STORE}");
    let half = |row: u32, column: u32| 8 * row + column;
    let expected = lanes(|n| half(n % 4 * 2, n / 4) | half(n % 4 * 2 + 1, n / 4) << 16);
    assert_eq!(words(&transposed, 32), expected);
    let moved = format!(
        "{fill} ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r5}}, [%r4]; movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r5; {STORE}"
    );
    assert_eq!(words(&moved, 32), expected);
}

#[test]
fn counts_are_those_of_a_known_kernel() {
    let body = "shl.b32 %r1, %r0, 3; mov.u32 %r3, shared; add.u32 %r1, %r1, %r3; st.shared.u32 [%r1], %r0; bar.sync 0;
        setp.lt.u32 %p1, %r0, 8; @%p1 bra end; ld.global.u32 %r4, [%d0]; end:";
    let mut setup = Setup::new(body, 64, &[0; 64]);
    let counts = setup.run(&Options::default()).expect_clean();
    // Each of the two warps executes three instructions before the body, seven up to the branch,
    // the load, and the return. Only warp 0 diverges at the branch.
    assert_eq!(counts.instructions, 2 * (3 + 7 + 1 + 1));
    assert_eq!(counts.longest_block, counts.instructions);
    assert_eq!((counts.branches, counts.divergent_branches, counts.barriers), (2, 1, 2));
    assert_eq!((counts.shared_wavefronts, counts.ideal_wavefronts), (4, 2));
    assert_eq!((counts.sectors_loaded, counts.sectors_stored), (2, 0));
    assert_eq!(counts.opcodes["shl.b32"], 2);
}

#[test]
fn the_longest_block_is_the_one_with_the_most_instructions() {
    let body = "mov.u32 %r3, %ctaid.x; setp.ne.u32 %p1, %r3, 1; @%p1 bra end; add.u32 %r3, %r3, 1; add.u32 %r3, %r3, 1; end:";
    for options in Options::every_schedule(0) {
        let mut setup = Setup::new(body, 64, &[]);
        setup.launch.grid = [3, 1, 1];
        let counts = setup.run(&options).expect_clean();
        // Each warp also executes three instructions before the body, and the return.
        assert_eq!(counts.longest_block, 2 * (3 + 5 + 1));
        assert_eq!(counts.instructions, counts.longest_block + 2 * 2 * (3 + 3 + 1));
    }
}
