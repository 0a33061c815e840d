//! Formats the results of `bench` as a table of text.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use feedwater::internals::error::escaped;
use feedwater::internals::footprint::{bytes, counted};
use feedwater::plan::Route;

use super::case::Measured;
use super::{By, Case, CaseResult};

/// Goal for the CPU time per image, summed over all threads, in microseconds. It applies to cases
/// in which nvjpeg-hardware and nvjpeg-gpu decode more than half of the images.
pub const HOST_BAR: f64 = 60.0;

/// Table with one line per measured case. The lines below the table list unmeasured cases by
/// reason, and compare CPU times with [`HOST_BAR`].
pub struct Table<'a>(pub &'a [Case]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(measured) = self.0.iter().find_map(measured) {
            let Measured { device, workers, .. } = measured;
            writeln!(f, "device    {device}")?;
            writeln!(f, "threads   {workers}")?;
        }
        // The name of a user's set is a path, which may be long. So widen the first column if
        // needed.
        let names = self.0.iter().map(|case| 2 + escaped(&case.set).chars().count());
        let width = names.fold(22, usize::max);
        writeln!(
            f,
            "{:<width$}{:<22}{:>9}{:>12}{:>10}{:>13}{:>8}{:>12}{:>12}{:>12}{:>12}   decoded by",
            "set",
            "route",
            "images/s",
            "CPU s/1000",
            "us/image",
            "first batch",
            "waited",
            "device",
            "peak",
            "pinned",
            "peak RSS",
        )?;
        for case in self.0 {
            if let Some(measured) = measured(case) {
                row(f, width, case, measured)?;
            }
        }
        for case in self.0 {
            if let Some((window, why)) = measured(case).and_then(|it| it.read_ahead.as_ref()) {
                let set = escaped(&case.set);
                let window = counted(*window, "sample");
                writeln!(f, "prefetch  {set} {}: {window}; {why}", case.name())?;
            }
        }
        for (reason, names) in self.unmeasured() {
            writeln!(f, "{reason}: {}", names.join("; "))?;
        }
        self.bar(f)?;
        write!(
            f,
            "CPU s/1000: CPU time of all threads, in seconds per 1000 images; us/image: the same \
             in microseconds per image; waited: fraction of the time that the consumer waited for \
             batches; device: predicted device memory"
        )
    }
}

/// A route, with the names of the sets in which it was not measured.
type SetsOf<'a> = (By, Vec<Cow<'a, str>>);

impl Table<'_> {
    /// Groups the unmeasured cases by reason. If the reason is the same for all sets of a route,
    /// the route is listed without its sets.
    fn unmeasured(&self) -> BTreeMap<String, Vec<String>> {
        let mut sets: BTreeMap<String, Vec<SetsOf<'_>>> = BTreeMap::new();
        for case in self.0 {
            let reason = match &case.result {
                CaseResult::Measured(_) => continue,
                CaseResult::Skipped { reason } => format!("skipped   {}", escaped(reason)),
                CaseResult::Failed { reason } => format!("FAILED    {}", escaped(reason)),
            };
            let routes = sets.entry(reason).or_default();
            match routes.iter_mut().find(|(route, _)| *route == case.route) {
                Some((_, sets)) => sets.push(escaped(&case.set)),
                None => routes.push((case.route, vec![escaped(&case.set)])),
            }
        }
        let name = |(route, sets): SetsOf<'_>| {
            let all = self.0.iter().filter(|case| case.route == route).count() == sets.len();
            if all {
                route.name().into()
            } else {
                format!("{} of {}", route.name(), sets.join(", "))
            }
        };
        sets.into_iter().map(|(why, it)| (why, it.into_iter().map(name).collect())).collect()
    }

    /// Writes whether the CPU time per image is below the goal [`HOST_BAR`], one line for each case
    /// to which the goal applies.
    fn bar(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for case in self.0 {
            let Some(measured) = measured(case).filter(|it| share_without_host(it) > 0.5) else {
                continue;
            };
            let Some(host) = measured.host_microseconds_per_image else { continue };
            let word = if host < HOST_BAR { "met" } else { "MISSED" };
            let (set, name) = (escaped(&case.set), case.name());
            writeln!(
                f,
                "host time {set} {name}: {host:.1} us of CPU time per image; the goal (less than \
                 {HOST_BAR:.0} us) is {word}"
            )?;
        }
        Ok(())
    }
}

fn measured(case: &Case) -> Option<&Measured> {
    match &case.result {
        CaseResult::Measured(measured) => Some(measured),
        _ => None,
    }
}

