//! One file system layer of an image as a tar file whose bytes depend on nothing but its contents.
//!
//! Names are sorted, times are one constant, owners are numbers and no name of a user is written, so that the same
//! files give the same digest on every machine.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// The modification time of every file in every image: 2026-01-01T00:00:00Z.
pub(crate) const EPOCH: u64 = 1_767_225_600;
/// [`EPOCH`] as image configurations write it.
pub(crate) const EPOCH_RFC3339: &str = "2026-01-01T00:00:00Z";

/// A content digest in the form `sha256:…`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Digest(String);

impl Digest {
    /// The digest of bytes in memory.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(bytes);
        Self::finish(hasher)
    }

    /// The 64 hexadecimal digits without the algorithm's name.
    pub(crate) fn hex(&self) -> &str {
        self.0.strip_prefix("sha256:").unwrap_or(&self.0)
    }

    fn finish(hasher: Sha256) -> Self {
        use std::fmt::Write as _;
        let mut text = String::from("sha256:");
        for byte in hasher.finalize() {
            write!(text, "{byte:02x}").expect("writing to a String does not fail");
        }
        Self(text)
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What stands at one path of a layer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Node {
    /// A directory; its children are entries of their own.
    Directory,
    /// A regular file with the contents of this file on the building machine.
    File(PathBuf),
    /// A regular file with these contents.
    Text(String),
    /// A symbolic link with this target, kept as it is.
    Symlink(PathBuf),
    /// A second name for an earlier path of the same layer.
    HardLink(PathBuf),
}

/// One path of a layer. Paths are relative to the image's root.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Entry {
    /// Path in the image, without a leading slash.
    pub(crate) path: PathBuf,
    /// Permission bits, including set-id and sticky.
    pub(crate) mode: u32,
    /// Owner by number.
    pub(crate) uid: u32,
    /// Group by number.
    pub(crate) gid: u32,
    /// What stands there.
    pub(crate) node: Node,
}

impl Entry {
    /// An entry owned by root.
    pub(crate) fn new(path: impl Into<PathBuf>, mode: u32, node: Node) -> Self {
        Self { path: path.into(), mode, uid: 0, gid: 0, node }
    }
}

/// A layer that was written to a file.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Layer {
    /// The uncompressed tar file.
    pub(crate) file: PathBuf,
    /// Its digest, which is also the layer's diff id as it is not compressed.
    pub(crate) digest: Digest,
    /// Its size in bytes.
    pub(crate) size: u64,
}

/// Lists a directory tree as layer entries: parents before children, siblings in byte order.
pub(crate) fn scan(root: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    scan_directory(root, Path::new(""), &mut HashMap::new(), &mut entries)?;
    Ok(entries)
}

fn scan_directory(
    directory: &Path,
    prefix: &Path,
    links: &mut HashMap<(u64, u64), PathBuf>,
    entries: &mut Vec<Entry>,
) -> Result<()> {
    let mut names = fs::read_dir(directory)
        .and_then(|listing| {
            listing.map(|item| item.map(|item| item.file_name())).collect::<io::Result<Vec<_>>>()
        })
        .with_context(|| format!("listing {}", directory.display()))?;
    names.sort();
    for name in names {
        scan_entry(directory, prefix, &name, links, entries)?;
    }
    Ok(())
}

fn scan_entry(
    directory: &Path,
    prefix: &Path,
    name: &OsStr,
    links: &mut HashMap<(u64, u64), PathBuf>,
    entries: &mut Vec<Entry>,
) -> Result<()> {
    let source = directory.join(name);
    let path = prefix.join(name);
    let found = fs::symlink_metadata(&source).with_context(|| format!("reading {}", source.display()))?;
    let kind = found.file_type();
    let node = if kind.is_dir() {
        Node::Directory
    } else if kind.is_symlink() {
        Node::Symlink(fs::read_link(&source).with_context(|| format!("reading link {}", source.display()))?)
    } else if !kind.is_file() {
        bail!("{} is neither a file, a directory nor a link; an image cannot hold it", source.display());
    } else if let Some(first) = links.get(&(found.dev(), found.ino())) {
        Node::HardLink(first.clone())
    } else {
        if found.nlink() > 1 {
            links.insert((found.dev(), found.ino()), path.clone());
        }
        Node::File(source.clone())
    };
    let descend = node == Node::Directory;
    entries.push(Entry {
        path: path.clone(),
        mode: found.mode() & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
        node,
    });
    if descend { scan_directory(&source, &path, links, entries) } else { Ok(()) }
}

/// Writes entries as an uncompressed tar file. They may come in any order; a path given twice is an error.
pub(crate) fn write(out: &Path, entries: Vec<Entry>) -> Result<Layer> {
    let mut sorted = BTreeMap::new();
    for entry in entries {
        ensure!(entry.path.is_relative(), "the layer path {} must be relative", entry.path.display());
        if let Some(twice) = sorted.insert(entry.path.clone(), entry) {
            bail!("the layer has two entries for {}", twice.path.display());
        }
    }
    let file = File::create(out).with_context(|| format!("creating {}", out.display()))?;
    let mut tar = Builder::new(Hashing::new(BufWriter::with_capacity(1 << 20, file)));
    for entry in sorted.values() {
        append(&mut tar, entry).with_context(|| format!("adding {} to the layer", entry.path.display()))?;
    }
    let (digest, size, mut file) = tar.into_inner().context("closing the layer")?.finish();
    file.flush().with_context(|| format!("writing {}", out.display()))?;
    Ok(Layer { file: out.to_owned(), digest, size })
}

fn append<W: Write>(tar: &mut Builder<W>, entry: &Entry) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(entry.mode);
    header.set_uid(entry.uid.into());
    header.set_gid(entry.gid.into());
    header.set_mtime(EPOCH);
    header.set_size(0);
    match &entry.node {
        Node::Directory => {
            header.set_entry_type(EntryType::Directory);
            tar.append_data(&mut header, entry.path.join(""), io::empty())?;
        }
        Node::File(source) => {
            let file = File::open(source).with_context(|| format!("opening {}", source.display()))?;
            let size = file.metadata()?.len();
            header.set_size(size);
            // A file that grows meanwhile must not break the archive's frame; one that shrinks is an error.
            let mut counted = Counting { inner: file.take(size), read: 0 };
            tar.append_data(&mut header, &entry.path, &mut counted)?;
            ensure!(counted.read == size, "{} changed while it was read", source.display());
        }
        Node::Text(text) => {
            header.set_size(text.len() as u64);
            tar.append_data(&mut header, &entry.path, text.as_bytes())?;
        }
        Node::Symlink(target) => {
            header.set_entry_type(EntryType::Symlink);
            tar.append_link(&mut header, &entry.path, target)?;
        }
        Node::HardLink(target) => {
            header.set_entry_type(EntryType::Link);
            tar.append_link(&mut header, &entry.path, target)?;
        }
    }
    Ok(())
}

struct Counting<R> {
    inner: R,
    read: u64,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read += count as u64;
        Ok(count)
    }
}

/// A writer that computes the digest of what passes through.
struct Hashing<W> {
    inner: W,
    hasher: Sha256,
    written: u64,
}

impl<W: Write> Hashing<W> {
    fn new(inner: W) -> Self {
        Self { inner, hasher: Sha256::new(), written: 0 }
    }

    fn finish(self) -> (Digest, u64, W) {
        (Digest::finish(self.hasher), self.written, self.inner)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests;
