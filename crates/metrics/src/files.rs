//! The files that a job writes.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

/// The most bytes of one file: what a job has to say is far less, and all of it is held in memory.
const LONGEST: u64 = 1 << 20;
/// The most bytes of all files.
const LONGEST_TOGETHER: u64 = 4 << 20;

/// What a directory holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Texts by the files' paths below the directory.
    pub texts: BTreeMap<String, String>,
    /// Files and directories that cannot be read, and why.
    pub unreadable: BTreeMap<String, String>,
}

/// Reads every file below `root`. A name that begins with a dot is that of a file which is not finished.
pub fn read(root: &Path) -> io::Result<Files> {
    let mut files = Files::default();
    let mut together = 0;
    for (path, found) in list(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        match found.map_err(Some).and_then(|()| text(&path, &mut together)) {
            Ok(text) => drop(files.texts.insert(name, text)),
            Err(Some(reason)) => drop(files.unreadable.insert(name, reason)),
            Err(None) => {}
        }
    }
    Ok(files)
}

/// What is below `root`, in order, so that the first of two files that contradict each other stays the same: files, and why something else
/// is none.
fn list(root: &Path) -> io::Result<BTreeMap<PathBuf, Result<(), String>>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![fs::read_dir(root)?];
    while let Some(entries) = directories.pop() {
        for entry in entries.flatten().filter(|entry| !entry.file_name().as_bytes().starts_with(b".")) {
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if kind.is_dir() {
                match fs::read_dir(&path) {
                    Ok(entries) => directories.push(entries),
                    Err(error) => {
                        found.extend(unreadable(&error).map(|reason| (path, Err(reason))));
                    }
                }
            } else if kind.is_file() {
                found.insert(path, Ok(()));
            } else {
                let what = if kind.is_symlink() { "is a link" } else { "is no regular file" };
                found.insert(path, Err(format!("{what}, which is not read")));
            }
        }
    }
    Ok(found)
}

/// Why something cannot be read; nothing if it is gone.
fn unreadable(error: &io::Error) -> Option<String> {
    (error.kind() != io::ErrorKind::NotFound).then(|| format!("cannot be read: {error}"))
}

/// A file's text; nothing if the file is gone.
fn text(path: &Path, together: &mut u64) -> Result<String, Option<String>> {
    let size = fs::metadata(path).map_err(|error| unreadable(&error))?.len();
    if size > LONGEST {
        return Err(Some(format!("has {size} bytes, which is more than {LONGEST}")));
    }
    if *together + size > LONGEST_TOGETHER {
        return Err(Some(format!("with the others there are more than {LONGEST_TOGETHER} bytes")));
    }
    *together += size;
    let bytes = fs::read(path).map_err(|error| unreadable(&error))?;
    String::from_utf8(bytes).map_err(|error| {
        let (good, _) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
        Some(format!("line {}: not UTF-8", good.split(|byte| *byte == b'\n').count()))
    })
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::{fs::symlink, net::UnixListener},
    };

    use super::{LONGEST, read};

    #[test]
    fn every_file_that_is_finished() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir(at("deep")).unwrap();
        fs::write(at("b"), "two").unwrap();
        fs::write(at("deep/a"), "one").unwrap();
        fs::write(at(".draft"), "x").unwrap();
        fs::write(at("bad"), b"a\nb\n\xff").unwrap();
        fs::File::create(at("large")).unwrap().set_len(LONGEST + 1).unwrap();
        symlink("/etc/passwd", at("link")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        let files = read(root.path()).unwrap();
        assert_eq!(files.texts, [("b", "two"), ("deep/a", "one")].map(|(a, b)| (a.into(), b.into())).into());
        let expected = [
            ("bad", "line 3: not UTF-8"),
            ("large", "has 1048577 bytes, which is more than 1048576"),
            ("link", "is a link, which is not read"),
            ("socket", "is no regular file, which is not read"),
        ];
        assert_eq!(files.unreadable, expected.map(|(a, b)| (a.into(), b.into())).into());
        assert!(read(&at("nothing")).is_err());
    }
    /// A directory that nobody can read, root included: its path is too long.
    #[test]
    fn a_directory_that_cannot_be_read_is_named() {
        let root = tempfile::tempdir().unwrap();
        let deep = vec!["d".repeat(200); 12].join("/");
        for half in ["one", "two"] {
            fs::create_dir_all(root.path().join(half).join(&deep)).unwrap();
        }
        fs::write(root.path().join("one").join(&deep).join("a"), "one").unwrap();
        fs::rename(root.path().join("one"), root.path().join("two").join(&deep).join("one")).unwrap();
        let files = read(root.path()).unwrap();
        assert!(files.texts.is_empty(), "{files:?}");
        let reasons: Vec<&String> = files.unreadable.values().collect();
        assert!(
            matches!(&reasons[..], [reason] if reason.starts_with("cannot be read: File name too long")),
            "{reasons:?}"
        );
    }
}
