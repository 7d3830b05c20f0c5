//! Which files are to be uploaded, and when. Pure: what was seen is given, and so is the time.
//!
//! A file is uploaded once it is closed and has not changed for a moment; if nothing tells whether it is closed, once it has not changed for
//! longer. When the job is about to end, everything is uploaded that is there. A file that changes after its upload is uploaded again.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

/// How long a file that is closed must not have changed: programs write one file in several turns.
pub const QUIET: Duration = Duration::from_secs(1);
/// The same for a file of which nobody knows whether it is closed.
pub const QUIET_IF_OPEN: Duration = Duration::from_secs(30);
/// How often a file is tried, and again as often at the end.
pub const TRIES: u32 = 5;
/// The pause before a file is tried for the second time; it doubles with each.
const PAUSE: Duration = Duration::from_secs(1);

/// A file as it was seen. If it is the same the next time, it has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Its size in bytes.
    pub size: u64,
    /// When it was changed, in nanoseconds since 1970.
    pub modified: i128,
}

/// Time since the exporter began.
pub type Moment = Duration;

#[derive(Clone, Copy, Debug)]
struct File {
    look: Look,
    /// Since when it looks like that.
    since: Moment,
    /// Whether it was closed since it was last changed.
    closed: bool,
    /// How it looked when it was uploaded.
    uploaded: Option<Look>,
    failures: u32,
    /// Whether an upload has failed since it looks like that: it may be an artifact all the same, as a call that fails has others in it.
    tried: bool,
    /// Not to be tried before.
    not_before: Moment,
}

impl File {
    fn is_waiting(&self) -> bool {
        self.uploaded != Some(self.look) && self.failures < TRIES
    }
}

/// What has become of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is an artifact.
    Uploaded,
    /// It is not, this time.
    Failed,
}

/// All files that were seen.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    files: BTreeMap<PathBuf, File>,
    /// How often a file of this path and size was uploaded.
    taken: BTreeMap<(PathBuf, u64), usize>,
}

impl Ledger {
    /// Takes down what is in the directory. Files that are gone are forgotten: what was uploaded stays an artifact.
    pub fn seen(&mut self, now: Moment, found: BTreeMap<PathBuf, Look>) {
        self.files.retain(|path, _| found.contains_key(path));
        for (path, look) in found {
            let new = File {
                look,
                since: now,
                closed: false,
                uploaded: None,
                failures: 0,
                tried: false,
                not_before: now,
            };
            let file = self.files.entry(path).or_insert(new);
            if file.look != look {
                *file = File { uploaded: file.uploaded, closed: file.closed, ..new };
            }
        }
    }

    /// Somebody writes to the file.
    pub fn written(&mut self, path: &Path) {
        if let Some(file) = self.files.get_mut(path) {
            file.closed = false;
        }
    }

    /// The file was closed, or came with its name from elsewhere.
    pub fn closed(&mut self, path: &Path) {
        if let Some(file) = self.files.get_mut(path) {
            file.closed = true;
        }
    }

    /// Nobody knows which files are written to.
    pub fn unsure(&mut self) {
        self.files.values_mut().for_each(|file| file.closed = false);
    }

    /// What is to be uploaded now, smallest first, so that one large file does not keep the others waiting.
    pub fn due(&self, now: Moment) -> Vec<PathBuf> {
        self.wanted(|file| {
            let quiet = if file.closed { QUIET } else { QUIET_IF_OPEN };
            file.failures < TRIES && now >= file.not_before && now.saturating_sub(file.since) >= quiet
        })
    }

    /// The job is about to end: what has failed gets another chance.
    pub fn renew(&mut self) {
        for file in self.files.values_mut() {
            (file.failures, file.not_before) = (0, Moment::ZERO);
        }
    }

    /// What is to be uploaded now as the job is about to end: everything that is not there yet.
    pub fn left(&self, now: Moment) -> Vec<PathBuf> {
        self.wanted(|file| file.failures < TRIES && now >= file.not_before)
    }

    /// Whether the file is not uploaded, and may still be.
    pub fn is_waiting(&self, path: &Path) -> bool {
        self.files.get(path).is_some_and(File::is_waiting)
    }

    /// How many files are not uploaded: those that may still be, and those that have failed too often.
    pub fn missing(&self) -> (usize, usize) {
        let waiting = self.waiting().count();
        (waiting, self.wanted(|_| true).len() - waiting)
    }

    fn waiting(&self) -> impl Iterator<Item = &File> {
        self.files.values().filter(|file| file.is_waiting())
    }

    /// Those that have failed come last, so that they do not keep others waiting either.
    fn wanted(&self, when: impl Fn(&File) -> bool) -> Vec<PathBuf> {
        let due = |file: &File| file.uploaded != Some(file.look) && when(file);
        let mut wanted: Vec<_> = self.files.iter().filter(|(_, file)| due(file)).collect();
        wanted.sort_by_key(|(_, file)| (file.failures, file.look.size));
        wanted.into_iter().map(|(path, _)| path.clone()).collect()
    }

    /// How often the file has failed.
    pub fn failures(&self, path: &Path) -> u32 {
        self.files.get(path).map_or(0, |file| file.failures)
    }

    /// How a file looks that is about to be uploaded.
    pub fn look(&self, path: &Path) -> Option<Look> {
        self.files.get(path).map(|file| file.look)
    }

    /// Takes down what became of a file that looked like this when its upload began.
    pub fn told(&mut self, now: Moment, path: &Path, look: Look, outcome: Outcome) {
        let Some(file) = self.files.get_mut(path) else { return };
        match outcome {
            Outcome::Uploaded => {
                (file.uploaded, file.failures, file.tried) = (Some(look), 0, false);
                *self.taken.entry((path.to_owned(), look.size)).or_default() += 1;
            }
            Outcome::Failed => {
                file.not_before = now + PAUSE * 2_u32.saturating_pow(file.failures.min(10));
                file.failures += 1;
                file.tried = file.look == look;
            }
        }
    }

    /// Takes down which artifacts there are, by path and size. Those of files that were tried in vain, and of which there is one more than is known,
    /// are not tried again. Returns how many.
    pub fn found(&mut self, artifacts: &BTreeMap<(PathBuf, u64), usize>) -> usize {
        let mut count = 0;
        for (path, file) in self.files.iter_mut().filter(|(_, file)| file.tried) {
            let key = (path.clone(), file.look.size);
            let taken = self.taken.entry(key.clone()).or_default();
            if artifacts.get(&key).is_some_and(|found| *found > *taken) {
                (file.uploaded, file.failures, file.tried) = (Some(file.look), 0, false);
                *taken += 1;
                count += 1;
            }
        }
        count
    }

    /// When something may be due next, if nothing is seen until then.
    pub fn next(&self) -> Option<Moment> {
        let when = |file: &File| {
            let quiet = if file.closed { QUIET } else { QUIET_IF_OPEN };
            (file.since + quiet).max(file.not_before)
        };
        self.waiting().map(when).min()
    }
}

#[cfg(test)]
mod tests;
