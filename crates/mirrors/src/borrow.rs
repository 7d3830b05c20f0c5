//! A job's checkout out of mirrors: `.git` is made so that the agent finds it and fetches only what the mirror does not have.
//!
//! Nothing is copied and no server is asked: the objects stay where they are, and the references are those of the last fetch. Whatever
//! is wrong with a mirror costs the job one line in its log, and an ordinary clone.

mod extra;
mod hook;
mod loan;
mod private;
mod submodules;

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;

pub use self::loan::{Loan, Refusal};
use crate::{address::Address, git::Git};

/// Options of `repo-mirror`.
#[derive(Clone, Debug, clap::Args)]
pub struct BorrowArgs {
    /// Repository that the job checks out
    #[arg(long, env = "BUILDKITE_REPO", hide_env_values = true, value_name = "URL")]
    pub repository: Option<String>,

    /// Directory that the agent checks out into
    #[arg(long, env = "BUILDKITE_BUILD_CHECKOUT_PATH", hide_env_values = true, value_name = "DIRECTORY")]
    pub checkout: Option<PathBuf>,

    /// Commit that the job checks out
    #[arg(long, env = "BUILDKITE_COMMIT", hide_env_values = true, value_name = "COMMIT")]
    pub commit: Option<String>,

    /// Flags with which the agent would clone
    #[arg(
        long,
        env = "BUILDKITE_GIT_CLONE_FLAGS",
        hide_env_values = true,
        default_value = "",
        allow_hyphen_values = true,
        value_name = "FLAGS"
    )]
    pub clone_flags: String,

    /// Directory of all mirrors, at the path where the job's containers have it too
    #[arg(long, value_name = "DIRECTORY")]
    pub mirrors: PathBuf,

    /// Further repository to clone; can be given several times
    #[arg(long = "extra-repo", value_name = "URL")]
    pub extra_repos: Vec<String>,

    /// Directory below which further repositories are cloned, by host and path
    #[arg(long, default_value = "/workspace/repos", value_name = "DIRECTORY")]
    pub extra_directory: PathBuf,

    /// Let every user of the pod write to what is made
    #[arg(long)]
    pub shared: bool,

    /// File of which git needs a copy that only this user can read; can be given several times
    #[arg(long = "private", value_name = "FROM=TO")]
    pub private_files: Vec<String>,

    /// Directory for a hook of the agent that says in the job's log what was done
    #[arg(long, value_name = "DIRECTORY")]
    pub hooks: Option<PathBuf>,

    /// How long all of it may take, in seconds
    #[arg(long, default_value = "120", value_name = "SECONDS")]
    pub timeout: u64,

    /// How old a mirror may be that is still used, in seconds
    #[arg(long, default_value = "604800", value_name = "SECONDS")]
    pub stale: u32,

    /// How old the mirror of a further repository may be without a look at its server, in seconds
    #[arg(long, default_value = "300", value_name = "SECONDS")]
    pub fresh: u32,
}

/// Borrows what there is to borrow, within the time there is. Never fails: what does not work is said, and the job goes on.
pub async fn run(args: BorrowArgs, out: impl Write + Send + 'static) {
    let limit = Duration::from_secs(args.timeout);
    let log = Log::new(out);
    if args.shared {
        rustix::process::umask(rustix::fs::Mode::empty());
    }
    let hooks = args.hooks.clone();
    let wishes = Wishes { args, limit, now: Timestamp::now(), log: log.clone() };
    // A task of its own: a volume that does not answer may block it.
    let work = tokio::spawn(async move { wishes.fulfil().await });
    match tokio::time::timeout(limit, work).await {
        Ok(Ok(())) => {}
        Ok(Err(_)) => log.say("repo-mirror has failed; what is missing is cloned from its server"),
        Err(_) => log.say(&format!(
            "repo-mirror took longer than {} s; what is missing is cloned from its server",
            limit.as_secs()
        )),
    }
    if let Some(hooks) = hooks {
        hook::write(&hooks, &log.lines());
    }
}

/// Where lines for the job's author go. Cheap to clone.
#[derive(Clone)]
struct Log {
    said: Arc<Mutex<Vec<String>>>,
    out: Arc<Mutex<dyn Write + Send>>,
}

impl Log {
    fn new(out: impl Write + Send + 'static) -> Self {
        Self { said: Arc::default(), out: Arc::new(Mutex::new(out)) }
    }

    fn lines(&self) -> Vec<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn say(&self, line: &str) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody may be reading.
        let _closed = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

struct Wishes {
    args: BorrowArgs,
    limit: Duration,
    now: Timestamp,
    log: Log,
}

impl Wishes {
    async fn fulfil(&self) {
        if let (Some(repository), Some(checkout)) =
            (given(self.args.repository.as_ref()), &self.args.checkout)
        {
            self.prepare(repository, checkout).await;
        }
        for file in &self.args.private_files {
            if let Err(error) = private::copy(file) {
                self.log.say(&format!("no copy is made as --private={file} says: {error}"));
            }
        }
        for repository in &self.args.extra_repos {
            self.clone_beside(repository).await;
        }
    }

