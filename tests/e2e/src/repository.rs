//! A git repository that pods can clone, served by `git daemon` on this machine.

use std::{
    fs,
    net::{IpAddr, TcpListener},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// A repository with one commit on `main`.
pub struct Repository {
    /// Its address for clients.
    pub url: String,
    daemon: Child,
    directory: TempDir,
}

impl Repository {
    /// Makes a repository of these files, all executable, and serves it on `host`.
    pub fn serve(host: IpAddr, files: &[(&str, &str)]) -> Result<Self> {
        let directory = TempDir::new()?;
        let work = directory.path().join("work");
        git(directory.path(), &["init", "--quiet", "--initial-branch=main", "work"])?;
        for (name, content) in files {
            let file = work.join(name);
            fs::write(&file, content)?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        }
        git(&work, &["add", "."])?;
        commit(&work, "First")?;
        git(directory.path(), &["clone", "--quiet", "--bare", "work", "srv/repo.git"])?;

        let port = free_port(host)?;
        // Not through `git daemon`, which would start it as a child that outlives the one we can kill.
        let programs = git(directory.path(), &["--exec-path"])?;
        let daemon = Command::new(Path::new(programs.trim()).join("git-daemon"))
            .args(["--reuseaddr", "--export-all", "--informative-errors"])
            .args([format!("--listen={host}"), format!("--port={port}")])
            .arg(format!("--base-path={}", directory.path().join("srv").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start git daemon")?;
        Ok(Self { url: format!("git://{host}:{port}/repo.git"), daemon, directory })
    }
}

impl Repository {
    /// Where it is on this machine.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("srv/repo.git")
    }

    /// Pushes a history that has nothing in common with the one before: one commit of the same files and one with this text.
    pub fn replace_history(&self, text: &str) -> Result<()> {
        let work = self.directory.path().join("work");
        git(&work, &["checkout", "--quiet", "--orphan", "next"])?;
        fs::write(work.join("text"), text)?;
        git(&work, &["add", "."])?;
        commit(&work, text)?;
        git(&work, &["branch", "--force", "--move", "main"])?;
        git(&work, &["push", "--quiet", "--force", "../srv/repo.git", "main"]).map(drop)
    }
}

fn commit(work: &Path, message: &str) -> Result<()> {
    let author = ["-c", "user.name=Test", "-c", "user.email=test@example.com"];
    git(work, &[&author[..], &["commit", "--quiet", "-m", message]].concat()).map(drop)
}

impl Drop for Repository {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.daemon.kill();
        let _reaped = self.daemon.wait();
    }
}

/// Runs git without the developer's own settings, which may ask for signatures or hooks.
fn git(directory: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .current_dir(directory)
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .context("cannot run git")?;
    ensure!(output.status.success(), "git {args:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn free_port(host: IpAddr) -> Result<u16> {
    Ok(TcpListener::bind((host, 0)).with_context(|| format!("cannot listen on {host}"))?.local_addr()?.port())
}
