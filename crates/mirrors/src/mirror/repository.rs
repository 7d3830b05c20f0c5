//! The bare repository of a mirror, and git's work in it.

use std::{fs::File, path::PathBuf, time::Duration};

use bk_api::repo_mirror::MirrorHead;
use tokio_util::sync::CancellationToken;

use super::{Order, refs};
use crate::{
    Error,
    git::{Git, GitError},
    pack,
    place::{self, BORROWED_REFS},
};

/// How the repository is set up: nothing happens in it by itself, nothing is ever pruned, and what is fetched stays in the pack that
/// it came in.
const SETTINGS: [(&str, &str); 7] = [
    ("gc.auto", "0"),
    ("gc.pruneExpire", "never"),
    ("maintenance.auto", "false"),
    ("fetch.unpackLimit", "1"),
    ("transfer.unpackLimit", "1"),
    ("transfer.fsckObjects", "false"),
    ("core.logAllRefUpdates", "false"),
];

/// A bare repository that its mirror's lock protects.
pub(super) struct Repository<'a> {
    pub(super) directory: PathBuf,
    pub(super) order: &'a Order,
    pub(super) timeout: Duration,
    pub(super) lock: &'a File,
}

impl Repository<'_> {
    /// A command in this repository.
    pub(super) fn git(&self, name: &str) -> Git {
        Git::new(&self.directory, name, self.timeout)
    }

    /// The same command for the remote repository. It holds the lock as long as it runs.
    fn remote(&self, name: &str) -> Result<Git, GitError> {
        let lock = self.lock.try_clone();
        let lock = lock.map_err(|source| GitError::Start { command: name.to_owned(), source })?;
        Ok(self.order.access.of(self.git(name)).holding(lock))
    }

    /// Makes an empty one.
    pub(super) async fn make(&self) -> Result<(), Error> {
        let init = Git::anywhere("init", self.timeout).args(["--quiet", "--bare", "--template="]);
        init.args([&self.directory]).run().await?;
        for (key, value) in SETTINGS {
            self.git("config").args([key, value]).run().await?;
        }
        Ok(())
    }

    /// Fetches what is new, and forgets references that are gone. Their objects stay.
    pub(super) async fn fetch(&self) -> Result<(), GitError> {
        let options = ["--quiet", "--prune", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"];
        let fetch = self.remote("fetch")?.args(options).args(["--no-recurse-submodules", "origin"]);
        fetch.args(self.order.refs.iter().map(|pattern| refs::refspec(pattern))).run().await?;
        Ok(())
    }

    /// Fetches files of Git LFS that the default branch has, if they are wanted. Returns what did not work.
    pub(super) async fn fetch_lfs(&self) -> Option<String> {
        if !self.order.lfs {
            return None;
        }
        let fetched = async {
            // A repository that was just made does not know its default branch yet; an empty one has none.
            let Some(branch) = self.default_branch().await? else { return Ok(()) };
            self.git("symbolic-ref").args(["HEAD", &format!("refs/heads/{branch}")]).run().await?;
            self.remote("lfs")?.args(["fetch", "origin", "HEAD"]).run().await.map(drop)
        };
        fetched.await.err().map(|error| format!("Git LFS: {}", bk_ops::report::one_line(&error)))
    }

    /// Checks that packs have what they had when they were written, and that no object is missing that a reference leads to.
    pub(super) async fn verify(&self) -> Result<(), Error> {
        if let Some(damage) = self.damaged_pack().await? {
            return Err(Error::Corrupt(damage));
        }
        let check = self.git("fsck").args(["--connectivity-only", "--no-dangling", "--no-progress"]);
        match check.run().await {
            Ok(_) => Ok(()),
            Err(GitError::Failed { complaint, .. }) => Err(Error::Corrupt(complaint)),
            Err(other) => Err(other.into()),
        }
    }

    async fn damaged_pack(&self) -> Result<Option<String>, Error> {
        let over = CancellationToken::new();
        // Whoever is not waited for any more stops reading.
        let _over = over.clone().drop_guard();
        let directory = self.directory.clone();
        let read = tokio::task::spawn_blocking(move || pack::damage(&directory, || !over.is_cancelled()));
        let what = || format!("read the packs of {}", self.directory.display());
        let read = tokio::time::timeout(self.timeout, read).await;
        let read = read.map_err(|late| Error::file(what())(late.into()))?;
        read.map_err(|panic| Error::file(what())(panic.into()))?.map_err(Error::file(what()))
    }

    /// Writes down for borrowers what a clone would have as references. Returns the default branch.
    pub(super) async fn publish(&self, before: Option<MirrorHead>) -> Result<Option<MirrorHead>, Error> {
        let branch = match self.default_branch().await {
            Ok(branch) => branch,
            // The fetch has just worked; the next one asks again.
            Err(_) => before.map(|head| head.branch),
        };
        if let Some(branch) = &branch {
            self.git("symbolic-ref").args(["HEAD", &format!("refs/heads/{branch}")]).run().await?;
        }
        let mut all = refs::parse(&self.git("for-each-ref").args([refs::FORMAT]).text().await?);
        let gone = refs::uncovered(&all, &self.order.refs);
        if !gone.is_empty() {
            self.git("update-ref").args(["--stdin"]).input(refs::deletions(&gone)).run().await?;
            all.retain(|reference| !gone.contains(&reference.name));
        }
        self.git("pack-refs").args(["--all"]).run().await?;
        let file = self.directory.join(BORROWED_REFS);
        let written = place::replace(&file, refs::borrowed(&all).as_bytes());
        written.map_err(Error::file(format!("write {}", file.display())))?;
        Ok(branch.and_then(|branch| refs::head(&all, branch)))
    }

    async fn default_branch(&self) -> Result<Option<String>, GitError> {
        let answer = self.remote("ls-remote")?.args(["--symref", "origin", "HEAD"]).text().await?;
        Ok(refs::symbolic_head(&answer))
    }
}