    /// Prepares the agent's checkout.
    async fn prepare(&self, repository: &str, checkout: &Path) {
        let address = match Address::parse(repository) {
            Ok(address) => address,
            Err(error) => return self.log.say(&format!("no mirror: {error}")),
        };
        match self.try_prepare(repository, &address, checkout).await {
            Ok(line) | Err(line) => self.log.say(&line),
        }
    }

    async fn try_prepare(
        &self,
        repository: &str,
        address: &Address,
        checkout: &Path,
    ) -> Result<String, String> {
        let in_vain = |why: String| format!("{address} is cloned from its server: {why}");
        if let Some(flag) = unsuitable(&self.args.clone_flags) {
            return Err(in_vain(format!("the clone is to have {flag}")));
        }
        if let Some(what) = occupied(checkout) {
            return Err(format!("{address} is not taken from its mirror: {} {what}", checkout.display()));
        }
        let loan = self.find(address).await.map_err(|why| in_vain(why.to_string()))?;
        let git_directory = checkout.join(".git");
        loan.take(repository, &git_directory)
            .map_err(|error| in_vain(format!("{} cannot be made: {error}", git_directory.display())))?;
        let commit = given(self.args.commit.as_ref()).filter(|commit| *commit != "HEAD");
        match self.check(&loan, &git_directory, commit).await {
            Ok(is_here) => {
                let count = self.borrow_submodules(address, &git_directory, commit.filter(|_| is_here)).await;
                let submodules = if count == 0 { String::new() } else { format!(", {count} submodules too") };
                let rest = if is_here { "" } else { "; what is newer comes from its server" };
                Ok(format!(
                    "{address} is borrowed from its mirror, fetched {} ago{submodules}{rest}",
                    self.age(&loan)
                ))
            }
            Err(why) => {
                let _gone = std::fs::remove_dir_all(&git_directory);
                Err(in_vain(why))
            }
        }
    }

    async fn find(&self, address: &Address) -> Result<Loan, Refusal> {
        let (mirrors, address) = (self.args.mirrors.clone(), address.clone());
        let (now, stale) = (self.now, self.args.stale);
        let found = tokio::task::spawn_blocking(move || Loan::find(&mirrors, &address, now, stale)).await;
        found.unwrap_or_else(|_| Err(Refusal::Unreadable("the search has failed".to_owned())))
    }

    /// Whether git can work with what was borrowed; and whether it has the job's commit.
    async fn check(&self, loan: &Loan, git_directory: &Path, commit: Option<&str>) -> Result<bool, String> {
        let has = |commit: &str| {
            let object = format!("{commit}^{{commit}}");
            Git::new(git_directory, "cat-file", self.limit).args(["-e", &object]).run()
        };
        if let Some(head) = &loan.record.head {
            has(&head.commit).await.map_err(|error| format!("its mirror is of no use: {error}"))?;
        }
        match commit {
            Some(commit) if is_commit(commit) => Ok(has(commit).await.is_ok()),
            _ => Ok(false),
        }
    }

    fn age(&self, loan: &Loan) -> String {
        let seconds = self.now.duration_since(loan.record.last_sync).as_secs().max(0);
        match seconds {
            0..120 => format!("{seconds} s"),
            120..7200 => format!("{} min", seconds / 60),
            _ => format!("{} h", seconds / 3600),
        }
    }
}

fn given(value: Option<&String>) -> Option<&str> {
    value.map(String::as_str).filter(|value| !value.is_empty())
}

fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A flag with which a clone would be something else than a working copy whose remote is `origin`. Depth and filters are none: a
/// borrowed clone has everything, and costs less.
fn unsuitable(flags: &str) -> Option<&str> {
    const OTHER: [&str; 6] = ["--bare", "--mirror", "--separate-git-dir", "--origin", "-o", "--dissociate"];
    flags.split_whitespace().find(|flag| OTHER.contains(&flag.split('=').next().unwrap_or(flag)))
}

/// Why the checkout's directory is not ours to fill.
fn occupied(checkout: &Path) -> Option<&'static str> {
    if checkout.join(".git").exists() {
        return Some("has a clone already");
    }
    match std::fs::read_dir(checkout) {
        Ok(mut entries) => entries.next().map(|_| "is not empty"),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("-v", None)]
    #[case("-v --depth=1 --filter=blob:none --no-tags", None)]
    #[case("--mirror", Some("--mirror"))]
    #[case("-v --origin=upstream", Some("--origin=upstream"))]
    fn flags_that_ask_for_another_kind_of_clone(#[case] flags: &str, #[case] expected: Option<&str>) {
        assert_eq!(unsuitable(flags), expected);
    }

    #[rstest]
    #[case("HEAD", false)]
    #[case("0123456789abcdef0123456789abcdef01234567", true)]
    #[case("--all", false)]
    fn commits(#[case] text: &str, #[case] expected: bool) {
        assert_eq!(is_commit(text), expected);
    }
}
