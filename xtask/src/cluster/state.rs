//! The directory of a cluster: what it is made of, and the record of what it has on this machine.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::config::REGISTRIES;
use super::network::Block;
use crate::cache;
use crate::process::Identity;

/// What a cluster has on the machine besides its directory.
///
/// Written before the thing itself is made, so that whatever exists is on record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The cluster's name, also its node's.
    pub(crate) name: String,
    /// Its addresses, which also name its network link and its cgroup.
    pub(crate) block: Block,
    /// The first process of the node; everything else lives in its namespaces.
    pub(crate) node: Option<Identity>,
}

/// A cluster's directory.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    root: PathBuf,
}

impl Home {
    pub(crate) fn new(root: &Path) -> Result<Self> {
        let root = std::path::absolute(root).with_context(|| format!("resolving {}", root.display()))?;
        Ok(Self { root })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Held by whoever changes the cluster. Beside the directory, as it outlives it.
    pub(crate) fn lock(&self) -> PathBuf {
        let mut name = self.root.clone().into_os_string();
        name.push(".lock");
        name.into()
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.root.join("config")
    }

    pub(crate) fn log(&self, component: &str) -> PathBuf {
        self.root.join("log").join(format!("{component}.log"))
    }

    /// How registries are reached, for those that need to be told.
    pub(crate) fn registries(&self) -> PathBuf {
        self.root.join(REGISTRIES)
    }

    fn record(&self) -> PathBuf {
        self.root.join("state.json")
    }

    /// The record, if there is a cluster here.
    pub(crate) fn load(&self) -> Result<Option<State>> {
        let file = self.record();
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("reading {}", file.display()))?,
        };
        let state = serde_json::from_str(&text)
            .with_context(|| format!("parsing {}: run `cluster down`, then `cluster up`", file.display()))?;
        Ok(Some(state))
    }

    /// Whether there is a record, readable or not.
    pub(crate) fn exists(&self) -> bool {
        self.record().exists()
    }

    /// Replaces the record as a whole.
    pub(crate) fn save(&self, state: &State) -> Result<()> {
        cache::replace(&self.record(), &serde_json::to_vec_pretty(state)?)
    }

    /// Makes the directory, unless it is one that holds something else.
    pub(crate) fn create(&self) -> Result<()> {
        if self.root.exists() && !self.exists() {
            let mut entries = fs::read_dir(&self.root)
                .with_context(|| format!("listing {}", self.root.display()))?
                .filter_map(Result::ok);
            if entries.any(|entry| entry.file_name() != "state.json.new") {
                bail!(
                    "{} is not empty and holds no cluster: take down the one that was there, or choose another --state",
                    self.root.display()
                );
            }
        }
        fs::create_dir_all(&self.root).with_context(|| format!("creating {}", self.root.display()))
    }

    /// Makes the directories in it.
    pub(crate) fn lay_out(&self) -> Result<()> {
        for directory in ["config", "etcd", "log", "node/run", "node/var/lib", "node/var/log", REGISTRIES] {
            let directory = self.root.join(directory);
            fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
        }
        Ok(())
    }

    /// Removes the directory and what it holds. The caller knows that it is a cluster's.
    pub(crate) fn remove(&self) -> Result<()> {
        if !self.root.exists() {
            return Ok(());
        }
        // The record goes last: what is interrupted here can be removed by another try.
        for entry in fs::read_dir(&self.root).with_context(|| format!("listing {}", self.root.display()))? {
            let path = entry?.path();
            if path != self.record() {
                remove(&path).with_context(|| format!("removing {}", path.display()))?;
            }
        }
        fs::remove_dir_all(&self.root).with_context(|| format!("removing {}", self.root.display()))
    }
}

fn remove(path: &Path) -> std::io::Result<()> {
    if path.is_dir() && !path.is_symlink() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Checks a name: it becomes a node's name, so Kubernetes' rules hold.
pub(crate) fn check_name(name: &str) -> Result<String, String> {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let edges = |c: char| c != '-';
    if (1..=40).contains(&name.len())
        && name.chars().all(letters)
        && name.starts_with(edges)
        && name.ends_with(edges)
    {
        Ok(name.to_owned())
    } else {
        Err("use at most 40 lower-case letters, digits and inner dashes".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State {
            name: "dev".to_owned(),
            block: Block::candidates().next().unwrap(),
            node: Identity::of(std::process::id()),
        }
    }

    #[test]
    fn the_record_survives_saving() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::new(&directory.path().join("dev")).unwrap();
        assert_eq!(home.load().unwrap(), None);
        home.create().unwrap();
        home.save(&state()).unwrap();
        assert_eq!(home.load().unwrap(), Some(state()));
        // A second start finds the directory in use, which is fine.
        home.create().unwrap();
    }

    #[test]
    fn a_directory_of_somebody_else_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("thesis.tex"), "precious").unwrap();
        let home = Home::new(directory.path()).unwrap();
        assert!(home.create().unwrap_err().to_string().contains("holds no cluster"));
        assert!(directory.path().join("thesis.tex").exists());
    }

    #[test]
    fn removing_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::new(&directory.path().join("dev")).unwrap();
        home.create().unwrap();
        home.save(&state()).unwrap();
        home.lay_out().unwrap();
        home.remove().unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn names_are_what_kubernetes_takes() {
        for name in ["dev", "a", "pr-123", "0"] {
            check_name(name).unwrap();
        }
        for name in ["", "-a", "a-", "Dev", "a.b", "a/b", &"x".repeat(41)] {
            check_name(name).unwrap_err();
        }
    }
}
