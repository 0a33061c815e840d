//! Every check must detect a fault that is planted for it.

use crate::common::{Setup, assert_fault, faults, faults_of};
use feedwater_ptx::{FaultKind, Options, Schedule};

const OWN: &str = "mul.wide.u32 %d2, %r0, 4; add.s64 %d2, %d1, %d2; shl.b32 %r1, %r0, 2;\
                   mov.u32 %r3, shared; add.s32 %r1, %r1, %r3;";

fn own(rest: &str) -> String {
    format!("{OWN}{rest}")
}

#[test]
fn correct_kernels_have_no_faults() {
    let body =
        own("st.shared.u32 [%r1], %r0; bar.sync 0; xor.b32 %r4, %r0, 32; shl.b32 %r4, %r4, 2;\
         add.s32 %r4, %r4, %r3; ld.shared.u32 %r5, [%r4]; st.global.u32 [%d2], %r5;");
    assert_eq!(faults(&body), []);
    // Lanes that store the same value at the same address do not race.
    assert_eq!(faults_of(&own("mov.u32 %r2, 5; st.shared.u32 [%r3], %r2;"), 32), []);
}

#[test]
fn out_of_bounds() {
    let fault = assert_fault("ld.global.u32 %r2, [%d0+64];", FaultKind::OutOfBounds);
    assert!(fault.message.contains("byte 64 of the range in, which has 64 bytes"), "{fault}");
    assert_eq!((fault.count, fault.block, fault.warp, fault.lane), (64, [0; 3], 0, Some(0)));
    assert_fault("mov.u32 %r2, 0; st.global.u32 [%d1+1024], %r2;", FaultKind::OutOfBounds);
    assert_fault("mov.u32 %r2, 0; st.shared.u32 [shared+5120], %r2;", FaultKind::OutOfBounds);
    assert_fault("mov.u32 %r2, 0; st.local.u32 [local+64], %r2;", FaultKind::OutOfBounds);
    assert_fault("ld.global.u32 %r2, [0];", FaultKind::OutOfBounds);
}

#[test]
fn misaligned() {
    assert_fault("ld.global.u32 %r2, [%d0+2];", FaultKind::Misaligned);
    assert_fault("ld.global.v2.u32 {%r2, %r3}, [%d0+4];", FaultKind::Misaligned);
    assert_fault("mov.u32 %r2, 0; st.shared.u32 [shared+2], %r2;", FaultKind::Misaligned);
}

#[test]
fn write_to_read_only_memory() {
    assert_fault("mov.u32 %r2, 0; st.global.u32 [%d0], %r2;", FaultKind::ReadOnly);
}

#[test]
fn read_of_what_was_never_written() {
    assert_fault("ld.global.u32 %r2, [%d1];", FaultKind::Unwritten);
    assert_fault("ld.shared.u32 %r2, [shared];", FaultKind::Unwritten);
    assert_fault("ld.local.u32 %r2, [local];", FaultKind::Unwritten);
    assert_fault(
        "mov.u16 %h1, 0; st.local.u16 [local], %h1; ld.local.u32 %r2, [local];",
        FaultKind::Unwritten,
    );
    let fault = assert_fault("add.s32 %r2, %r0, %r17;", FaultKind::UnwrittenRegister);
    assert!(fault.message.contains("%r17"), "{fault}");
    // Only some lanes have written the register.
    let half = "setp.lt.u32 %p1, %r0, 5; @%p1 mov.u32 %r17, 0; add.s32 %r2, %r0, %r17;";
    let fault = assert_fault(half, FaultKind::UnwrittenRegister);
    assert_eq!(fault.lane, Some(5));
}

