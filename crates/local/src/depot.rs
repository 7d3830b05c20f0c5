//! The directory that holds the bytes of artifacts.
//!
//! Files are called by ids, never by what users call them. Bytes arrive in `incoming` and move to their place
//! once they are complete and on the disk: a file in its place is whole. What is left in `incoming` by a
//! server that ended in the middle is removed at the next start.

use std::collections::HashSet;
use std::fmt::Write;
use std::io::{self, Read, SeekFrom};
use std::path::{Path, PathBuf};

use sha1::Sha1;
use sha2::{Digest, Sha256};
use tempfile::{NamedTempFile, TempDir, TempPath};
use tokio::fs::File;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use uuid::Uuid;

use crate::artifact::Received;

/// How much is copied at once.
const BUFFER: usize = 256 * 1024;

/// The directory.
#[derive(Debug)]
pub(crate) struct Depot {
    root: PathBuf,
    /// Removed with the depot, when there is no database that would know the files at the next start.
    _temporary: Option<TempDir>,
}

impl Depot {
    /// Opens the directory, or a temporary one, and removes what an earlier server left incomplete.
    pub(crate) fn open(root: Option<PathBuf>) -> io::Result<Self> {
        let (root, temporary) = if let Some(root) = root {
            (root, None)
        } else {
            let temporary = tempfile::Builder::new().prefix("buildkite-local-").tempdir()?;
            (temporary.path().to_owned(), Some(temporary))
        };
        let incoming = root.join("incoming");
        std::fs::create_dir_all(&incoming)?;
        for entry in std::fs::read_dir(&incoming)? {
            std::fs::remove_file(entry?.path())?;
        }
        Ok(Self { root, _temporary: temporary })
    }

    /// Where an artifact is, once it is complete.
    pub(crate) fn artifact(&self, id: Uuid) -> PathBuf {
        self.root.join(id.to_string())
    }

    /// Where the parts of an artifact gather, each at its place.
    fn gathering(&self, id: Uuid) -> PathBuf {
        self.root.join(format!("{id}.parts"))
    }

    /// Whether the artifact is complete.
    pub(crate) async fn has(&self, id: Uuid) -> io::Result<bool> {
        tokio::fs::try_exists(self.artifact(id)).await
    }

    /// Begins to receive a file.
    pub(crate) fn receive(&self) -> io::Result<Incoming> {
        let (file, path) = NamedTempFile::new_in(self.root.join("incoming"))?.into_parts();
        Ok(Incoming { bytes: Bytes::new(File::from_std(file)), path })
    }

    /// Puts a received file in its place.
    pub(crate) async fn keep(&self, incoming: Incoming, id: Uuid) -> io::Result<()> {
        incoming.path.persist(self.artifact(id)).map_err(|error| error.error)?;
        self.sync().await
    }

    /// Begins to receive a part that belongs `at` this byte of its artifact.
    pub(crate) async fn receive_part(&self, id: Uuid, at: u64) -> io::Result<Bytes> {
        let mut file =
            File::options().create(true).truncate(false).write(true).open(self.gathering(id)).await?;
        file.seek(SeekFrom::Start(at)).await?;
        Ok(Bytes::new(file))
    }

    /// What the parts amount to.
    pub(crate) async fn gathered(&self, id: Uuid) -> io::Result<Received> {
        let mut file = std::fs::File::open(self.gathering(id))?;
        tokio::task::spawn_blocking(move || {
            let mut sums = Sums::default();
            let mut buffer = vec![0; BUFFER];
            loop {
                match file.read(&mut buffer)? {
                    0 => return Ok(sums.end()),
                    read => sums.add(&buffer[..read]),
                }
            }
        })
        .await?
    }

    /// Puts an artifact whose parts have all come in its place.
    pub(crate) async fn keep_gathered(&self, id: Uuid) -> io::Result<()> {
        tokio::fs::rename(self.gathering(id), self.artifact(id)).await?;
        self.sync().await
    }

    /// The names must survive, too.
    async fn sync(&self) -> io::Result<()> {
        File::open(&self.root).await?.sync_all().await
    }

    /// Removes what there is of an artifact.
    pub(crate) async fn remove(&self, id: Uuid) -> io::Result<()> {
        remove(&self.gathering(id)).await?;
        remove(&self.artifact(id)).await
    }

    /// The artifacts that have files here.
    pub(crate) async fn ids(&self) -> io::Result<HashSet<Uuid>> {
        Ok(self.files().await?.into_iter().map(|(id, _)| id).collect())
    }

