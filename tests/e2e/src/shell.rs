//! A shell in which commands of the documents run as they are printed, but for what is different on the test's cluster.

use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};

use crate::World;

/// How many seconds a block of commands may take on a busy machine, unless something hangs.
const LONGEST: &str = "300";

/// A directory with what the documents expect there, such as `charts` and `deploy`, and their programs on the `PATH`.
pub struct Shell<'a> {
    world: &'a World,
    directory: TempDir,
    /// What is printed, and what that is here.
    here: Vec<(String, String)>,
}

impl<'a> Shell<'a> {
    /// Opens a shell whose kubeconfig names the test's namespace.
    pub fn open(world: &'a World) -> Result<Self> {
        let directory = TempDir::new_in(world.directory())?;
        let shell = Self { world, directory, here: substitutes(world)? };
        shell.furnish()?;
        Ok(shell)
    }

    /// What is printed as `printed` is something else here. What is said last goes first.
    #[must_use]
    pub fn replacing(mut self, printed: &str, here: &str) -> Self {
        self.here.insert(0, (printed.to_owned(), here.to_owned()));
        self
    }

    /// Programs, the chart, the manifests, and a kubeconfig.
    fn furnish(&self) -> Result<()> {
        let environment = &self.world.environment;
        fs::create_dir(self.path("bin"))?;
        symlink(&environment.kubectl, self.path("bin/kubectl"))?;
        symlink(&environment.operator, self.path("bin/buildkite-operator"))?;
        // The hosted Buildkite needs no address. Every test of this cluster has the same definitions, and no Helm has made them.
        self.program(
            "helm",
            &format!(
                "case $1 in install) set -- \"$@\" --set config.job_spawner_config.endpoint={};; esac\n\
                 case $1 in install|upgrade) set -- \"$@\" --take-ownership;; esac\nexec {} \"$@\"",
                self.world.buildkite.endpoint(),
                environment.helm.display()
            ),
        )?;
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        symlink(workspace.join("charts"), self.path("charts"))?;
        self.copy(&workspace.join("deploy"), "deploy")?;
        let mut kubeconfig: Value = serde_saphyr::from_str(&fs::read_to_string(&environment.kubeconfig)?)?;
        kubeconfig["contexts"][0]["context"]["namespace"] = self.world.cluster.namespace.clone().into();
        Ok(fs::write(self.path("kubeconfig"), kubeconfig.to_string())?)
    }

    /// Copies manifests, with the test's namespace and images.
    fn copy(&self, from: &Path, to: &str) -> Result<()> {
        for entry in fs::read_dir(from)? {
            let path = entry?.path();
            let name = format!("{to}/{}", path.file_name().context("it has a name")?.to_string_lossy());
            if path.is_dir() {
                self.copy(&path, &name)?;
                continue;
            }
            let own = format!("\n  name: {}\n", self.world.cluster.namespace);
            self.write(&name, &fs::read_to_string(&path)?.replace("\n  name: buildkite\n", &own))?;
        }
        Ok(())
    }

    /// A file or directory of the shell's own.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file that a document shows or takes for granted.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path(name);
        fs::create_dir_all(path.parent().context("it is in a directory")?)?;
        Ok(fs::write(path, self.here(text))?)
    }

    /// Puts a program of these lines of shell on the `PATH`.
    pub fn program(&self, name: &str, lines: &str) -> Result<()> {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{lines}\n"))?;
        Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
    }

    /// A printed text as it is here.
    pub fn here(&self, text: &str) -> String {
        self.here.iter().fold(text.to_owned(), |text, (printed, here)| text.replace(printed, here))
    }

    /// Runs commands as a document prints them. Fails if one of them does.
    pub async fn run(&self, commands: &str) -> Result<String> {
        let (succeeded, text) = self.attempt(commands).await?;
        ensure!(succeeded, "{commands} failed: {text}");
        Ok(text)
    }

    /// Runs commands; says whether they succeeded, and what they printed.
    pub async fn attempt(&self, commands: &str) -> Result<(bool, String)> {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH")?);
        // Something that is left in the background may write on.
        let printed = NamedTempFile::new_in(self.directory.path())?;
        let mut shell = Command::new("timeout");
        shell
            .args([LONGEST, "sh", "-exc", &self.here(commands)])
            .current_dir(self.directory.path())
            .env("PATH", path)
            .env("KUBECONFIG", self.path("kubeconfig"))
            .env("BUILDKITE_AGENT_TOKEN", &self.world.buildkite.agent_token)
            .stdin(Stdio::null())
            .stdout(File::options().append(true).open(printed.path())?)
            .stderr(File::options().append(true).open(printed.path())?);
        for home in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            shell.env(home, self.path("helm"));
        }
        let mut child = shell.spawn().context("cannot run `timeout`")?;
        let group = child.id();
        let status = tokio::task::spawn_blocking(move || child.wait()).await??;
        end(group)?;
        let text = fs::read_to_string(printed.path())?;
        self.world.note(&text)?;
        Ok((status.success(), text))
    }
}

/// Ends what commands have left in the background: `timeout` makes a group of its own for them.
fn end(group: u32) -> Result<()> {
    let kill = format!("kill -s KILL -- -{group} 2>/dev/null || true");
    let status = Command::new("sh").args(["-c", &kill]).status()?;
    ensure!(status.success(), "cannot end what is left of the commands");
    Ok(())
}

/// What every document may print, and what that is here.
fn substitutes(world: &World) -> Result<Vec<(String, String)>> {
    let environment = &world.environment;
    let (repository, tag) = environment.operator_image.rsplit_once(':').context("the image has a tag")?;
    let namespace = &world.cluster.namespace;
    let here = |printed: &str, here: &str| (printed.to_owned(), here.to_owned());
    Ok(vec![
        here("--namespace buildkite ", &format!("--namespace {namespace} ")),
        here("--namespace buildkite\n", &format!("--namespace {namespace}\n")),
        here("namespace: buildkite\n", &format!("namespace: {namespace}\n")),
        here(
            "buildkite-operator-broker.buildkite.svc",
            &format!("buildkite-operator-broker.{namespace}.svc"),
        ),
        here("registry.example.com/ci/buildkite-agent:dev", &environment.agent_image),
        here("registry.example.com/ci/buildkite-operator:dev", &environment.operator_image),
        here("registry.example.com/ci/buildkite-operator", repository),
        here(
            concat!("image: buildkite-operator:", env!("CARGO_PKG_VERSION"), "\n"),
            &format!("image: {}\n", environment.operator_image),
        ),
        here("tag: dev", &format!("tag: {tag}")),
        here("tag=dev", &format!("tag={tag}")),
        here("newTag: dev", &format!("newTag: {tag}")),
        here("busybox:1.37", &environment.toolbox_image),
        here("golang:1.25", &environment.toolbox_image),
        here("golang:1.26", &environment.toolbox_image),
        here("https://github.com/buildkite/agent.git", &world.repository.url),
        here("https://github.com/example/rocket.git", &world.repository.url),
        // Nobody prints a token.
        here("TOKEN=…", &format!("TOKEN={}", world.buildkite.agent_token)),
    ])
}
