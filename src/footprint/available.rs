//! Host memory available to this process.

use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;

/// Host memory available to this process, and the limit that determines it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Available {
    /// Available bytes.
    pub bytes: u64,
    /// Name of the limit: `MemAvailable`, a file of a cgroup, `ulimit -v` or `ulimit -d`.
    pub limit: String,
}

/// Names of the memory files of one cgroup version.
struct CgroupFiles {
    mount: &'static str,
    /// Names of files that contain a limit in bytes, or `max` for no limit.
    limits: &'static [&'static str],
    usage: &'static str,
    /// Keys of `memory.stat` that count page cache. The system reclaims page cache when memory is
    /// short.
    files: [&'static str; 2],
}

const V1: CgroupFiles = CgroupFiles {
    mount: "sys/fs/cgroup/memory",
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    files: ["total_inactive_file", "total_active_file"],
};

const V2: CgroupFiles = CgroupFiles {
    mount: "sys/fs/cgroup",
    // Above memory.high, a process is throttled until it frees memory.
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    files: ["inactive_file", "active_file"],
};

/// Limits of a process: name in `/proc/self/limits`, key of the usage in `/proc/self/status`, and
/// shell command.
const PROCESS_LIMITS: [(&str, &str, &str); 2] =
    [("Max address space", "VmSize", "ulimit -v"), ("Max data size", "VmData", "ulimit -d")];

impl Available {
    /// Memory available to this process now. `None` if `/proc` is missing.
    pub fn of_process() -> Option<Self> {
        Self::below(Path::new("/"))
    }

    /// Returns the same as [`of_process`](Self::of_process), but reads all files below `root`. The
    /// result is the smallest of three amounts:
    ///
    /// * the memory of the machine that is available without swapping,
    /// * the memory left in each cgroup from the root to the cgroup of this process (version 1 or
    ///   2),
    /// * the memory left under the limits of the process (`ulimit`).
    pub fn below(root: &Path) -> Option<Self> {
        let mut all: Vec<Self> = machine(root).into_iter().collect();
        all.extend(process(root));
        all.extend(cgroups(root));
        all.into_iter().min_by_key(|it| it.bytes)
    }
}

fn machine(root: &Path) -> Option<Available> {
    let bytes = kibibytes(&read(&root.join("proc/meminfo"))?, "MemAvailable")?;
    Some(Available { bytes, limit: "MemAvailable".into() })
}

fn process(root: &Path) -> Vec<Available> {
    let files = ["proc/self/limits", "proc/self/status"].map(|file| read(&root.join(file)));
    let [Some(limits), Some(status)] = files else { return Vec::new() };
    let left = |(name, used, shell): (&str, &str, &str)| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        // The soft limit is the first column. `unlimited` does not parse.
        let soft: u64 = line.split_whitespace().next()?.parse().ok()?;
        let bytes = soft.saturating_sub(kibibytes(&status, used)?);
        Some(Available { bytes, limit: shell.into() })
    };
    PROCESS_LIMITS.into_iter().filter_map(left).collect()
}

fn cgroups(root: &Path) -> Vec<Available> {
    let mut all = Vec::new();
    for line in read(&root.join("proc/self/cgroup")).unwrap_or_default().lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if controllers.is_empty() {
            along(root, path, &V2, &mut all);
        } else if controllers.split(',').any(|it| it == "memory") {
            along(root, path, &V1, &mut all);
        }
    }
    all
}

