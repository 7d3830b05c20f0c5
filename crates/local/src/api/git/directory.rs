//! Whether a directory is a repository that this server can serve.

use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use super::super::error::{ApiError, ApiResult};

/// `git` for the repository at `path`, free of what the server's own surroundings say about git.
pub(super) fn git(path: &Path) -> Command {
    let mut command = Command::new("git");
    let inherited = std::env::vars_os().map(|(name, _)| name);
    for name in inherited.filter(|name| name.to_string_lossy().starts_with("GIT_")) {
        command.env_remove(name);
    }
    // The owner may be somebody else: the caller asked for exactly this directory. Commits of a dirty work
    // tree are on no branch, so any commit may be asked for.
    let settings = [
        ("safe.directory", "*"),
        ("uploadpack.allowAnySHA1InWant", "true"),
        ("http.receivepack", "false"),
        ("gc.auto", "0"),
    ];
    command.env("GIT_CONFIG_COUNT", settings.len().to_string());
    for (index, (name, value)) in settings.iter().enumerate() {
        command.env(format!("GIT_CONFIG_KEY_{index}"), name).env(format!("GIT_CONFIG_VALUE_{index}"), value);
    }
    command.current_dir(path).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Says why git could not be run.
pub(super) fn cannot_run(error: &std::io::Error) -> ApiError {
    let advice = match error.kind() {
        std::io::ErrorKind::NotFound => "is git installed where the server runs?".to_owned(),
        _ => error.to_string(),
    };
    ApiError::internal(format!("cannot run git: {advice}"))
}

/// The directory as the server sees it. It must hold the commit, or it is not the caller's directory.
pub(super) async fn check(path: &Path, commit: &str) -> ApiResult<String> {
    let shown = path.display();
    if !path.is_absolute() {
        return Err(ApiError::unprocessable(format!("path must be absolute: {shown}")));
    }
    let real = tokio::fs::canonicalize(path).await.map_err(|error| {
        ApiError::unprocessable(format!(
            "the server cannot open {shown}: {error}; a directory can only be served on its own machine"
        ))
    })?;
    let text = real.to_str().ok_or_else(|| {
        ApiError::unprocessable(format!("{shown} is not valid UTF-8, so it cannot be served"))
    })?;
    if !real.is_dir() {
        return Err(ApiError::unprocessable(format!("{shown} is not a directory")));
    }
    if commit.len() < 40 || !commit.chars().all(|c| c.is_ascii_hexdigit()) {
        return Err(ApiError::unprocessable("commit must be a full commit id"));
    }
    // Without a ceiling git would look for a repository in the directories above.
    let found = git(&real)
        .env("GIT_CEILING_DIRECTORIES", real.parent().unwrap_or(&real))
        .args(["cat-file", "-e", &format!("{commit}^{{commit}}")])
        .output()
        .await
        .map_err(|error| cannot_run(&error))?;
    if found.status.success() {
        return Ok(text.to_owned());
    }
    let reason = String::from_utf8_lossy(&found.stderr);
    Err(ApiError::unprocessable(format!(
        "{shown} holds no commit {commit} where the server runs; a directory can only be served on its own \
         machine (git says: {})",
        reason.split_whitespace().collect::<Vec<_>>().join(" ")
    )))
}
