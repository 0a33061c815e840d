//! The ring with real threads. Tests what its documentation promises, and many random shutdowns.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use feedwater::error::{Error, Result};
use feedwater::internals::ring::{Producer, Slot, Using, ring};

use crate::common::tests_all_cases;

/// A slot that counts its live instances and checks that it is in only one state at a time.
struct Counted {
    live: Arc<AtomicUsize>,
    state: State,
    value: usize,
    fail_end_use: bool,
}

#[derive(Debug, PartialEq)]
enum State {
    Free,
    Filling,
    Ready,
    Using,
}

impl Slot for Counted {
    fn begin_fill(&mut self) -> Result<()> {
        assert!(matches!(self.state, State::Free | State::Filling), "{:?}", self.state);
        self.state = State::Filling;
        Ok(())
    }
    fn end_fill(&mut self) -> Result<()> {
        assert_eq!(self.state, State::Filling);
        self.state = State::Ready;
        Ok(())
    }
    fn begin_use(&mut self) -> Result<()> {
        assert_eq!(self.state, State::Ready);
        self.state = State::Using;
        Ok(())
    }
    fn end_use(&mut self) -> Result<()> {
        assert_eq!(self.state, State::Using);
        self.state = State::Free;
        if self.fail_end_use { Err(Error::config("slot", "end_use")) } else { Ok(()) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::SeqCst);
    }
}

fn slots(live: &Arc<AtomicUsize>, count: usize) -> Vec<Counted> {
    live.fetch_add(count, Ordering::SeqCst);
    let slot = || Counted { live: live.clone(), state: State::Free, value: 0, fail_end_use: false };
    (0..count).map(|_| slot()).collect()
}

fn fill(producer: &Producer<Counted>, value: usize) -> bool {
    let Some(mut slot) = producer.acquire() else { return false };
    slot.begin_fill().unwrap();
    slot.value = value;
    slot.publish().unwrap();
    true
}

#[test]
fn a_producer_can_tell_whether_a_slot_is_ready() {
    let live = Arc::default();
    let (producer, consumer) = ring(slots(&live, 2));
    assert!(!producer.any_ready(), "free");
    let filling = producer.acquire();
    assert!(!producer.any_ready(), "being filled");
    drop(filling);
    assert!(fill(&producer, 1) && producer.any_ready());
    let using = consumer.next();
    assert!(!producer.any_ready(), "in use");
    assert!(fill(&producer, 2) && producer.any_ready());
    drop(using);
    consumer.close();
    assert!(!producer.any_ready(), "closed");
}

#[test]
fn slots_are_used_in_the_order_in_which_they_were_published() {
    let live = Arc::default();
    let (producer, consumer) = ring(slots(&live, 3));
    let filler = thread::spawn(move || (0..1000).all(|value| fill(&producer, value)));
    for value in 0..1000 {
        assert_eq!(consumer.next().unwrap().unwrap().value, value);
    }
    assert!(consumer.next().is_none(), "without producers there must be no slot");
    assert!(filler.join().unwrap());
}

#[test]
fn a_slot_dropped_while_being_filled_becomes_free() {
    let live = Arc::default();
    let (producer, consumer) = ring(slots(&live, 1));
    drop(producer.acquire());
    assert!(fill(&producer, 5));
    assert_eq!(consumer.next().unwrap().unwrap().value, 5);
}

#[test]
fn a_failure_arrives_once_after_ready_slots() {
    let live = Arc::default();
    let (producer, consumer) = ring(slots(&live, 2));
    assert!(fill(&producer, 1));
    let mut late = producer.acquire().unwrap();
    late.begin_fill().unwrap();
    producer.fail(Error::config("first", ""));
    late.publish().unwrap();
    producer.fail(Error::config("second", ""));
    assert!(producer.acquire().is_none());
    assert_eq!(consumer.next().unwrap().unwrap().value, 1);
    assert_eq!(consumer.next().unwrap().err().unwrap().to_string(), "first: ");
    assert!(consumer.next().is_none());
}