/// Adds the memory left in each cgroup from the root to `path`. Skips folders that do not exist: a
/// container may see its own cgroup as the root, without the parents in `path`.
fn along(root: &Path, path: &str, files: &CgroupFiles, all: &mut Vec<Available>) {
    let names = Path::new(path).components().filter_map(|it| match it {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    let mut folders = vec![PathBuf::from(files.mount)];
    for name in names {
        folders.push(folders[folders.len() - 1].join(name));
    }
    for folder in folders {
        let number = |file: &str| read(&root.join(&folder).join(file))?.trim().parse::<u64>().ok();
        let Some(usage) = number(files.usage) else { continue };
        let stat = read(&root.join(&folder).join("memory.stat")).unwrap_or_default();
        let of_files = files.files.iter().filter_map(|key| {
            let line = stat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            line?.trim().parse::<u64>().ok()
        });
        let used = usage.saturating_sub(of_files.sum());
        for name in files.limits {
            if let Some(most) = number(name) {
                let limit = format!("/{}", folder.join(name).display());
                all.push(Available { bytes: most.saturating_sub(used), limit });
            }
        }
    }
}

/// Bytes in a line such as `VmSize:     1234 kB`.
fn kibibytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1 << 10)
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max data size             unlimited            unlimited            bytes
Max address space         8000000              unlimited            bytes
";

    /// Available memory, and the limit that determines it, on a simulated system that has only
    /// these files.
    fn found(files: &[(&str, &str)]) -> Option<(u64, String)> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Available::below(root.path()).map(|it| (it.bytes, it.limit))
    }

    #[test]
    fn without_files_the_result_is_none() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[("proc/meminfo", "MemTotal: 9 kB\n")]), None);
        assert!(Available::of_process().is_some_and(|it| it.bytes > 0), "known on Linux");
    }

    #[test]
    fn the_machine_provides_mem_available() {
        let meminfo = "MemTotal:  900 kB\nMemFree:  1 kB\nMemAvailable:    700 kB\n";
        assert_eq!(found(&[("proc/meminfo", meminfo)]), Some((700 << 10, "MemAvailable".into())));
    }

    #[test]
    fn usage_is_subtracted_from_process_limits() {
        let meminfo = ("proc/meminfo", "MemAvailable: 70000 kB\n");
        let status = ("proc/self/status", "VmPeak: 9000 kB\nVmSize:\t 1000 kB\nVmData:\t 500 kB\n");
        let files = [meminfo, status, ("proc/self/limits", LIMITS)];
        assert_eq!(found(&files), Some((8_000_000 - 1_024_000, "ulimit -v".into())));
        let data =
            LIMITS.replace("data size             unlimited", "data size             600000");
        let files = [meminfo, status, ("proc/self/limits", &data)];
        assert_eq!(found(&files), Some((600_000 - 512_000, "ulimit -d".into())));
        let small = LIMITS.replace("8000000", "100");
        let files = [meminfo, status, ("proc/self/limits", &small)];
        assert_eq!(found(&files), Some((0, "ulimit -v".into())));
    }

    #[test]
    fn every_parent_cgroup_counts_and_page_cache_does_not() {
        let base = [
            ("proc/meminfo", "MemAvailable: 70000 kB\n"),
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.high", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "5000\n"),
            ("sys/fs/cgroup/a/memory.max", "9000\n"),
            ("sys/fs/cgroup/a/memory.high", "max\n"),
            ("sys/fs/cgroup/a/memory.current", "8000\n"),
            ("sys/fs/cgroup/other/memory.max", "1\n"),
            ("sys/fs/cgroup/other/memory.current", "0\n"),
        ];
        let of = |more: &[(&str, &str)]| found(&[&base[..], more].concat());
        let parent = "/sys/fs/cgroup/a/memory.max".to_string();
        assert_eq!(of(&[]), Some((1000, parent.clone())));
        let stat = ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 700\nactive_file 50\n");
        assert_eq!(of(&[stat]), Some((1750, parent)));
        let high = ("sys/fs/cgroup/a/b/memory.high", "5001\n");
        assert_eq!(of(&[high]), Some((1, "/sys/fs/cgroup/a/b/memory.high".into())));
        let over = ("sys/fs/cgroup/a/b/memory.max", "4000\n");
        assert_eq!(of(&[over]), Some((0, "/sys/fs/cgroup/a/b/memory.max".into())));
    }

    /// In a container, `/proc/self/cgroup` may have the path on the host, but only the container's
    /// cgroup is mounted.
    #[test]
    fn a_container_finds_its_own_limit() {
        for (cgroup, mount) in [
            ("0::/docker/abc\n", "sys/fs/cgroup/memory.max"),
            ("0::/../x\n", "sys/fs/cgroup/memory.max"),
            (
                "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes",
            ),
        ] {
            let limit = format!("/{mount}");
            let usage = mount.replace("memory.max", "memory.current");
            let usage = usage.replace("memory.limit_in_bytes", "memory.usage_in_bytes");
            let files = [("proc/self/cgroup", cgroup), (mount, "5000"), (&usage, "1000")];
            assert_eq!(found(&files), Some((4000, limit)));
        }
        let old = [
            ("proc/self/cgroup", "4:memory:/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "4000\n"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 500\n"),
        ];
        let limit = "/sys/fs/cgroup/memory/memory.limit_in_bytes".to_string();
        assert_eq!(found(&old), Some((1500, limit)));
    }
}
