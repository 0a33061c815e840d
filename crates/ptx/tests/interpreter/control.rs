//! Branches, calls, barriers, and texts that the parser refuses.

use crate::common::{STORE, Setup, kernel, words};
use feedwater_ptx::{Access, Error, Launch, Memory, Module, Options, Schedule};

#[test]
fn lanes_diverge_and_meet_again() {
    // After nested branches, `activemask` contains all lanes again.
    let body = format!(
        "and.b32 %r1, %r0, 1; setp.eq.s32 %p1, %r1, 0; and.b32 %r3, %r0, 2; setp.eq.s32 %p2, %r3, 0;
         @%p1 bra even;
         mov.u32 %r2, 10; @%p2 bra joined; mov.u32 %r2, 20; bra joined;
         even: mov.u32 %r2, 30; @%p2 bra joined; mov.u32 %r2, 40;
         joined: activemask.b32 %r4; setp.ne.u32 %p3, %r4, -1; @%p3 mov.u32 %r2, 99; {STORE}"
    );
    let expected: Vec<u32> = (0..64).map(|n| [30, 10, 40, 20][n % 4]).collect();
    assert_eq!(words(&body, 64), expected);
}

#[test]
fn loops_end_at_another_time_in_every_lane() {
    let body = format!(
        "mov.u32 %r2, 0; mov.u32 %r1, %r0;
         again: setp.eq.u32 %p1, %r1, 0; @%p1 bra out;
         add.u32 %r2, %r2, %r1; sub.u32 %r1, %r1, 1;
         and.b32 %r3, %r1, 1; setp.eq.u32 %p2, %r3, 1; @%p2 bra again;
         add.u32 %r2, %r2, 100; bra again;
         out: activemask.b32 %r4; popc.b32 %r4, %r4; mad.lo.u32 %r2, %r4, 65536, %r2; {STORE}"
    );
    let value =
        |n: u32| 32 * 65536 + (1..=n).map(|it| it + if it % 2 == 1 { 100 } else { 0 }).sum::<u32>();
    assert_eq!(words(&body, 64), (0..64).map(value).collect::<Vec<_>>());
}

#[test]
fn lanes_exit_early_and_choose_targets_by_index() {
    let body = format!(
        "mov.u32 %r2, 0; and.b32 %r1, %r0, 3; setp.eq.u32 %p1, %r1, 3; {STORE} @%p1 exit;
         targets: .branchtargets a, b, c;
         brx.idx %r1, targets;
         a: mov.u32 %r2, 1; bra end;
         b: mov.u32 %r2, 2; bra end;
         c: mov.u32 %r2, 3;
         end: {STORE}"
    );
    assert_eq!(words(&body, 8), [1, 2, 3, 0, 1, 2, 3, 0]);
}

/// Some lanes compute factorials by recursion. Every call has its own registers, parameters and
/// local memory.
#[test]
fn functions_call_each_other() {
    let text = ".version 8.0 .target sm_80 .address_size 64
        .func (.param .b32 result) factorial (.param .b32 n);
        .visible .entry test(.param .u64 out) {
            .reg .b64 %d<4>; .reg .b32 %r<4>; .reg .pred %p<2>;
            ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x;
            mov.u32 %r1, 7;
            setp.lt.u32 %p1, %r0, 6;
            @!%p1 bra end;
            { .param .b32 argument; .param .b32 value;
              st.param.b32 [argument], %r0;
              call.uni (value), factorial, (argument);
              ld.param.b32 %r1, [value]; }
            end: mul.wide.u32 %d1, %r0, 4; add.s64 %d1, %d0, %d1; st.global.u32 [%d1], %r1; ret; }
        .func (.param .b32 result) factorial (.param .b32 n) {
            .reg .b32 %r<5>; .reg .pred %p<2>; .local .align 4 .b8 own[4];
            ld.param.b32 %r1, [n]; st.local.u32 [own], %r1;
            setp.gt.u32 %p1, %r1, 1; @%p1 bra more;
            mov.u32 %r4, 1; st.param.b32 [result], %r4; ret;
            more: sub.u32 %r2, %r1, 1;
            { .param .b32 argument; .param .b32 value;
              st.param.b32 [argument], %r2; call (value), factorial, (argument); ld.param.b32 %r3, [value]; }
            ld.local.u32 %r1, [own]; mul.lo.u32 %r4, %r1, %r3; st.param.b32 [result], %r4; ret; }";
    let module = Module::parse(text).unwrap();
    for options in Options::every_schedule(3) {
        let mut memory = Memory::new();
        let out = memory.allocate("out", 32, Access::ReadWrite);
        let params = out.to_le_bytes().to_vec();
        let launch = Launch {
            kernel: "test".into(),
            grid: [1; 3],
            block: [8, 1, 1],
            shared_bytes: 0,
            params,
        };
        module.run(&mut memory, &launch, &options).unwrap().expect_clean();
        let bytes = memory.read(out, 32).unwrap();
        let found: Vec<u32> =
            bytes.chunks(4).map(|it| u32::from_le_bytes(it.try_into().unwrap())).collect();
        assert_eq!(found, [1, 1, 2, 6, 24, 120, 7, 7]);
    }
}

