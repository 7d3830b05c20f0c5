//! The way to the cluster's API.

use std::{error::Error as _, fmt::Debug, future::ready, path::Path, time::Duration};

use axum::http::{Request, Response};
use backon::ExponentialBuilder;
use futures::{Stream, StreamExt};
use kube::{
    Api, Client, Resource,
    client::{Body, ClientBuilder, DynBody},
    config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
    runtime::{
        WatchStreamExt,
        utils::ResetTimerBackoff,
        watcher::{self, ExponentialBackoff},
    },
};
use serde::de::DeserializeOwned;
use tower::{BoxError, Layer, Service, layer::util::Identity, util::BoxService};
use tracing::{instrument::WithSubscriber, subscriber::NoSubscriber};

use super::patience;
use crate::error::Error;

/// How long the API server may be silent in the middle of a call. A connection that nobody answers on any more, because a
/// node or a router on the way has died, must not hold up whoever has asked.
const CALL_SILENCE: Duration = Duration::from_secs(15);

/// How long it may be silent in the middle of what lasts. A watch gives itself up earlier than this; the list at its beginning
/// does not. A log that is followed is read on where it broke off.
const STREAM_SILENCE: Duration = Duration::from_mins(5);

/// How long a watch lasts before it is begun anew where it was, in seconds. One that says nothing for a little longer is given up: its
/// connection may have died unnoticed, and nobody hears of what happens until then.
const WATCH_SECONDS: u32 = 25;

/// A watch that is not silent for long without being alive.
pub(crate) fn watch() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_SECONDS)
}

/// The pauses of a watch that fails. Up to as much again is added by chance: what the operator sees of the cluster may be no older than
/// some seconds once the API server is back.
pub(crate) fn pauses() -> ResetTimerBackoff<ExponentialBackoff> {
    let growing = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(800))
        .with_max_delay(Duration::from_secs(3))
        .without_max_times()
        .with_jitter();
    ResetTimerBackoff::new(growing.into(), Duration::from_mins(2))
}

/// Such a watch of one object: each version of it, and nothing when it is not there.
pub(crate) fn watch_one<K>(
    api: Api<K>,
    name: &str,
) -> impl Stream<Item = watcher::Result<Option<K>>> + Send + use<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = watch().fields(&format!("metadata.name={name}"));
    let mut is_listed = false;
    watcher::watcher(api, config).backoff(pauses()).filter_map(move |event| {
        ready(match event {
            Ok(watcher::Event::Init) => {
                is_listed = false;
                None
            }
            Ok(watcher::Event::InitApply(object)) => {
                is_listed = true;
                Some(Ok(Some(object)))
            }
            Ok(watcher::Event::Apply(object)) => Some(Ok(Some(object))),
            Ok(watcher::Event::InitDone) if is_listed => None,
            Ok(watcher::Event::InitDone | watcher::Event::Delete(_)) => Some(Ok(None)),
            Err(error) => Some(Err(error)),
        })
    })
}

/// What a request is sent by.
pub(crate) type Connection = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// The cluster's API. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    /// For calls that are answered at once, or fail.
    pub calls: Client,
    /// For what lasts: watches, and logs that are followed.
    pub streams: Client,
    /// The namespace that the operator itself is in.
    pub namespace: String,
    pub(crate) config: kube::Config,
}

impl Cluster {
    /// Clients with a configuration. Nothing is sent yet.
    pub fn new(config: &kube::Config) -> Result<Self, kube::Error> {
        Self::with(config, &Identity::new())
    }

    /// The same cluster by connections of its own, whose requests all pass this layer, and none that this one's pass. A client around a client would
    /// have each of them queue twice.
    pub(crate) fn layered<L>(&self, layer: &L) -> Result<Self, kube::Error>
    where
        L: Layer<Connection>,
        L::Service:
            Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError> + Send + 'static,
        <L::Service as Service<Request<Body>>>::Future: Send + 'static,
    {
        Self::with(&self.config, layer)
    }

    fn with<L>(config: &kube::Config, layer: &L) -> Result<Self, kube::Error>
    where
        L: Layer<Connection>,
        L::Service:
            Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError> + Send + 'static,
        <L::Service as Service<Request<Body>>>::Future: Send + 'static,
    {
        let client = |silence| Ok::<_, kube::Error>(builder(config, silence)?.with_layer(layer).build());
        Ok(Self {
            calls: client(CALL_SILENCE)?,
            streams: client(STREAM_SILENCE)?,
            namespace: config.default_namespace.clone(),
            config: config.clone(),
        })
    }

