//! Checks the ring of slots with the model checker loom, which runs small programs in every
//! interleaving of their threads.

use feedwater_ring_loom::error::Result;
use feedwater_ring_loom::ring::{Producer, Slot, ring};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// A slot that asserts that only one thread fills or uses it at a time. `live` counts slots that
/// are not dropped.
struct Checked {
    live: Arc<AtomicUsize>,
    filling: bool,
    using: bool,
    value: usize,
}

impl Checked {
    fn new(live: &Arc<AtomicUsize>) -> Self {
        live.fetch_add(1, Ordering::SeqCst);
        Self { live: live.clone(), filling: false, using: false, value: 0 }
    }
}

impl Slot for Checked {
    fn begin_fill(&mut self) -> Result<()> {
        assert!(!self.filling && !self.using);
        self.filling = true;
        Ok(())
    }
    fn end_fill(&mut self) -> Result<()> {
        assert!(self.filling && !self.using);
        self.filling = false;
        Ok(())
    }
    fn begin_use(&mut self) -> Result<()> {
        assert!(!self.filling && !self.using);
        self.using = true;
        Ok(())
    }
    fn end_use(&mut self) -> Result<()> {
        assert!(self.using);
        self.using = false;
        Ok(())
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::SeqCst);
    }
}

fn fill(producer: &Producer<Checked>, value: usize) -> bool {
    let Some(mut slot) = producer.acquire() else { return false };
    slot.begin_fill().unwrap();
    slot.value = value;
    slot.publish().unwrap();
    true
}

/// Runs the model checker on interleavings with at most three preemptions. These find nearly every
/// bug (Musuvathi and Qadeer, "Iterative context bounding", PLDI 2007), and there are few of them.
fn model(program: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(program);
}

#[test]
fn values_arrive_in_order_and_the_ring_ends() {
    model(|| {
        let live = Arc::new(AtomicUsize::new(0));
        let (producer, consumer) = ring(vec![Checked::new(&live)]);
        let filler = thread::spawn(move || (0..2).all(|value| fill(&producer, value)));
        for value in 0..2 {
            assert_eq!(consumer.next().unwrap().unwrap().value, value);
        }
        assert!(consumer.next().is_none());
        assert!(filler.join().unwrap());
        drop(consumer);
        assert_eq!(live.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn two_producers_and_a_consumer_that_leaves_early() {
    model(|| {
        let live = Arc::new(AtomicUsize::new(0));
        let (producer, consumer) = ring(vec![Checked::new(&live)]);
        let other = producer.clone();
        let first = thread::spawn(move || fill(&producer, 1) && fill(&producer, 3));
        let second = thread::spawn(move || fill(&other, 2));
        drop(consumer.next());
        drop(consumer);
        first.join().unwrap();
        second.join().unwrap();
        assert_eq!(live.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_waiter_gets_a_withheld_slot_once_it_is_released() {
    model(|| {
        let live = Arc::new(AtomicUsize::new(0));
        let (producer, consumer) = ring(vec![Checked::new(&live), Checked::new(&live)]);
        producer.withhold(1);
        let other = producer.clone();
        let filler = thread::spawn(move || fill(&other, 1) && fill(&other, 2));
        let first = consumer.next().unwrap().unwrap();
        producer.withhold(0);
        assert_eq!((first.value, consumer.next().unwrap().unwrap().value), (1, 2));
        assert!(filler.join().unwrap());
        drop((first, producer, consumer));
        assert_eq!(live.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_slot_in_use_outlives_both_sides() {
    model(|| {
        let live = Arc::new(AtomicUsize::new(0));
        let (producer, consumer) = ring(vec![Checked::new(&live), Checked::new(&live)]);
        let filler = thread::spawn(move || (0..3).all(|_| fill(&producer, 7)));
        let batch = consumer.next().unwrap().unwrap();
        drop(consumer);
        filler.join().unwrap();
        assert_eq!(batch.value, 7);
        assert_eq!(live.load(Ordering::SeqCst), 1);
        drop(batch);
        assert_eq!(live.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_failure_reaches_the_consumer_once_and_stops_producers() {
    model(|| {
        let live = Arc::new(AtomicUsize::new(0));
        let (producer, consumer) = ring(vec![Checked::new(&live)]);
        let other = producer.clone();
        let filler = thread::spawn(move || fill(&producer, 1) && fill(&producer, 1));
        let failing = thread::spawn(move || other.fail("problem".into()));
        let mut errors = 0;
        while let Some(batch) = consumer.next() {
            errors += usize::from(batch.is_err());
        }
        assert_eq!(errors, 1);
        filler.join().unwrap();
        failing.join().unwrap();
    });
}
