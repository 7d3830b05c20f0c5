//! `cargo xtask demo`: from nothing to a green build.

mod deadline;
mod kubectl;
mod overlay;
mod ownership;
mod rehearsal;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use self::kubectl::Kubectl;
use self::overlay::Overlay;
use self::ownership::Owner;
pub(crate) use self::rehearsal::rehearse;
use crate::images::{self, Image};
use crate::{cluster, deps, process, progress, workspace};

/// The demo's own cluster.
const CLUSTER: &str = "demo";
const NAMESPACE: &str = "buildkite";
/// The operator's release of Helm, by which the demo knows its definitions again.
const RELEASE: &str = "demo";
const CHART: &str = "charts/buildkite-operator";
/// The values of the operator that are the same wherever the demo runs.
const VALUES: &str = "examples/demo/values.yaml";
/// What defines BuildJobs and the like: the first of them stands for all.
const DEFINITIONS: [&str; 3] = [
    "buildjobs.buildkite-operator.dev",
    "buildenvironments.buildkite-operator.dev",
    "repomirrors.buildkite-operator.dev",
];
const DEPLOYMENTS: [&str; 3] = ["git-server", "buildkite-local", "buildkite-operator"];

/// How long the build may take: much longer than it does, also where images have to be pulled.
const BUILD_LIMIT: Duration = Duration::from_mins(10);
/// Starts a build inside the cluster, where everything is reachable, and follows it.
const BUILD: [&str; 9] = [
    "exec",
    "deployment/buildkite-local",
    "--",
    "buildkite-local",
    "build",
    "/demo/pipeline.yml",
    "--pipeline=demo",
    "--repo=git://git-server/demo.git",
    "--watch",
];

/// Where to run the demo, or that it should go away.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Remove everything that the demo made.
    #[arg(long)]
    clean: bool,
    /// Run on your own cluster, the one that kubectl talks to, which pulls images from this registry path.
    #[arg(long, value_name = "REPO")]
    image_repo: Option<String>,
}

/// Does what the command line says.
pub(crate) fn run(args: &Args) -> Result<()> {
    match (&args.image_repo, args.clean) {
        (None, false) => on_this_machine(),
        (None, true) => clean_this_machine(),
        (Some(repo), false) => on_own_cluster(repo),
        (Some(_), true) => {
            let demo = Demo { kubectl: Kubectl::own()?, directory: directory("demo-own") };
            demo.remove()?;
            demo.remove_files()
        }
    }
}

fn on_this_machine() -> Result<()> {
    let cluster = cluster::start(CLUSTER)?;
    let images = images::ensure(&Image::ALL)?;
    images::load(&cluster.containerd_socket, &images)?;
    let demo = Demo { kubectl: Kubectl::local(&cluster), directory: directory("demo") };
    demo.run(&Overlay::loaded(&demo.directory, &images)?)?;
    let script = demo.say_where_to_look()?;
    let service = ["get", "service", "buildkite-local", "--output=jsonpath={.spec.clusterIP}"];
    let address = demo.kubectl.output(&service)?;
    progress::note(&format!("  The page       http://{address}:8384; this token signs in:"));
    progress::note(&format!("                 {script} {PASSWORD}"));
    progress::note("  Clean up       make clean-demo");
    Ok(())
}

fn clean_this_machine() -> Result<()> {
    if !cluster::stop(CLUSTER)? {
        progress::note("there is no demo to remove");
    }
    remove_directory(&directory("demo"))?;
    let cache = crate::cache::root()?;
    progress::note(&format!("kept for the next time: {} (delete it to free the space)", cache.display()));
    Ok(())
}

fn on_own_cluster(repo: &str) -> Result<()> {
    let demo = Demo { kubectl: Kubectl::own()?, directory: directory("demo-own") };
    // Asked first: what may not be installed need not be built.
    demo.check()?;
    let images = images::ensure(&Image::ALL)?;
    let references = images::push(repo, &images)?;
    demo.run(&Overlay::pushed(&demo.directory, &images, &references)?)?;
    let script = demo.say_where_to_look()?;
    progress::note(&format!(
        "  The page       {script} port-forward service/buildkite-local 8384, then http://127.0.0.1:8384,"
    ));
    progress::note("                 and sign in with this token:");
    progress::note(&format!("                 {script} {PASSWORD}"));
    progress::note(&format!("  Clean up       make clean-demo IMAGE_REPO={repo}, with the same KUBECONFIG"));
    Ok(())
}

/// The demo in one cluster, and its files in the build directory.
struct Demo {
    kubectl: Kubectl,
    directory: PathBuf,
}

impl Demo {
    /// Whether it may be installed in a cluster that has other users.
    fn check(&self) -> Result<()> {
        let namespace = self.kubectl.owner("namespace", NAMESPACE)?;
        ownership::may_install(namespace, self.definitions()?)
    }

    /// Whose the definitions are.
    fn definitions(&self) -> Result<Owner> {
        self.kubectl.owner("customresourcedefinition", DEFINITIONS[0])
    }

    /// Installs everything and runs a build to its end.
    fn run(&self, overlay: &Overlay) -> Result<()> {
        let outcome = progress::step("installing the operator, buildkite-local and a git server", || {
            self.install(overlay)
        });
        let outcome = outcome.and_then(|()| {
            progress::note("running the pipeline examples/demo/pipeline.yml");
            self.build()?;
            progress::step("waiting until no job pod is left", || self.wait_for_pods())
        });
        if outcome.is_err() {
            self.explain();
        }
        outcome
    }

