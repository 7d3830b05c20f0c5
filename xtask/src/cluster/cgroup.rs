//! The cgroup that holds a cluster's pods, in every hierarchy the machine has.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Where the kubelet looks for version 2 of cgroups. With version 1 the hierarchies are below.
const UNIFIED: &str = "/sys/fs/cgroup";
/// What the kubelet wants in its root, as far as the machine has it.
const CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "memory", "hugetlb", "pids"];

/// Makes the cgroup: the kubelet wants its root to exist.
pub(crate) fn create(name: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let directory = hierarchy.join(name);
        fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
        copy_processors(&hierarchy, &directory)?;
        if hierarchy == Path::new(UNIFIED) {
            delegate(&hierarchy)?;
            // Also keeps what was just enabled above: systemd disables what no child has passed on.
            delegate(&directory)?;
        }
    }
    Ok(())
}

/// In version 1 of cgroups a new cpuset is empty, and no process can enter it.
fn copy_processors(parent: &Path, child: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (parent, child) = (parent.join(file), child.join(file));
        if let (Ok(all), Ok(own)) = (fs::read_to_string(parent), fs::read_to_string(&child))
            && own.trim().is_empty()
        {
            fs::write(&child, all.trim()).with_context(|| format!("writing {}", child.display()))?;
        }
    }
    Ok(())
}

/// In version 2 a new cgroup has only the controllers that the one above passes on.
fn delegate(cgroup: &Path) -> Result<()> {
    let read = |file: &str| {
        let path = cgroup.join(file);
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    };
    let missing = undelegated(&read("cgroup.controllers")?, &read("cgroup.subtree_control")?);
    // One at a time: the kernel takes or refuses a list as a whole, and does not say which of them it is about.
    missing.into_iter().try_for_each(|controller| enable(controller, &cgroup.join("cgroup.subtree_control")))
}

fn enable(controller: &str, file: &Path) -> Result<()> {
    let opened = File::options().append(true).open(file);
    opened.and_then(|mut file| file.write_all(format!("+{controller}").as_bytes())).with_context(|| {
        format!("enabling the cgroup controller {controller}, which the kubelet needs, in {}", file.display())
    })
}

/// The controllers that a cgroup has and the kubelet needs, but which are not passed on.
fn undelegated(available: &str, passed_on: &str) -> Vec<&'static str> {
    let has = |list: &str, name: &str| list.split_whitespace().any(|word| word == name);
    CONTROLLERS.into_iter().filter(|name| has(available, name) && !has(passed_on, name)).collect()
}

/// Where the cgroup still is.
pub(crate) fn existing(name: &str) -> Result<Vec<PathBuf>> {
    let places = hierarchies()?.into_iter().map(|hierarchy| hierarchy.join(name));
    Ok(places.filter(|place| place.exists()).collect())
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
    fn what_the_kubelet_needs_and_the_machine_has_is_passed_on() {
        let debian = "cpuset cpu io memory hugetlb pids rdma misc\n";
        assert_eq!(undelegated(debian, "cpu memory pids\n"), ["cpuset", "hugetlb"]);
        assert_eq!(undelegated("cpu memory\n", "\n"), ["cpu", "memory"]);
        assert_eq!(undelegated(debian, debian), [""; 0]);
        // A mount beside version 1, which has all controllers.
        assert_eq!(undelegated("\n", "\n"), [""; 0]);
    }

    #[test]
    fn controllers_are_enabled_one_at_a_time_and_a_refusal_names_the_one() {
        let cgroup = tempfile::tempdir().unwrap();
        let file = |name: &str| cgroup.path().join(name);
        fs::write(file("cgroup.controllers"), "cpuset cpu io memory pids\n").unwrap();
        fs::write(file("cgroup.subtree_control"), "memory\n").unwrap();
        delegate(cgroup.path()).unwrap();
        assert_eq!(fs::read_to_string(file("cgroup.subtree_control")).unwrap(), "memory\n+cpu+cpuset+pids");
        let error = enable("pids", Path::new("/dev/full")).unwrap_err().to_string();
        assert!(error.starts_with("enabling the cgroup controller pids, "), "{error}");
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
