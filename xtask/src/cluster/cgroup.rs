//! The cgroup that holds a cluster's pods, in every hierarchy the machine has.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Makes the cgroup: the kubelet wants its root to exist.
pub(crate) fn create(name: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let directory = hierarchy.join(name);
        fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
        // In the first version of cgroups a new cpuset is empty, and no process can enter it.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let (parent, child) = (hierarchy.join(file), directory.join(file));
            if let (Ok(all), Ok(own)) = (fs::read_to_string(parent), fs::read_to_string(&child))
                && own.trim().is_empty()
            {
                fs::write(&child, all.trim()).with_context(|| format!("writing {}", child.display()))?;
            }
        }
    }
    Ok(())
}

/// Removes the cgroup and those below it. Its processes have ended, but the kernel may need a moment to see it.
pub(crate) fn remove(name: &str) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    for hierarchy in hierarchies()? {
        let directory = hierarchy.join(name);
        loop {
            match remove_tree(&directory) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(20));
                }
                result => {
                    break result.with_context(|| format!("removing the cgroup {}", directory.display()))?;
                }
            }
        }
    }
    Ok(())
}

/// Removes a directory of directories. The files in a cgroup are not files to the kernel, and go with it.
fn remove_tree(directory: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(directory)
}

fn hierarchies() -> Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("reading the mounts")?;
    Ok(hierarchies_in(&mounts))
}

/// The mount points of all cgroup hierarchies: the container runtime uses each of them.
fn hierarchies_in(mountinfo: &str) -> Vec<PathBuf> {
    let line = |line: &str| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let kind = filesystem.split(' ').next()?;
        let point = mount.split(' ').nth(4)?;
        matches!(kind, "cgroup" | "cgroup2").then(|| PathBuf::from(point))
    };
    mountinfo.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_cgroups_are_found() {
        let mountinfo = "\
24 1 0:22 / /sys rw - sysfs sysfs rw
30 24 0:26 / /sys/fs/cgroup rw shared:4 - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 30 0:28 / /sys/fs/cgroup/unified rw shared:9 master:1 - cgroup2 cgroup2 rw";
        let expected = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"];
        assert_eq!(hierarchies_in(mountinfo), expected.map(PathBuf::from));
    }

    #[test]
    fn a_tree_is_removed_from_the_leaves_up_and_may_be_absent() {
        let root = tempfile::tempdir().unwrap();
        let tree = root.path().join("a");
        fs::create_dir_all(tree.join("b/c")).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        remove_tree(&tree).unwrap();
    }
}
