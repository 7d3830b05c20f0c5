//! The project's images: what is in each, apart from what its Dockerfile says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::archive::{Entry, ImageConfig, Node};
use super::dockerfile;
use super::rootfs::Rootfs;

/// One of the project's images.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Image {
    /// The operator and the controller.
    Operator,
    /// The buildkite-agent that runs in job pods.
    Agent,
    /// The Buildkite-compatible server.
    Local,
    /// A busybox user image.
    Toolbox,
}

/// A program that images hold.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Binary {
    /// `buildkite-operator`.
    Operator,
    /// `buildkite-controller`.
    Controller,
    /// `buildkite-local`.
    Local,
    /// `buildkite-shim`.
    Shim,
    /// `buildkite-agent`.
    Agent,
    /// `busybox`.
    Busybox,
}

/// Where the agent's image holds the script that it begins with.
const AGENT_ENTRYPOINT: &str = "usr/local/bin/buildkite-agent-entrypoint";

/// Programs on the building machine.
pub(crate) type Binaries = BTreeMap<Binary, PathBuf>;

impl Binary {
    /// Where images hold it.
    fn path(self) -> &'static str {
        match self {
            Self::Operator => "usr/local/bin/buildkite-operator",
            Self::Controller => "usr/local/bin/buildkite-controller",
            Self::Local => "usr/local/bin/buildkite-local",
            Self::Shim => "usr/local/bin/buildkite-shim",
            Self::Agent => "usr/local/bin/buildkite-agent",
            Self::Busybox => "bin/busybox",
        }
    }

    /// The file's own name.
    pub(crate) fn name(self) -> &'static str {
        self.path().rsplit('/').next().unwrap_or_default()
    }
}

impl Image {
    /// Every image, in the order in which they are built.
    pub(crate) const ALL: [Self; 4] = [Self::Operator, Self::Agent, Self::Local, Self::Toolbox];

    /// The name without registry and tag.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Operator => "buildkite-operator",
            Self::Agent => "buildkite-agent",
            Self::Local => "buildkite-local",
            Self::Toolbox => "toolbox",
        }
    }

    /// The reference under which a node knows the image. No registry serves `localhost`, so nothing is ever pulled.
    pub(crate) fn reference(self, tag: &str) -> String {
        format!("localhost/{}:{tag}", self.name())
    }

    /// The programs that it holds.
    pub(crate) fn binaries(self) -> &'static [Binary] {
        match self {
            Self::Operator => &[Binary::Operator, Binary::Controller, Binary::Shim],
            Self::Agent => &[Binary::Agent, Binary::Shim],
            Self::Local => &[Binary::Local],
            Self::Toolbox => &[Binary::Busybox],
        }
    }

    /// The Debian root file system under the programs, if there is one.
    pub(crate) fn rootfs(self) -> Option<Rootfs> {
        match self {
            Self::Operator | Self::Local => Some(Rootfs {
                packages: match self {
                    // The keeper of mirrors runs git.
                    Self::Operator => &["ca-certificates", "git", "git-lfs", "openssh-client"],
                    _ => &["ca-certificates"],
                },
                accounts: &[
                    "groupadd --gid 65532 nonroot",
                    "useradd --uid 65532 --gid 65532 --home-dir /nonexistent --no-create-home \
                     --shell /usr/sbin/nologin nonroot",
                ],
            }),
            Self::Agent => Some(Rootfs {
                packages: &["bash", "ca-certificates", "curl", "git", "jq", "openssh-client", "tini"],
                accounts: &[
                    "groupadd --gid 1000 buildkite-agent",
                    "useradd --uid 1000 --gid 1000 --create-home --shell /bin/bash buildkite-agent",
                ],
            }),
            Self::Toolbox => None,
        }
    }

    /// What a container of it runs, as its Dockerfile says.
    pub(crate) fn config(self) -> Result<ImageConfig> {
        dockerfile::config(self.dockerfile())
            .with_context(|| format!("reading the Dockerfile of {}", self.name()))
    }

    /// The layer on top of the root file system.
    ///
    /// `applets` are the names under which busybox serves; the other images need none.
    pub(crate) fn entries(self, binaries: &Binaries, applets: &[String]) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for binary in self.binaries() {
            let source = binaries.get(binary).with_context(|| format!("{} was not built", binary.name()))?;
            entries.push(Entry::new(binary.path(), 0o755, Node::File(source.clone())));
        }
        if self == Self::Agent {
            let script = include_str!("../../../images/agent/buildkite-agent-entrypoint");
            entries.push(Entry::new(AGENT_ENTRYPOINT, 0o755, Node::Text(script.into())));
        }
        if self == Self::Toolbox {
            entries.extend(toolbox_skeleton());
            entries.extend(applets.iter().filter(|name| *name != Binary::Busybox.name()).map(|name| {
                Entry::new(Path::new("bin").join(name), 0o777, Node::Symlink("/bin/busybox".into()))
            }));
        }
        Ok(entries)
    }

    fn dockerfile(self) -> &'static str {
        match self {
            Self::Operator => include_str!("../../../images/operator/Dockerfile"),
            Self::Agent => include_str!("../../../images/agent/Dockerfile"),
            Self::Local => include_str!("../../../images/local/Dockerfile"),
            Self::Toolbox => include_str!("../../../images/toolbox/Dockerfile"),
        }
    }
}

fn toolbox_skeleton() -> [Entry; 6] {
    [
        Entry::new("bin", 0o755, Node::Directory),
        Entry::new("etc", 0o755, Node::Directory),
        Entry::new("etc/passwd", 0o644, Node::Text("root:x:0:0:root:/root:/bin/sh\n".into())),
        Entry::new("etc/group", 0o644, Node::Text("root:x:0:\n".into())),
        Entry::new("root", 0o700, Node::Directory),
        Entry::new("tmp", 0o1777, Node::Directory),
    ]
}

#[cfg(test)]
mod tests;
