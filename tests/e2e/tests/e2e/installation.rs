//! The operator as it is installed: by Helm, with the commands of docs/installing.md.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use bk_e2e::{World, eventually, scenario};

const GUIDE: &str = include_str!("../../../../docs/installing.md");

/// The bodies of the guide's blocks of a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    GUIDE.split(&begin).skip(1).filter_map(|rest| rest.split("\n```").next()).collect()
}

/// A directory in which the guide's commands run, on the test's own cluster and namespace.
struct Shell<'a> {
    world: &'a World,
    directory: PathBuf,
}

impl<'a> Shell<'a> {
    fn open(world: &'a World) -> Result<Self> {
        let directory = world.directory().join("guide");
        fs::create_dir_all(directory.join("bin"))?;
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        symlink(workspace.join("charts"), directory.join("charts"))?;
        let environment = &world.environment;
        symlink(&environment.kubectl, directory.join("bin/kubectl"))?;
        // Every test of this cluster has the same definitions, and no Helm has made them.
        let helm = format!(
            "#!/bin/sh\ncase $1 in install|upgrade) set -- \"$@\" --take-ownership;; esac\nexec {} \"$@\"\n",
            environment.helm.display()
        );
        fs::write(directory.join("bin/helm"), helm)?;
        fs::set_permissions(directory.join("bin/helm"), fs::Permissions::from_mode(0o755))?;
        let values = blocks("yaml").into_iter().next().context("the guide begins with values")?;
        let endpoint = format!("endpoint: {}", world.buildkite.endpoint());
        let values = values
            .replace(
                "registry.example.com/ci/buildkite-operator\n  tag: dev",
                &split(&environment.operator_image)?,
            )
            .replace("registry.example.com/ci/buildkite-agent:dev", &environment.agent_image)
            .replace("queue: bk-operator", &format!("queue: bk-operator\n    {endpoint}"));
        ensure!(!values.contains("registry.example.com"), "{values}");
        fs::write(directory.join("my-values.yaml"), values)?;
        Ok(Self { world, directory })
    }

    /// Runs commands of the guide.
    async fn run(&self, commands: &str) -> Result<String> {
        let namespace = format!("--namespace {}", self.world.cluster.namespace);
        let commands = commands.replace("--namespace buildkite", &namespace);
        let path = format!("{}:{}", self.directory.join("bin").display(), std::env::var("PATH")?);
        let mut shell = Command::new("sh");
        shell
            .args(["-exc", &commands])
            .current_dir(&self.directory)
            .env("PATH", path)
            .env("KUBECONFIG", &self.world.environment.kubeconfig)
            .env("BUILDKITE_AGENT_TOKEN", &self.world.buildkite.agent_token);
        for home in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            shell.env(home, self.directory.join("helm"));
        }
        let output = tokio::task::spawn_blocking(move || shell.output()).await??;
        let text =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        self.world.note(&text)?;
        ensure!(output.status.success(), "{commands} failed: {text}");
        Ok(text)
    }
}

/// Installs the operator with the guide's commands.
pub(crate) async fn install(world: &World) -> Result<()> {
    let commands = blocks("sh");
    let install = commands.first().context("the guide begins with the installation")?;
    Shell::open(world)?.run(install).await.map(drop)
}

/// A reference in the way in which the guide's values have it.
fn split(image: &str) -> Result<String> {
    let (repository, tag) = image.rsplit_once(':').context("the image has a tag")?;
    Ok(format!("{repository}\n  tag: {tag}"))
}

/// What is left in the namespace of what the operator or its chart have made.
fn left(world: &World) -> Result<Vec<String>> {
    let kinds = "deployments,replicasets,pods,configmaps,secrets,serviceaccounts,roles,rolebindings,leases,\
                 poddisruptionbudgets,buildjobs";
    let listed = world.cluster.kubectl(&["get", kinds, "-o", "name"], None)?;
    let theirs = ["configmap/kube-root-ca.crt", "serviceaccount/default"];
    Ok(listed.lines().filter(|name| !theirs.contains(name)).map(ToOwned::to_owned).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_installs_upgrades_and_uninstalls() {
    scenario(async |world| {
        let shell = Shell::open(world)?;
        let commands = blocks("sh");
        let [install, upgrade, uninstall] = commands[..] else {
            anyhow::bail!("the guide has three blocks of commands: {commands:#?}");
        };
        let notes = shell.run(install).await?;
        assert!(notes.contains("takes jobs from the queue bk-operator"), "{notes}");
        let step =
            |command: &str| format!("steps: [{{command: '{command}', agents: {{queue: bk-operator}}}}]");
        let build = world.buildkite.build(&world.repository.url, &step("./hello.sh")).await?;
        let passed = world.buildkite.ended(build.jobs[0].id).await?;
        assert_eq!(passed.exit_status, Some(0), "{}", world.buildkite.log(passed.id).await?);

        // A job that runs while the operator is replaced, and one that comes meanwhile.
        let slow =
            world.buildkite.build(&world.repository.url, &step("echo started $((40 + 2)); sleep 15")).await?;
        world.buildkite.log_with(slow.jobs[0].id, "started 42").await?;
        let late = world.buildkite.build(&world.repository.url, &step("./hello.sh")).await?;
        shell.run(upgrade).await?;
        for build in [&slow, &late] {
            let ended = world.buildkite.ended(build.jobs[0].id).await?;
            assert_eq!((ended.job_state.as_str(), ended.exit_status), ("finished", Some(0)));
        }
        let log = world.buildkite.log(slow.jobs[0].id).await?;
        assert_eq!(log.matches("started 42").count(), 1, "it ran once: {log}");
        let config =
            ["get", "configmap", "buildkite-operator-config", "-o", "jsonpath={.data.job_spawner_config}"];
        assert!(world.cluster.kubectl(&config, None)?.contains("maxInFlight: 50"));
        eventually("no BuildJob is left", async || {
            let jobs = world.cluster.kubectl(&["get", "buildjobs", "-o", "name"], None)?;
            Ok(jobs.is_empty().then_some(()))
        })
        .await?;

        // Helm takes the Roles away with the rest, while the operator is still leaving.
        world.weaken();
        shell.run(uninstall).await?;
        eventually("nothing is left", async || {
            let left = left(world)?;
            ensure!(left.is_empty(), "{left:?}");
            Ok(Some(()))
        })
        .await?;
        world.cluster.kubectl(&["get", "crd", "buildjobs.buildkite-operator.dev"], None)?;
        Ok(())
    })
    .await;
}
