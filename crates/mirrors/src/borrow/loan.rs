//! A mirror that can be borrowed from, and the `.git` that does.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use jiff::{SignedDuration, Timestamp};

use crate::{
    address::Address,
    pack,
    place::{BORROWED_REFS, Place, Record},
};

/// Why a mirror is not used.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refusal {
    /// There is none.
    #[error("there is no mirror of it")]
    Missing,
    /// It was not fetched for too long.
    #[error("its mirror was last fetched {hours} h ago")]
    Stale {
        /// How long ago.
        hours: i64,
    },
    /// It is known to be damaged, or was just found to be.
    #[error("its mirror is damaged: {0}")]
    Damaged(String),
    /// It cannot be read.
    #[error("its mirror cannot be read: {0}")]
    Unreadable(String),
}

/// A mirror that can be borrowed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loan {
    /// What the syncer says of it.
    pub record: Record,
    repository: PathBuf,
    refs: String,
}

impl Loan {
    /// The mirror of a repository, if it is there, whole and not older than `stale` seconds.
    pub fn find(mirrors: &Path, address: &Address, now: Timestamp, stale: u32) -> Result<Self, Refusal> {
        let place = Place::of(mirrors, address);
        let record = place.read().map_err(|error| Refusal::Unreadable(bk_ops::report::one_line(&error)))?;
        let record = record.ok_or(Refusal::Missing)?;
        if record.repository != address.canonical() {
            return Err(Refusal::Missing);
        }
        if let Some(damage) = record.damage {
            return Err(Refusal::Damaged(damage));
        }
        let age = now.duration_since(record.last_sync);
        if age > SignedDuration::from_secs(stale.into()) {
            return Err(Refusal::Stale { hours: age.as_hours() });
        }
        let repository = place.repository(&record);
        pack::inspect(&repository).map_err(Refusal::Damaged)?;
        let refs = fs::read_to_string(repository.join(BORROWED_REFS))
            .map_err(|error| Refusal::Unreadable(error.to_string()))?;
        Ok(Self { record, repository, refs })
    }

    /// Makes a `.git` that borrows, all at once: it is there as a whole or not at all. `url` is what the agent will look for, to the
    /// letter.
    pub fn take(&self, url: &str, git_directory: &Path) -> io::Result<()> {
        let checkout = git_directory.parent().unwrap_or(Path::new("/"));
        let beside = checkout.parent().unwrap_or(checkout);
        fs::create_dir_all(beside)?;
        let new = tempfile::Builder::new().prefix(".repo-mirror-").tempdir_in(beside)?;
        let git = new.path().join("git");
        for directory in
            ["objects/info", "objects/pack", "refs/heads", "refs/tags", "refs/remotes/origin", "info"]
        {
            fs::create_dir_all(git.join(directory))?;
        }
        fs::write(git.join("objects/info/alternates"), format!("{}/objects\n", self.repository.display()))?;
        fs::write(git.join("packed-refs"), &self.refs)?;
        fs::write(git.join("config"), self.config(url))?;
        let branch = self.record.head.as_ref().map_or("main", |head| head.branch.as_str());
        fs::write(git.join("HEAD"), format!("ref: refs/heads/{branch}\n"))?;
        if let Some(head) = &self.record.head {
            let file = git.join("refs/heads").join(branch);
            fs::create_dir_all(file.parent().unwrap_or(&git))?;
            fs::write(file, format!("{}\n", head.commit))?;
            fs::write(git.join("refs/remotes/origin/HEAD"), format!("ref: refs/remotes/origin/{branch}\n"))?;
        }
        fs::create_dir_all(checkout)?;
        fs::rename(&git, git_directory)
    }

    fn config(&self, url: &str) -> String {
        let text = format!(
            "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\
             [gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n{}",
            origin(url)
        );
        let Some(head) = &self.record.head else { return text };
        let branch = head.branch.replace('\\', "\\\\").replace('"', "\\\"");
        let merge = quoted(&format!("refs/heads/{}", head.branch));
        format!("{text}[branch \"{branch}\"]\n\tremote = origin\n\tmerge = {merge}\n")
    }
}

/// The remote of a clone.
pub(super) fn origin(url: &str) -> String {
    format!("[remote \"origin\"]\n\turl = {}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n", quoted(url))
}

/// A value as git's configuration has it.
fn quoted(value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}
