//! Taking a cluster away, whatever state it is in.

use anyhow::Result;

use super::state::{Home, State};
use super::{cgroup, network, node};
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
            release(state)?;
            network::retire()?;
        }
        if home.exists() { home.remove() } else { Ok(()) }
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
