//! Building images, and knowing when there is nothing to build.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::archive::{self, Digest, Entry, ImageConfig, Layer, LayerSource, Node};
use super::binaries::{self, Profile};
use super::catalog::{Binary, Image};
use crate::{cache, progress};

/// An image that is ready to be loaded or pushed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Built {
    /// Its name in pods, such as `localhost/buildkite-agent:dev`.
    pub(crate) reference: String,
    /// The archive.
    pub(crate) archive: PathBuf,
    /// The digest of its manifest.
    pub(crate) digest: Digest,
}

/// What an archive was made from, kept beside it.
#[derive(Serialize, Deserialize)]
struct Record {
    key: Digest,
    built: Built,
}

/// Brings the images in a directory up to date.
pub(crate) fn build(images: &[Image], out: &Path, tag: &str, profile: Profile) -> Result<Vec<Built>> {
    let cache = cache::root()?;
    let rootfs = |image: &Image| image.rootfs().map(|rootfs| rootfs.layer(&cache)).transpose();
    // First, as this is what needs root: nobody waits for a compiler only to hear that.
    let rootfs = images.iter().map(rootfs).collect::<Result<Vec<_>>>()?;
    let wanted: BTreeSet<Binary> = images.iter().flat_map(|image| image.binaries()).copied().collect();
    let binaries = binaries::build(&wanted, profile)?;
    let applets = binaries.get(&Binary::Busybox).map(|busybox| binaries::applets(busybox)).transpose()?;
    let _lock = cache::lock(&out.join(".lock"), "writing images")?;
    images
        .iter()
        .zip(rootfs)
        .map(|(image, rootfs)| {
            let recipe = Recipe {
                reference: image.reference(tag),
                rootfs,
                entries: image.entries(&binaries, applets.as_deref().unwrap_or_default())?,
                config: image.config()?,
            };
            recipe.archive(&out.join(format!("{}.tar", image.name())))
        })
        .collect()
}

/// Everything that decides how an archive turns out.
struct Recipe {
    reference: String,
    rootfs: Option<Layer>,
    entries: Vec<Entry>,
    config: ImageConfig,
}

impl Recipe {
    /// The archive at this path, written only if it was made from something else.
    fn archive(self, out: &Path) -> Result<Built> {
        let record_path = out.with_extension("json");
        let key = self.key()?;
        if let Some(record) = read_record(&record_path)
            && record.key == key
            && record.built.archive == out
            && out.exists()
        {
            return Ok(record.built);
        }
        let label = format!("writing {}", self.reference);
        let layers = self.rootfs.map(LayerSource::Stored).into_iter();
        let layers = layers.chain([LayerSource::Entries(self.entries)]).collect();
        let digest = progress::step(&label, || archive::write(out, &self.reference, layers, &self.config))?;
        let built = Built { reference: self.reference, archive: out.to_owned(), digest };
        cache::replace(&record_path, &serde_json::to_vec(&Record { key, built: built.clone() })?)?;
        Ok(built)
    }

    /// A digest of the inputs. Files count by path, size and time of change, as they do for cargo: reading
    /// them would take longer than building.
    fn key(&self) -> Result<Digest> {
        let entries = self.entries.iter().map(fingerprint).collect::<Result<Vec<_>>>()?;
        let rootfs = self.rootfs.as_ref().map(|layer| &layer.digest);
        Ok(Digest::of(&serde_json::to_vec(&(&self.reference, rootfs, entries, &self.config))?))
    }
}

fn fingerprint(entry: &Entry) -> Result<String> {
    let Node::File(source) = &entry.node else { return Ok(format!("{entry:?}")) };
    let found = fs::metadata(source).with_context(|| format!("reading {}", source.display()))?;
    Ok(format!("{entry:?} {} {}.{:09}", found.size(), found.mtime(), found.mtime_nsec()))
}

/// A record that cannot be read is no reason to fail: the archive is made again.
fn read_record(path: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, SystemTime};

    use super::*;

    fn recipe(program: &Path) -> Recipe {
        Recipe {
            reference: "localhost/tool:dev".into(),
            rootfs: None,
            entries: vec![Entry::new("tool", 0o755, Node::File(program.to_owned()))],
            config: ImageConfig::default(),
        }
    }

    fn modified(path: &Path) -> SystemTime {
        fs::metadata(path).unwrap().modified().unwrap()
    }

    #[test]
    fn an_archive_is_written_only_when_an_input_changed() {
        let place = tempfile::tempdir().unwrap();
        let (program, out) = (place.path().join("tool"), place.path().join("out/tool.tar"));
        fs::write(&program, "one").unwrap();
        let first = recipe(&program).archive(&out).unwrap();
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let age = |path: &Path| File::options().write(true).open(path).unwrap().set_modified(old).unwrap();

        age(&out);
        assert_eq!(recipe(&program).archive(&out).unwrap(), first);
        assert_eq!(modified(&out), old, "nothing changed, so nothing was written");

        age(&program);
        assert_eq!(recipe(&program).archive(&out).unwrap().digest, first.digest);
        assert_ne!(modified(&out), old, "a program that was touched may have changed");

        fs::write(&program, "two").unwrap();
        assert_ne!(recipe(&program).archive(&out).unwrap().digest, first.digest);

        fs::remove_file(&out).unwrap();
        recipe(&program).archive(&out).unwrap();
        assert!(out.exists());
    }

    #[test]
    fn a_broken_record_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let (program, out) = (place.path().join("tool"), place.path().join("tool.tar"));
        fs::write(&program, "one").unwrap();
        let first = recipe(&program).archive(&out).unwrap();
        fs::write(place.path().join("tool.json"), "{").unwrap();
        assert_eq!(recipe(&program).archive(&out).unwrap(), first);
    }
}