#[test]
fn race_in_shared_memory() {
    // Every warp writes and reads the other warp's word without a barrier.
    let read = "xor.b32 %r4, %r0, 32; shl.b32 %r4, %r4, 2; add.s32 %r4, %r4, %r3; ld.shared.u32 %r5, [%r4];";
    let found = faults(&own(&format!("st.shared.u32 [%r1], %r0; {read}")));
    assert!(found.iter().any(|it| it.kind == FaultKind::SharedRace), "{found:?}");
    // Each warp reads the other warp's word. The other warp then writes that word without a
    // barrier.
    assert_fault(
        &own("st.shared.u32 [%r1], %r0; bar.sync 0; xor.b32 %r4, %r0, 32; shl.b32 %r4, %r4, 2;\
              add.s32 %r4, %r4, %r3; ld.shared.u32 %r5, [%r4]; st.shared.u32 [%r1], %r0;"),
        FaultKind::SharedRace,
    );
    // Both warps write the same word.
    assert_fault(
        &own(
            "and.b32 %r4, %r0, 31; shl.b32 %r4, %r4, 2; add.s32 %r4, %r4, %r3; st.shared.u32 [%r4], %r0;",
        ),
        FaultKind::SharedRace,
    );
    // A barrier that only one warp reaches does not order accesses of the other warp.
    let named = "setp.lt.u32 %p1, %r0, 32; @%p1 st.shared.u32 [%r3], %r0;\
         @%p1 bra one; bar.sync 2, 32; ld.shared.u32 %r5, [%r3]; bra all; one: bar.sync 1, 32; all:";
    let found = faults(&own(named));
    assert!(found.iter().any(|it| it.kind == FaultKind::SharedRace), "{found:?}");
}

#[test]
fn race_within_a_warp() {
    let swap = "st.shared.u32 [%r1], %r0; SYNC xor.b32 %r4, %r1, 4; ld.shared.u32 %r5, [%r4];";
    assert_fault(&own(&swap.replace("SYNC", "")), FaultKind::WarpRace);
    assert_eq!(faults(&own(&swap.replace("SYNC", "bar.warp.sync -1;"))), []);
    // One instruction stores different values at the same address.
    assert_eq!(faults_of(&own("st.shared.u32 [%r3], %r0;"), 32)[0].kind, FaultKind::WarpRace);
}

#[test]
fn race_in_global_memory_between_blocks() {
    let all = "mov.u32 %r4, %ctaid.x; st.global.u32 [%d2], %r4;";
    let read = "mov.u32 %r4, %ctaid.x; setp.eq.s32 %p1, %r4, 0; @%p1 st.global.u32 [%d2], %r4; @!%p1 ld.global.u32 %r5, [%d2];";
    for body in [all, read] {
        for schedule in [Schedule::InOrder, Schedule::Reverse, Schedule::Switch] {
            let mut setup = Setup::new(&own(body), 64, &[0; 64]);
            setup.launch.grid = [2, 1, 1];
            let found = setup.run(&Options { schedule, ..Options::default() }).faults;
            assert!(found.iter().any(|it| it.kind == FaultKind::GlobalRace), "{found:?}");
        }
    }
    let mut atomic = Setup::new("mov.u32 %r4, 1; red.shared.add.u32 [shared], %r4;", 64, &[]);
    assert_eq!(atomic.run(&Options::default()).faults[0].kind, FaultKind::Unwritten);
}

#[test]
fn divergent_barrier() {
    // The faults of these bodies: only half of a warp reaches the barrier; another warp has exited
    // before; two warps reach two different barriers; only one of two warps reaches it.
    for body in [
        "setp.lt.u32 %p1, %r0, 16; @%p1 bar.sync 0;",
        "setp.lt.u32 %p1, %r0, 32; @%p1 exit; bar.sync 0;",
        "setp.lt.u32 %p1, %r0, 32; @%p1 bra a; bar.sync 0; bra b; a: bar.sync 0; b:",
        "setp.lt.u32 %p1, %r0, 32; @%p1 bar.sync 3, 64;",
        "setp.lt.u32 %p1, %r0, 32; @%p1 bra a; bar.sync 1; bra b; a: bar.sync 2; b:",
    ] {
        assert_fault(body, FaultKind::DivergentBarrier);
    }
}

#[test]
fn incomplete_warp() {
    let half =
        "setp.lt.u32 %p1, %r0, 16; mov.u32 %r1, 0; mov.u32 %r2, 0; st.shared.u32 [shared], %r1;";
    for instruction in [
        "mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%r1, %r2}, {%r1}, {%r2}, {%r1, %r2};",
        "shfl.sync.idx.b32 %r3, %r1, 0, 31, -1;",
        "vote.sync.ballot.b32 %r3, %p1, -1;",
        "bar.warp.sync -1;",
    ] {
        let body = half.replace("st.shared.u32 [shared], %r1;", "") + "@%p1 " + instruction;
        assert_fault(&body, FaultKind::IncompleteWarp);
    }
    let fill = own(
        "st.shared.u32 [%r1], %r0; bar.sync 0; setp.lt.u32 %p1, %r0, 16; and.b32 %r4, %r0, 7;\
         shl.b32 %r4, %r4, 4; add.s32 %r4, %r4, %r3; @%p1 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r4];",
    );
    assert_fault(&fill, FaultKind::IncompleteWarp);
}

