//! Taking a cluster away, whatever state it is in.

use anyhow::Result;

use super::state::{Home, State};
use super::{cgroup, leftovers, network, node};
use crate::progress;

/// Removes the cluster and returns whether there was one.
pub(crate) fn down(home: &Home) -> Result<bool> {
    // A record that cannot be read says as little as none.
    let state = match home.load() {
        Ok(Some(state)) => Some(state),
        Ok(None) | Err(_) => node::lost(home)?,
    };
    if state.is_none() && !home.exists() {
        return Ok(false);
    }
    progress::step(&format!("removing the cluster in {}", home.root().display()), || {
        if let Some(state) = &state {
            let _lock = network::lock()?;
            let namespaces = node::Namespaces::of(state);
            release(state)?;
            // Before the record goes: whatever is found can be removed by another try.
            leftovers::check(home.root(), state.block, &namespaces)?;
            network::retire()?;
        }
        home.remove()
    })?;
    Ok(true)
}

/// Removes what the cluster has on the machine, but not its directory.
pub(crate) fn release(state: &State) -> Result<()> {
    // With the first process go all others, their mounts and their network.
    node::kill(state)?;
    network::disconnect(state.block)?;
    cgroup::remove(&state.block.tag())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_directory_of_somebody_else_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("thesis.tex"), "precious").unwrap();
        assert!(!down(&Home::new(directory.path()).unwrap()).unwrap());
        assert!(directory.path().join("thesis.tex").exists());
    }

    #[test]
    fn an_unreadable_record_does_not_keep_a_cluster_from_being_removed() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("dev");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("state.json"), "{").unwrap();
        assert!(down(&Home::new(&root).unwrap()).unwrap());
        assert!(!root.exists());
    }
}
