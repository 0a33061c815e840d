//! Retries requests with limits on attempts and time, and reports failures.

use std::hash::{BuildHasher, RandomState};
use std::io::{Error, ErrorKind, Result};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::attempt::AttemptError;
use crate::error::Redacted;
use crate::storage::StorageSettings;
use crate::storage::opening::{Opening, OpeningOf};
use crate::storage::stats::{Activity, Counters};
use crate::storage::watch::{RequestEvent, RequestWatcher};

/// Pause before the first retry, and the longest pause. Pauses double each time and are randomly
/// shortened.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// Longest pause that a server may request. If it requests more, the request is not retried.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);
/// Interval at which a request that is not answered sends `RequestEvent::Waiting` while a source is
/// being opened.
const TOLD: Duration = Duration::from_secs(3);

/// Result of sending a request once.
pub type Attempt<T> = std::result::Result<T, AttemptError>;

/// Context of a request: its URL, and the state of the source opening during which it is sent, if
/// any.
#[derive(Clone)]
pub struct Call {
    url: Redacted,
    opening: Option<Arc<Opening>>,
}

impl Call {
    /// Creates the context of a request that this thread sends to a URL.
    pub fn new(url: &str) -> Self {
        Self { url: Redacted::new(url), opening: OpeningOf::current().opening() }
    }
}

/// Sends a request until it succeeds or is refused, or until the limit of attempts or time in the
/// settings is reached. Each attempt holds a permit of `permits`.
pub async fn with_retries<T, F>(
    settings: &StorageSettings,
    permits: &Semaphore,
    activity: &Activity,
    call: &Call,
    mut attempt: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Attempt<T>>,
{
    let attempts = settings.retries + 1;
    let budget = Duration::from_secs(settings.open_timeout);
    let mut deadline = None;
    for number in 1.. {
        let permit = permits.acquire().await;
        let permit = permit.map_err(|_| Error::other("the requests were closed"))?;
        if let Some(problem) = call.opening.as_ref().and_then(|it| it.failure()) {
            return Err(Error::new(ErrorKind::TimedOut, problem));
        }
        // The time limit starts after the first wait for a free connection.
        let deadline = *deadline.get_or_insert_with(|| Instant::now() + budget);
        Counters::add(&activity.counters.requests, 1);
        let watch = &activity.watch;
        let what = At { call, watch, number, attempts, deadline };
        let (problem, asked, answered) = match what.run(attempt()).await {
            Ok(result) => return Ok(result),
            Err(AttemptError::Never(error)) => return Err(error),
            Err(AttemptError::Again { problem, after, answered }) => (problem, after, answered),
        };
        drop(permit);
        let pause = pause(number - 1, asked);
        let over = match asked {
            _ if number == attempts => {
                Some("raise storage.retries or storage.timeout if the server is slow".into())
            }
            Some(asked) if asked > LONGEST_PAUSE => {
                let [asked, most] = [asked, LONGEST_PAUSE].map(|it| it.as_secs());
                Some(format!(
                    "the server asks for a pause of {asked} s, but feedwater waits at most {most} \
                     s; try again later"
                ))
            }
            _ if call.opening.is_some() && Instant::now() + pause >= deadline => {
                Some(format!("storage.open_timeout is {} s", budget.as_secs()))
            }
            _ => None,
        };
        watch.tell(|| RequestEvent::Failed {
            url: call.url.clone(),
            attempt: number,
            attempts,
            problem: problem.clone(),
            pause: over.is_none().then_some(pause),
        });
        if let Some(way_out) = over {
            let problem = format!("{problem} (attempt {number} of {attempts}); {way_out}");
            if let Some(opening) = call.opening.as_ref().filter(|_| !answered) {
                opening.fail(&format!("given up after {}: {problem}", call.url));
            }
            return Err(Error::new(ErrorKind::TimedOut, problem));
        }
        tokio::time::sleep(pause).await;
        Counters::add(&activity.counters.retries, 1);
    }
    unreachable!("the loop ends at the last attempt")
}

/// One attempt to send a request.
struct At<'a> {
    call: &'a Call,
    watch: &'a RequestWatcher,
    number: u32,
    attempts: u32,
    deadline: Instant,
}

impl At<'_> {
    /// Waits for the attempt. While a source is being opened, the wait is limited and reported.
    async fn run<T>(&self, work: impl Future<Output = Attempt<T>>) -> Attempt<T> {
        if self.call.opening.is_none() {
            return work.await;
        }
        let begun = Instant::now();
        let mut work = pin!(work);
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if let Ok(done) = timeout(left.min(TOLD), &mut work).await {
                return done;
            }
            if left <= TOLD {
                let waited = begun.elapsed().as_secs();
                return Err(AttemptError::again(format!(
                    "the server did not answer within {waited} seconds"
                )));
            }
            self.watch.tell(|| RequestEvent::Waiting {
                url: self.call.url.clone(),
                waited: begun.elapsed(),
                attempt: self.number,
                attempts: self.attempts,
            });
        }
    }
}

/// Returns the result of `work`, or an error if `work` takes longer than `limit`.
pub async fn in_time<T>(limit: Duration, work: impl Future<Output = T>) -> Attempt<T> {
    timeout(limit, work)
        .await
        .map_err(|_| AttemptError::again(format!("no answer within {} seconds", limit.as_secs())))
}

/// Returns a random pause: half to all of the usual pause, or the pause that the server requested
/// plus up to a tenth. Randomness prevents requests that failed together from being retried
/// together.
fn pause(retries: u32, asked: Option<Duration>) -> Duration {
    let (first, most) = PAUSES;
    let chance = RandomState::new().hash_one(retries) as f64 / u64::MAX as f64;
    match asked {
        Some(asked) => asked.min(2 * LONGEST_PAUSE).mul_f64(1.0 + 0.1 * chance),
        None => first.saturating_mul(1 << retries.min(16)).min(most).mul_f64(0.5 + 0.5 * chance),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_respect_the_server() {
        for retries in 0..100 {
            let whole = Duration::from_millis(100 << retries.min(7)).min(PAUSES.1);
            let found = pause(retries, None);
            assert!(whole / 2 <= found && found <= whole, "{retries}: {found:?}");
        }
        let asked = Duration::from_secs(7);
        let found = pause(0, Some(asked));
        assert!(asked <= found && found <= asked * 11 / 10, "{found:?}");
        assert!(pause(0, Some(Duration::MAX)) <= 3 * LONGEST_PAUSE);
    }
}