fn row(f: &mut fmt::Formatter<'_>, width: usize, case: &Case, measured: &Measured) -> fmt::Result {
    let number = |value: Option<f64>, digits: usize| match value {
        Some(value) => format!("{value:.digits$}"),
        None => "-".into(),
    };
    writeln!(
        f,
        "{:<width$}{:<22}{:>9.0}{:>12}{:>10}{:>11.3} s{:>6.0} %{:>12}{:>12}{:>12}{:>12}   {}",
        escaped(&case.set),
        case.name(),
        measured.images_per_second,
        number(measured.cpu_seconds_per_1000_images, 3),
        number(measured.host_microseconds_per_image, 1),
        measured.first_batch_seconds,
        100.0 * measured.consumer_waited,
        bytes(measured.device_bytes_predicted),
        bytes(measured.device_bytes_peak),
        bytes(measured.pinned_bytes_peak),
        bytes(measured.peak_rss_bytes),
        shares(&measured.outcomes),
    )
}

/// Formats the percentage of each outcome that occurred.
fn shares(outcomes: &BTreeMap<String, u64>) -> String {
    let all: u64 = outcomes.values().sum();
    let some: Vec<_> = outcomes
        .iter()
        .filter(|&(_, &count)| count > 0)
        .map(|(name, &count)| format!("{name} {:.1} %", 100.0 * count as f64 / all as f64))
        .collect();
    some.join(", ")
}

/// Share of the samples whose entropy decoding ran on the GPU.
fn share_without_host(measured: &Measured) -> f64 {
    let without_host = Route::ALL.into_iter().filter(|route| !route.uses_worker_cpu());
    let count = |route: Route| measured.outcomes.get(route.name()).copied().unwrap_or(0);
    without_host.map(count).sum::<u64>() as f64 / measured.images.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(set: &str, route: By, result: CaseResult) -> Case {
        Case { set: set.into(), route, hardware_group: None, result }
    }

    fn measured(host_microseconds: f64, outcomes: &[(&str, u64)]) -> CaseResult {
        CaseResult::Measured(Box::new(Measured {
            images: outcomes.iter().map(|(_, count)| count).sum(),
            host_microseconds_per_image: Some(host_microseconds),
            outcomes: outcomes.iter().map(|&(name, count)| (name.into(), count)).collect(),
            ..Measured::default()
        }))
    }

    #[test]
    fn the_cpu_time_limit_applies_where_the_gpu_decodes_most_images() {
        let cases = [
            case(
                "a",
                By::Balanced,
                measured(41.0, &[("nvjpeg-hardware", 3), ("nvjpeg-gpu", 3), ("nvjpeg-hybrid", 4)]),
            ),
            case(
                "b",
                By::Route(Route::NvjpegHardware),
                measured(60.0, &[("nvjpeg-hardware", 9), ("cpu", 1)]),
            ),
            case("c", By::Route(Route::NvjpegHybrid), measured(900.0, &[("nvjpeg-hybrid", 10)])),
        ];
        let text = Table(&cases).to_string();
        let bars: Vec<_> = text.lines().filter(|line| line.starts_with("host time")).collect();
        let expected =
            [[" a balanced", "41.0", "60", "met"], [" b nvjpeg-hardware", "60.0", "60", "MISSED"]];
        assert_eq!(bars.len(), expected.len(), "{bars:?}");
        for (bar, values) in bars.iter().zip(expected) {
            assert!(values.iter().all(|value| bar.contains(value)), "{values:?}: {bar}");
        }
        assert!(
            text.contains("   nvjpeg-gpu 30.0 %, nvjpeg-hardware 30.0 %, nvjpeg-hybrid 40.0 %\n"),
            "{text}"
        );
    }

    #[test]
    fn unmeasured_cases_are_grouped_by_reason_and_list_sets_unless_all() {
        let skipped = |reason: &str| CaseResult::Skipped { reason: reason.into() };
        let cases = [
            case("a", By::Route(Route::NvjpegGpu), skipped("no")),
            case("b", By::Route(Route::NvjpegGpu), skipped("no")),
            case("a", By::Route(Route::NvjpegHybrid), skipped("no")),
            case(
                "b",
                By::Route(Route::NvjpegHybrid),
                CaseResult::Failed { reason: "broken".into() },
            ),
        ];
        let text = Table(&cases).to_string();
        assert!(text.contains("skipped   no: nvjpeg-gpu; nvjpeg-hybrid of a\n"), "{text}");
        assert!(text.contains("FAILED    broken: nvjpeg-hybrid of b\n"), "{text}");
    }
}
