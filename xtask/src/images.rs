//! Container images without a container engine: `cargo xtask images …`.
//!
//! `catalog` says what is in each image, `rootfs` and `binaries` make the parts, `archive` writes them down, `build`
//! does so only when something changed, and `containerd` and `registry` bring the result to where pods find it.

pub(crate) mod archive;
pub(crate) mod binaries;
mod build;
mod catalog;
mod containerd;
mod dockerfile;
mod layer;
mod registry;
mod rootfs;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Subcommand;

use binaries::Profile;
pub(crate) use build::Built;
pub(crate) use catalog::Image;
use registry::Naming;

use crate::{cluster, workspace};

/// The tag of images that are made on the spot.
pub(crate) const TAG: &str = "dev";

/// Builds, loads and pushes the project's container images.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write image archives as they ship, which containerd, Docker and skopeo read.
    Build {
        #[command(flatten)]
        selection: Selection,
        /// The images' tag.
        #[arg(long, default_value = TAG)]
        tag: String,
        /// Where to write the archives; target/image-archives if not given.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Bring images into a local cluster, if it does not have them yet.
    Load {
        #[command(flatten)]
        selection: Selection,
        /// The local cluster's name.
        #[arg(long, value_name = "NAME", default_value = cluster::DEFAULT_NAME)]
        cluster: String,
    },
    /// Push images as they ship to a registry that your own cluster can pull from.
    Push {
        #[command(flatten)]
        selection: Selection,
        /// The images' tag.
        #[arg(long, default_value = TAG)]
        tag: String,
        /// Registry and path, without the image's name.
        #[arg(long)]
        repo: String,
    },
}

#[derive(Debug, clap::Args)]
struct Selection {
    /// The images; all of them if none is named.
    #[arg(value_name = "IMAGE")]
    images: Vec<Image>,
}

impl Selection {
    fn images(&self) -> &[Image] {
        if self.images.is_empty() { &Image::ALL } else { &self.images }
    }
}

/// Does what the command line asks for.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Command::Build { selection, tag, out } => {
            let out = out.map_or_else(|| Ok(default_out()), std::path::absolute)?;
            report(&build::build(selection.images(), &out, &tag, Profile::Release)?);
        }
        Command::Load { selection, cluster } => {
            // Asked first: without a cluster there is no need to build anything.
            let socket = cluster::containerd_socket(&cluster)?;
            let images = ensure(selection.images())?;
            load(&socket, &images)?;
            report(&images);
        }
        Command::Push { selection, tag, repo } => {
            let images = build::build(selection.images(), &default_out(), &tag, Profile::Release)?;
            registry::push(&repo, &images, Naming::Tag)?.iter().for_each(|target| say(target));
        }
    }
    Ok(())
}

/// The images with programs that were compiled quickly, built now if anything in them changed since the last time.
pub(crate) fn ensure(images: &[Image]) -> Result<Vec<Built>> {
    build::build(images, &default_out(), TAG, Profile::Dev)
}

/// Brings images into the containerd behind a socket, if it does not have them yet.
pub(crate) fn load(socket: &Path, images: &[Built]) -> Result<()> {
    containerd::load(socket, images)
}

/// Brings the image in an archive into the containerd behind a socket.
pub(crate) fn import(socket: &Path, archive: &Path) -> Result<()> {
    containerd::import(socket, archive)
}

/// Pushes images to a registry, each under a tag of its own content, and returns their references there.
pub(crate) fn push(repo: &str, images: &[Built]) -> Result<Vec<String>> {
    registry::push(repo, images, Naming::Content)
}

fn default_out() -> PathBuf {
    workspace().join("target/image-archives")
}

fn report(images: &[Built]) {
    for image in images {
        say(&format!("{}@{} {}", image.reference, image.digest, image.archive.display()));
    }
}

#[expect(clippy::print_stdout, reason = "the result of the command")]
fn say(line: &str) {
    println!("{line}");
}
