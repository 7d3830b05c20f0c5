//! What the documents tell people to type is typed, and what they tell them to apply is applied, page by page and as it is printed.
//!
//! Blocks of commands are taken in their order. One that is neither run nor listed in [`ELSEWHERE`] fails.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use bk_api::Phase;
use bk_e2e::{
    World, eventually,
    guide::{Block, blocks, example},
    repository::Repository,
    scenario,
    shell::Shell,
};

use crate::installation;

/// Pages whose commands are run here.
const PAGES: [&str; 10] = [
    "README.md",
    "docs/admission.md",
    "docs/command-line.md",
    "docs/configuration.md",
    "docs/job-metrics.md",
    "docs/linting.md",
    "docs/logs.md",
    "docs/metrics.md",
    "docs/operations.md",
    "docs/pipelines.md",
];

/// Blocks of commands that are not run here, by how they begin, and who runs them, or why nobody does.
const ELSEWHERE: [(&str, &str, &str); 27] = [
    ("README.md", "make demo  ", "`make test` is what runs this, and the demo is a part of it"),
    (
        "README.md",
        "make demo KUBECONFIG",
        "needs a registry; the demo's own part shows the rest on a local cluster",
    ),
    ("README.md", "cargo xtask images push", "needs a registry"),
    ("CONTRIBUTING.md", "make test", "is what runs this"),
    ("docs/benchmarks.md", "make bench", "takes twenty minutes, and nothing else may run beside it"),
    ("docs/benchmarks.md", "cargo xtask bench --filter operator-latency", "measures other controllers"),
    ("docs/buildkite-local.md", "buildkite-local serve", "tests/agent/documents.rs"),
    ("docs/buildkite-local.md", "buildkite-local build", "tests/agent/documents.rs"),
    ("docs/buildkite-local.md", "buildkite-agent start", "tests/agent/documents.rs"),
    ("docs/buildkite-local.md", "api() {", "tests/agent/documents.rs"),
    (
        "docs/configuration.md",
        "buildkite-controller --intake",
        "runs until it is stopped; unclustered.rs starts an operator with these flags",
    ),
    ("docs/development.md", "cargo xtask deps", "comes before `make test`"),
    ("docs/development.md", "make check", "is what runs this, a part of it, or a cluster beside it"),
    ("docs/development.md", "INSTA_UPDATE=always", "changes the sources"),
    (
        "docs/development.md",
        "cargo run -p buildkite-operator -- crds",
        "changes the sources; `it` compares what it prints",
    ),
    ("docs/development.md", "WRITE_DOCS=1", "changes the sources"),
    ("docs/development.md", "WRITE_CHART=1", "changes the sources"),
    (
        "docs/development.md",
        "cargo xtask test --only e2e --filter NAME",
        "is what runs this, and would take its cluster away",
    ),
    ("docs/installing.md", "helm install", "tests/e2e/installation.rs"),
    ("docs/installing.md", "helm upgrade", "tests/e2e/installation.rs"),
    ("docs/installing.md", "helm uninstall", "tests/e2e/installation.rs"),
    ("docs/job-metrics.md", "cat > /metrics/.tests", "tests/e2e/job_metrics.rs"),
    ("docs/mirrors.md", "curl --fail", "tests/e2e/mirrors.rs"),
    ("docs/mirrors.md", "kubectl --namespace buildkite annotate", "tests/e2e/mirrors.rs"),
    ("docs/mirrors.md", "kubectl --namespace buildkite create secret", "tests/e2e/mirrors.rs"),
    ("docs/node-pools.md", "gcloud container", "needs Google's cloud"),
    ("docs/node-pools.md", "az aks", "needs Microsoft's cloud"),
];