    fn install(&self, overlay: &Overlay) -> Result<()> {
        self.kubectl.ensure_namespace()?;
        self.kubectl.ensure_secret("buildkite-agent-token", "BUILDKITE_AGENT_TOKEN")?;
        self.kubectl.ensure_secret("buildkite-local", "api-token")?;
        self.kubectl.output(&["apply", "--kustomize", &overlay.directory().to_string_lossy()])?;
        let values = [workspace().join(VALUES), overlay.values()];
        self.helm_install(&workspace().join(CHART), &values)?;
        for deployment in DEPLOYMENTS {
            let name = format!("deployment/{deployment}");
            self.kubectl
                .output(&["rollout", "status", &name, "--timeout=180s"])
                .with_context(|| format!("{deployment} does not come up"))?;
        }
        Ok(())
    }

    /// Installs a chart with these files of values, or upgrades to it.
    fn helm_install(&self, chart: &Path, values: &[PathBuf]) -> Result<()> {
        let chart = chart.to_string_lossy();
        let mut helm = self.kubectl.helm(&deps::helm()?, &["upgrade", "--install", RELEASE, &chart]);
        for file in values {
            helm.arg("--values").arg(file);
        }
        // Else it keeps files in the developer's own directories.
        for home in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            helm.env(home, self.directory.join("helm"));
        }
        process::run(&mut helm).map(drop)
    }

    fn build(&self) -> Result<()> {
        match deadline::status(&mut self.kubectl.command(&BUILD), BUILD_LIMIT)? {
            Some(status) if status.success() => Ok(()),
            Some(_) => bail!("the demo's build did not pass"),
            None => bail!("the demo's build did not end within {}", progress::duration(BUILD_LIMIT)),
        }
    }

    fn wait_for_pods(&self) -> Result<()> {
        let selector = "--selector=buildkite-operator.dev/build-job";
        self.kubectl.output(&["wait", "pods", selector, "--for=delete", "--timeout=60s"]).map(drop)
    }

    /// Shows what the cluster knows about a failure.
    fn explain(&self) {
        let installed = format!("--selector=app.kubernetes.io/name in ({})", DEPLOYMENTS.join(", "));
        let logs = [
            "logs",
            "--all-containers",
            "--prefix",
            "--ignore-errors",
            "--tail=200",
            "--max-log-requests=50",
        ];
        let questions: [(&str, Vec<&str>); 4] = [
            ("BuildJobs", vec!["get", "buildjobs", "--output=yaml"]),
            ("pods", vec!["describe", "pods"]),
            ("logs of job pods", [&logs[..], &["--selector=buildkite-operator.dev/build-job"]].concat()),
            ("logs of what the demo installed", [&logs[..], &[&installed]].concat()),
        ];
        for (title, question) in questions {
            let answer = self.kubectl.output(&question).unwrap_or_else(|error| format!("{error:#}"));
            progress::note(&format!("==== {title}\n{}", answer.trim_end()));
        }
    }

    /// Says what a newcomer may type next, and returns the kubectl for it.
    fn say_where_to_look(&self) -> Result<String> {
        let script = self.write_script()?;
        progress::note("\nThe build passed, and no job pod is left. Where to look:");
        progress::note(&format!("  Another build  {script} {}", BUILD.join(" ")));
        progress::note(&format!("  Jobs as seen   {script} get buildjobs,pods --watch"));
        progress::note(&format!(
            "  The operator   {script} logs --selector=app.kubernetes.io/name=buildkite-operator --prefix"
        ));
        Ok(script)
    }

    fn write_script(&self) -> Result<String> {
        let script = self.directory.join("kubectl");
        overlay::write(&script, &self.kubectl.script())?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("making {} executable", script.display()))?;
        let here = std::env::current_dir().unwrap_or_default();
        Ok(script.strip_prefix(here).unwrap_or(&script).display().to_string())
    }

    /// Removes the demo from a cluster that has other users.
    fn remove(&self) -> Result<()> {
        let namespace = self.kubectl.owner("namespace", NAMESPACE)?;
        ownership::may_remove(namespace)?;
        if namespace == Owner::Nobody {
            progress::note("there is no demo to remove");
        }
        progress::step("removing the demo from the cluster", || {
            self.kubectl.output(&["delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=180s"])
        })?;
        if self.definitions()? == Owner::Demo {
            self.remove_definitions()?;
        }
        Ok(())
    }

    /// With the definitions all that is defined by them would go, also what is somebody else's.
    fn remove_definitions(&self) -> Result<()> {
        let objects =
            self.kubectl.output(&["get", &DEFINITIONS.join(","), "--all-namespaces", "--output=name"])?;
        if !objects.is_empty() {
            progress::note(&format!(
                "left in place: {}, as other namespaces have objects of them",
                DEFINITIONS.join(", ")
            ));
            return Ok(());
        }
        let delete = ["delete", "customresourcedefinition", "--ignore-not-found"];
        self.kubectl.output(&[&delete, &DEFINITIONS[..]].concat()).map(drop)
    }

    fn remove_files(&self) -> Result<()> {
        remove_directory(&self.directory)
    }
}

/// How kubectl shows what opens the page.
const PASSWORD: &str =
    r#"get secret buildkite-local --template='{{index .data "api-token" | base64decode}}'"#;

/// A place for the files of one cluster's demo: kubectl for it, and what was applied.
fn directory(name: &str) -> PathBuf {
    workspace().join("target").join(name)
}

fn remove_directory(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}
