//! The syncer in a cluster: RepoMirrors and Secrets in, status out.

mod status;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use bk_api::{
    RepoMirror, RepoMirrorStatus,
    config::{CONFIG_MAP, Config, MirrorConfig, MirrorLayout},
    names,
};
use futures::{Stream, StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use secrecy::SecretString;
use serde_json::json;
use tokio::{
    net::TcpListener,
    sync::{Mutex, watch},
};
use tokio_util::sync::CancellationToken;

use crate::{
    access::{self, Entries},
    address::Address,
    endpoint::{self, Endpoint},
    metrics::Metrics,
    mirror::Rules,
    syncer::{Handle, Report, Settings, Syncer, Wanted, World},
};

/// How often the endpoint's token is read anew.
const TOKEN_REFRESH: Duration = Duration::from_secs(30);
/// The Secret's key that holds it.
const TOKEN_KEY: &str = "token";

/// Options of `repo-syncer`.
#[derive(Clone, Debug, clap::Args)]
pub struct SyncerArgs {
    /// Namespace of RepoMirrors and their Secrets [default: the syncer's own]
    #[arg(long, short, env = "BUILDKITE_JOB_NAMESPACE", hide_env_values = true, value_name = "NAME")]
    pub namespace: Option<String>,

    /// Namespace of the ConfigMap `buildkite-operator-config` [default: the syncer's own]
    #[arg(long, env = "BUILDKITE_OPERATOR_NAMESPACE", hide_env_values = true, value_name = "NAME")]
    pub operator_namespace: Option<String>,

    /// Node that this syncer keeps mirrors for, with `layout: nodeLocal`
    #[arg(long, env = "NODE_NAME", hide_env_values = true, value_name = "NAME")]
    pub node: Option<String>,

    /// Directory for keys and passwords while they are in use [default: /dev/shm]
    #[arg(long, value_name = "DIRECTORY")]
    pub private: Option<PathBuf>,
}

/// A syncer that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The configuration is not understood, or there is none.
    #[error("{0}")]
    Config(String),
    /// The API server refuses, or does not answer.
    #[error("cannot {what}")]
    Kubernetes {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: Box<kube::Error>,
    },
    /// The port cannot be had.
    #[error("cannot listen on {address} for `endpoint.listen`")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

/// Keeps the mirrors that RepoMirrors ask for, until `stop`. The second client is for what lasts: watches. When the configuration
/// changes, it begins anew.
pub async fn run(
    (client, streams): (Client, Client),
    own_namespace: &str,
    args: SyncerArgs,
    stop: CancellationToken,
) -> Result<(), ClusterError> {
    let place = args.operator_namespace.clone().unwrap_or_else(|| own_namespace.to_owned());
    let mut config = load(client.clone(), &place).await?;
    let api = Api::<ConfigMap>::namespaced(streams.clone(), &place);
    let mut versions = watcher::watch_object(api, CONFIG_MAP).default_backoff().boxed();
    loop {
        let end = stop.child_token();
        let clients = (client.clone(), streams.clone());
        let mut keeping = Box::pin(keep(clients, own_namespace, &args, &config, end.clone()));
        let changed = tokio::select! {
            ended = &mut keeping => return ended,
            changed = changed(&mut versions, &args, &config) => changed,
        };
        tracing::info!("the configuration has changed: beginning anew");
        end.cancel();
        keeping.await?;
        config = changed;
    }
}

/// Waits for another configuration that can be used. What cannot leaves the one in force.
async fn changed(
    versions: &mut (impl Stream<Item = watcher::Result<Option<ConfigMap>>> + Unpin),
    args: &SyncerArgs,
    config: &MirrorConfig,
) -> MirrorConfig {
    while let Some(version) = versions.next().await {
        let changed = match version {
            Ok(Some(config_map)) => read(config_map.data.as_ref()),
            Ok(None) => {
                tracing::warn!("ConfigMap {CONFIG_MAP} is gone: its last configuration stays in force");
                continue;
            }
            Err(error) => {
                let error = bk_ops::report::one_line(&error);
                tracing::warn!(error, "cannot watch the configuration");
                continue;
            }
        };
        match changed.and_then(|changed| node(&changed, args).map(|_| changed)) {
            Ok(changed) if changed != *config => return changed,
            Ok(_) => {}
            Err(problem) => tracing::error!(
                %problem,
                "the configuration cannot be used: the one before stays in force"
            ),
        }
    }
    // A watch goes on for as long as the process lives.
    std::future::pending().await
}

/// The node whose mirrors are kept, if they are a node's.
fn node(config: &MirrorConfig, args: &SyncerArgs) -> Result<Option<String>, ClusterError> {
    match (config.layout, &args.node) {
        (None, _) => Err(ClusterError::Config(format!(
            "ConfigMap {CONFIG_MAP}, key `repo_syncer_config`: `layout` says where mirrors are; without it there are none"
        ))),
        (Some(MirrorLayout::Shared), _) => Ok(None),
        (Some(MirrorLayout::NodeLocal), Some(node)) => Ok(Some(node.clone())),
        (Some(MirrorLayout::NodeLocal), None) => Err(ClusterError::Config(
            "`layout: nodeLocal` needs --node, or NODE_NAME from the pod's `spec.nodeName`".to_owned(),
        )),
    }
}

/// Keeps mirrors by one configuration, until `stop`.
async fn keep(
    (client, streams): (Client, Client),
    own_namespace: &str,
    args: &SyncerArgs,
    config: &MirrorConfig,
    stop: CancellationToken,
) -> Result<(), ClusterError> {
    let namespace = args.namespace.clone().unwrap_or_else(|| own_namespace.to_owned());
    let node = node(config, args)?;
    let settings = Settings {
        root: PathBuf::from(&config.path),
        private: args.private.clone().unwrap_or_else(access::private_root),
        parallelism: config.parallelism,
        rules: Rules { timeout: Duration::from_secs(config.timeout_seconds.into()), gc: config.gc },
    };
    let metrics = Metrics::default();
    let world = Cluster {
        client: client.clone(),
        namespace: namespace.clone(),
        node: node.clone(),
        written: Mutex::default(),
    };
    let (syncer, handle) = Syncer::new(settings, world, metrics.clone());
    let listener = match config.endpoint.listen {
        None => None,
        Some(address) => Some(
            TcpListener::bind(address).await.map_err(|source| ClusterError::Listen { address, source })?,
        ),
    };
    tracing::info!(namespace, path = config.path, layout = ?config.layout, "repo-syncer runs");
    let (publish, token) = watch::channel(None);
    let serving = async {
        if let Some(listener) = listener {
            let routes = endpoint::routes(Endpoint { syncer: handle.clone(), token, metrics });
            let served =
                axum::serve(listener, routes).with_graceful_shutdown(stop.clone().cancelled_owned()).await;
            if let Err(error) = served {
                tracing::error!(%error, "cannot answer requests any more");
            }
        }
    };
    let following = follow_token(client.clone(), &namespace, config.endpoint.token_secret.clone(), publish);
    let watching = follow_mirrors((client, streams), &namespace, (config, node.as_deref()), &handle);
    tokio::join!(
        syncer.run(stop.clone()),
        serving,
        stop.run_until_cancelled(following),
        stop.run_until_cancelled(watching),
    );
    Ok(())
}

async fn load(client: Client, namespace: &str) -> Result<MirrorConfig, ClusterError> {
    let found = Api::<ConfigMap>::namespaced(client, namespace).get_opt(CONFIG_MAP).await;
    let found = found.map_err(|source| ClusterError::Kubernetes {
        what: format!("read ConfigMap {namespace}/{CONFIG_MAP}"),
        source: Box::new(source),
    })?;
    read(found.and_then(|config_map| config_map.data).as_ref())
}

fn read(data: Option<&BTreeMap<String, String>>) -> Result<MirrorConfig, ClusterError> {
    let nothing = BTreeMap::new();
    let config = Config::from_data(data.unwrap_or(&nothing));
    Ok(config.map_err(|error| ClusterError::Config(error.to_string()))?.mirrors)
}

/// Reads the endpoint's token again and again, so that a new one is taken soon. A Secret that is gone closes the endpoint.
async fn follow_token(
    client: Client,
    namespace: &str,
    secret: Option<String>,
    publish: watch::Sender<Option<Arc<SecretString>>>,
) {
    let Some(name) = secret else { return };
    let api = Api::<Secret>::namespaced(client, namespace);
    loop {
        match api.get_opt(&name).await {
            Ok(secret) => {
                let token = secret.and_then(|secret| secret.data?.remove(TOKEN_KEY));
                let token = token.and_then(|token| String::from_utf8(token.0).ok());
                let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
                if token.is_none() {
                    tracing::warn!(
                        secret = name,
                        "the Secret of the endpoint has no key `token`: nobody may use the endpoint"
                    );
                }
                publish.send_replace(token.map(|token| Arc::new(SecretString::from(token))));
            }
            Err(error) => tracing::warn!(secret = name, %error, "cannot read the Secret of the endpoint"),
        }
        tokio::time::sleep(TOKEN_REFRESH).await;
    }
}

/// Tells the syncer which mirrors are wanted, whenever that changes.
async fn follow_mirrors(
    (client, streams): (Client, Client),
    namespace: &str,
    (config, node): (&MirrorConfig, Option<&str>),
    handle: &Handle,
) {
    let api = Api::<RepoMirror>::namespaced(client, namespace);
    let watched = Api::<RepoMirror>::namespaced(streams, namespace);
    let mut events = watcher(watched, watcher::Config::default()).default_backoff().boxed();
    let (mut mirrors, mut listed) = (BTreeMap::new(), false);
    loop {
        match events.try_next().await {
            Ok(Some(event)) => {
                note(&mut mirrors, &mut listed, event);
                if listed {
                    let (wanted, refused) = wanted(mirrors.values(), config, node);
                    handle.want(wanted).await;
                    for (name, problem) in refused {
                        let patch = mirrors
                            .get(&name)
                            .and_then(|mirror| status::refused(mirror, &problem, Timestamp::now()));
                        if let Some(patch) = patch {
                            patch_status(&api, &name, patch).await;
                        }
                    }
                }
            }
            Ok(None) => return,
            Err(error) => tracing::warn!(%error, "cannot watch RepoMirrors"),
        }
    }
}

/// Takes an event into account. A new list replaces what was known.
fn note(mirrors: &mut BTreeMap<String, RepoMirror>, listed: &mut bool, event: watcher::Event<RepoMirror>) {
    match event {
        watcher::Event::Init => {
            mirrors.clear();
            *listed = false;
        }
        watcher::Event::InitApply(mirror) | watcher::Event::Apply(mirror) => {
            mirrors.insert(mirror.name_any(), mirror);
        }
        watcher::Event::InitDone => *listed = true,
        watcher::Event::Delete(mirror) => {
            mirrors.remove(&mirror.name_any());
        }
    }
}

/// What RepoMirrors ask for, and what is wrong with those that get nothing. Of two for the same repository the first by name counts.
fn wanted<'a>(
    mirrors: impl Iterator<Item = &'a RepoMirror>,
    config: &MirrorConfig,
    node: Option<&str>,
) -> (Vec<Wanted>, Vec<(String, String)>) {
    let mut wanted: BTreeMap<String, Wanted> = BTreeMap::new();
    let mut refused = Vec::new();
    for mirror in
        mirrors.filter(|mirror| !mirror.spec.suspend && mirror.metadata.deletion_timestamp.is_none())
    {
        let name = mirror.name_any();
        let spec = &mirror.spec;
        let address = match Address::parse(&spec.url) {
            Ok(address) => address,
            Err(error) => {
                refused.push((name, format!("spec.url: {error}")));
                continue;
            }
        };
        if let Some(other) = wanted.get(&address.directory()) {
            refused.push((name, format!("spec.url: RepoMirror {} is of the same repository", other.name)));
            continue;
        }
        let interval = spec.interval_seconds.unwrap_or(config.interval_seconds);
        let one = Wanted {
            name,
            generation: mirror.metadata.generation,
            refs: spec.kept_refs(),
            lfs: spec.lfs,
            interval: Duration::from_secs(interval.into()),
            credentials: spec.credentials.clone(),
            requested: requested(mirror, node),
            address,
        };
        wanted.insert(one.address.directory(), one);
    }
    (wanted.into_values().collect(), refused)
}

