//! The operator as the chart installs it, in a namespace of its own.

use std::{
    collections::HashSet,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use bk_api::config::TOKEN_KEY;
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, LogParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    World,
    helm::{CHART, Helm},
};

/// The release, and so what its objects are called.
const NAME: &str = "buildkite-operator";
/// The Secret of the agent token.
const TOKEN: &str = "buildkite-agent-token";

/// An installation. It goes with its namespace; what it logs is followed until this is dropped.
pub struct Release {
    helm: Helm,
    kubeconfig: PathBuf,
    namespace: String,
    _log: AbortOnDropHandle<()>,
}

impl Release {
    /// Installs the chart with what the test has configured, for this queue. Its log goes on in `log`.
    pub(crate) async fn install(world: &World, queue: &str, log: &Path) -> Result<Self> {
        let namespace = world.cluster.home.clone();
        let pods = Api::<Pod>::namespaced(world.cluster.client.clone(), &namespace);
        let follow = tokio::spawn(follow(pods, log.to_owned()));
        let release = Self {
            helm: Helm::new(&world.environment.helm)?,
            kubeconfig: world.environment.kubeconfig.clone(),
            namespace,
            _log: AbortOnDropHandle::new(follow),
        };
        let values = release.helm.values(&values(world, queue).await?.to_string())?;
        let values = format!("--values={}", values.display());
        release.run(&["install", NAME, CHART, "--create-namespace", &values]).await?;
        Ok(release)
    }

    /// Upgrades it with another value, and waits until the pods are those of the upgrade.
    pub async fn upgrade(&self, value: &str) -> Result<()> {
        let wait = ["--wait", "--timeout=5m"];
        self.run(&[&["upgrade", NAME, CHART, "--reuse-values", "--set", value], &wait[..]].concat()).await
    }

    async fn run(&self, args: &[&str]) -> Result<()> {
        let mut command = self.helm.command(args);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["--namespace", &self.namespace]);
        let output =
            tokio::task::spawn_blocking(move || command.output()).await?.context("cannot run helm")?;
        ensure!(
            output.status.success(),
            "helm {args:?} failed: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}

/// The chart's values: what the test has configured, and where its Buildkite is.
async fn values(world: &World, queue: &str) -> Result<Value> {
    let environment = &world.environment;
    let mut config = Map::new();
    for (key, text) in world.cluster.configured().await? {
        let value = serde_saphyr::from_str(&text).with_context(|| format!("{key} is no YAML: {text}"))?;
        config.insert(key, value);
    }
    config.insert("job_namespace".to_owned(), world.cluster.namespace.clone().into());
    for (key, field, value) in [
        ("job_spawner_config", "queue", queue),
        ("job_spawner_config", "endpoint", &world.buildkite.endpoint()),
        ("pod_config", "agentImage", &environment.agent_image),
    ] {
        config.entry(key).or_insert_with(|| json!({}))[field] = value.into();
    }
    let (repository, tag) = environment.operator_image.rsplit_once(':').context("the image has a tag")?;
    Ok(json!({
        "agentToken": token(world).await?,
        "image": { "repository": repository, "tag": tag },
        "log": { "level": "info,buildkite_operator=debug" },
        // Those of all tests are the cluster's.
        "crds": { "install": false },
        "config": config,
    }))
}

/// The agent token, for Helm to make the Secret. One that the test has altered stays as it is.
async fn token(world: &World) -> Result<String> {
    let secrets = Api::<Secret>::namespaced(world.cluster.client.clone(), &world.cluster.namespace);
    let token = &world.buildkite.agent_token;
    let secret = secrets.get_opt(TOKEN).await?.and_then(|secret| secret.data).unwrap_or_default();
    if secret.get(TOKEN_KEY).is_none_or(|stored| stored.0 != token.as_bytes()) {
        return Ok(String::new());
    }
    secrets.delete(TOKEN, &DeleteParams::default()).await?;
    Ok(token.clone())
}

/// Gathers in one file what the pods log, also those that come later.
async fn follow(pods: Api<Pod>, log: PathBuf) {
    let mut followed = HashSet::new();
    let mut readers = JoinSet::new();
    let mut seen =
        watcher(pods.clone(), watcher::Config::default()).default_backoff().applied_objects().boxed();
    while let Some(pod) = seen.next().await {
        let Ok(pod) = pod else { continue };
        // Each run of a container has a log of its own.
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
        let run = statuses.unwrap_or_default().iter().find_map(|status| {
            status.state.as_ref()?.running.as_ref()?;
            status.container_id.clone()
        });
        if run.is_some_and(|run| followed.insert(run)) {
            readers.spawn(read(pods.clone(), pod.name_any(), log.clone()));
        }
    }
}

/// Copies a pod's log line by line, so that lines of several pods stay whole.
async fn read(pods: Api<Pod>, name: String, log: PathBuf) -> Result<()> {
    let mut file = File::options().create(true).append(true).open(log)?;
    let params = LogParams { follow: true, ..LogParams::default() };
    let mut lines = pods.log_stream(&name, &params).await?.lines();
    while let Some(line) = lines.try_next().await? {
        file.write_all(format!("{line}\n").as_bytes())?;
    }
    Ok(())
}
