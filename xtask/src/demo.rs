//! `cargo xtask demo`: from nothing to a green build.

mod overlay;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use self::overlay::Overlay;
use crate::images::{self, Built, Image};
use crate::{cluster, deps, process, progress};

/// The demo's own cluster.
const CLUSTER: &str = "demo";
const NAMESPACE: &str = "buildkite";
const DEPLOYMENTS: [&str; 3] = ["git-server", "buildkite-local", "buildkite-operator"];

/// Where to run the demo, or that it should go away.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Remove everything that the demo made.
    #[arg(long)]
    clean: bool,
    /// Run on your own cluster, which pulls images from this registry path.
    #[arg(long, value_name = "REPO")]
    image_repo: Option<String>,
    /// Your own cluster's kubeconfig; by default, kubectl's.
    #[arg(long, value_name = "FILE", requires = "image_repo")]
    kubeconfig: Option<PathBuf>,
}

/// Does what the command line says.
pub(crate) fn run(args: &Args) -> Result<()> {
    match (&args.image_repo, args.clean) {
        (None, false) => {
            let cluster = cluster::start(CLUSTER)?;
            let images = images::ensure(&Image::ALL)?;
            images::load(&cluster.containerd_socket, &images)?;
            on_local(&cluster, &images)?;
            progress::note("  Clean up       make clean-demo");
        }
        (None, true) => clean_local()?,
        (Some(repo), false) => {
            let images = images::ensure(&Image::ALL)?;
            let references = images::push(repo, &images)?;
            let demo = Demo { kubectl: Kubectl::new(args.kubeconfig.clone())? };
            demo.run(&Overlay::pushed(&images, &references)?)?;
            progress::note(
                "  The page       target/demo/kubectl port-forward service/buildkite-local 8384, then http://127.0.0.1:8384",
            );
        }
        (Some(_), true) => Demo { kubectl: Kubectl::new(args.kubeconfig.clone())? }.remove()?,
    }
    Ok(())
}

/// Runs the demo on a cluster of this machine that has the images.
pub(crate) fn on_local(cluster: &cluster::Running, images: &[Built]) -> Result<()> {
    let demo = Demo { kubectl: Kubectl::new(Some(cluster.kubeconfig.clone()))? };
    demo.run(&Overlay::loaded(images)?)?;
    let service = ["get", "service", "buildkite-local", "--output=jsonpath={.spec.clusterIP}"];
    let address = demo.kubectl.output(&service)?;
    progress::note(&format!("  The page       http://{address}:8384, any name, with this password:"));
    progress::note(&format!("                 {} {PASSWORD}", overlay::KUBECTL));
    Ok(())
}

fn clean_local() -> Result<()> {
    if !cluster::stop(CLUSTER)? {
        progress::note("there is no demo to remove");
    }
    overlay::remove()?;
    let cache = crate::cache::root()?;
    progress::note(&format!("kept for the next time: {} (delete it to free the space)", cache.display()));
    Ok(())
}

struct Demo {
    kubectl: Kubectl,
}

impl Demo {
    /// Installs everything, runs a build to its end, and says where to look.
    fn run(&self, overlay: &Overlay) -> Result<()> {
        progress::step("installing the operator, buildkite-local and a git server", || {
            self.install(overlay)
        })?;
        progress::note("running the pipeline examples/demo/pipeline.yml");
        self.build()?;
        progress::step("waiting until no job pod is left", || {
            let gone = [
                "wait",
                "pods",
                "--selector=buildkite-operator.dev/build-job",
                "--for=delete",
                "--timeout=60s",
            ];
            self.kubectl.output(&gone)
        })?;
        overlay::write_kubectl(&self.kubectl.line())?;
        let kubectl = overlay::KUBECTL;
        progress::note("\nThe build passed, and no job pod is left. Where to look:");
        progress::note(&format!("  Another build  {kubectl} {}", BUILD.join(" ")));
        progress::note(&format!("  Jobs as seen   {kubectl} get buildjobs,pods --watch"));
        progress::note(&format!("  The operator   {kubectl} logs deployment/buildkite-operator"));
        Ok(())
    }

