//! Requests for samples with their fields, which the reads of fields and of the image share.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;

use crate::storage::{Fetch, File};

/// Start and bytes of each range of a file that was fetched.
pub type Parts = Vec<(u64, Bytes)>;

/// Requests that were sent and whose samples were not read yet, by the index of the sample.
#[derive(Default)]
pub struct Spans(Mutex<HashMap<u64, Vec<Weak<Span>>>>);

/// Requests for ranges of a file. Dropping it cancels them, and frees their bytes.
pub struct Span {
    index: u64,
    all: Arc<Spans>,
    state: Mutex<State>,
}

enum State {
    Requested(Vec<(u64, io::Result<Fetch>)>),
    Arrived(Parts),
    /// A thread waits for the bytes, or a request has failed.
    Taken,
}

impl Spans {
    /// Requests these ranges of a file at a URL. While the result exists, [`find`](Self::find)
    /// returns it. `None` if the file is not at a URL.
    pub fn request(
        self: &Arc<Self>,
        index: u64,
        file: &File,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> Option<Arc<Span>> {
        let fetch = |it: Range<u64>| Some((it.start, file.fetch(it.start, it.end - it.start)?));
        let state = State::Requested(ranges.into_iter().map(fetch).collect::<Option<_>>()?);
        let span = Arc::new(Span { index, all: self.clone(), state: Mutex::new(state) });
        lock(&self.0).entry(index).or_default().push(Arc::downgrade(&span));
        Some(span)
    }

    /// Returns the first request for a sample that still exists.
    pub fn find(&self, index: u64) -> Option<Arc<Span>> {
        lock(&self.0).get(&index)?.iter().find_map(Weak::upgrade)
    }
}

impl Span {
    /// Waits for the bytes. `None` if another thread is waiting for them, or if the requests failed
    /// for an earlier caller. The caller then sends its own request.
    pub fn parts(&self) -> Option<io::Result<Parts>> {
        let mut state = lock(&self.state);
        match mem::replace(&mut *state, State::Taken) {
            State::Taken => None,
            State::Arrived(parts) => {
                *state = State::Arrived(parts.clone());
                Some(Ok(parts))
            }
            State::Requested(fetches) => {
                drop(state);
                let wait = |(start, fetch): (_, io::Result<Fetch>)| Ok((start, fetch?.wait()?));
                let parts: io::Result<Parts> = fetches.into_iter().map(wait).collect();
                if let Ok(parts) = &parts {
                    *lock(&self.state) = State::Arrived(parts.clone());
                }
                Some(parts)
            }
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let mut all = lock(&self.all.0);
        if let Some(spans) = all.get_mut(&self.index) {
            spans.retain(|span| span.strong_count() > 0);
            if spans.is_empty() {
                all.remove(&self.index);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
