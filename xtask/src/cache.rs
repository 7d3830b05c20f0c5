//! Where things are kept that are costly to make: outside the work tree, so that `git clean` does not lose them.

use std::env;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::progress;

/// The cache directory: `$BUILDKITE_OPERATOR_CACHE`, or `buildkite-operator` in the user's cache directory.
pub(crate) fn root() -> Result<PathBuf> {
    root_from(|name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
        .context("no place for the cache: set HOME, XDG_CACHE_HOME or BUILDKITE_OPERATOR_CACHE")
}

fn root_from(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    variable("BUILDKITE_OPERATOR_CACHE").or_else(|| {
        let caches = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
        Some(caches.join("buildkite-operator"))
    })
}

/// Takes a lock that lasts as long as the returned file is open, at the latest until this process ends.
///
/// Whoever holds it may remove the file.
pub(crate) fn lock(path: &Path, purpose: &str) -> Result<File> {
    loop {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
        }
        let file = match File::create(path) {
            // The directory went with the last holder.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            file => file.with_context(|| format!("creating the lock {}", path.display()))?,
        };
        let file = take(file, path, purpose)?;
        // The last holder may have removed the file, and somebody else may have made it anew.
        if fs::metadata(path).is_ok_and(|now| file.metadata().is_ok_and(|held| held.ino() == now.ino())) {
            return Ok(file);
        }
    }
}

fn take(file: File, path: &Path, purpose: &str) -> Result<File> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            progress::step(&format!("waiting for another run that is {purpose}"), || Ok(file.lock()?))?;
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("locking {}", path.display()));
        }
    }
    Ok(file)
}

/// Replaces a file as a whole: whoever reads it, and whoever finds it after a crash, sees the old or the new one.
pub(crate) fn replace(path: &Path, contents: &[u8]) -> Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    fs::write(&unfinished, contents)
        .and_then(|()| fs::rename(&unfinished, path))
        .with_context(|| format!("writing {}", path.display()))
}

/// Removes the scratch directories that killed runs left. A lock must be held, so that nobody works there.
pub(crate) fn clear(directory: &Path, prefix: &str) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| format!("listing {}", directory.display()))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            fs::remove_dir_all(entry.path())
                .with_context(|| format!("removing {}", entry.path().display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_leaves_nothing_but_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("record.json");
        for contents in ["old", "new"] {
            replace(&file, contents.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), contents);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_what_killed_runs_left_is_cleared() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("tree-x1/root/etc")).unwrap();
        fs::write(directory.path().join("layer.tar"), "").unwrap();
        clear(directory.path(), "tree-").unwrap();
        let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["layer.tar"]);
    }

    #[test]
    fn the_most_particular_variable_decides() {
        let variables = [("BUILDKITE_OPERATOR_CACHE", "/a"), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")];
        let expected = ["/a", "/b/buildkite-operator", "/c/.cache/buildkite-operator"];
        for (skipped, expected) in expected.into_iter().enumerate() {
            let lookup = |name: &str| {
                let set = variables.iter().skip(skipped).find(|(variable, _)| *variable == name);
                set.map(|(_, value)| PathBuf::from(value))
            };
            assert_eq!(root_from(lookup), Some(PathBuf::from(expected)));
        }
        assert_eq!(root_from(|_| None), None);
    }

    #[test]
    fn a_lock_is_held_until_it_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/lock");
        let held = lock(&path, "testing").unwrap();
        assert!(matches!(File::open(&path).unwrap().try_lock(), Err(TryLockError::WouldBlock)));
        drop(held);
        File::open(&path).unwrap().try_lock().unwrap();
    }

    #[test]
    fn a_waiter_does_not_get_a_lock_that_was_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/lock");
        let held = lock(&path, "testing").unwrap();
        let waiter = std::thread::spawn({
            let path = path.clone();
            move || lock(&path, "testing").unwrap()
        });
        fs::remove_dir_all(directory.path().join("a")).unwrap();
        drop(held);
        let taken = waiter.join().unwrap();
        assert_eq!(taken.metadata().unwrap().ino(), fs::metadata(&path).unwrap().ino());
    }
}