    /// The cluster of a kubeconfig, or of the pod that this runs in, proven to answer. In a pod an API server that does not
    /// answer is waited for; elsewhere its address is more likely wrong.
    pub async fn connect(kubeconfig: Option<&Path>) -> Result<Self, Error> {
        Self::connect_to(kubeconfig, None).await
    }

    /// The same, by one of the kubeconfig's contexts.
    pub async fn connect_to(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Self, Error> {
        let options =
            KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
        let (config, is_in_pod) = match kubeconfig {
            None if context.is_none() => match kube::Config::incluster() {
                Ok(config) => (config, true),
                Err(_) => (kube::Config::infer().await.map_err(|error| no_cluster(&error))?, false),
            },
            path => {
                let read = from_file(path, &options).await;
                (read.map_err(|error| Error::Setup(unusable(path, &error)))?, false)
            }
        };
        let unreachable = |why: String| {
            Error::Setup(format!("cannot reach the Kubernetes API at {}: {why}", config.cluster_url))
        };
        let cluster = Self::new(&config).map_err(|error| unreachable(bk_ops::report::one_line(&error)))?;
        let attempt = "reach the Kubernetes API";
        let answer = if is_in_pod {
            patience::insist(attempt, || cluster.calls.apiserver_version()).await.map(drop)
        } else {
            // The outcome is reported right here; what the client would log about a failure says less.
            cluster.calls.apiserver_version().with_subscriber(NoSubscriber::default()).await.map(drop)
        };
        match answer {
            Ok(()) => Ok(cluster),
            Err(kube::Error::Service(error)) => Err(unreachable(bk_ops::report::one_line(error.as_ref()))),
            Err(error) => Err(unreachable(bk_ops::report::one_line(&error))),
        }
    }
}

fn builder(config: &kube::Config, silence: Duration) -> Result<ClientBuilder<Connection>, kube::Error> {
    let mut config = config.clone();
    config.connect_timeout = Some(CALL_SILENCE);
    config.write_timeout = Some(CALL_SILENCE);
    config.read_timeout = Some(silence);
    // The time that a connection has waited for its next call does not count.
    config.reset_reader_on_write = true;
    ClientBuilder::try_from(config)
}

async fn from_file(
    path: Option<&Path>,
    options: &KubeConfigOptions,
) -> Result<kube::Config, KubeconfigError> {
    let file = path.map_or_else(Kubeconfig::read, Kubeconfig::read_from)?;
    kube::Config::from_custom_kubeconfig(file, options).await
}

fn no_cluster(error: &InferConfigError) -> Error {
    let why = match error.source().and_then(|cause| cause.downcast_ref()) {
        Some(kubeconfig) => unusable(None, kubeconfig),
        None => bk_ops::report::one_line(error),
    };
    Error::Setup(format!("not in a pod, and {why}; pass --kubeconfig, or set KUBECONFIG"))
}

/// What is wrong with a kubeconfig. Its content is not shown: it holds credentials.
fn unusable(path: Option<&Path>, error: &KubeconfigError) -> String {
    let file = path.map(|path| format!(" {}", path.display())).unwrap_or_default();
    match error {
        KubeconfigError::ReadConfig(cause, path) => {
            format!("cannot read the kubeconfig {}: {cause}", path.display())
        }
        KubeconfigError::Parse(cause) => {
            let text = cause.to_string();
            let first_line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            format!("cannot parse the kubeconfig{file}: {first_line}")
        }
        other => format!("cannot use the kubeconfig{file}: {}", bk_ops::report::one_line(other)),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use rstest::rstest;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        time::Instant,
    };

    use super::*;
    use crate::api_server::cluster;

    /// The way to somebody who listens, says this at the most, and then nothing any more.
    async fn silent_after(said: &'static str) -> Cluster {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    while connection.read(&mut [0; 4096]).await.is_ok_and(|read| read > 0) {
                        connection.write_all(said.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        cluster(&format!("http://{address}"))
    }

    #[rstest]
    #[case::not_a_word("")]
    #[case::half_an_answer(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    )]
    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_not_answered_fails(#[case] said: &'static str) {
        let cluster = silent_after(said).await;
        for (client, silence) in [(cluster.calls, CALL_SILENCE), (cluster.streams, STREAM_SILENCE)] {
            let begin = Instant::now();
            let api = Api::<ConfigMap>::namespaced(client, "ci");
            let answer = tokio::time::timeout(silence * 2, api.get("any")).await;
            assert!(answer.expect("it is given up").is_err());
            assert!(begin.elapsed() >= silence, "it is given up after {:?}", begin.elapsed());
        }
    }
}
