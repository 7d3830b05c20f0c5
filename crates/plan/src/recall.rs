//! What one process remembers about a BuildJob because its caches may not show it yet.
//!
//! Nothing here is the truth: a process that has forgotten it all does the same things, with a needless call
//! or two more. It saves those calls, and tells a pod that has vanished from one that was never there.

use jiff::Timestamp;

/// What is remembered about one BuildJob.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recall {
    /// Versions of the BuildJob that we have overwritten.
    overwritten: Vec<String>,
    /// Whether we have deleted it.
    deleted: bool,
    /// What became of the creation of this attempt's pod.
    creation: Option<(u32, Creation)>,
    /// What Buildkite was last told that the job waits for.
    explained: Option<Explained>,
}

/// What Buildkite was told that a job waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// What was said.
    pub text: String,
    /// When.
    pub at: Timestamp,
}

/// What is certain about the creation of an attempt's pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Creation {
    /// Nothing: no process, or another one, may have created it.
    #[default]
    Unknown,
    /// We have created it.
    Done,
    /// We have tried, and it was not created.
    Failed {
        /// When to try again.
        retry_at: Timestamp,
    },
}

impl Recall {
    /// Whether a view of the BuildJob in this version is one that we have changed since: nothing may be based on it.
    pub fn is_outdated(&self, version: Option<&str>) -> bool {
        self.deleted || version.is_some_and(|version| self.overwritten.iter().any(|old| old == version))
    }

    /// Notes that we have written the BuildJob, on the basis of this version.
    pub fn wrote(&mut self, version: Option<String>) {
        self.overwritten.extend(version);
    }

    /// Notes that we have deleted the BuildJob.
    pub fn deleted(&mut self) {
        self.deleted = true;
    }

    /// Whether the BuildJob's deletion was our own doing.
    pub fn has_deleted(&self) -> bool {
        self.deleted
    }

    /// Notes what became of the creation of an attempt's pod.
    pub fn created(&mut self, attempt: u32, creation: Creation) {
        self.creation = Some((attempt, creation));
    }

    /// What is certain about the creation of an attempt's pod.
    pub fn creation(&self, attempt: u32) -> Creation {
        self.creation.filter(|(of, _)| *of == attempt).map(|(_, creation)| creation).unwrap_or_default()
    }

    /// Notes that Buildkite was told what the job waits for.
    pub fn told(&mut self, text: String, at: Timestamp) {
        self.explained = Some(Explained { text, at });
    }

    /// What Buildkite was last told that the job waits for.
    pub fn explained(&self) -> Option<&Explained> {
        self.explained.as_ref()
    }

    /// Lets a creation that failed be tried again at once: there may be room now.
    pub fn retry(&mut self, now: Timestamp) {
        if let Some((_, Creation::Failed { retry_at })) = &mut self.creation {
            *retry_at = now;
        }
    }

    /// Forgets the versions before one that a cache has shown: they cannot come back.
    pub fn seen(&mut self) {
        self.overwritten.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_overwritten_is_outdated_until_something_newer_was_seen() {
        let mut recall = Recall::default();
        recall.wrote(Some("7".to_owned()));
        recall.wrote(Some("8".to_owned()));
        let outdated = |recall: &Recall| ["7", "8", "9"].map(|version| recall.is_outdated(Some(version)));
        assert_eq!(outdated(&recall), [true, true, false]);
        recall.seen();
        assert_eq!(outdated(&recall), [false; 3]);
        recall.deleted();
        assert_eq!(outdated(&recall), [true; 3]);
    }

    #[test]
    fn a_creation_belongs_to_its_attempt() {
        let mut recall = Recall::default();
        recall.created(0, Creation::Done);
        assert_eq!((recall.creation(0), recall.creation(1)), (Creation::Done, Creation::Unknown));
    }
}
