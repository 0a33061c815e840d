//! Epochs that borrow, own and share their loader.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use feedwater::error::Error;
use feedwater::loader::Batch;
use feedwater::plan::OnError;

use super::policy::damaged_builder;
use super::{builder, order};

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
    // Held across `next`: a batch borrows neither the epoch nor the loader.
    let first = epoch.next().unwrap().unwrap();
    let second = epoch.next().unwrap().unwrap();
    assert_eq!((first.number(), second.number()), (0, 1));
    assert_eq!((epoch.stats().images, epoch.loader().stats().batches), (24, 6));
    assert_eq!((epoch.state().epoch, epoch.state().position), (1, 8));
    assert!(epoch.warnings().is_empty());
    let stopper = epoch.stopper();
    // The epoch was left early: the next one begins.
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
        assert!(batches.next().is_none(), "the iterator stays at its end");
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
    assert!(first.next().is_none(), "the second one has begun");
    let epochs: Vec<u32> = second.by_ref().map(|batch| batch.unwrap().epoch()).collect();
    assert_eq!(epochs, [1; 4]);
    // On another thread.
    let third = loader.shared_epoch();
    let batches = std::thread::spawn(move || third.map(Result::unwrap).count());
    assert_eq!(batches.join().unwrap(), 4);
    assert!(loader.shared_epoch().next().is_none(), "all epochs are over");
}

#[test]
fn a_wait_for_a_batch_ends_in_time_and_loses_nothing() {
    let mut loader = builder(16).prefetch(2).epochs(Some(1)).build().unwrap();
    let mut epoch = loader.epoch();
    let mut held: Vec<Batch> = epoch.by_ref().take(3).map(Result::unwrap).collect();
    // All are held, so no other can come.
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
    assert_eq!(loader.state().position, 4, "the state is where it was left");
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
