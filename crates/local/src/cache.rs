//! The cache registry: which archive belongs to which key. No I/O; agents move the archives themselves.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most of anything in one request.
const MAX_ITEMS: usize = 100;
const MAX_TEXT: usize = 4096;

/// What an entry is found by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Address {
    /// What the archive unpacks to.
    #[serde(default)]
    pub(crate) target_paths: Vec<String>,
    /// From the general to the particular.
    #[serde(default)]
    pub(crate) cache_key: Vec<KeyPart>,
}

/// A part of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyPart {
    pub(crate) value: String,
    /// Whether an entry must agree in this part to be any use.
    #[serde(default)]
    pub(crate) mandatory: bool,
}

/// An archive that somebody uploads, or has uploaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewEntry {
    #[serde(flatten)]
    pub(crate) address: Address,
    /// The archives, by digest.
    #[serde(default)]
    pub(crate) blobs: Vec<Value>,
    #[serde(default)]
    pub(crate) platform: String,
}

/// Why a request about the cache is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CacheProblem {
    #[error("{what} needs 1 to {MAX_ITEMS} items, not {count}")]
    Count { what: &'static str, count: usize },
    #[error("a text in {what} is empty or has more than {MAX_TEXT} bytes")]
    Text { what: &'static str },
    #[error("a blob needs a digest with algorithm and value, and a file_size")]
    Blob,
}

impl Address {
    /// Checks what a client sent.
    pub(crate) fn check(&self) -> Result<(), CacheProblem> {
        let paths = self.target_paths.iter().map(String::as_str).collect::<Vec<_>>();
        let values = self.cache_key.iter().map(|part| part.value.as_str()).collect::<Vec<_>>();
        for (what, texts) in [("target_paths", paths), ("cache_key", values)] {
            if !(1..=MAX_ITEMS).contains(&texts.len()) {
                return Err(CacheProblem::Count { what, count: texts.len() });
            }
            if texts.iter().any(|text| text.is_empty() || text.len() > MAX_TEXT) {
                return Err(CacheProblem::Text { what });
            }
        }
        Ok(())
    }

    fn values(&self) -> impl Iterator<Item = &str> {
        self.cache_key.iter().map(|part| part.value.as_str())
    }

    /// Whether an entry is for exactly this key.
    fn is(&self, entry: &Self) -> bool {
        self.target_paths == entry.target_paths && self.values().eq(entry.values())
    }

    /// How many parts of the key an entry has in common, from the beginning; none when that is too few to be
    /// of use.
    fn shares(&self, entry: &Self) -> Option<usize> {
        let common = self.values().zip(entry.values()).take_while(|(one, other)| one == other).count();
        let needed = self.cache_key.iter().rposition(|part| part.mandatory).map_or(0, |last| last + 1);
        (self.target_paths == entry.target_paths && common >= needed.max(1)).then_some(common)
    }

    /// The best of the entries, which come newest first: the exact one; else, when parts of the key are
    /// optional, the one that agrees in most. Says whether it is a fallback.
    pub(crate) fn best<T>(&self, entries: Vec<T>, address: impl Fn(&T) -> &Self) -> Option<(T, bool)> {
        let mut best: Option<(usize, T)> = None;
        for entry in entries {
            if self.is(address(&entry)) {
                return Some((entry, false));
            }
            if let Some(common) = self.shares(address(&entry)) {
                let better = best.as_ref().is_none_or(|(most, _)| common > *most);
                let optional = common < self.cache_key.len() && !self.cache_key[common].mandatory;
                if better && optional {
                    best = Some((common, entry));
                }
            }
        }
        best.map(|(_, entry)| (entry, true))
    }
}

impl NewEntry {
    /// Checks what a client sent.
    pub(crate) fn check(&self) -> Result<(), CacheProblem> {
        self.address.check()?;
        if !(1..=MAX_ITEMS).contains(&self.blobs.len()) {
            return Err(CacheProblem::Count { what: "blobs", count: self.blobs.len() });
        }
        let sound = |blob: &Value| {
            let text = |name: &str| blob["digest"][name].as_str().is_some_and(|text| !text.is_empty());
            text("algorithm") && text("value") && blob["file_size"].as_u64().is_some()
        };
        if self.blobs.iter().all(sound) { Ok(()) } else { Err(CacheProblem::Blob) }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// `!` marks mandatory parts.
    fn address(key: &str) -> Address {
        let part = |text: &str| KeyPart {
            value: text.trim_end_matches('!').to_owned(),
            mandatory: text.ends_with('!'),
        };
        Address {
            target_paths: vec!["node_modules".to_owned()],
            cache_key: key.split(' ').map(part).collect(),
        }
    }

    #[rstest]
    #[case::exact("a! b! c!", &["a b x", "a b c"], Some(("a b c", false)))]
    #[case::nothing_optional("a! b! c!", &["a b x", "a b"], None)]
    #[case::optional_end("a! b! c", &["a b x"], Some(("a b x", true)))]
    #[case::newest_of_equals("a! b", &["a x", "a y"], Some(("a x", true)))]
    #[case::most_in_common("a! b c", &["a x c", "a b x"], Some(("a b x", true)))]
    #[case::exact_before_newer("a! b", &["a x", "a b"], Some(("a b", false)))]
    #[case::mandatory_differs("a! b! c", &["a x c"], None)]
    #[case::shorter("a! b c", &["a b"], Some(("a b", true)))]
    #[case::first_part_differs("a b", &["x b"], None)]
    fn the_best_entry(#[case] key: &str, #[case] entries: &[&str], #[case] expected: Option<(&str, bool)>) {
        let entries: Vec<Address> = entries.iter().map(|key| address(key)).collect();
        let best = address(key).best(entries, |entry| entry);
        assert_eq!(best, expected.map(|(key, fallback)| (address(key), fallback)));
    }

    #[test]
    fn other_paths_are_other_entries() {
        let entry = Address { target_paths: vec!["vendor".to_owned()], ..address("a") };
        assert_eq!(address("a").best(vec![entry], |entry| entry), None);
    }

    #[test]
    fn addresses_are_checked() {
        assert_eq!(address("a").check(), Ok(()));
        assert!(Address { target_paths: Vec::new(), ..address("a") }.check().is_err());
        assert!(Address { cache_key: Vec::new(), ..address("a") }.check().is_err());
        assert!(Address { target_paths: vec![String::new()], ..address("a") }.check().is_err());
    }
}
