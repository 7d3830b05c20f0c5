//! What of a cluster is still on the machine after it was taken away: nothing, or `down` has failed.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::network::Block;
use super::node::Namespaces;
use super::{cgroup, network};

/// Programs that started others in the node need a moment to see that those have ended.
const LIMIT: Duration = Duration::from_secs(10);

/// Fails if anything is left but the cluster's directory.
pub(crate) fn check(root: &Path, block: Block, namespaces: &Namespaces) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let left = find(root, block, namespaces)?;
        if left.is_empty() {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "this is left of the cluster, please remove it and try again: {}",
            left.join(", ")
        );
        thread::sleep(Duration::from_millis(20));
    }
}

fn find(root: &Path, block: Block, namespaces: &Namespaces) -> Result<Vec<String>> {
    let processes = namespaces.processes()?.into_iter().map(|(pid, name)| format!("process {pid} ({name})"));
    let cgroups = cgroup::existing(&block.tag())?;
    let cgroups = cgroups.into_iter().map(|directory| format!("cgroup {}", directory.display()));
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("reading the mounts")?;
    let mounts = mounts_below(&mounts, root).into_iter().map(|point| format!("mount {}", point.display()));
    Ok(processes.chain(network::existing(block)?).chain(cgroups).chain(mounts).collect())
}

/// The mount points in a directory.
fn mounts_below(mountinfo: &str, directory: &Path) -> Vec<PathBuf> {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    points.filter(|point| point != directory && point.starts_with(directory)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_in_the_directory_are_found_and_others_are_not() {
        let mountinfo = "\
24 1 0:22 / /cache/dev rw - ext4 /dev/vda rw
25 24 0:26 / /cache/dev/node/run rw shared:4 - tmpfs tmpfs rw
26 24 0:27 / /cache/device rw - tmpfs tmpfs rw";
        let expected = [PathBuf::from("/cache/dev/node/run")];
        assert_eq!(mounts_below(mountinfo, Path::new("/cache/dev")), expected);
    }
}
