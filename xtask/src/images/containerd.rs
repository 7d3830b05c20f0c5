//! Bringing images into a node's containerd.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::archive::Digest;
use super::build::Built;
use crate::{process, progress};

/// Imports what the node does not have yet.
pub(crate) fn load(socket: &Path, images: &[Built]) -> Result<()> {
    let listing = process::run(ctr(socket).args(["images", "list"]))
        .with_context(|| format!("asking containerd at {} for its images", socket.display()))?;
    for image in images.iter().filter(|image| !holds(&listing, &image.reference, &image.digest)) {
        progress::step(&format!("loading {}", image.reference), || import(socket, &image.archive))?;
    }
    Ok(())
}

/// Imports an archive.
pub(crate) fn import(socket: &Path, archive: &Path) -> Result<()> {
    process::run(ctr(socket).args(["images", "import"]).arg(archive)).map(drop)
}

/// `ctr` for the images that the kubelet sees.
fn ctr(socket: &Path) -> Command {
    let mut command = Command::new("ctr");
    command.arg("--address").arg(socket).args(["--namespace", "k8s.io"]);
    command
}

/// Whether `ctr images list` shows this reference with this digest.
fn holds(listing: &str, reference: &str, digest: &Digest) -> bool {
    listing.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|columns| {
        columns.first() == Some(&reference) && columns.get(2) == Some(&digest.to_string().as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_digest_counts() {
        let (here, other) = (Digest::of(b"here"), Digest::of(b"other"));
        let listing = format!(
            "REF TYPE DIGEST SIZE PLATFORMS LABELS\n\
             localhost/toolbox:dev application/vnd.oci.image.manifest.v1+json {here} 1.9 MiB linux/amd64 -\n"
        );
        assert!(holds(&listing, "localhost/toolbox:dev", &here));
        assert!(!holds(&listing, "localhost/toolbox:dev", &other));
        assert!(!holds(&listing, "localhost/toolbox", &here));
    }
}
