//! Where a mirror is, and the record that tells borrowers about it.
//!
//! ```text
//! <root>/<name>-<digest>/
//!     lock                   held by whoever writes
//!     mirror.json            the record; replaced as a whole
//!     g1/                    a bare repository; g2 … after it was rebuilt
//!         borrowed-refs      what a clone would have as its references; replaced as a whole
//! ```
//!
//! A borrower reads the record, which names the repository in use, and refers to that one for as long as it lives. So a mirror can
//! be rebuilt while jobs read the old repository.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use bk_api::repo_mirror::MirrorHead;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Error, address::Address};

/// Name of the record.
const RECORD: &str = "mirror.json";
/// Name of the file with references for borrowers, in the repository.
pub const BORROWED_REFS: &str = "borrowed-refs";
/// What the directory of a repository that is still being made ends in.
const UNFINISHED: &str = ".new";

/// The directory of one mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The directory.
    pub directory: PathBuf,
}

/// What is known of a mirror; absent until there is something to borrow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The repository, in the spelling that all others have in common.
    pub repository: String,
    /// The directory of the repository in use.
    pub generation: String,
    /// When it was made.
    pub built_at: Timestamp,
    /// When it was last the same as the remote repository.
    pub last_sync: Timestamp,
    /// When all its objects were last known to be there.
    pub verified_at: Timestamp,
    /// The default branch, if the repository has any commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<MirrorHead>,
    /// What is wrong with it: nobody should borrow until it is rebuilt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// Repositories that are no longer needed, but may still be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leavings: Vec<Leaving>,
}

/// A repository that is no longer needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leaving {
    /// Its directory.
    pub name: String,
    /// Since when.
    pub since: Timestamp,
}

impl Place {
    /// Where the mirror of a repository is, below the directory of all mirrors.
    pub fn of(root: &Path, address: &Address) -> Self {
        Self { directory: root.join(address.directory()) }
    }

    /// The repository that the record names.
    pub fn repository(&self, record: &Record) -> PathBuf {
        self.directory.join(&record.generation)
    }

    /// The file that whoever writes holds.
    pub fn lock_file(&self) -> PathBuf {
        self.directory.join("lock")
    }

    /// Where the next repository is made, and what it is called then.
    pub fn next(&self, record: Option<&Record>) -> io::Result<(PathBuf, String)> {
        let mut highest = record.map_or(0, |record| number(&record.generation));
        for entry in fs::read_dir(&self.directory)? {
            highest = highest.max(number(&entry?.file_name().to_string_lossy()));
        }
        let name = format!("g{}", highest.saturating_add(1));
        Ok((self.directory.join(format!("{name}{UNFINISHED}")), name))
    }

    /// Repositories that the record does not speak of: it may have been lost.
    pub fn forgotten(&self, record: &Record) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let known =
                name == record.generation || record.leavings.iter().any(|leaving| leaving.name == name);
            if number(&name) > 0 && !name.ends_with(UNFINISHED) && !known {
                found.push(name);
            }
        }
        Ok(found)
    }

    /// Repositories whose making was cut short. Only the holder of the lock may look.
    pub fn unfinished(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with(UNFINISHED) {
                found.push(path);
            }
        }
        Ok(found)
    }

    /// The record; none if there is nothing to borrow.
    pub fn read(&self) -> Result<Option<Record>, Error> {
        let file = self.directory.join(RECORD);
        let unreadable = || format!("read {}", file.display());
        match fs::read(&file) {
            Ok(bytes) => {
                let record: Record = serde_json::from_slice(&bytes)
                    .map_err(|error| Error::file(unreadable())(io::Error::other(error)))?;
                if !is_plain(&record.generation) {
                    return Err(Error::file(unreadable())(io::Error::other(
                        "it names no directory beside it",
                    )));
                }
                Ok(Some(record))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::file(unreadable())(error)),
        }
    }

    /// Replaces the record.
    pub fn write(&self, record: &Record) -> Result<(), Error> {
        let file = self.directory.join(RECORD);
        let bytes = serde_json::to_vec_pretty(record).expect("a record can be written as JSON");
        replace(&file, &bytes).map_err(Error::file(format!("write {}", file.display())))
    }
}

/// Replaces a file as a whole: readers see the old one or the new one.
pub fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = file.parent().unwrap_or(Path::new("."));
    let mut new = tempfile::Builder::new().prefix(".replacing-").tempfile_in(beside)?;
    new.write_all(bytes)?;
    new.as_file().set_permissions(readable())?;
    new.as_file().sync_all()?;
    new.persist(file).map_err(|error| error.error)?;
    Ok(())
}

/// Whoever borrows is another user.
fn readable() -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    fs::Permissions::from_mode(0o644)
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains('/')
}

fn number(generation: &str) -> u64 {
    let name = generation.strip_suffix(UNFINISHED).unwrap_or(generation);
    name.strip_prefix('g').and_then(|digits| digits.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, Place) {
        let directory = tempfile::tempdir().unwrap();
        let place = Place { directory: directory.path().to_owned() };
        (directory, place)
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let (_directory, place) = place();
        assert_eq!(place.read().unwrap(), None);
        let leaving = Leaving { name: "g1".to_owned(), since: Timestamp::UNIX_EPOCH };
        let record = Record { generation: "g2".to_owned(), leavings: vec![leaving], ..Record::default() };
        place.write(&record).unwrap();
        assert_eq!(place.read().unwrap(), Some(record));
    }

    #[test]
    fn a_record_that_leads_elsewhere_is_refused() {
        let (_directory, place) = place();
        for generation in ["../other", "", ".", "/etc"] {
            place.write(&Record { generation: generation.to_owned(), ..Record::default() }).unwrap();
            assert!(place.read().is_err(), "{generation}");
        }
        fs::write(place.directory.join(RECORD), "half a rec").unwrap();
        assert!(place.read().is_err());
    }

    #[test]
    fn numbers_are_not_used_twice() {
        let (_directory, place) = place();
        assert_eq!(place.next(None).unwrap().1, "g1");
        fs::create_dir(place.directory.join("g4")).unwrap();
        fs::create_dir(place.directory.join("g9.new")).unwrap();
        let record = Record { generation: "g2".to_owned(), ..Record::default() };
        assert_eq!(place.next(Some(&record)).unwrap().1, "g10");
        assert_eq!(place.unfinished().unwrap(), [place.directory.join("g9.new")]);
    }
}