/// The last request to fetch a mirror at once, unless this node's syncer has made it: that fetches anyway.
fn requested(mirror: &RepoMirror, node: Option<&str>) -> Option<String> {
    let request = mirror.annotations().get(names::ANNOTATION_SYNC_REQUESTED)?;
    let by = request.split_once(' ').map(|(_, by)| by);
    (node.is_none() || by != node).then(|| request.clone())
}

/// The cluster as the syncer knows it.
struct Cluster {
    client: Client,
    namespace: String,
    node: Option<String>,
    written: Mutex<BTreeMap<String, status::Written>>,
}

impl World for Cluster {
    async fn secret(&self, name: &str) -> Result<Entries, String> {
        let found = Api::<Secret>::namespaced(self.client.clone(), &self.namespace).get_opt(name).await;
        match found {
            Ok(Some(secret)) => {
                Ok(secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect())
            }
            Ok(None) => Err(format!("there is no Secret {name} in namespace {}", self.namespace)),
            Err(error) => Err(format!("cannot read Secret {name}: {}", bk_ops::report::one_line(&error))),
        }
    }

    async fn report(&self, report: &Report) {
        let name = &report.wanted.name;
        let new = status::Written::of(report);
        let mut written = self.written.lock().await;
        if !new.is_worth_writing(written.get(name), self.node.is_some()) {
            return;
        }
        let api = Api::<RepoMirror>::namespaced(self.client.clone(), &self.namespace);
        // Conditions remember since when they hold.
        let before = match api.get_opt(name).await {
            Ok(mirror) => mirror.and_then(|mirror| mirror.status).unwrap_or_default(),
            Err(_) => RepoMirrorStatus::default(),
        };
        let patch = status::patch(report, self.node.as_deref(), &before);
        if patch_status(&api, name, patch).await {
            written.insert(name.clone(), new);
        }
    }

