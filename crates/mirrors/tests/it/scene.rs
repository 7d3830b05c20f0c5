//! A server, a directory of mirrors, and jobs.

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use bk_api::config::MirrorGc;
use bk_mirrors::{
    Error,
    access::Access,
    address::Address,
    borrow::{self, BorrowArgs},
    mirror::{self, Order, Outcome, Rules},
    place::{Place, Record},
};
use jiff::{SignedDuration, Timestamp};

use crate::origin::{Origin, git};

/// Everything that a test needs.
pub(crate) struct Scene {
    pub(crate) origin: Origin,
    pub(crate) mirrors: tempfile::TempDir,
    pub(crate) workspace: tempfile::TempDir,
    pub(crate) rules: Rules,
    pub(crate) now: Timestamp,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::of(Origin::start().await)
    }

    pub(crate) fn of(origin: Origin) -> Self {
        Self {
            origin,
            mirrors: tempfile::tempdir().unwrap(),
            workspace: tempfile::tempdir().unwrap(),
            rules: Rules { timeout: Duration::from_mins(1), gc: MirrorGc::default() },
            now: Timestamp::now(),
        }
    }

    pub(crate) fn address(&self, name: &str) -> Address {
        Address::parse(&self.origin.url(name)).unwrap()
    }

    pub(crate) fn place(&self, name: &str) -> Place {
        Place::of(self.mirrors.path(), &self.address(name))
    }

    pub(crate) fn record(&self, name: &str) -> Record {
        self.place(name).read().unwrap().expect("there is a mirror")
    }

    /// The repository that jobs borrow from.
    pub(crate) fn repository(&self, name: &str) -> PathBuf {
        self.place(name).repository(&self.record(name))
    }

    pub(crate) fn order(&self, name: &str) -> Order {
        let address = self.address(name);
        let access = Access::new(&address, None, None, self.workspace.path()).unwrap();
        let refs = bk_api::repo_mirror::DEFAULT_REFS.map(str::to_owned).into();
        Order { address, refs, lfs: false, access }
    }

    pub(crate) async fn sync(&self, name: &str) -> Result<Outcome, Error> {
        mirror::sync(self.mirrors.path(), &self.order(name), self.rules, self.now).await
    }

    /// Lets time pass for the syncer.
    pub(crate) fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// What a job gets that asks for a commit, and what its log says.
    pub(crate) async fn borrow(&self, name: &str, commit: &str) -> (PathBuf, String) {
        let checkout = self.checkout();
        let log = self.run(BorrowArgs {
            repository: Some(self.origin.url(name)),
            checkout: Some(checkout.clone()),
            commit: Some(commit.to_owned()),
            ..self.args()
        });
        (checkout, log.await)
    }

    pub(crate) fn args(&self) -> BorrowArgs {
        BorrowArgs {
            repository: None,
            checkout: None,
            commit: None,
            clone_flags: "-v".to_owned(),
            mirrors: self.mirrors.path().to_owned(),
            extra_repos: Vec::new(),
            extra_directory: self.workspace.path().join("repos"),
            hooks: None,
            shared: false,
            private_files: Vec::new(),
            timeout: 60,
            stale: 604_800,
            fresh: 300,
        }
    }

    pub(crate) async fn run(&self, args: BorrowArgs) -> String {
        let log = Lines::default();
        borrow::run(args, log.clone()).await;
        String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
    }

    /// A directory that is not there yet.
    pub(crate) fn checkout(&self) -> PathBuf {
        let below = tempfile::Builder::new().prefix("job-").tempdir_in(self.workspace.path()).unwrap();
        below.keep().join("checkout")
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What the agent does with a checkout that it finds.
pub(crate) fn agent_goes_on(checkout: &Path, commit: &str, fetch_flags: &[&str]) {
    git(checkout, &["clean", "-ffxdq"]);
    git(checkout, &[&["fetch"], fetch_flags, &["--", "origin", commit]].concat());
    git(checkout, &["-c", "advice.detachedHead=false", "checkout", "-f", commit]);
    if checkout.join(".gitmodules").exists() {
        git(checkout, &["submodule", "sync", "--recursive"]);
        git(checkout, &["submodule", "update", "--init", "--recursive", "--force"]);
        git(checkout, &["submodule", "foreach", "--recursive", "git reset --hard"]);
    }
    git(checkout, &["clean", "-ffxdq"]);
}
