//! CPU quota of the control groups of this process.
//!
//! Version 2 has `cpu.max` and `throttled_usec` in `cpu.stat`
//! (Documentation/admin-guide/cgroup-v2.rst); version 1 has `cpu.cfs_quota_us`, `cpu.cfs_period_us`
//! and `throttled_time` in nanoseconds (Documentation/scheduler/sched-bwc.rst). Quotas of parent
//! groups apply too, if the container can see these groups.

use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of nested groups that are inspected.
const DEEPEST: usize = 64;

/// Folders of the groups that may have a quota, from the process's own group up to the root.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    folders: Vec<PathBuf>,
}

/// CPU quota of the control groups, and the time withheld because of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Limits {
    /// Smallest quota of all groups, as a number of processors.
    pub quota: Option<f64>,
    /// Processor seconds withheld because of a quota, summed over all groups that have one.
    pub throttled: Option<f64>,
}

impl Cgroups {
    pub fn of_this_process() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self { folders: folders(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo")) }
    }

    pub fn read(&self) -> Limits {
        let mut limits = Limits::default();
        for folder in &self.folders {
            let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
            let second = || quota_2(&read("cpu.max")?);
            let first = || quota_1(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?);
            let Some(quota) = second().or_else(first) else { continue };
            limits.quota = Some(limits.quota.map_or(quota, |least| least.min(quota)));
            if let Some(throttled) = read("cpu.stat").as_deref().and_then(throttled) {
                limits.throttled = Some(limits.throttled.unwrap_or(0.0) + throttled);
            }
        }
        limits
    }
}

/// Finds the folders from the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn folders(cgroup: &str, mountinfo: &str) -> Vec<PathBuf> {
    // Lines are `hierarchy:controllers:path`. In version 2 of cgroups, `controllers` is empty.
    let parts = cgroup.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        rest.split_once(':')
    });
    let mut found = Vec::new();
    for (controllers, path) in parts {
        let (kind, option) = match controllers {
            "" => ("cgroup2", ""),
            some if some.split(',').any(|it| it == "cpu") => ("cgroup", "cpu"),
            _ => continue,
        };
        let Some((root, mount)) = mount(mountinfo, kind, option) else { continue };
        // The mount point shows the groups below the mount's root. In a container, these are the
        // container's groups.
        let below = Path::new(path).strip_prefix(&root).unwrap_or(Path::new(""));
        let above = below.ancestors().filter(|it| !it.is_absolute()).take(DEEPEST);
        found.extend(above.map(|it| mount.join(it)));
    }
    found
}

/// Root and mount point of the first mount of file system `kind` that has this option.
fn mount(mountinfo: &str, kind: &str, option: &str) -> Option<(PathBuf, PathBuf)> {
    // Fields of a line: number parent device root place options [tags] - kind source options
    mountinfo.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let (fs, options) = (right.next()?, right.nth(1).unwrap_or_default());
        let fits = option.is_empty() || options.split(',').any(|it| it == option);
        let mut left = left.split(' ').skip(3);
        let (root, place) = (unescaped(left.next()?), unescaped(left.next()?));
        (fs == kind && fits).then_some((root, place))
    })
}

/// Decodes blanks, tabs, line feeds and backslashes, which are escaped as octal numbers, such as
/// `\040`.
fn unescaped(text: &str) -> PathBuf {
    let known = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    let text = known.iter().fold(text.to_string(), |text, (from, to)| text.replace(from, to));
    text.into()
}

/// Number of processors from the text of `cpu.max`: `150000 100000`, or `max 100000` for no quota.
fn quota_2(text: &str) -> Option<f64> {
    let mut words = text.split_ascii_whitespace();
    ratio(words.next()?, words.next().unwrap_or("100000"))
}

/// Number of processors from the texts of `cpu.cfs_quota_us`, which is -1 for no quota, and
/// `cpu.cfs_period_us`.
fn quota_1(quota: &str, period: &str) -> Option<f64> {
    ratio(quota.trim(), period.trim())
}

fn ratio(quota: &str, period: &str) -> Option<f64> {
    let (quota, period) = (quota.parse::<u64>().ok()?, period.parse::<u64>().ok()?);
    (period > 0).then(|| quota as f64 / period as f64)
}

/// Processor seconds withheld because of a quota, from the text of `cpu.stat`.
fn throttled(text: &str) -> Option<f64> {
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
        line.trim().parse::<u64>().ok()
    };
    let second = value("throttled_usec").map(|it| it as f64 * 1e-6);
    second.or_else(|| value("throttled_time").map(|it| it as f64 * 1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_numbers_of_processors() {
        assert_eq!(quota_2("150000 100000\n"), Some(1.5));
        assert_eq!(quota_2("max 100000\n"), None);
        assert_eq!(quota_1("50000\n", "100000\n"), Some(0.5));
        assert_eq!(quota_1("-1\n", "100000\n"), None);
        assert_eq!(quota_1("1\n", "0\n"), None);
        let second = "usage_usec 9\nnr_periods 4\nnr_throttled 2\nthrottled_usec 1500000\n";
        assert_eq!(throttled(second), Some(1.5));
        assert_eq!(
            throttled("nr_periods 4\nnr_throttled 2\nthrottled_time 500000000\n"),
            Some(0.5)
        );
        assert_eq!(throttled("usage_usec 9\n"), None);
    }

    #[test]
    fn groups_are_found_where_they_are_mounted() {
        let paths = |cgroup: &str, mountinfo: &str| -> Vec<String> {
            let found = folders(cgroup, mountinfo);
            found.iter().map(|it| it.to_string_lossy().trim_end_matches('/').to_string()).collect()
        };
        let second =
            "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            paths("0::/a/b\n", second),
            ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]
        );
        // The first case is a container with its own cgroup namespace, the second case a container
        // without one.
        assert_eq!(paths("0::/\n", second), ["/sys/fs/cgroup"]);
        let bound = "29 23 0:26 /docker/1 /sys/fs/c\\040g ro - cgroup2 cgroup2 rw\n";
        assert_eq!(paths("0::/docker/1\n", bound), ["/sys/fs/c g"]);
        let first = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                     33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n\
                     32 31 0:29 / /sys/fs/cgroup/cpu rw shared:7 - cgroup cgroup rw,cpu\n";
        let groups = "9:name=systemd:/\n2:cpuacct:/x\n1:cpu:/a\n0::/\n";
        assert_eq!(paths(groups, first), ["/sys/fs/cgroup/cpu/a", "/sys/fs/cgroup/cpu"]);
        assert!(paths("", "").is_empty());
    }
}
