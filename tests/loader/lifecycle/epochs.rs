//! Epochs that borrow their loader, own it, or share it.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use feedwater::error::Error;
use feedwater::footprint::Memory;
use feedwater::loader::{Batch, DeviceChoice, Loader};
use feedwater::plan::OnError;

use super::policy::damaged_builder;
use super::{builder, order};
use crate::common::{evaluation, memory, training};

#[test]
fn an_epoch_borrows_the_loader_and_gives_access_to_it() {
    let mut loader = builder(16).epochs(Some(3)).build().unwrap();
    let mut counted = 0;
    for batch in &mut loader {
        counted += batch.unwrap().len();
    }
    assert_eq!(counted, 16);
    let mut epoch = loader.epoch();
    assert_eq!(epoch.number(), 1);
    // Both batches are alive at the same time, because a batch borrows neither the epoch nor the
    // loader.
    let first = epoch.next().unwrap().unwrap();
    let second = epoch.next().unwrap().unwrap();
    assert_eq!((first.number(), second.number()), (0, 1));
    assert_eq!((epoch.stats().images, epoch.loader().stats().batches), (24, 6));
    assert_eq!((epoch.state().epoch, epoch.state().position), (1, 8));
    assert!(epoch.warnings().is_empty());
    let stopper = epoch.stop_handle();
    // The previous epoch was left early. A new one begins with the next number.
    let mut third = loader.epoch();
    assert_eq!((third.number(), third.next().unwrap().unwrap().epoch()), (2, 2));
    stopper.stop();
    let last = third.by_ref().last().unwrap();
    assert!(matches!(last, Err(Error::Stopped)));
    assert_eq!((first.len(), second.len()), (4, 4));
}

#[test]
fn an_owning_iterator_yields_every_epoch_on_another_thread() {
    let expected: Vec<Vec<u64>> = {
        let mut loader = builder(16).build().unwrap();
        vec![order(&mut loader), order(&mut loader)]
    };
    let batches = builder(16).epochs(Some(2)).build().unwrap().into_batches();
    let consumer = std::thread::spawn(move || {
        let mut batches = batches;
        let mut seen = vec![Vec::new(); 2];
        for batch in batches.by_ref() {
            let batch = batch.unwrap();
            seen[batch.epoch() as usize].extend(batch.indices());
        }
        assert!(batches.next().is_none(), "the iterator must stay at its end");
        (seen, batches.loader().stats().images)
    });
    assert_eq!(consumer.join().unwrap(), (expected, 32));
}

#[test]
fn epochs_that_share_the_loader_end_when_another_begins() {
    let loader = Arc::new(builder(16).epochs(Some(3)).build().unwrap());
    let mut first = loader.shared_epoch();
    assert_eq!(first.by_ref().take(2).map(|batch| batch.unwrap().number()).last(), Some(1));
    assert_eq!((first.number(), first.loader().state().position), (0, 8));
    let mut second = loader.shared_epoch();
    assert!(first.next().is_none(), "the first epoch must end when the second begins");
    let epochs: Vec<u32> = second.by_ref().map(|batch| batch.unwrap().epoch()).collect();
    assert_eq!(epochs, [1; 4]);
    // A shared epoch can be consumed on another thread.
    let third = loader.shared_epoch();
    let batches = std::thread::spawn(move || third.map(Result::unwrap).count());
    assert_eq!(batches.join().unwrap(), 4);
    assert!(loader.shared_epoch().next().is_none(), "there must be no epoch after the last");
}

#[test]
fn a_wait_for_a_batch_ends_in_time_and_loses_nothing() {
    let mut loader = builder(16).prefetch(2).epochs(Some(1)).build().unwrap();
    let mut epoch = loader.epoch();
    let mut held: Vec<Batch> = epoch.by_ref().take(3).map(Result::unwrap).collect();
    // The consumer holds all slots, so no other batch can be filled.
    assert!(epoch.next_within(Duration::from_millis(5)).is_pending());
    assert!(epoch.next_within(Duration::ZERO).is_pending());
    let mut numbers: Vec<u64> = held.drain(..).map(|batch| batch.number()).collect();
    loop {
        match epoch.next_within(Duration::from_micros(10)) {
            Poll::Pending => {}
            Poll::Ready(Some(batch)) => numbers.push(batch.unwrap().number()),
            Poll::Ready(None) => break,
        }
    }
    assert_eq!(numbers, [0, 1, 2, 3]);
    assert_eq!(epoch.stats().batches, 4);
}