#[test]
fn a_failure_at_the_end_of_a_use_reaches_the_consumer() {
    let live = Arc::default();
    let mut all = slots(&live, 2);
    all[0].fail_end_use = true;
    let (producer, consumer) = ring(all);
    assert!(fill(&producer, 1));
    drop(consumer.next().unwrap().unwrap());
    assert_eq!(consumer.next().unwrap().err().unwrap().to_string(), "slot: end_use");
}

#[test]
fn a_leaked_slot_shortens_the_ring() {
    let live = Arc::default();
    let (producer, consumer) = ring(slots(&live, 2));
    assert!(fill(&producer, 1));
    std::mem::forget(consumer.next().unwrap().unwrap());
    for value in 0..10 {
        assert!(fill(&producer, value));
        assert_eq!(consumer.next().unwrap().unwrap().value, value);
    }
}

/// The ring withholds two of three slots until the producer releases them. A withheld slot is not
/// filled.
#[test]
fn withheld_slots_are_invisible_until_released() {
    let live = Arc::new(AtomicUsize::new(0));
    let (producer, consumer) = ring(slots(&live, 3));
    producer.withhold(2);
    assert!(fill(&producer, 1));
    let filler = thread::spawn({
        let producer = producer.clone();
        move || (2..6).all(|value| fill(&producer, value))
    });
    // Two slots are withheld. Each batch is filled only after the previous batch is dropped, so the
    // consumer never has two batches.
    for value in 1..3 {
        let using = consumer.next().unwrap().unwrap();
        assert_eq!((using.value, consumer.ready()), (value, 0));
    }
    // `withhold` may withhold slots that are in use. They are withheld when the consumer returns
    // them.
    producer.withhold(0);
    let using: Vec<_> = (3..6).map(|_| consumer.next().unwrap().unwrap()).collect();
    assert_eq!(using.iter().map(|it| it.value).collect::<Vec<_>>(), [3, 4, 5]);
    assert!(filler.join().unwrap());
    producer.withhold(3);
    drop(using);
    let waiting = thread::spawn(move || fill(&producer, 6));
    consumer.close();
    assert!(!waiting.join().unwrap(), "closing the ring must wake up waiting producers");
    drop(consumer);
    assert_eq!(live.load(Ordering::SeqCst), 0);
}

/// Runs rings with random numbers of slots, producers and batches. One side leaves, fails or is
/// closed at a random moment, and batches are held beyond the end. Nothing may hang, and every slot
/// must be dropped.
#[test]
fn many_randomised_shutdowns() {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut below = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n) as usize
    };
    let rounds = if tests_all_cases() { 100_000 } else { 20_000 };
    for round in 0..rounds {
        let live = Arc::default();
        let count = 1 + below(4);
        let (producer, consumer) = ring(slots(&live, count));
        let fillers: Vec<_> = (0..1 + below(2))
            .map(|_| {
                let producer = producer.clone();
                let (fills, fails) = (below(6), below(8) == 0);
                thread::spawn(move || {
                    for value in 0..fills {
                        if !fill(&producer, value) {
                            return;
                        }
                    }
                    if fails {
                        producer.fail(Error::config("random", "failure"));
                    }
                })
            })
            .collect();
        drop(producer);
        let mut held = Vec::new();
        for _ in 0..below(8) {
            match consumer.next() {
                // A consumer must not hold every slot while it requests another one: it would wait
                // for itself.
                Some(Ok(slot)) if held.len() + 1 < count && below(3) == 0 => held.push(slot),
                Some(_) => {}
                None => break,
            }
        }
        if below(2) == 0 {
            consumer.close();
        }
        drop(consumer);
        for filler in fillers {
            filler.join().unwrap();
        }
        assert_eq!(live.load(Ordering::SeqCst), held.len(), "round {round}");
        drop(held);
        assert_eq!(live.load(Ordering::SeqCst), 0, "round {round}");
    }
}

/// Fills slots on a producer's thread until the ring is closed.
fn fill_on(producer: &Producer<Counted>) {
    while let Some(mut slot) = producer.acquire() {
        slot.begin_fill().unwrap();
        slot.publish().unwrap();
    }
}

