//! Tests of the order of requests.

use super::*;
use crate::plan::{CacheSettings, LastBatch, LoaderSettings, Shard};
use crate::source::HostPage;

/// A source of ten samples that records requests.
#[derive(Default)]
struct Asked {
    now: Mutex<Vec<u64>>,
    given_up: Arc<Mutex<Vec<u64>>>,
}

struct Dropped(u64, Arc<Mutex<Vec<u64>>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0);
    }
}

impl Source for Arc<Asked> {
    fn len(&self) -> u64 {
        10
    }

    fn label(&self, _: u64) -> i64 {
        0
    }

    fn location(&self, _: u64) -> String {
        String::new()
    }

    fn read(&self, index: u64, page: &mut dyn Page, _: u64) -> Result<(), DataError> {
        page.space(1)?[0] = 100 + index as u8;
        Ok(())
    }

    fn remote(&self) -> Option<&dyn RemoteReads> {
        Some(self)
    }
}

impl RemoteReads for Arc<Asked> {
    fn expect(&self, index: u64, _: u64) -> Option<Expected> {
        self.now.lock().unwrap().push(index);
        let dropped = Dropped(index, self.given_up.clone());
        Some(Box::new(move |page, _| {
            page.space(1)?[0] = dropped.0 as u8;
            // The request was taken, so its drop must not count as a cancellation.
            std::mem::forget(dropped);
            Ok(())
        }))
    }
}

fn ahead(end_epoch: Option<u32>, window: usize) -> (Arc<Asked>, Prefetcher) {
    let asked = Arc::new(Asked::default());
    let (batch_size, shuffle, last_batch) = (4, false, LastBatch::Partial);
    let settings = LoaderSettings { batch_size, shuffle, last_batch, ..Default::default() };
    let shard = Shard { rank: 0, world: 1, from: "settings" };
    let order = Order::new(10, &settings, &shard, &[]).unwrap();
    let caches = Arc::new(Caches::open(&CacheSettings::default(), 0, None, &asked, false));
    let source = Arc::new(asked.clone());
    let ahead = Prefetcher::new(source, order, end_epoch, (window, false), (1, false), caches);
    (asked, ahead)
}

fn taken(asked: &Asked) -> Vec<u64> {
    std::mem::take(&mut asked.now.lock().unwrap())
}

fn given_up(asked: &Asked) -> Vec<u64> {
    let mut given_up = std::mem::take(&mut *asked.given_up.lock().unwrap());
    given_up.sort_unstable();
    given_up
}

fn read(ahead: &Prefetcher, index: u64) -> u8 {
    let mut page = HostPage::default();
    ahead.read(index, &mut page, 1).unwrap();
    page.bytes()[0]
}

#[test]
fn requests_continue_across_the_end_of_an_epoch() {
    let (asked, ahead) = ahead(None, 3);
    ahead.follow((0, 1, 2));
    assert_eq!(taken(&asked), [7, 8, 9]);
    assert_eq!((read(&ahead, 6), read(&ahead, 7)), (106, 7));
    ahead.follow((0, 1, 3));
    ahead.follow((0, 2, 0));
    assert_eq!(taken(&asked), [0, 1]);
    assert_eq!((read(&ahead, 8), read(&ahead, 8)), (8, 108));
    assert_eq!(given_up(&asked), [] as [u64; 0]);
}

#[test]
fn shrinking_the_window_keeps_requests_and_growing_it_adds_some() {
    let (asked, ahead) = ahead(None, 5);
    ahead.follow((0, 0, 0));
    assert_eq!(taken(&asked), [1, 2, 3, 4, 5]);
    ahead.window.store(2, Relaxed);
    for place in 1..4 {
        ahead.follow((0, 0, place));
        assert_eq!(taken(&asked), [] as [u64; 0]);
        assert_eq!(read(&ahead, place as u64), place as u8);
    }
    ahead.follow((0, 1, 0));
    assert_eq!((taken(&asked), given_up(&asked)), (vec![6], vec![]));
    ahead.window.store(5, Relaxed);
    ahead.follow((0, 1, 1));
    assert_eq!(taken(&asked), [7, 8, 9, 0]);
}

#[test]
fn nothing_is_requested_after_the_last_epoch() {
    let (asked, ahead) = ahead(Some(1), 100);
    ahead.follow((0, 0, 0));
    assert_eq!(taken(&asked), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn a_sample_at_several_positions_is_requested_each_time() {
    let (asked, ahead) = ahead(None, 15);
    ahead.follow((0, 0, 0));
    assert_eq!(taken(&asked), [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5]);
    assert_eq!([read(&ahead, 1), read(&ahead, 1), read(&ahead, 1)], [1, 1, 101]);
    // The rest of the epoch is skipped, and the requests for the next epoch remain.
    ahead.follow((1, 0, 1));
    assert_eq!(given_up(&asked), [0, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!([read(&ahead, 2), read(&ahead, 3), read(&ahead, 4)], [2, 3, 4]);
}

#[test]
fn a_late_worker_gets_what_was_prefetched_for_it() {
    let (asked, ahead) = ahead(None, 5);
    ahead.follow((0, 0, 0));
    ahead.follow((0, 0, 1));
    thread::scope(|scope| {
        scope.spawn(|| {
            for place in [(0, 0, 2), (0, 0, 3), (0, 1, 0), (0, 1, 1)] {
                ahead.follow(place);
                let index = 4 * place.1 + place.2 as u64;
                assert_eq!(u64::from(read(&ahead, index)), index);
            }
        });
    });
    assert_eq!((read(&ahead, 1), given_up(&asked)), (1, vec![]));
    // The worker read this sample from a cache, so the request is not taken. It is cancelled
    // when the worker's next position is handed out.
    ahead.follow((0, 1, 2));
    ahead.follow((0, 1, 3));
    assert_eq!(given_up(&asked), [6]);
}

#[test]
fn requests_of_skipped_or_unread_positions_are_cancelled() {
    let (asked, ahead) = ahead(None, 3);
    ahead.follow((0, 0, 0));
    assert_eq!(taken(&asked), [1, 2, 3]);
    // The rest of the epoch is skipped.
    ahead.follow((1, 0, 0));
    assert_eq!((given_up(&asked), taken(&asked)), (vec![1, 2, 3], vec![1, 2, 3]));
    // Positions that are handed out but not read are cancelled when the next position is handed
    // out.
    ahead.follow((1, 0, 1));
    ahead.follow((1, 0, 2));
    assert_eq!(given_up(&asked), [1]);
    ahead.stop();
    assert_eq!(given_up(&asked), [2, 3, 4, 5]);
}
