//! Prints warnings on standard error about slow and repeated requests to remote storage.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use feedwater::storage::{RequestEvent, Storage};

use super::tell;

/// Shortest time between two printed warnings. The first one is printed at once. Without this
/// limit, hundreds of requests that fail for the same reason would flood the terminal.
const PAUSE: Duration = Duration::from_secs(3);

/// Prints the request events of a storage, and returns the storage.
pub fn shown(storage: Storage) -> Storage {
    let last_printed: Mutex<Option<Instant>> = Mutex::new(None);
    storage.watch_requests(move |event| {
        let mut last_printed = last_printed.lock().unwrap_or_else(PoisonError::into_inner);
        if last_printed.is_none_or(|it| it.elapsed() >= PAUSE)
            && let Some(line) = line(event)
        {
            *last_printed = Some(Instant::now());
            tell(line);
        }
    });
    storage
}

/// Formats a request event as a line. Returns `None` for a request that failed for good, because
/// the caller reports it.
fn line(event: &RequestEvent) -> Option<String> {
    match event {
        RequestEvent::Waiting { url, waited, attempt, attempts } => {
            let waited = waited.as_secs();
            Some(format!(
                "waiting: {url}: no answer for {waited} s (attempt {attempt} of {attempts})"
            ))
        }
        RequestEvent::Failed { url, attempt, attempts, problem, pause: Some(pause) } => {
            let pause = pause.as_secs_f64();
            Some(format!(
                "retrying: {url}: {problem} (attempt {attempt} of {attempts}), again in {pause:.1} s"
            ))
        }
        _ => None,
    }
}
