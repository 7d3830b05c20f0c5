//! A cluster that runs, as the other tasks use it.

use std::env;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::component::AUDIT_LOG;
use super::network::Block;
use super::node::Node;
use super::state::{Home, State};

/// A cluster that runs.
pub(crate) struct Running {
    /// The administrator's access.
    pub(crate) kubeconfig: PathBuf,
    /// What service accounts have asked of the API server, one JSON document a line.
    pub(crate) audit_log: PathBuf,
    /// Where a registry without TLS is announced to the node, as `HOST:PORT/hosts.toml`.
    pub(crate) registries: PathBuf,
    /// This machine, as the cluster's pods see it.
    pub(crate) machine: Ipv4Addr,
    /// Where images are loaded.
    pub(crate) containerd_socket: PathBuf,
    block: Block,
    kubectl: PathBuf,
}

impl Running {
    pub(super) fn new(home: &Home, state: &State, node: &Node, programs: &Path) -> Self {
        Self {
            kubeconfig: home.kubeconfig(),
            audit_log: home.log(AUDIT_LOG),
            registries: home.registries(),
            machine: state.block.machine(),
            containerd_socket: node.containerd_socket(),
            block: state.block,
            kubectl: programs.join("kubectl"),
        }
    }

    /// A `kubectl` with the administrator's access.
    pub(crate) fn kubectl(&self) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        self.bypass_proxies(&mut command);
        command
    }

    /// Lets a program reach the cluster where the shell sends it to a proxy, which knows nothing of this machine.
    pub(crate) fn bypass_proxies(&self, command: &mut Command) {
        command.envs(no_proxy(|name| env::var(name).ok(), self.block));
    }
}

/// The variables that name what is reached without a proxy, with this machine and the cluster added. Programs differ in
/// which of the two they read.
fn no_proxy(variable: impl Fn(&str) -> Option<String>, block: Block) -> [(&'static str, String); 2] {
    let names = ["NO_PROXY", "no_proxy"];
    let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    names.map(|name| {
        let before = set(name).or_else(|| names.into_iter().find_map(set)).unwrap_or_default();
        let before = before.split(',').map(|entry| entry.trim().to_owned()).filter(|entry| !entry.is_empty());
        let ours = ["localhost".to_owned(), "127.0.0.0/8".to_owned(), block.all().to_string()];
        let all: Vec<_> = before.filter(|entry| !ours.contains(entry)).collect();
        (name, [all, ours.to_vec()].concat().join(","))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reached_without_a_proxy_is_extended_under_both_names() {
        let block = Block::candidates().next().unwrap();
        let ours = "localhost,127.0.0.0/8,10.200.0.0/16";
        let of = |set: &[(&str, &str)]| {
            let variable = |name: &str| {
                set.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
            };
            no_proxy(variable, block).map(|(_, value)| value)
        };
        assert_eq!(of(&[]), [ours; 2]);
        assert_eq!(of(&[("NO_PROXY", "")]), [ours; 2]);
        // A program that reads one of the names first must not lose what the other says.
        assert_eq!(
            of(&[("no_proxy", "a.example, .corp")]),
            [format!("a.example,.corp,{ours}"), format!("a.example,.corp,{ours}")]
        );
        assert_eq!(
            of(&[("NO_PROXY", "a"), ("no_proxy", "b,localhost")]),
            [format!("a,{ours}"), format!("b,{ours}")]
        );
    }
}
