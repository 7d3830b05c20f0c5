//! What cannot be read, and how much is lost by that.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::{Path, PathBuf},
};

use super::{
    discovery::{Found, MOST_FILES},
    followed::FileId,
};

/// What cannot be read. What can be, later, is forgotten again; what is gone before is not.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    files: HashMap<FileId, Unread>,
    places: BTreeMap<PathBuf, String>,
    too_many: bool,
}

/// A file of which nobody has read the rest.
#[derive(Debug)]
struct Unread {
    bytes: u64,
    reason: String,
}

impl Trouble {
    /// So many bytes of a file cannot be read.
    pub(super) fn file(&mut self, id: FileId, path: &Path, bytes: u64, error: &io::Error) {
        let unread = self.files.entry(id).or_insert_with(|| {
            tracing::warn!(path = %path.display(), %error, "a file cannot be read");
            Unread { bytes, reason: reason(path, error) }
        });
        unread.bytes = bytes;
    }

    /// A file can be read.
    pub(super) fn is_over(&mut self, id: FileId) {
        if !self.files.is_empty() {
            self.files.remove(&id);
        }
    }

    /// What came of looking for files.
    pub(super) fn look(&mut self, found: &Found) {
        self.places.retain(|path, _| found.unreadable.contains_key(path) || !path.exists());
        for (path, error) in &found.unreadable {
            self.places.entry(path.clone()).or_insert_with(|| {
                tracing::warn!(path = %path.display(), %error, "files cannot be looked for");
                reason(path, error)
            });
        }
        if found.too_many && !self.too_many {
            tracing::warn!(most = MOST_FILES, "there are too many files: not all are followed");
        }
        self.too_many |= found.too_many;
    }

    /// Whether this file cannot be read.
    pub(super) fn has(&self, id: FileId) -> bool {
        self.files.contains_key(&id)
    }

    /// How many bytes are known of that nobody has read.
    pub(super) fn bytes(&self) -> u64 {
        self.files.values().map(|unread| unread.bytes).sum()
    }

    /// What is wrong, in one sentence.
    pub(super) fn complaint(&self) -> Option<String> {
        let files = self.files.values().map(|unread| &unread.reason);
        let first = files.min().or_else(|| self.places.values().next());
        let number = self.files.len() + self.places.len();
        let more = if number > 1 { format!(", and {} more", number - 1) } else { String::new() };
        let too_many = || {
            format!("there are more than {MOST_FILES} files: those that came last by name are not exported")
        };
        first.map(|first| format!("{first}{more}")).or_else(|| self.too_many.then(too_many))
    }
}

fn reason(path: &Path, error: &io::Error) -> String {
    format!("cannot read {}: {error}", path.display())
}
