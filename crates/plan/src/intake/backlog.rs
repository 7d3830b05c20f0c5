//! What waits in a queue beyond the first page of its listing.
//!
//! To read all pages for each place that gets free would take longer than the place is worth, and most of what the service
//! allows. So they are read from time to time, and places are filled from what was read.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use super::candidate::Candidate;

/// How long all pages are not read again.
const FRESH: Duration = Duration::from_secs(10);

/// The jobs beyond the first page, as of the last time that all pages were read.
#[derive(Debug, Default)]
pub struct Backlog {
    rest: Vec<Candidate>,
    read: Option<Instant>,
}

impl Backlog {
    /// Whether all pages should be read before jobs are chosen.
    pub fn is_due(&self, now: Instant) -> bool {
        self.rest.is_empty() || self.read.is_none_or(|read| now.duration_since(read) >= FRESH)
    }

    /// All pages were read: these are the jobs beyond the first.
    pub fn replace(&mut self, rest: Vec<Candidate>, now: Instant) {
        self.rest = rest;
        self.read = Some(now);
    }

    /// The first page was read alone, and shows these. What it shows is known better from it.
    pub fn surfaced(&mut self, first: &[Candidate]) {
        self.drop_all(first);
    }

    /// These were taken, or tried.
    pub fn took(&mut self, jobs: &[Candidate]) {
        self.drop_all(jobs);
    }

    /// Nothing is known to wait.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// What waits beyond the first page.
    pub fn rest(&self) -> &[Candidate] {
        &self.rest
    }

    fn drop_all(&mut self, jobs: &[Candidate]) {
        if self.rest.is_empty() || jobs.is_empty() {
            return;
        }
        let gone: HashSet<&str> = jobs.iter().map(|job| job.uuid.as_str()).collect();
        self.rest.retain(|job| !gone.contains(job.uuid.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn jobs(names: &str) -> Vec<Candidate> {
        let job = |name: char| Candidate {
            uuid: name.to_string(),
            pipeline: None,
            priority: 0,
            scheduled_at: Timestamp::UNIX_EPOCH,
            rules: Vec::new(),
        };
        names.chars().map(job).collect()
    }

    fn rest(backlog: &Backlog) -> String {
        backlog.rest().iter().map(|job| job.uuid.as_str()).collect()
    }

    #[test]
    fn all_pages_are_read_when_nothing_is_left_of_them_or_they_are_old() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        assert!(backlog.is_due(now));
        backlog.replace(jobs("cd"), now);
        assert!(!backlog.is_due(now + FRESH / 2));
        assert!(backlog.is_due(now + FRESH));
        backlog.took(&jobs("cd"));
        assert!(backlog.is_due(now), "the next may be on any page");
    }

    #[test]
    fn what_was_taken_or_has_come_to_the_first_page_is_not_in_the_rest() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        backlog.replace(jobs("cdefg"), now);
        backlog.took(&jobs("ae"));
        backlog.surfaced(&jobs("bc"));
        assert_eq!(rest(&backlog), "dfg");
        backlog.clear();
        assert!(backlog.is_due(now) && backlog.rest().is_empty());
    }
}
