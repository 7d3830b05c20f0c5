//! The real agent, which does the uploading.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use tokio::process::Command;

use crate::command;

/// The most of what the agent says that becomes part of a reason.
const LONGEST_REASON: usize = 300;

/// Why files are not uploaded this time.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// The job has not begun yet, or has no session at Buildkite.
    #[error("there is no session of the job in {0} yet")]
    NoSession(PathBuf),
    /// The agent does not run.
    #[error("cannot run the agent, {path}")]
    Start {
        /// The program.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It has tried.
    #[error("the agent cannot upload: {0}")]
    Agent(String),
    /// It takes too long.
    #[error("the agent has not uploaded in {} s", .0.as_secs())]
    Slow(Duration),
}

/// The agent, and what it needs.
#[derive(Clone, Debug)]
pub struct Agent {
    /// The program.
    pub program: PathBuf,
    /// The directory with the environment of each container.
    pub environments: PathBuf,
    /// The directory with the files.
    pub root: PathBuf,
}

impl Agent {
    /// Uploads these files, whose paths are below the directory, within `limit`.
    pub async fn upload(&self, files: &[PathBuf], limit: Duration) -> Result<(), UploadError> {
        let environment = self.environment()?;
        let output = self.run(&environment, &command::arguments(files), limit).await?;
        if output.status.success() { Ok(()) } else { Err(UploadError::Agent(last_line(&output.stderr))) }
    }

    /// How many artifacts the job has of each path and size.
    pub async fn uploaded(&self, limit: Duration) -> Result<BTreeMap<(PathBuf, u64), usize>, UploadError> {
        let environment = self.environment()?;
        let variables = command::session(&environment).unwrap_or_default();
        let job = variables.iter().find(|(name, _)| *name == command::JOB).map_or("", |(_, id)| *id);
        let output = self.run(&environment, &command::search(job), limit).await?;
        if output.status.success() {
            Ok(command::found(&String::from_utf8_lossy(&output.stdout)))
        } else {
            Err(UploadError::Agent(last_line(&output.stderr)))
        }
    }

    async fn run(
        &self,
        environment: &str,
        arguments: &[impl AsRef<OsStr>],
        limit: Duration,
    ) -> Result<Output, UploadError> {
        let variables =
            command::session(environment).ok_or_else(|| UploadError::NoSession(self.environments.clone()))?;
        let output = Command::new(&self.program)
            .args(arguments)
            .env_clear()
            .envs(variables)
            .current_dir(&self.root)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        match tokio::time::timeout(limit, output).await {
            Err(_) => Err(UploadError::Slow(limit)),
            Ok(Err(source)) => Err(UploadError::Start { path: self.program.clone(), source }),
            Ok(Ok(output)) => Ok(output),
        }
    }

    /// The environment of a container that has a session. All have the same, as they belong to one job.
    fn environment(&self) -> Result<String, UploadError> {
        let none = || UploadError::NoSession(self.environments.clone());
        let entries = fs::read_dir(&self.environments).map_err(|_| none())?;
        let texts = entries.flatten().filter(|entry| !is_draft(&entry.path())).filter_map(|entry| {
            // A value that is no text is none that the agent needs.
            Some(String::from_utf8_lossy(&fs::read(entry.path()).ok()?).into_owned())
        });
        texts.into_iter().find(|text| command::session(text).is_some()).ok_or_else(none)
    }
}

fn is_draft(path: &Path) -> bool {
    path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// The last thing that the agent says is why it failed.
fn last_line(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let line =
        text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it does not say why");
    line[..line.floor_char_boundary(LONGEST_REASON)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::last_line;

    #[test]
    fn the_last_line_is_the_reason() {
        assert_eq!(last_line(b"one\nfatal: two\n\n"), "fatal: two");
        assert_eq!(last_line(b""), "it does not say why");
        assert_eq!(last_line("ä".repeat(999).as_bytes()).len(), 300);
    }
}