/// Kinds of others, whose definitions this cluster does not have.
const FOREIGN: [&str; 3] = ["ClusterConfig", "Kustomization", "NodePool"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every document that users read, by its path in the repository.
fn documents() -> Result<Vec<(String, String)>> {
    let mut names: Vec<String> = ["README.md", "CONTRIBUTING.md", "plugin/README.md"].map(Into::into).into();
    for directory in ["docs", "docs/decisions", "docs/reference"] {
        for entry in fs::read_dir(root().join(directory))? {
            names.push(format!("{directory}/{}", entry?.file_name().to_string_lossy()));
        }
    }
    names.retain(|name| Path::new(name).extension().is_some_and(|extension| extension == "md"));
    names.sort();
    names.into_iter().map(|name| Ok((name.clone(), fs::read_to_string(root().join(name))?))).collect()
}

fn is_elsewhere(page: &str, block: &Block) -> bool {
    ELSEWHERE.iter().any(|(listed, begin, _)| page == *listed && block.body.starts_with(begin))
}

/// The blocks of a document that somebody types.
fn commands(document: &str) -> impl Iterator<Item = Block> {
    blocks(document).into_iter().filter(|block| ["sh", "console"].contains(&block.language.as_str()))
}

/// The commands of a page that have not been run yet.
struct Page {
    name: &'static str,
    text: String,
    left: VecDeque<Block>,
}

impl Page {
    fn open(name: &'static str) -> Result<Self> {
        ensure!(PAGES.contains(&name), "{name} is not among the pages");
        let text = fs::read_to_string(root().join(name))?;
        let left = commands(&text).filter(|block| !is_elsewhere(name, block)).collect();
        Ok(Self { name, text, left })
    }

    /// The next block, in which this is expected.
    fn next(&mut self, text: &str) -> Result<Block> {
        let block = self.left.pop_front().with_context(|| format!("{} has no more commands", self.name))?;
        ensure!(block.body.contains(text), "{}:{} has no {text}: {}", self.name, block.line, block.body);
        Ok(block)
    }

    /// Runs the next block, in which this is expected.
    async fn run(&mut self, shell: &Shell<'_>, text: &str) -> Result<String> {
        let block = self.next(text)?;
        let typed = if block.language == "console" { session(&block).0 } else { block.body.clone() };
        shell.run(&typed).await.with_context(|| format!("{}:{}", self.name, block.line))
    }

    /// Fails if there is more.
    fn end(self) -> Result<()> {
        let left = self.left.iter().map(|block| format!("{}:{}: {}", self.name, block.line, block.body));
        let left: Vec<_> = left.collect();
        ensure!(left.is_empty(), "nobody runs this:\n{}", left.join("\n"));
        Ok(())
    }
}

/// What a block of a terminal shows to be typed, and what it shows to come of it.
fn session(block: &Block) -> (String, String) {
    let (typed, printed): (Vec<_>, Vec<_>) = block.body.lines().partition(|line| line.starts_with("$ "));
    let typed: Vec<_> = typed.iter().map(|line| line.trim_start_matches("$ ")).collect();
    (typed.join("\n"), printed.join("\n"))
}

/// A job of the operator's queue passes.
async fn a_build_passes(world: &World) -> Result<()> {
    let steps = "steps: [{command: ./hello.sh, agents: {queue: bk-operator}}]";
    let build = world.buildkite.build(&world.repository.url, steps).await?;
    let ended = world.buildkite.ended(build.jobs[0].id).await?;
    assert_eq!(ended.exit_status, Some(0), "{}", world.buildkite.log(ended.id).await?);
    Ok(())
}

/// Applies a job that runs for a moment, and waits until it is over.
async fn a_job_is_over(world: &World, name: &str, spec: &str) -> Result<()> {
    let manifest = format!(
        "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildJob\nmetadata: {{name: {name}}}\nspec: {spec}\n"
    );
    world.cluster.kubectl(&["apply", "-f", "-"], Some(&manifest))?;
    let over = |job: &bk_api::BuildJob| job.status_or_default().phase.is_terminal();
    let job = world.cluster.build_job_with(name, "over", over).await?;
    assert_eq!(job.status_or_default().phase, Phase::Succeeded, "{:?}", job.status);
    Ok(())
}

#[test]
fn every_command_is_run_or_listed() -> Result<()> {
    let mut problems = Vec::new();
    let mut unused: Vec<_> = ELSEWHERE.iter().collect();
    for (name, text) in documents()? {
        for block in commands(&text) {
            unused.retain(|(page, begin, _)| *page != name || !block.body.starts_with(begin));
            if !is_elsewhere(&name, &block) && !PAGES.contains(&&*name) {
                problems.push(format!("{name}:{}: nobody runs this:\n{}", block.line, block.body));
            }
        }
    }
    problems.extend(
        unused.iter().map(|(page, begin, _)| format!("{page} has no block that begins with {begin}")),
    );
    // Where a test is named, it reads the page.
    for (page, _, reason) in ELSEWHERE.iter().filter(|(_, _, reason)| reason.starts_with("tests/")) {
        let test = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(reason))?;
        if !test.contains(&format!("{page}\")")) {
            problems.push(format!("{reason} does not read {page}"));
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readme_installs_by_helm_and_without_and_runs_jobs_by_hand() {
    scenario(async |world| {
        let waiting = "steps: [{command: ./hello.sh, agents: {queue: nobody}}]";
        let waiting = world.buildkite.build(&world.repository.url, waiting).await?.jobs[0].id;
        let repository = Repository::serve(world.environment.host, &[("README.md", "# An agent\n")])?;
        let address = format!("          endpoint: {}", world.buildkite.endpoint());
        let shell = Shell::open(world)?
            .replacing("https://github.com/buildkite/agent.git", &repository.url)
            .replacing("0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a", &waiting.to_string())
            .replacing("          queue: bk-operator", &format!("          queue: bk-operator\n{address}"));
        let mut page = Page::open("README.md")?;
        page.run(&shell, "helm install").await?;
        a_build_passes(world).await?;

        // Helm takes the Roles away with the rest, while the operator is still leaving.
        world.weaken();
        shell.run("helm uninstall buildkite-operator --namespace buildkite --wait").await?;
        world.cluster.kubectl(&["delete", "secret", "buildkite-agent-token", "--ignore-not-found"], None)?;
        page.run(&shell, "deploy/namespace.yaml").await?;
        shell.write("my-cluster/kustomization.yaml", example(&page.text, "yaml", "kind: Kustomization")?)?;
        page.run(&shell, "apply -k my-cluster").await?;
        a_build_passes(world).await?;

        page.run(&shell, "name: hello").await?;
        page.run(&shell, "name: by-hand").await?;
        assert_eq!(world.buildkite.ended(waiting).await?.exit_status, Some(0));
        page.end()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_for_those_who_run_the_operator() {
    scenario(async |world| {
        installation::install(world).await?;
        let (_, tag) = world.environment.operator_image.rsplit_once(':').context("the image has a tag")?;
        let shell = Shell::open(world)?
            .replacing("image.tag=NEW", &format!("image.tag={tag} --set profiling.listen=127.0.0.1:6060"))
            .replacing("profile?seconds=30", "profile?seconds=1")
            // What the page shows first is of an operator that may look.
            .replacing(
                "--set webhook.enabled=true",
                "--set webhook.enabled=true --set webhook.lookUpSecrets=true",
            )
            .replacing("buildjob NAME", "buildjob small");
        let environment = manifest(
            "BuildEnvironment",
            "small",
            &format!("{{image: '{}'}}", world.environment.toolbox_image),
        );
        world.cluster.kubectl(&["apply", "-f", "-"], Some(&environment))?;
        a_job_is_over(world, "small", "{environment: small, command: 'true'}").await?;

        let mut operations = Page::open("docs/operations.md")?;
        operations.run(&shell, "helm upgrade").await?;
        let mut metrics = Page::open("docs/metrics.md")?;
        metrics.run(&shell, "port-forward").await?;
        metrics.end()?;
        operations.run(&shell, "helm rollback").await?;
        operations.run(&shell, "--replicas=0").await?;
        eventually("the operator has gone", async || {
            let pods = ["get", "pods", "-l", "app.kubernetes.io/name=buildkite-operator", "-o", "name"];
            Ok(world.cluster.kubectl(&pods, None)?.is_empty().then_some(()))
        })
        .await?;
        operations.run(&shell, "backup.yaml").await?;
        let kept = shell.run("cat values.yaml; kubectl apply --dry-run=server -f backup.yaml").await?;
        assert!(
            kept.contains("queue: bk-operator")
                && kept.contains("buildenvironment.buildkite-operator.dev/small"),
            "{kept}"
        );
        let seen = operations.run(&shell, "describe buildjob").await?;
        assert!(seen.contains("Passed"), "{seen}");
        operations.end()?;

        let mut admission = Page::open("docs/admission.md")?;
        let refused = admission.next("kubectl apply -f job.yaml")?;
        let upgrade = admission.run(&shell, "webhook.enabled=true").await?;
        assert!(upgrade.contains("has been upgraded"), "{upgrade}");
        shell.run("kubectl scale deployment/buildkite-operator --replicas=1").await?;
        it_is_refused_as_printed(&shell, &refused).await?;
        admission.end()?;

        world.weaken();
        shell.run("helm uninstall buildkite-operator --namespace buildkite --wait").await?;
        world.cluster.kubectl(&["delete", "secret", "buildkite-agent-token", "--ignore-not-found"], None)?;
        let mut configuration = Page::open("docs/configuration.md")?;
        configuration.run(&shell, "get events").await?;
        configuration.run(&shell, "buildkite-api-token").await?;
        configuration.end()
    })
    .await;
}

/// A job with a Secret and a service account that are not there, once the webhook is heard.
async fn it_is_refused_as_printed(shell: &Shell<'_>, shown: &Block) -> Result<()> {
    let spec = "{command: make, kubernetes: {podSpec: {imagePullSecrets: [{name: registry}], serviceAccountName: deployer}}}";
    shell.write("job.yaml", &manifest("BuildJob", "job", spec))?;
    let (typed, printed) = session(shown);
    eventually("it is refused as the page shows", async || {
        // It is stored while nobody is asked yet, and then there is nothing to refuse.
        shell.run("kubectl delete buildjob job --ignore-not-found").await?;
        let (accepted, text) = shell.attempt(&typed).await?;
        ensure!(!accepted && text.contains(&printed), "{text}");
        Ok(Some(()))
    })
    .await
}

fn manifest(kind: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: buildkite-operator.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_for_those_who_use_it() {
    scenario(async |world| {
        world.cluster.configure("job_spawner_config", "{maxInFlight: 10, stackKey: bk-operator}").await?;
        let _operator = world.operator().await?;
        let waiting = "steps: [{command: ./hello.sh, agents: {queue: nobody}}]";
        let waiting = world.buildkite.build(&world.repository.url, waiting).await?.jobs[0].id;
        let shell = Shell::open(world)?
            .replacing("0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a", &waiting.to_string())
            // The image has no Go.
            .replacing("go test ./...", "./hello.sh")
            .replacing("buildjob NAME", "buildjob nightly")
            .replacing("/usr/local/bin", "bin");

        let mut pipelines = Page::open("docs/pipelines.md")?;
        shell.write(
            ".buildkite/pipeline.yml",
            "steps:\n  - {key: test, command: 'echo tested; ./hello.sh', image: 'golang:1.25'}\n",
        )?;
        let seed = "{image: 'golang:1.25', env: [{name: SEED, value: '1'}], command: 'echo seed $SEED'}";
        shell.write("nightly.yaml", &manifest("BuildJob", "nightly", seed))?;
        let log = pipelines.run(&shell, "run-job --image").await?;
        assert!(log.contains("hello from the repository"), "{log}");
        let log = pipelines.run(&shell, "run-job --pipeline").await?;
        assert!(
            ["tested", "hello from the repository", "seed 7"].iter().all(|line| log.contains(line)),
            "{log}"
        );
        pipelines.end()?;

        a_job_is_over(world, "nightly", "{command: 'true'}").await?;
        a_job_is_over(world, "by-hand", &format!("{{buildkite: {{jobUUID: {waiting}}}}}")).await?;
        let mut command_line = Page::open("docs/command-line.md")?;
        let described = command_line.run(&shell, "describe nightly").await?;
        assert_eq!(
            described.matches(&format!("BuildJob     {}/by-hand", world.cluster.namespace)).count(),
            2,
            "{described}"
        );
        command_line.end()?;

        let mut linting = Page::open("docs/linting.md")?;
        shell.write("jobs/nightly.yaml", &manifest("BuildJob", "nightly", seed))?;
        shell.program("generate-pipeline", "cat .buildkite/pipeline.yml")?;
        linting.run(&shell, "lint .buildkite jobs/").await?;
        linting.run(&shell, "> config.yaml").await?;
        shell.run("buildkite-operator lint --config config.yaml --with environments.yaml jobs").await?;
        linting.run(&shell, "kubectl-buildkite").await?;
        linting.end()?;

        let mut logs = Page::open("docs/logs.md")?;
        logs.run(&shell, "status.exporters").await?;
        logs.end()?;
        let mut metrics = Page::open("docs/job-metrics.md")?;
        metrics.run(&shell, "secret generic pushgateway").await?;
        metrics.end()
    })
    .await;
}

/// Manifests that pages show, apart from those in commands, go through the checks of the API server.
#[tokio::test(flavor = "multi_thread")]
async fn every_manifest_is_accepted_by_the_api_server() {
    scenario(async |world| {
        let shell = Shell::open(world)?;
        let mut seen = 0;
        for (name, text) in documents()? {
            let shown = blocks(&text).into_iter().filter(|block| block.language == "yaml");
            let manifests: Vec<String> = shown
                .flat_map(|block| block.body.split("---\n").map(|part| shell.here(part)).collect::<Vec<_>>())
                .filter(|part| part.starts_with("apiVersion:"))
                .filter(|part| !FOREIGN.iter().any(|kind| part.contains(&format!("\nkind: {kind}\n"))))
                .collect();
            if manifests.is_empty() {
                continue;
            }
            // Two blocks of a page may show the same object, so nothing is kept.
            let all = manifests.join("---\n");
            let apply = world.cluster.try_kubectl(&["apply", "--dry-run=server", "-f", "-"], Some(&all))?;
            ensure!(apply.status.success(), "{name}: {}", String::from_utf8_lossy(&apply.stderr));
            seen += manifests.len();
        }
        assert!(seen > 20, "the documents show {seen} manifests");
        Ok(())
    })
    .await;
}
