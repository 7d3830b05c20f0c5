//! Image archives that need no container engine to write.
//!
//! One tar file is an OCI image layout and a Docker archive at once: containerd and skopeo read `index.json`,
//! older `docker load` reads `manifest.json`, and both find the same blobs. Layers are not compressed: a node imports
//! them faster, and tools that push to a registry compress on the way.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::json;
use tar::{Builder, EntryType, Header};

use super::layer::{self, EPOCH, EPOCH_RFC3339};
pub(crate) use super::layer::{Digest, Entry, Layer, Node};
use crate::cache;

const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// How directories begin in which an archive is made.
const SCRATCH: &str = ".image-";

/// Where a layer's files come from.
#[derive(Clone, Debug)]
pub(crate) enum LayerSource {
    /// Files named one by one.
    Entries(Vec<Entry>),
    /// A layer that was written before, such as a cached root file system.
    Stored(Layer),
}

/// What a container of the image runs by default: the same fields as a Dockerfile sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ImageConfig {
    /// `USER`: a number, so that `runAsNonRoot` can be checked without the image's password file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) user: String,
    /// `ENV`, each `NAME=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) env: Vec<String>,
    /// `ENTRYPOINT`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) entrypoint: Vec<String>,
    /// `CMD`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) cmd: Vec<String>,
    /// `WORKDIR`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) working_dir: String,
    /// `LABEL`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
}

/// Writes an image archive and returns the digest of its manifest, the one that `image@sha256:…` names.
///
/// The file appears under its name only when it is complete. What killed runs left beside it is removed, so the caller
/// holds a lock on the directory.
pub(crate) fn write(
    out: &Path,
    reference: &str,
    layers: Vec<LayerSource>,
    config: &ImageConfig,
) -> Result<Digest> {
    let directory = out.parent().context("the archive's path has no directory")?;
    fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
    cache::clear(directory, SCRATCH)?;
    let scratch = tempfile::Builder::new()
        .prefix(SCRATCH)
        .tempdir_in(directory)
        .with_context(|| format!("creating a scratch directory in {}", directory.display()))?;
    let layers = layers
        .into_iter()
        .enumerate()
        .map(|(number, source)| match source {
            LayerSource::Entries(entries) => {
                layer::write(&scratch.path().join(format!("layer-{number}")), entries)
            }
            LayerSource::Stored(layer) => Ok(layer),
        })
        .collect::<Result<Vec<_>>>()?;

    let documents = Documents::new(reference, &layers, config)?;
    let unfinished = scratch.path().join("archive");
    write_tar(&unfinished, &layers, &documents)
        .with_context(|| format!("writing {}", unfinished.display()))?;
    fs::rename(&unfinished, out).with_context(|| format!("moving the archive to {}", out.display()))?;
    Ok(documents.digest)
}

/// The JSON documents of an archive.
struct Documents {
    digest: Digest,
    config: Vec<u8>,
    manifest: Vec<u8>,
    index: Vec<u8>,
    docker: Vec<u8>,
}

impl Documents {
    fn new(reference: &str, layers: &[Layer], config: &ImageConfig) -> Result<Self> {
        let config = serde_json::to_vec(&json!({
            "architecture": architecture(),
            "os": "linux",
            "created": EPOCH_RFC3339,
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": layers.iter().map(|layer| &layer.digest).collect::<Vec<_>>()},
            "history": layers.iter().map(|_| json!({"created": EPOCH_RFC3339})).collect::<Vec<_>>(),
        }))?;
        let config_digest = Digest::of(&config);
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": {"mediaType": CONFIG_TYPE, "digest": config_digest, "size": config.len()},
            "layers": layers.iter().map(|layer| {
                json!({"mediaType": LAYER_TYPE, "digest": layer.digest, "size": layer.size})
            }).collect::<Vec<_>>(),
        }))?;
        let digest = Digest::of(&manifest);
        let index = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": INDEX_TYPE,
            "manifests": [{
                "mediaType": MANIFEST_TYPE,
                "digest": digest,
                "size": manifest.len(),
                "platform": {"architecture": architecture(), "os": "linux"},
                "annotations": {
                    "io.containerd.image.name": reference,
                    "org.opencontainers.image.ref.name": tag(reference),
                },
            }],
        }))?;
        let docker = serde_json::to_vec(&json!([{
            "Config": blob(&config_digest),
            "RepoTags": [reference],
            "Layers": layers.iter().map(|layer| blob(&layer.digest)).collect::<Vec<_>>(),
        }]))?;
        Ok(Self { digest, config, manifest, index, docker })
    }
}

fn write_tar(out: &Path, layers: &[Layer], documents: &Documents) -> Result<()> {
    let mut tar = Builder::new(BufWriter::with_capacity(1 << 20, File::create(out)?));
    append_bytes(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append_bytes(&mut tar, "index.json", &documents.index)?;
    append_bytes(&mut tar, "manifest.json", &documents.docker)?;
    append_bytes(&mut tar, &blob(&documents.digest), &documents.manifest)?;
    append_bytes(&mut tar, &blob(&Digest::of(&documents.config)), &documents.config)?;
    let mut written = Vec::new();
    for layer in layers {
        if !written.contains(&&layer.digest) {
            let file =
                File::open(&layer.file).with_context(|| format!("opening {}", layer.file.display()))?;
            append(&mut tar, &blob(&layer.digest), layer.size, file)?;
            written.push(&layer.digest);
        }
    }
    tar.into_inner()?.flush()?;
    Ok(())
}

fn append_bytes(tar: &mut Builder<impl Write>, name: &str, bytes: &[u8]) -> Result<()> {
    append(tar, name, bytes.len() as u64, bytes)
}

fn append(tar: &mut Builder<impl Write>, name: &str, size: u64, contents: impl Read) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_mtime(EPOCH);
    header.set_size(size);
    tar.append_data(&mut header, name, contents)?;
    Ok(())
}

fn blob(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// The tag of a reference; a colon before the last slash belongs to a registry's port.
fn tag(reference: &str) -> &str {
    let name = reference.rsplit('/').next().unwrap_or(reference);
    name.split_once(':').map_or("latest", |(_, tag)| tag)
}

/// The name that image configurations use for this machine's processor.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests;
