//! Flags, ConfigMap and Secret → everything the operator needs to know.

use std::{error::Error as _, path::Path, time::Duration};

use bk_api::config::{CONFIG_MAP, Config, TOKEN_KEY};
use bk_buildkite::{StacksClient, client::DEFAULT_ENDPOINT};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client,
    config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use secrecy::SecretString;
use tracing::{instrument::WithSubscriber, subscriber::NoSubscriber};

use crate::{USER_AGENT, cli::RunArgs, error::Error};

/// How long the API server may take to answer the first question.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Everything the operator needs to know.
pub struct Settings {
    /// Where BuildJobs and their pods live.
    pub namespace: String,
    /// The configuration, with flags applied.
    pub config: Config,
    /// The connection to Buildkite.
    pub buildkite: StacksClient,
}

/// A client for the cluster, proven to work, and the namespace the operator itself is in.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<(Client, String), Error> {
    let config = match kubeconfig {
        None => kube::Config::infer().await.map_err(|error| no_cluster(&error))?,
        Some(path) => from_file(path).await.map_err(|error| Error::Setup(unusable(Some(path), &error)))?,
    };
    let (url, namespace) = (config.cluster_url.to_string(), config.default_namespace.clone());
    let unreachable = |why: String| Error::Setup(format!("cannot reach the Kubernetes API at {url}: {why}"));
    let client = Client::try_from(config).map_err(|error| unreachable(bk_ops::report::one_line(&error)))?;
    // The outcome is reported right here; what the client would log about a failure says less.
    let probe = client.apiserver_version().with_subscriber(NoSubscriber::default());
    match tokio::time::timeout(PROBE_TIMEOUT, probe).await {
        Ok(Ok(_)) => Ok((client, namespace)),
        Ok(Err(kube::Error::Service(error))) => Err(unreachable(bk_ops::report::one_line(error.as_ref()))),
        Ok(Err(error)) => Err(unreachable(bk_ops::report::one_line(&error))),
        Err(_) => Err(unreachable(format!("no answer within {} s", PROBE_TIMEOUT.as_secs()))),
    }
}

async fn from_file(path: &Path) -> Result<kube::Config, KubeconfigError> {
    let file = Kubeconfig::read_from(path)?;
    kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await
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

/// Reads the configuration, applies the flags, and finds the agent token.
pub async fn load(args: RunArgs, client: Client, own_namespace: &str) -> Result<Settings, Error> {
    let RunArgs {
        token,
        namespace,
        kubeconfig: _,
        agent_image,
        endpoint,
        queue,
        max_in_flight,
        shim: _,
        log: _,
    } = args;
    let mut config = read_config(client.clone(), own_namespace).await?;
    // An environment variable that is set to nothing is not set.
    let given = |value: Option<String>| value.filter(|value| !value.trim().is_empty());
    let job_namespace =
        given(namespace).or_else(|| config.job_namespace.clone()).unwrap_or_else(|| own_namespace.to_owned());
    config.pods.agent_image = given(agent_image).unwrap_or(config.pods.agent_image);
    config.spawner.endpoint = given(endpoint).or(config.spawner.endpoint);
    config.spawner.queue = given(queue).unwrap_or(config.spawner.queue);
    config.spawner.max_in_flight = max_in_flight.map_or(config.spawner.max_in_flight, std::num::NonZero::get);

    require_crds(client.clone(), &job_namespace).await?;
    let in_secret = read_token(client, &job_namespace, &config.pods.agent_token_secret).await?;
    let token = given(token).unwrap_or(in_secret);
    let endpoint = config.spawner.endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT);
    let buildkite = StacksClient::new(endpoint, SecretString::from(token), USER_AGENT)?;
    Ok(Settings { namespace: job_namespace, config, buildkite })
}

async fn read_config(client: Client, namespace: &str) -> Result<Config, Error> {
    let found = Api::<ConfigMap>::namespaced(client, namespace)
        .get_opt(CONFIG_MAP)
        .await
        .map_err(Error::kubernetes(format!("read ConfigMap {namespace}/{CONFIG_MAP}")))?;
    let data = found.and_then(|config_map| config_map.data).unwrap_or_default();
    Config::from_data(&data).map_err(|error| Error::Setup(error.to_string()))
}

/// Agents in pods take the token from this Secret, so it must be there even if the operator has its own.
async fn read_token(client: Client, namespace: &str, secret: &str) -> Result<String, Error> {
    let found = Api::<Secret>::namespaced(client, namespace)
        .get_opt(secret)
        .await
        .map_err(Error::kubernetes(format!("read Secret {namespace}/{secret}")))?;
    let token = found
        .and_then(|secret| secret.data?.remove(TOKEN_KEY))
        .and_then(|bytes| String::from_utf8(bytes.0).ok())
        .filter(|token| !token.trim().is_empty());
    let cure = format!(
        "`kubectl --namespace {namespace} create secret generic {secret} --from-literal={TOKEN_KEY}=…`"
    );
    match token {
        None => Err(Error::Setup(format!(
            "there is no agent token: Secret {namespace}/{secret} with key {TOKEN_KEY} is missing or empty; create it \
             with {cure}"
        ))),
        // The agents in pods get it as it is, and would be refused.
        Some(token) if token.trim() != token => Err(Error::Setup(format!(
            "the agent token in Secret {namespace}/{secret} begins or ends with white space; delete the Secret and \
             create it again with {cure}"
        ))),
        Some(token) => Ok(token),
    }
}

async fn require_crds(client: Client, namespace: &str) -> Result<(), Error> {
    let jobs = Api::<bk_api::BuildJob>::namespaced(client, namespace);
    match jobs.list(&kube::api::ListParams::default().limit(1)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Err(Error::Setup(
            "the cluster does not know BuildJobs; install them with `buildkite-operator crds | kubectl apply -f -`"
                .to_owned(),
        )),
        Err(error) => Err(Error::kubernetes(format!("list BuildJobs in namespace {namespace}"))(error)),
    }
}