    /// Each node has a syncer, and all of them watch RepoMirrors.
    async fn pass_on(&self, mirror: &str) {
        let Some(node) = &self.node else { return };
        let api = Api::<RepoMirror>::namespaced(self.client.clone(), &self.namespace);
        let request = format!("{:.3} {node}", Timestamp::now());
        let patch = json!({ "metadata": { "annotations": { names::ANNOTATION_SYNC_REQUESTED: request } } });
        if let Err(error) = api.patch(mirror, &field_manager(), &Patch::Merge(patch)).await {
            let error = bk_ops::report::one_line(&error);
            tracing::warn!(mirror, error, "other nodes are not told that the mirror is to be fetched");
        }
    }
}

fn field_manager() -> PatchParams {
    let field_manager = Some(format!("{}-repo-syncer", names::FIELD_MANAGER));
    PatchParams { field_manager, ..PatchParams::default() }
}

/// Writes status. Returns whether that worked; the next report tries again.
async fn patch_status(api: &Api<RepoMirror>, name: &str, patch: serde_json::Value) -> bool {
    match api.patch_status(name, &field_manager(), &Patch::Merge(patch)).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 404 => false,
        Err(error) => {
            tracing::warn!(mirror = name, error = %bk_ops::report::one_line(&error), "cannot write the status of a RepoMirror");
            false
        }
    }
}

#[cfg(test)]
mod tests;