#[test]
fn a_consumer_waiting_while_all_slots_are_in_use_is_reported_and_continues() {
    let live = Arc::default();
    let (producer, consumer) = ring(slots(&live, 3));
    thread::scope(|scope| {
        scope.spawn(move || fill_on(&producer));
        let mut held: Vec<_> = (0..3).map(|_| consumer.next().unwrap().unwrap()).collect();
        for _ in 0..5 {
            let mut told = Vec::new();
            let next = consumer.next_or_tell(Duration::ZERO, |count| {
                told.push(count);
                held.pop();
            });
            held.push(next.unwrap().unwrap());
            assert_eq!(told, [3]);
        }
        // A leaked batch still counts as in use.
        std::mem::forget(held.pop());
        let mut told = None;
        let next = consumer.next_or_tell(Duration::ZERO, |count| {
            told = Some(count);
            held.clear();
        });
        assert_eq!((next.is_some(), told), (true, Some(3)));
        drop(next);
        drop(consumer);
    });
}

#[test]
fn withheld_slots_do_not_count_as_slots_to_wait_for() {
    let live = Arc::default();
    let (producer, consumer) = ring(slots(&live, 3));
    producer.withhold(2);
    thread::scope(|scope| {
        scope.spawn(move || fill_on(&producer));
        let mut held = Some(consumer.next().unwrap().unwrap());
        let mut told = None;
        let next = consumer.next_or_tell(Duration::ZERO, |count| {
            told = Some(count);
            held = None;
        });
        assert_eq!((next.is_some(), told), (true, Some(1)));
        drop(next);
        drop(consumer);
    });
}

#[test]
fn a_consumer_waiting_for_a_slot_being_filled_is_not_reported() {
    let live = Arc::default();
    let (producer, consumer) = ring(slots(&live, 2));
    let mut filling = producer.acquire().unwrap();
    filling.begin_fill().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = producer.acquire().unwrap();
            other.begin_fill().unwrap();
            other.publish().unwrap();
            // The consumer holds the other slot and waits for the slot `filling`.
            thread::yield_now();
            filling.publish().unwrap();
        });
        let held = consumer.next().unwrap().unwrap();
        let next = consumer
            .next_or_tell(Duration::ZERO, |_| panic!("reported although a slot is being filled"));
        assert!(next.unwrap().is_ok());
        drop(held);
    });
}

/// An added slot circulates like the others. The ring keeps returned slots up to twice its initial
/// number of slots, and frees all others.
#[test]
fn slots_are_added_and_freed_again() {
    let live = Arc::new(AtomicUsize::new(0));
    let (producer, consumer) = ring(slots(&live, 2));
    let mut held = Vec::new();
    for value in 0..8 {
        if value >= 2 {
            assert!(value == 2 || !consumer.any_returned());
            consumer.add(slots(&live, 1).remove(0));
        }
        assert!(fill(&producer, value));
        held.push(consumer.next().unwrap().unwrap());
        assert_eq!(held[value].value, value);
    }
    assert_eq!((live.load(Ordering::SeqCst), consumer.added()), (8, 6));
    drop(held);
    assert_eq!((live.load(Ordering::SeqCst), consumer.added()), (4, 2));
    assert!(consumer.any_returned());
    for value in 0..9 {
        assert!(fill(&producer, value));
        assert_eq!(consumer.next().unwrap().unwrap().value, value);
    }
    consumer.close();
    consumer.add(slots(&live, 1).remove(0));
    drop((producer, consumer));
    assert_eq!(live.load(Ordering::SeqCst), 0);
}

/// If the consumer needs another slot, a withheld slot is used before a new one is added.
#[test]
fn withheld_slots_are_lent() {
    let live = Arc::new(AtomicUsize::new(0));
    let (producer, consumer) = ring(slots(&live, 3));
    producer.withhold(1);
    let mut held = Vec::new();
    for value in 0..3 {
        assert_eq!(value == 2, value == 2 && consumer.lend_withheld());
        assert!(fill(&producer, value));
        held.push(consumer.next().unwrap().unwrap());
    }
    assert!(!consumer.lend_withheld() && consumer.added() == 0);
}

#[test]
fn a_slot_of_no_ring_is_freed_when_it_is_dropped() {
    let live = Arc::new(AtomicUsize::new(0));
    let mut slot = slots(&live, 1).remove(0);
    slot.state = State::Using;
    drop(Using::of_no_ring(slot));
    assert_eq!(live.load(Ordering::SeqCst), 0);
}
