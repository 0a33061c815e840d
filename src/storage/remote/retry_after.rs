//! Parses the header `Retry-After` (RFC 9110, 10.2.3).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// Returns the pause that `Retry-After` requests, as a number of seconds or a date. A date is
/// compared with the server's own date if the answer contains it, because clocks differ.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let value = text(RETRY_AFTER)?;
    if !value.is_empty() && value.bytes().all(|it| it.is_ascii_digit()) {
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let until = seconds(value)?;
    let now = text(DATE)
        .and_then(seconds)
        .or_else(|| Some(SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs()))?;
    Some(Duration::from_secs(until.saturating_sub(now)))
}

/// Converts a date to seconds since 1970. The form is `Sun, 06 Nov 1994 08:49:37 GMT`, the only one
/// that servers may send.
fn seconds(date: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words: Vec<&str> = date.split_once(", ")?.1.split(' ').collect();
    let [day, month, year, time, "GMT"] = words[..] else { return None };
    let (day, year): (u64, u64) = (day.parse().ok()?, year.parse().ok()?);
    let month = MONTHS.iter().position(|it| *it == month)? as u64;
    let mut parts = time.split(':').map(|it| it.parse::<u64>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let fits = (1..=31).contains(&day) && (1970..=9999).contains(&year);
    if !fits || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // For this computation the year begins with March, so the leap day is its last day (H. Hinnant,
    // days_from_civil).
    let (year, month) = if month < 2 { (year - 1, month + 10) } else { (year, month - 2) };
    let in_year = (153 * month + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + in_year;
    Some(days.checked_sub(719_468)? * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_the_seconds_since_1970() {
        for (date, expected) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Thu, 29 Feb 2024 23:59:59 GMT", Some(1_709_251_199)),
            ("Sun, 22 Nov 2026 08:00:00 GMT", Some(1_795_334_400)),
            ("Sun, 22 Nov 2026 08:00:00 CET", None),
            ("Sun, 22 Foo 2026 08:00:00 GMT", None),
            ("Sun, 22 Nov 2026 25:00:00 GMT", None),
            ("22 Nov 2026", None),
        ] {
            assert_eq!(seconds(date), expected, "{date}");
        }
    }

    #[test]
    fn seconds_and_dates_are_both_read() {
        let of = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            pairs.iter().for_each(|(name, value)| {
                headers.insert(*name, value.parse().unwrap());
            });
            retry_after(&headers).map(|it| it.as_secs())
        };
        let date = ("date", "Sun, 22 Nov 2026 08:00:00 GMT");
        assert_eq!(of(&[("retry-after", "120")]), Some(120));
        assert_eq!(of(&[("retry-after", "99999999999999999999999")]), Some(u64::MAX));
        assert_eq!(of(&[date, ("retry-after", "Sun, 22 Nov 2026 08:01:30 GMT")]), Some(90));
        assert_eq!(of(&[date, ("retry-after", "Sun, 22 Nov 2026 07:01:30 GMT")]), Some(0));
        assert_eq!(of(&[date, ("retry-after", "soon")]), None);
        assert_eq!(of(&[date]), None);
    }
}
