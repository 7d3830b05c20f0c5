//! The image that the registry serves: an archive's, with one more layer.

use std::{collections::HashMap, fs::File, io::Read, path::Path};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The only tag.
pub(super) const TAG: &str = "1";

/// A manifest and what it refers to.
pub(super) struct Image {
    manifest: Blob,
    blobs: Vec<Blob>,
}

/// Bytes under the name of their digest.
#[derive(Clone)]
pub(super) struct Blob {
    pub(super) digest: String,
    pub(super) media_type: String,
    pub(super) bytes: axum::body::Bytes,
}

impl Blob {
    fn new(media_type: &str, bytes: Vec<u8>) -> Self {
        let digest = Sha256::digest(&bytes)
            .iter()
            .fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"));
        Self { digest, media_type: media_type.to_owned(), bytes: bytes.into() }
    }

    fn descriptor(&self) -> Value {
        json!({ "mediaType": self.media_type, "digest": self.digest, "size": self.bytes.len() })
    }
}

impl Image {
    /// The image in an archive, with a file whose contents are `mark`: another mark makes another image.
    pub(super) fn from_archive(archive: &Path, mark: &str) -> Result<Self> {
        let Parts { files, mut manifest, mut config } = Parts::of(archive, u64::MAX)?;
        let layer = Blob::new(text(&manifest["layers"][0]["mediaType"]), layer(mark)?);
        let mut blobs = Vec::new();
        for below in manifest["layers"].as_array().context("a manifest lists layers")? {
            let bytes = files.get(&path_of(below)).context("a layer is missing")?;
            blobs.push(Blob::new(text(&below["mediaType"]), bytes.clone()));
        }
        // Layers are not compressed, so their digests are those of their contents.
        config["rootfs"]["diff_ids"]
            .as_array_mut()
            .context("a configuration lists layers")?
            .push(json!(layer.digest));
        config["history"].as_array_mut().context("a configuration has a history")?.push(json!({}));
        blobs.push(layer);
        manifest["layers"] = blobs.iter().map(Blob::descriptor).collect();
        Self::of(manifest, &config, blobs)
    }

    /// The image in an archive, with another user. A node that has the image has its layers, so none is served.
    pub(super) fn for_user(archive: &Path, user: &str) -> Result<Self> {
        let Parts { manifest, mut config, .. } = Parts::of(archive, 1 << 20)?;
        config["config"]["User"] = user.into();
        Self::of(manifest, &config, Vec::new())
    }

    fn of(mut manifest: Value, config: &Value, mut blobs: Vec<Blob>) -> Result<Self> {
        let config = Blob::new(text(&manifest["config"]["mediaType"]), serde_json::to_vec(config)?);
        manifest["config"] = config.descriptor();
        blobs.push(config);
        let manifest = Blob::new(text(&manifest["mediaType"]), serde_json::to_vec(&manifest)?);
        Ok(Self { manifest, blobs })
    }

    /// What a tag or a digest stands for.
    pub(super) fn find(&self, name: &str) -> Option<&Blob> {
        if name == TAG {
            return Some(&self.manifest);
        }
        std::iter::once(&self.manifest).chain(&self.blobs).find(|blob| blob.digest == name)
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What an image consists of.
struct Parts {
    files: HashMap<String, Vec<u8>>,
    manifest: Value,
    config: Value,
}

impl Parts {
    /// Those in an archive, without files that are larger than `most`.
    fn of(archive: &Path, most: u64) -> Result<Self> {
        let files = unpack(archive, most).with_context(|| format!("cannot read {}", archive.display()))?;
        let json = |name: &str| -> Result<Value> {
            Ok(serde_json::from_slice(files.get(name).with_context(|| format!("it has no {name}"))?)?)
        };
        let manifest = json(&path_of(&json("index.json")?["manifests"][0]))?;
        let config = json(&path_of(&manifest["config"]))?;
        Ok(Self { files, manifest, config })
    }
}

/// Where an archive has what is described.
fn path_of(descriptor: &Value) -> String {
    format!("blobs/{}", text(&descriptor["digest"]).replace(':', "/"))
}

fn unpack(archive: &Path, most: u64) -> Result<HashMap<String, Vec<u8>>> {
    let mut files = HashMap::new();
    for entry in tar::Archive::new(File::open(archive)?).entries_with_seek()? {
        let mut entry = entry?;
        if entry.size() <= most {
            let name = entry.path()?.to_string_lossy().into_owned();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            files.insert(name, bytes);
        }
    }
    Ok(files)
}

fn layer(mark: &str) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(mark.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, "pulled-from", mark.as_bytes())?;
    Ok(tar.into_inner()?)
}
