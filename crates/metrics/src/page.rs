//! What a job's files say at one moment, and what is wrong with them.

use std::{collections::BTreeMap, path::Path, sync::Mutex};

use crate::{
    collection,
    family::{Families, Labels},
    files,
};

/// The metrics of a job at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The metrics, with the job's labels.
    pub families: Families,
    /// How many files they come from.
    pub files: usize,
    /// Files that are left out, and why.
    pub refused: BTreeMap<String, String>,
}

/// Reads pages, and reports each complaint once.
#[derive(Debug, Default)]
pub struct Reader {
    known: Mutex<BTreeMap<String, String>>,
}

impl Reader {
    /// What the files below `root` say now.
    pub fn read(&self, root: &Path, labels: &Labels) -> Page {
        let page = match files::read(root) {
            Err(error) => {
                let refused = BTreeMap::from([(".".to_owned(), format!("cannot be read: {error}"))]);
                Page { refused, ..Page::default() }
            }
            Ok(files) => {
                let texts = files.texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
                let merged = collection::merge(texts, labels);
                let mut refused = files.unreadable;
                let count = files.texts.len() - merged.refused.len();
                refused.extend(merged.refused.into_iter().map(|(name, reason)| (name, reason.to_string())));
                Page { families: merged.families, files: count, refused }
            }
        };
        self.complain(&page.refused);
        page
    }

    fn complain(&self, refused: &BTreeMap<String, String>) {
        // What another thread has left behind is at worst a complaint too many.
        let mut known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (file, reason) in refused.iter().filter(|(file, reason)| known.get(*file) != Some(reason)) {
            tracing::warn!(file, reason, "a file's metrics are left out");
        }
        known.clone_from(refused);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Reader;
    use crate::family::{self, Labels};

    #[test]
    fn a_bad_file_is_left_out_with_its_line() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("good.prom"), "builds_total 3\n").unwrap();
        fs::write(root.path().join("bad.prom"), "a 1\nb one\n").unwrap();
        let page = Reader::default().read(root.path(), &Labels::from([("step".into(), "x".into())]));
        assert_eq!(page.files, 1);
        let text = family::Page(&page.families).to_string();
        assert_eq!(text, "# TYPE builds_total untyped\nbuilds_total{step=\"x\"} 3\n");
        assert!(page.refused["bad.prom"].starts_with("line 2: "), "{:?}", page.refused);
    }
}