#[test]
fn barriers_with_numbers_counts_and_reductions() {
    // Warp 0 stores values, and arrives at the barrier without waiting. Warp 1 waits at the barrier
    // and loads the values.
    let body = format!(
        "setp.lt.u32 %p1, %r0, 32; mov.u32 %r2, 1; mov.u32 %r3, shared; and.b32 %r4, %r0, 31; shl.b32 %r4, %r4, 2;
         add.u32 %r4, %r3, %r4; @!%p1 bra consume;
         st.shared.u32 [%r4], %r0; bar.arrive 1, 64; bra end;
         consume: bar.sync 1, 64; ld.shared.u32 %r2, [%r4]; end: {STORE}"
    );
    let expected: Vec<u32> = (0..64).map(|n| if n < 32 { 1 } else { n - 32 }).collect();
    assert_eq!(words(&body, 64), expected);
    let count =
        format!("setp.lt.u32 %p1, %r0, 5; barrier.sync 0; bar.red.popc.u32 %r2, 0, %p1; {STORE}");
    assert_eq!(words(&count, 64), [5; 64]);
    let any = format!(
        "setp.eq.u32 %p1, %r0, 40; bar.red.or.pred %p2, 0, %p1; bar.red.and.pred %p3, 0, %p1;
         selp.u32 %r2, 1, 0, %p2; selp.u32 %r3, 2, 0, %p3; or.b32 %r2, %r2, %r3; {STORE}"
    );
    assert_eq!(words(&any, 64), [1; 64]);
}

/// Diverged lanes meet at two `bar.warp.sync` with the same mask.
#[test]
fn diverged_lanes_synchronize() {
    let body = format!(
        "setp.lt.u32 %p1, %r0, 16; mov.u32 %r3, shared; shl.b32 %r4, %r0, 2; add.u32 %r4, %r3, %r4; xor.b32 %r5, %r4, 64;
         @%p1 bra a; st.shared.u32 [%r4], %r0; bar.warp.sync -1; bra b;
         a: st.shared.u32 [%r4], %r0; bar.warp.sync -1;
         b: ld.shared.u32 %r2, [%r5]; {STORE}"
    );
    assert_eq!(words(&body, 32), (0..32).map(|n| n ^ 16).collect::<Vec<u32>>());
}

#[test]
fn unknown_words_are_errors_with_their_line() {
    let refused = |line: &str, message: &str| {
        let text = kernel(&format!("\n{line}\n"));
        let Err(Error::Parse { line: at, message: found }) = Module::parse(&text) else {
            panic!("{line} was accepted");
        };
        assert!(found.contains(message), "{line}: {found}");
        assert_eq!(text.lines().nth(at as usize - 1).unwrap().trim(), line);
    };
    refused("frob.b32 %r1, %r2;", "unknown opcode frob.b32");
    refused("add.frob.s32 %r1, %r2, %r3;", "unknown modifier .frob of add.frob.s32");
    refused("add.s33 %r1, %r2, %r3;", "add.s33 has no type or an unknown type");
    refused("add.s32 %r1, %r2;", "too few operands");
    refused("add.s32 %r1, %r2, %r3, %r4;", "too many operands");
    refused("add.s32 %r1, %r2, %d3;", "register whose size");
    refused("add.s32 %r1, %r2, %q3;", "unknown register %q3");
    refused("bra nowhere;", "unknown label nowhere");
    refused(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};",
        "not supported",
    );
    refused("cvt.u32.f32 %r1, %f1;", "without a rounding is not supported");
    refused("add.rm.f64 %x1, %x2, %x3;", "this rounding is not supported");
    refused("mbarrier.init.shared.b64 [%r1], 1;", "unknown opcode mbarrier.init.shared.b64");
    refused("call nothing, (in);", "call of unknown function nothing");
    refused(".frob 3;", "unknown directive .frob");
}

#[test]
fn launches_that_a_driver_refuses_are_errors() {
    let module = Module::parse(&kernel("")).unwrap();
    let launch =
        Launch { kernel: "test".into(), grid: [1; 3], block: [1025, 1, 1], ..Launch::default() };
    let run = |launch: &Launch| module.run(&mut Memory::new(), launch, &Options::default());
    assert!(matches!(run(&launch), Err(Error::Shape(_))));
    let absent = Launch { kernel: "absent".into(), ..launch };
    assert_eq!(run(&absent).unwrap_err(), Error::NoKernel("absent".into()));
}

#[test]
fn schedules_are_deterministic_and_differ() {
    let body = "mov.u32 %r1, 1; mov.u32 %r2, 0; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [shared], %r2; bar.sync 0; atom.shared.add.u32 %r2, [shared], %r1;".to_string() + STORE;
    let run = |schedule| {
        let mut setup = Setup::new(&body, 64, &[]);
        let faults = setup.run(&Options { schedule, ..Options::default() }).faults;
        assert!(faults.is_empty(), "{faults:?}");
        setup.words()
    };
    assert_eq!(run(Schedule::InOrder)[..64], (0..64).collect::<Vec<u32>>());
    assert_eq!(run(Schedule::Reverse)[..64], (0..64).rev().collect::<Vec<u32>>());
    assert_eq!(run(Schedule::Random(5)), run(Schedule::Random(5)));
}
