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
    /// Files that cannot be read, and why.
    pub unreadable: BTreeMap<String, String>,
}

/// Reads every file below `root`. A name that begins with a dot is that of a file which is not finished.
pub fn read(root: &Path) -> io::Result<Files> {
    let mut files = Files::default();
    let mut together = 0;
    for path in list(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        match text(&path, &mut together) {
            Ok(text) => files.texts.insert(name, text),
            Err(Some(reason)) => files.unreadable.insert(name, reason),
            Err(None) => continue,
        };
    }
    Ok(files)
}

/// The files below `root`, in order, so that the first of two that contradict each other stays the same.
fn list(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut directories = vec![fs::read_dir(root)?];
    while let Some(entries) = directories.pop() {
        for entry in entries.flatten().filter(|entry| !entry.file_name().as_bytes().starts_with(b".")) {
            match entry.file_type() {
                // A directory that is gone holds nothing.
                Ok(kind) if kind.is_dir() => directories.extend(fs::read_dir(entry.path()).ok()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A file's text; nothing if the file is gone.
fn text(path: &Path, together: &mut u64) -> Result<String, Option<String>> {
    let reason = |error: io::Error| {
        (error.kind() != io::ErrorKind::NotFound).then(|| format!("cannot be read: {error}"))
    };
    let size = fs::metadata(path).map_err(reason)?.len();
    if size > LONGEST {
        return Err(Some(format!("has {size} bytes, which is more than {LONGEST}")));
    }
    if *together + size > LONGEST_TOGETHER {
        return Err(Some(format!("with the others there are more than {LONGEST_TOGETHER} bytes")));
    }
    *together += size;
    let bytes = fs::read(path).map_err(reason)?;
    String::from_utf8(bytes).map_err(|error| {
        let (good, _) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
        Some(format!("line {}: not UTF-8", good.split(|byte| *byte == b'\n').count()))
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

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
        let files = read(root.path()).unwrap();
        assert_eq!(files.texts, [("b", "two"), ("deep/a", "one")].map(|(a, b)| (a.into(), b.into())).into());
        let expected =
            [("bad", "line 3: not UTF-8"), ("large", "has 1048577 bytes, which is more than 1048576")];
        assert_eq!(files.unreadable, expected.map(|(a, b)| (a.into(), b.into())).into());
        assert!(read(&at("nothing")).is_err());
    }
}
