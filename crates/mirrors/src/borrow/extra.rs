//! Further repositories: working copies of their default branches, beside the checkout.

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
};

use super::{
    Wishes,
    loan::{Loan, origin},
    occupied,
};
use crate::{address::Address, git::Git};

impl Wishes {
    /// Clones a further repository, from its mirror if that can be done.
    pub(super) async fn clone_beside(&self, repository: &str) {
        let address = match Address::parse(repository) {
            Ok(address) => address,
            Err(error) => return self.log.say(&format!("a further repository is left out: {error}")),
        };
        let directory = place(&self.args.extra_directory, &address);
        if let Some(what) = occupied(&directory) {
            return self.log.say(&format!("{address} is left as it is: {} {what}", directory.display()));
        }
        let refused = match self.find(&address).await {
            Ok(loan) => match self.borrow_beside(repository, &address, &loan, &directory).await {
                Ok(line) => return self.log.say(&line),
                Err(why) => why,
            },
            Err(refusal) => refusal.to_string(),
        };
        self.log.say(&format!("{address} is cloned from its server: {refused}"));
        // What was begun must not be in the way.
        let _gone = std::fs::remove_dir_all(&directory);
        if let Err(error) = self.clone_from_server(repository, &directory).await {
            let _gone = std::fs::remove_dir_all(&directory);
            self.log.say(&format!("{address} cannot be cloned: {error}"));
        }
    }

    async fn borrow_beside(
        &self,
        repository: &str,
        address: &Address,
        loan: &Loan,
        directory: &Path,
    ) -> Result<String, String> {
        let git_directory = directory.join(".git");
        loan.take(repository, &git_directory)
            .map_err(|error| format!("{} cannot be made: {error}", directory.display()))?;
        let git =
            |name| Git::new(&git_directory, name, self.limit).env("GIT_WORK_TREE", directory).inheriting();
        let mut line = format!("{address} is in {}, fetched {} ago", directory.display(), self.age(loan));
        let age = self.now.duration_since(loan.record.last_sync).as_secs();
        if age > i64::from(self.args.fresh) {
            let branch = loan.record.head.as_ref().map_or("HEAD", |head| head.branch.as_str());
            match git("fetch").args(["--quiet", "--prune", "origin"]).run().await {
                Ok(_) => {
                    let newest = format!("refs/remotes/origin/{branch}");
                    let moved =
                        git("update-ref").args([&format!("refs/heads/{branch}"), &newest]).run().await;
                    moved.map_err(|error| error.to_string())?;
                    line = format!(
                        "{address} is in {}, borrowed from its mirror and fetched now",
                        directory.display()
                    );
                }
                Err(error) => line = format!("{line}; what is newer could not be fetched: {error}"),
            }
        }
        git("checkout")
            .args(["--quiet", "--force", "HEAD"])
            .run()
            .await
            .map_err(|error| error.to_string())?;
        Ok(line)
    }

    async fn clone_from_server(&self, repository: &str, directory: &Path) -> Result<(), String> {
        let git_directory = directory.join(".git");
        let make = Git::anywhere("init", self.limit).args(["--quiet", "--template="]).args([directory]);
        make.run().await.map_err(|error| error.to_string())?;
        // The address may hold a password, and so is no argument.
        let config = git_directory.join("config");
        let written = OpenOptions::new()
            .append(true)
            .open(&config)
            .and_then(|mut file| file.write_all(origin(repository).as_bytes()));
        written.map_err(|error| format!("cannot write {}: {error}", config.display()))?;
        let git = |name, args: &[&str]| {
            let git = Git::new(&git_directory, name, self.limit).env("GIT_WORK_TREE", directory).inheriting();
            git.args(args).text()
        };
        let fetched = async {
            git("fetch", &["--quiet", "origin"]).await?;
            git("remote", &["set-head", "origin", "--auto"]).await?;
            let head = git("symbolic-ref", &["--short", "refs/remotes/origin/HEAD"]).await?;
            let branch = head.trim().trim_start_matches("origin/");
            git("checkout", &["--quiet", "--force", "-B", branch, "refs/remotes/origin/HEAD"]).await
        };
        fetched.await.map(|_| ()).map_err(|error| error.to_string())
    }
}

/// Where a further repository is: by host and path, so that two never meet.
fn place(below: &Path, address: &Address) -> PathBuf {
    let canonical = address.canonical();
    let parts = canonical.split('/').filter(|part| !matches!(*part, "" | "." | ".."));
    parts.fold(below.to_owned(), |path, part| path.join(part.replace(':', "_")))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("git@github.com:example/data.git", "/workspace/repos/github.com/example/data")]
    #[case("https://host:8443/a/../../b", "/workspace/repos/host_8443/a/b")]
    fn places(#[case] url: &str, #[case] expected: &str) {
        assert_eq!(place(Path::new("/workspace/repos"), &Address::parse(url).unwrap()), Path::new(expected));
    }
}
