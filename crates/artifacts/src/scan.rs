//! What is in the directory whose files become artifacts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::ledger::Look;

/// What a look into the directory shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Files by their paths below the directory.
    pub files: BTreeMap<PathBuf, Look>,
    /// Directories by the same, with the directory itself, whose path is empty.
    pub directories: BTreeSet<PathBuf>,
    /// What cannot become an artifact, and why.
    pub skipped: BTreeMap<PathBuf, Skip>,
}

/// Why something does not become an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Skip {
    /// It holds nothing that could be uploaded.
    #[error("no file: a socket, a pipe or a device")]
    NoFile,
    /// What it leads to is in the directory anyway, or is no file.
    #[error("a link to something that is no file")]
    LinkToNoFile,
    /// There is nothing behind it.
    #[error("a link that leads nowhere")]
    LinkToNothing,
    /// Whatever is behind it, the job did not put it into the directory.
    #[error("a link that leads out of the directory")]
    LinkOut,
    /// Buildkite's names are text.
    #[error("its name is not UTF-8, which Buildkite cannot take")]
    Name,
    /// The agent would look for another file.
    #[error("its name ends with white space, which the agent cuts off")]
    Blank,
    /// The exporter runs as another user than the job.
    #[error("the exporter's user may not read it")]
    Unreadable,
}

impl Skip {
    /// Whether somebody would expect an artifact, and gets none.
    pub fn is_loss(self) -> bool {
        matches!(self, Self::LinkOut | Self::Name | Self::Blank | Self::Unreadable)
    }
}

/// Looks at everything below `root`. What vanishes meanwhile is not there; a link counts as the file that it leads to, if that is
/// below `root` too, so that no job can make artifacts of the exporter's own files.
pub fn scan(root: &Path) -> io::Result<Scan> {
    let root = fs::canonicalize(root)?;
    let mut scan = Scan::default();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        let entries = match fs::read_dir(root.join(&directory)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => {
                scan.skipped.insert(directory, Skip::Unreadable);
                continue;
            }
        };
        scan.directories.insert(directory.clone());
        for entry in entries.flatten() {
            let path = directory.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(path),
                Ok(kind) if kind.is_file() => take(&mut scan, &root, path),
                Ok(kind) if kind.is_symlink() => follow(&mut scan, &root, path),
                Ok(_) => {
                    scan.skipped.insert(path, Skip::NoFile);
                }
                Err(_) => {}
            }
        }
    }
    Ok(scan)
}

fn follow(scan: &mut Scan, root: &Path, path: PathBuf) {
    let reason = match fs::canonicalize(root.join(&path)) {
        Err(_) => Skip::LinkToNothing,
        Ok(target) if !target.starts_with(root) => Skip::LinkOut,
        Ok(target) if target.is_file() => return take(scan, root, path),
        Ok(_) => Skip::LinkToNoFile,
    };
    scan.skipped.insert(path, reason);
}

fn take(scan: &mut Scan, root: &Path, path: PathBuf) {
    let full = root.join(&path);
    let Ok(about) = fs::metadata(&full) else { return };
    let skip = match path.to_str() {
        None => Some(Skip::Name),
        Some(text) => text.ends_with(char::is_whitespace).then_some(Skip::Blank),
    };
    if let Some(skip) = skip {
        scan.skipped.insert(path, skip);
        return;
    }
    let modified = i128::from(about.mtime()) * 1_000_000_000 + i128::from(about.mtime_nsec());
    scan.files.insert(path, Look { size: about.len(), modified });
}

#[cfg(test)]
mod tests {
    use std::{
        ffi::OsStr,
        fs,
        os::unix::{ffi::OsStrExt as _, fs::symlink, net::UnixListener},
    };

    use super::{Skip, scan};

    #[test]
    fn files_links_and_the_rest() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("artifacts");
        fs::create_dir_all(root.join("deep/er")).unwrap();
        fs::write(root.join("plain"), "12345").unwrap();
        fs::write(root.join("deep/er/käse *.txt"), "").unwrap();
        fs::write(root.join(".hidden"), "1").unwrap();
        fs::write(directory.path().join("outside"), "secret").unwrap();
        fs::write(root.join(OsStr::from_bytes(b"bad\xff")), "").unwrap();
        symlink("plain", root.join("link")).unwrap();
        symlink("../outside", root.join("out")).unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        symlink(".", root.join("loop")).unwrap();
        fs::write(root.join("blank "), "").unwrap();
        let _socket = UnixListener::bind(root.join("socket")).unwrap();

        let scan = scan(&root).unwrap();
        let files: Vec<_> =
            scan.files.iter().map(|(path, look)| (path.to_str().unwrap(), look.size)).collect();
        assert_eq!(files, [(".hidden", 1), ("deep/er/käse *.txt", 0), ("link", 5), ("plain", 5)]);
        let skipped: Vec<_> =
            scan.skipped.iter().map(|(path, why)| (path.to_string_lossy().into_owned(), *why)).collect();
        let expected = [
            ("bad\u{fffd}", Skip::Name),
            ("blank ", Skip::Blank),
            ("dangling", Skip::LinkToNothing),
            ("loop", Skip::LinkToNoFile),
            ("out", Skip::LinkOut),
            ("socket", Skip::NoFile),
        ];
        let directories: Vec<_> = scan.directories.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(directories, ["", "deep", "deep/er"]);
        assert_eq!(skipped, expected.map(|(path, why)| (path.to_owned(), why)));
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        assert!(scan("/no/such/directory".as_ref()).is_err());
    }
}