    fn install(&self, overlay: &Overlay) -> Result<()> {
        self.kubectl.ensure_namespace()?;
        self.kubectl.ensure_secret("buildkite-agent-token", "BUILDKITE_AGENT_TOKEN")?;
        self.kubectl.ensure_secret("buildkite-local", "api-token")?;
        self.kubectl.output(&["apply", "--kustomize", &overlay.directory().to_string_lossy()])?;
        for deployment in DEPLOYMENTS {
            let name = format!("deployment/{deployment}");
            self.kubectl
                .output(&["rollout", "status", &name, "--timeout=180s"])
                .with_context(|| self.why(deployment))?;
        }
        Ok(())
    }

    /// What a deployment that does not come up has to say.
    fn why(&self, deployment: &str) -> String {
        let selector = format!("--selector=app.kubernetes.io/name={deployment}");
        let said = [
            self.kubectl.output(&["describe", "pods", &selector]),
            self.kubectl.output(&["logs", &selector, "--tail=50"]),
        ];
        let said: Vec<String> =
            said.into_iter().map(|text| text.unwrap_or_else(|error| format!("{error:#}"))).collect();
        format!("{deployment} does not come up\n{}", said.join("\n"))
    }

    fn build(&self) -> Result<()> {
        let mut command = self.kubectl.command(&BUILD);
        let status = command.status().with_context(|| format!("starting {}", process::line(&command)))?;
        if !status.success() {
            let log = self.kubectl.output(&["logs", "deployment/buildkite-operator", "--tail=100"]);
            progress::note(&log.unwrap_or_else(|error| format!("{error:#}")));
        }
        ensure!(status.success(), "the demo's build did not pass");
        Ok(())
    }

    fn remove(&self) -> Result<()> {
        let examples = crate::workspace().join("examples/demo");
        let all = ["delete", "--ignore-not-found", "--kustomize", &examples.to_string_lossy()];
        progress::step("removing the demo from your cluster", || self.kubectl.output(&all))?;
        overlay::remove()
    }
}

/// How kubectl shows what opens the page.
const PASSWORD: &str =
    r#"get secret buildkite-local --template='{{index .data "api-token" | base64decode}}'"#;

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

struct Kubectl {
    program: PathBuf,
    kubeconfig: Option<PathBuf>,
}

impl Kubectl {
    fn new(kubeconfig: Option<PathBuf>) -> Result<Self> {
        Ok(Self { program: deps::kubernetes()?.join("kubectl"), kubeconfig })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(kubeconfig) = &self.kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        command.args(["--namespace", NAMESPACE]).args(args);
        command
    }

    fn output(&self, args: &[&str]) -> Result<String> {
        process::run(&mut self.command(args))
    }

    /// How a person would call it.
    fn line(&self) -> String {
        process::line(&self.command(&[]))
    }

    fn ensure_namespace(&self) -> Result<()> {
        let manifest = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n");
        let mut command = self.command(&["apply", "--filename=-"]);
        process::run(command.stdin(process::input(&manifest)?)).map(drop)
    }

    /// A Secret with a random value, made once and then left alone.
    fn ensure_secret(&self, name: &str, key: &str) -> Result<()> {
        if !self.output(&["get", "secret", name, "--ignore-not-found", "--output=name"])?.is_empty() {
            return Ok(());
        }
        let value = random_token()?;
        // Through standard input, as arguments can be seen by everybody on the machine.
        let manifest = format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {{{key}: {value}}}\n"
        );
        let mut command = self.command(&["create", "--filename=-"]);
        process::run(command.stdin(process::input(&manifest)?)).map(drop)
    }
}

fn random_token() -> Result<String> {
    use std::io::Read;
    let mut bytes = [0; 16];
    let source = Path::new("/dev/urandom");
    std::fs::File::open(source)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .with_context(|| format!("reading {}", source.display()))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}
