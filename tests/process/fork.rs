//! Loaders in a child process after `fork`, which does not copy threads. In the child, requesting a
//! batch returns an error, and dropping a loader does not hang.
#![allow(unsafe_code, reason = "fork is unsafe")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::thread::sleep;
use std::time::Duration;

use crate::common::{memory, training};
use crate::in_own_process;
use feedwater::error::Error;
use feedwater::loader::{DeviceChoice, Loader, Stats};
use feedwater::plan::AutoCount;

/// Number of forks. Because there are many, some of them happen while other threads hold locks.
const FORKS: usize = 20;

/// Runs `child` in a forked process. Returns whether the process exited without a panic.
fn ends_well(child: impl FnOnce()) -> bool {
    // SAFETY: the child process runs `child` on its only thread. Then it exits without running
    // other code of this program.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        let code = i32::from(catch_unwind(AssertUnwindSafe(child)).is_err());
        // SAFETY: `_exit` ends the child at once.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // A child that hangs is killed after a minute.
    for _ in 0..6000 {
        // SAFETY: `status` is a local variable, and this function created the child.
        if unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == pid {
            return libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
        }
        sleep(Duration::from_millis(10));
    }
    // SAFETY: `status` is a local variable, and this function created the child.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, &mut status, 0);
    }
    false
}

fn loader() -> Loader {
    let builder = Loader::builder(memory(40), training()).device(DeviceChoice::Cpu);
    builder.batch_size(4).num_workers(3).prefetch(AutoCount::Auto).build().unwrap()
}

#[test]
fn a_child_gets_an_error_instead_of_a_batch_and_the_parent_continues() {
    if !in_own_process(
        "fork::a_child_gets_an_error_instead_of_a_batch_and_the_parent_continues",
        "",
    ) {
        return;
    }
    let mut loader = loader();
    let parent = process::id();
    let is_forked = |error: Option<Error>| matches!(error, Some(Error::Forked { built_in }) if built_in == parent);
    for _ in 0..FORKS {
        let mut epoch = loader.epoch();
        assert!(epoch.next().unwrap().is_ok());
        assert!(ends_well(|| {
            // The epoch has more batches than can be ready. The child does not get even those that
            // are ready.
            assert!(is_forked(epoch.next().unwrap().err()));
            assert!(epoch.next().is_none());
            assert!(is_forked(epoch.choose(epoch.choice()).err()));
            assert!(is_forked(epoch.report().err()));
            assert_eq!(epoch.stats(), Stats::default());
            assert!(epoch.decisions().is_empty() && epoch.metrics().is_empty());
            epoch.add_span("logging", Duration::from_millis(1));
        }));
        assert_eq!(epoch.count(), 9, "the parent must get all remaining batches");
        assert!(ends_well(|| {
            let mut another = loader.epoch();
            assert!(is_forked(another.next().unwrap().err()));
            assert!(another.next().is_none());
        }));
    }
    assert_eq!(loader.stats().batches, 10 * FORKS as u64);
}

#[test]
fn a_child_drops_loaders_and_batches_of_its_parent() {
    if !in_own_process("fork::a_child_drops_loaders_and_batches_of_its_parent", "") {
        return;
    }
    for _ in 0..FORKS {
        let mut loader = Some(loader());
        let batches: Vec<_> =
            loader.iter_mut().flatten().take(2).map(|batch| batch.unwrap()).collect();
        let before: Vec<_> = batches.iter().map(|batch| batch.to_host().unwrap()).collect();
        let mut batches = Some(batches);
        assert!(ends_well(|| {
            let batches = batches.take().unwrap();
            for (batch, before) in batches.iter().zip(&before) {
                assert!(batch.host().unwrap() == before, "a batch must still be readable");
            }
            drop(loader.take());
            drop(batches);
        }));
        for (batch, before) in batches.iter().flatten().zip(&before) {
            assert!(batch.host().unwrap() == before);
        }
        drop(batches);
        assert_eq!(loader.unwrap().into_iter().count(), 10, "the parent must get its next epoch");
    }
}

/// A loader that is built in the child works there.
#[test]
fn a_child_builds_its_own_loader() {
    if !in_own_process("fork::a_child_builds_its_own_loader", "") {
        return;
    }
    let mut parents = loader();
    assert!(ends_well(|| {
        assert_eq!(loader().into_iter().filter(|batch| batch.is_ok()).count(), 10);
    }));
    assert_eq!(parents.into_iter().count(), 10);
}
