//! Taking a cluster away, whatever state it is in.

use anyhow::Result;

use super::state::{Home, State};
use super::{cgroup, network, node};
use crate::progress;

/// Removes the cluster and returns whether there was one.
pub(crate) fn down(home: &Home) -> Result<bool> {
    let Some(state) = home.load()? else { return Ok(false) };
    progress::step(&format!("removing cluster {}", state.name), || {
        let _lock = network::lock()?;
        release(&state)?;
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