#[test]
fn a_loader_taken_back_from_an_iterator_continues_with_the_next_epoch() {
    let mut batches = builder(16).epochs(Some(2)).build().unwrap().into_batches();
    batches.next().unwrap().unwrap();
    let mut loader = batches.into_loader();
    assert_eq!(loader.state().position, 4, "the position must be where the iterator stopped");
    let epochs: Vec<u32> = loader.epoch().map(|batch| batch.unwrap().epoch()).collect();
    assert_eq!(epochs, [1; 4]);
}

#[test]
fn an_error_is_the_last_item_of_an_owning_iterator() {
    let loader = damaged_builder(OnError::Stop).build().unwrap();
    let all: Vec<_> = loader.into_batches().collect();
    assert!(matches!(all.last(), Some(Err(Error::Sample(_)))));
    assert_eq!(all.iter().filter(|batch| batch.is_err()).count(), 1);
}

/// `peek` copies the next batch. It changes neither the position nor any counter.
#[test]
fn a_look_at_the_next_batch_leaves_the_position() {
    let build = || {
        let builder =
            Loader::builder(memory(12), training()).device(DeviceChoice::Cpu).shuffle(true);
        builder
            .batch_size(4)
            .epochs(Some(2))
            .configure(|it| it.targets.classes = Some(12))
            .build()
            .unwrap()
    };
    let look = |loader: &Loader| loop {
        match loader.peek_within(Duration::from_secs(1)) {
            Poll::Ready(batch) => break batch.map(Result::unwrap),
            Poll::Pending => {}
        }
    };
    let contents = |batch: &Batch| {
        let targets = batch.soft_targets().unwrap().to_vec();
        (batch.epoch(), batch.number(), batch.samples().to_vec(), batch.to_host().unwrap(), targets)
    };
    let (mut plain, mut looked) = (build(), build());
    for _ in 0..2 {
        let mut epoch = looked.epoch();
        for expected in &mut plain {
            let state = epoch.state();
            let ahead = [look(&epoch).unwrap(), look(&epoch).unwrap()];
            assert_eq!(epoch.state(), state);
            let batch = epoch.next().unwrap().unwrap();
            let expected = contents(&expected.unwrap());
            for batch in [&batch, &ahead[0], &ahead[1]] {
                assert_eq!(contents(batch), expected);
            }
            assert_ne!(batch.host().unwrap().as_ptr(), ahead[0].host().unwrap().as_ptr());
        }
        assert!(epoch.next().is_none());
    }
    assert!(look(&looked).is_none());
    assert_eq!((looked.stats().batches, looked.stats().images), (6, 24));
}

/// While the consumer holds all batches, memory for more batches is allocated, up to the limit. The
/// memory is freed when the consumer drops the batches.
#[test]
fn batches_are_added_within_the_limit() {
    let builder = || {
        let builder = Loader::builder(memory(40), evaluation()).device(DeviceChoice::Cpu);
        // Added batches use the memory that the limit leaves. Row indexes would use it by default,
        // so they are turned off.
        let builder = builder.configure(|it| it.cache.row_index = Some(0));
        builder.batch_size(2).prefetch(2).epochs(Some(2)).add_batches(true)
    };
    let plan = builder().plan().unwrap();
    let planned = plan.footprint.total_bytes(Memory::Host);
    let of_slot = plan.footprint.rows.iter().filter(|row| row.count == 3);
    let each = of_slot.map(|row| row.each_bytes).sum::<u64>();
    assert!(each >= plan.shape.bytes() as u64 + 2 * (8 + 688), "{}", plan.footprint);
    let mut loader = builder().build().unwrap();
    for _ in 0..2 {
        let held: Vec<_> = loader.epoch().map(Result::unwrap).collect();
        assert_eq!(held.len(), 20);
        let indices = held.iter().flat_map(Batch::indices);
        assert!(indices.eq(0..40));
    }
    let (added, warnings) = (loader.stats().batches_added, loader.warnings());
    assert!((17..=34).contains(&added), "{added}");
    assert!(warnings.len() == 1 && warnings[0].contains("loader.prefetch"), "{warnings:?}");
    let mut limited =
        builder().configure(|it| it.limits.host_memory = Some(planned + 2 * each)).build().unwrap();
    let mut held = Vec::new();
    let error = limited.epoch().find_map(|batch| batch.map(|batch| held.push(batch)).err());
    let Some(Error::Memory { needed, problem, .. }) = error else { panic!("{error:?}") };
    assert_eq!((held.len(), needed), (5, each));
    assert!(
        problem.contains("limits.host_memory") && problem.contains("all 5 batches"),
        "{problem}"
    );
}
