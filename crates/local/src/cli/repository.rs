//! What a build checks out: a git URL as it is, or a directory with the commit that is meant.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail};

/// What `--repo` names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Source {
    Url(String),
    Directory(PathBuf),
}

impl Source {
    /// A directory that exists is one; the rest must look like a git URL.
    pub(super) fn of(text: &str) -> anyhow::Result<Self> {
        if Path::new(text).is_dir() {
            return Ok(Self::Directory(PathBuf::from(text)));
        }
        if is_url(text) {
            return Ok(Self::Url(text.to_owned()));
        }
        bail!("--repo {text}: there is no such directory, and it is not a git URL either")
    }
}

/// `https://…`, `ssh://…`, or git's short form `user@host:path`.
fn is_url(text: &str) -> bool {
    if text.contains("://") {
        return true;
    }
    match text.split_once(':') {
        Some((host, path)) => !host.is_empty() && !host.contains('/') && !path.is_empty(),
        None => false,
    }
}

/// Which commit of a directory is wanted.
#[derive(Debug, Default)]
pub(super) struct Wanted<'a> {
    pub(super) branch: Option<&'a str>,
    pub(super) commit: Option<&'a str>,
    /// With what is not committed.
    pub(super) dirty: bool,
}

/// A commit, as a build tells about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) commit: String,
    pub(super) branch: String,
    pub(super) message: String,
    pub(super) author: (String, String),
    /// How many files differ from the commit and are left out.
    pub(super) left_out: usize,
}

/// A git repository on this machine: a work tree, or a bare one.
pub(super) struct Directory {
    /// The work tree's top, or the bare repository.
    pub(super) path: PathBuf,
    bare: bool,
}

impl Directory {
    /// Finds the repository that `path` is in.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let at = std::fs::canonicalize(path).with_context(|| format!("cannot open {}", path.display()))?;
        let ask = |arguments: &[&str]| git(&at, arguments);
        let bare = ask(&["rev-parse", "--is-bare-repository"])
            .with_context(|| format!("{} is not a git repository", path.display()))?;
        let bare = bare == "true";
        let top = if bare { "--absolute-git-dir" } else { "--show-toplevel" };
        let found = ask(&["rev-parse", top]).with_context(|| format!("cannot use {}", path.display()))?;
        Ok(Self { path: PathBuf::from(found), bare })
    }

    /// The commit that is wanted, with its branch, message and author.
    pub(super) fn head(&self, wanted: &Wanted<'_>) -> anyhow::Result<Head> {
        let current = self.git(&["symbolic-ref", "--quiet", "--short", "HEAD"]).ok();
        let branch = wanted.branch.map(str::to_owned).or(current).unwrap_or_else(|| "HEAD".to_owned());
        let commit = match (wanted.commit, wanted.branch) {
            _ if wanted.dirty => self.commit_work_tree()?,
            (Some(commit), _) => self.resolve(commit)?,
            (None, Some(branch)) => {
                self.resolve(&format!("refs/heads/{branch}")).or_else(|_| self.resolve(branch))?
            }
            (None, None) => self.resolve("HEAD")?,
        };
        let plain = !self.bare && !wanted.dirty && wanted.commit.is_none() && wanted.branch.is_none();
        let left_out = if plain { self.changes()? } else { 0 };
        let told = self.git(&["log", "-1", "--format=%an%x00%ae%x00%B", &commit])?;
        let mut told = told.splitn(3, '\0').map(|part| part.trim().to_owned());
        let mut next = || told.next().unwrap_or_default();
        let author = (next(), next());
        Ok(Head { commit, branch, message: next(), author, left_out })
    }

    fn resolve(&self, revision: &str) -> anyhow::Result<String> {
        let asked = format!("{revision}^{{commit}}");
        self.git(&["rev-parse", "--verify", "--quiet", "--end-of-options", &asked]).map_err(|_| {
            let path = self.path.display();
            match revision {
                "HEAD" => anyhow!("{path} has no commit yet: commit something, or add --dirty"),
                _ => anyhow!("{path} has no commit or branch {}", revision.trim_start_matches("refs/heads/")),
            }
        })
    }

    fn changes(&self) -> anyhow::Result<usize> {
        Ok(self.git(&["status", "--porcelain"])?.lines().count())
    }

    /// Makes a commit of the work tree as it is, on no branch. Neither the index nor any branch changes: the
    /// files are added to a copy of the index.
    fn commit_work_tree(&self) -> anyhow::Result<String> {
        if self.bare {
            bail!("{} has no work tree, so --dirty means nothing there", self.path.display());
        }
        let scratch = tempfile::tempdir().context("cannot make a temporary directory")?;
        let index = scratch.path().join("index");
        let own = self.path.join(self.git(&["rev-parse", "--git-path", "index"])?);
        if own.exists() {
            // With its time: git looks into files that are as young as the index, and trusts it about older ones.
            std::fs::copy(&own, &index)
                .and_then(|_| std::fs::metadata(&own)?.modified())
                .and_then(|at| std::fs::File::options().write(true).open(&index)?.set_modified(at))
                .with_context(|| format!("cannot copy {}", own.display()))?;
        }
        let with_index = |arguments: &[&str]| {
            run(command(&self.path).args(arguments).env("GIT_INDEX_FILE", &index))
                .context("cannot commit the work tree")
        };
        with_index(&["add", "--all", "."])?;
        let tree = with_index(&["write-tree"])?;
        let parent = self.resolve("HEAD").ok();
        if let Some(parent) = &parent
            && self.git(&["rev-parse", &format!("{parent}^{{tree}}")])? == tree
        {
            return Ok(parent.clone());
        }
        let mut commit = command(&self.path);
        commit.args(["commit-tree", &tree]);
        let message = match &parent {
            Some(parent) => format!("{} (with uncommitted changes)", self.subject(parent)?),
            None => "uncommitted changes".to_owned(),
        };
        commit.args(parent.iter().flat_map(|parent| ["-p", parent])).args(["-m", &message]);
        for (setting, variable, fallback) in
            [("user.name", "NAME", "buildkite-local"), ("user.email", "EMAIL", "buildkite-local@localhost")]
        {
            let own = self.git(&["config", "--get", setting]).unwrap_or_else(|_| fallback.to_owned());
            commit.env(format!("GIT_AUTHOR_{variable}"), &own);
            commit.env(format!("GIT_COMMITTER_{variable}"), &own);
        }
        run(&mut commit).context("cannot commit the work tree")
    }

    fn subject(&self, commit: &str) -> anyhow::Result<String> {
        self.git(&["log", "-1", "--format=%s", commit])
    }

    fn git(&self, arguments: &[&str]) -> anyhow::Result<String> {
        git(&self.path, arguments)
    }
}

fn command(at: &Path) -> Command {
    let mut command = Command::new("git");
    // A hook's surroundings would point git at the repository that the hook runs for.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"] {
        command.env_remove(name);
    }
    // Looking must not refresh the index.
    command.env("GIT_OPTIONAL_LOCKS", "0").current_dir(at).stdin(Stdio::null());
    command
}

fn git(at: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    run(command(at).args(arguments))
}

fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => anyhow!("git is not installed, and --repo DIR needs it"),
        _ => anyhow!("cannot run git: {error}"),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(anyhow!("{}", said.trim().lines().next().unwrap_or("git failed")))
}

#[cfg(test)]
mod tests;