    /// Removes every file of these artifacts. Says how many there were.
    pub(crate) async fn remove_all(&self, gone: &HashSet<Uuid>) -> io::Result<usize> {
        let files: Vec<PathBuf> = self
            .files()
            .await?
            .into_iter()
            .filter(|(id, _)| gone.contains(id))
            .map(|(_, path)| path)
            .collect();
        for path in &files {
            remove(path).await?;
        }
        Ok(files.len())
    }

    async fn files(&self) -> io::Result<Vec<(Uuid, PathBuf)>> {
        let mut entries = tokio::fs::read_dir(&self.root).await?;
        let mut files = Vec::new();
        while let Some(entry) = entries.next_entry().await? {
            let name = entry.file_name();
            let stem = name.to_str().and_then(|name| name.split('.').next()).unwrap_or_default();
            // What is not called by an id is not ours.
            if let Ok(id) = Uuid::parse_str(stem) {
                files.push((id, entry.path()));
            }
        }
        Ok(files)
    }
}

async fn remove(path: &Path) -> io::Result<()> {
    match tokio::fs::remove_file(path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A file on its way. It is removed when dropped before it is kept.
pub(crate) struct Incoming {
    pub(crate) bytes: Bytes,
    path: TempPath,
}

/// Bytes on their way to the disk.
pub(crate) struct Bytes {
    file: File,
    sums: Sums,
}

impl Bytes {
    fn new(file: File) -> Self {
        Self { file, sums: Sums::default() }
    }

    /// Adds to the file.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sums.add(bytes);
        self.file.write_all(bytes).await
    }

    /// How much has come so far.
    pub(crate) fn size(&self) -> u64 {
        self.sums.size
    }

    /// All has come: brings it to the disk and says what it was.
    pub(crate) async fn end(&mut self) -> io::Result<Received> {
        self.file.flush().await?;
        self.file.sync_all().await?;
        Ok(self.sums.end())
    }
}

#[derive(Clone, Default)]
struct Sums {
    sha1: Sha1,
    sha256: Sha256,
    size: u64,
}

impl Sums {
    fn add(&mut self, bytes: &[u8]) {
        self.sha1.update(bytes);
        self.sha256.update(bytes);
        self.size += bytes.len() as u64;
    }

    fn end(&self) -> Received {
        Received {
            size: self.size,
            sha1: hex(&self.sha1.clone().finalize()),
            sha256: hex(&self.sha256.clone().finalize()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _written = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_are_whole_or_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("artifacts");
        let depot = Depot::open(Some(root.clone())).unwrap();
        let id = Uuid::now_v7();
        let mut incoming = depot.receive().unwrap();
        incoming.bytes.write(b"ab").await.unwrap();
        assert!(!depot.has(id).await.unwrap());
        incoming.bytes.write(b"c").await.unwrap();
        let received = incoming.bytes.end().await.unwrap();
        assert_eq!(received.size, 3);
        assert_eq!(received.sha1, "a9993e364706816aba3e25717850c26c9cd0d89d");
        depot.keep(incoming, id).await.unwrap();
        assert_eq!(std::fs::read(depot.artifact(id)).unwrap(), b"abc");
        drop(depot.receive().unwrap());
        assert_eq!(std::fs::read_dir(root.join("incoming")).unwrap().count(), 0);
        // A server that was killed leaves its incomplete files behind.
        std::fs::write(root.join("incoming/torn"), "x").unwrap();
        let depot = Depot::open(Some(root.clone())).unwrap();
        assert!(depot.has(id).await.unwrap());
        assert_eq!(std::fs::read_dir(root.join("incoming")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn parts_join_in_order_and_orphans_go() {
        let depot = Depot::open(None).unwrap();
        let id = Uuid::now_v7();
        for (at, bytes) in [(2, b"cd"), (0, b"xy"), (0, b"ab")] {
            let mut part = depot.receive_part(id, at).await.unwrap();
            part.write(bytes).await.unwrap();
            part.end().await.unwrap();
        }
        let received = depot.gathered(id).await.unwrap();
        assert_eq!((received.size, &*received.sha1), (4, "81fe8bfe87576c3ecb22426f8e57847382917acf"));
        assert!(!depot.has(id).await.unwrap());
        depot.keep_gathered(id).await.unwrap();
        assert_eq!(std::fs::read(depot.artifact(id)).unwrap(), b"abcd");
        assert_eq!(depot.remove_all(&HashSet::from([id])).await.unwrap(), 1);
        assert!(depot.ids().await.unwrap().is_empty());
    }
}