#[test]
fn parameters_and_addresses() {
    assert_fault("ld.param.u64 %d2, [in+16];", FaultKind::Parameter);
    assert_fault("ld.param.v2.u64 {%d2, %d3}, [in];", FaultKind::Parameter);
    assert_fault("st.param.u64 [in], %d1;", FaultKind::Parameter);
    let leak = "mul.wide.u32 %d3, %r0, 8; add.s64 %d3, %d1, %d3; mov.u64 %d2, SYMBOL; cvta.SPACE.u64 %d2, %d2; st.global.u64 [%d3], %d2;";
    for (space, symbol) in [("param", "in"), ("shared", "shared"), ("local", "local")] {
        let body = leak.replace("SYMBOL", symbol).replace("SPACE", space);
        assert_fault(&body, FaultKind::AddressLeak);
    }
    let mut setup = Setup::new("", 32, &[]);
    setup.launch.params.pop();
    let found = setup.run(&Options::default()).faults;
    assert!(!found.is_empty() && found.iter().all(|it| it.kind == FaultKind::Parameter));
}

#[test]
fn asynchronous_copies_must_be_waited_for() {
    let copy = "cp.async.ca.shared.global [%r1], [%d0], 4; cp.async.commit_group; WAIT ld.shared.u32 %r5, [%r1];";
    for wait in ["", "cp.async.wait_group 1;"] {
        let found = faults(&own(&copy.replace("WAIT", wait)));
        assert!(found.iter().any(|it| it.kind == FaultKind::SharedRace), "{found:?}");
    }
    assert_eq!(faults(&own(&copy.replace("WAIT", "cp.async.wait_group 0;"))), []);
}

#[test]
fn division_trap_and_endless_loops() {
    assert_fault("mov.u32 %r1, 0; div.u32 %r2, %r0, %r1;", FaultKind::DivisionByZero);
    assert_fault("trap;", FaultKind::Trap);
    let mut setup = Setup::new("again: bra again;", 32, &[]);
    let options = Options { max_instructions: 1000, ..Options::default() };
    assert_eq!(setup.run(&options).faults[0].kind, FaultKind::Timeout);
}

#[test]
fn reports_are_limited() {
    let body = "ld.global.u32 %r1, [%d1];".repeat(10);
    let mut setup = Setup::new(&body, 32, &[]);
    let outcome = setup.run(&Options { max_faults: 3, ..Options::default() });
    assert_eq!((outcome.faults.len(), outcome.dropped_faults), (3, 7 * 32));
}

/// `compare` detects results that depend on the initial shared memory, or on the order of warps,
/// blocks or lanes.
#[test]
fn results_that_depend_on_order_or_fill_are_found() {
    let runs = Options::every_schedule(1);
    for (body, expected) in [
        (own("ld.shared.u32 %r5, [shared+512]; st.global.u32 [%d2], %r5;"), true),
        (
            own(
                "st.shared.u32 [%r3], %r0; bar.sync 0; ld.shared.u32 %r5, [%r3]; st.global.u32 [%d2], %r5;",
            ),
            true,
        ),
        (own("mov.u32 %r2, %ctaid.x; st.global.u32 [%d2], %r2;"), true),
        (own("st.global.u32 [%d2], %r0;"), false),
        (
            own(
                "st.shared.u32 [%r1], %r0; bar.sync 0; xor.b32 %r4, %r0, 33; shl.b32 %r4, %r4, 2; add.s32 %r4, %r4, %r3; ld.shared.u32 %r5, [%r4]; st.global.u32 [%d2], %r5;",
            ),
            false,
        ),
    ] {
        let mut setup = Setup::new(&body, 64, &[0; 64]);
        setup.launch.grid = [if body.contains("ctaid") { 3 } else { 1 }, 1, 1];
        let comparison = setup.module.compare(&mut setup.memory, &setup.launch, &runs).unwrap();
        assert_eq!(comparison.difference.is_some(), expected, "{body}");
        assert_eq!(comparison.outcomes.len(), 5);
    }
}
