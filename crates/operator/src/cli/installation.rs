//! What is installed in a namespace: the operator's configuration and its Deployment.

use anyhow::{Result, anyhow};
use bk_api::{
    config::{CONFIG_MAP, Config},
    names,
};
use bk_plan::{configuration, pod::BrokerAccess};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Container, Pod},
};
use kube::{Api, Client, ResourceExt, api::ListParams};

use super::connection::failed;
use crate::{broker::DEFAULT_NAME, settings::deployment};

/// The variable by which an operator knows its Deployment, and by which the Deployment is known here.
const OWN_NAME: &str = "BUILDKITE_OPERATOR_DEPLOYMENT";

/// An operator as it is installed. What may not be read is told by its error.
pub(super) struct Installation {
    /// Where it is.
    pub(super) namespace: String,
    /// Its configuration; the defaults if there is none.
    pub(super) config: Result<Config, String>,
    /// Whether there is a ConfigMap.
    pub(super) is_configured: bool,
    /// Its Deployment.
    pub(super) deployment: Result<Option<Deployment>, String>,
}

impl Installation {
    /// Reads what is in a namespace.
    pub(super) async fn read(client: &Client, namespace: &str) -> Self {
        let config_map = Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt(CONFIG_MAP).await;
        let config_map = config_map.map_err(failed(format!("read ConfigMap {namespace}/{CONFIG_MAP}")));
        let is_configured = !matches!(config_map, Ok(None));
        let config = config_map.map_err(|error| error.to_string()).and_then(|found| {
            let data = found.and_then(|config_map| config_map.data).unwrap_or_default();
            configuration::read(&data)
        });
        let listed =
            Api::<Deployment>::namespaced(client.clone(), namespace).list(&ListParams::default()).await;
        let deployment = listed
            .map(|list| list.items.into_iter().find(|found| variable(found, OWN_NAME).is_some()))
            .map_err(|error| failed(format!("list Deployments in namespace {namespace}"))(error).to_string());
        Self { namespace: namespace.to_owned(), config, is_configured, deployment }
    }

    /// Where its jobs are.
    pub(super) fn job_namespace(&self) -> &str {
        let configured = self.config.as_ref().ok().and_then(|config| config.job_namespace.as_deref());
        configured.unwrap_or(&self.namespace)
    }

    /// The Deployment, if it is there and may be read.
    pub(super) fn deployment(&self) -> Option<&Deployment> {
        self.deployment.as_ref().ok().and_then(Option::as_ref)
    }

    /// Its broker, if it has one.
    pub(super) fn broker(&self) -> Option<Broker> {
        self.deployment().and_then(Broker::of)
    }

    /// The service account that it runs as, if it is there.
    pub(super) fn account(&self) -> Option<String> {
        self.deployment()?.spec.as_ref()?.template.spec.as_ref()?.service_account_name.clone()
    }

    /// The pods of its Deployment.
    pub(super) async fn pods(&self, client: &Client) -> Result<Vec<Pod>> {
        let Some(deployment) = self.deployment() else {
            let why = self.deployment.as_ref().err().cloned();
            let absent = || format!("there is no Deployment of the operator in namespace {}", self.namespace);
            return Err(anyhow!(why.unwrap_or_else(absent)));
        };
        let labels =
            deployment.spec.as_ref().and_then(|spec| spec.selector.match_labels.clone()).unwrap_or_default();
        let selector: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let params = ListParams::default().labels(&selector.join(","));
        let listed = Api::<Pod>::namespaced(client.clone(), &self.namespace).list(&params).await;
        let attempt = format!("list pods in namespace {}", self.namespace);
        Ok(listed.map_err(failed(attempt))?.items)
    }

    /// The newest of the shim's ConfigMaps in the job namespace.
    pub(super) async fn shim(&self, client: &Client) -> Result<Option<String>> {
        let namespace = self.job_namespace();
        let shims = ListParams::default().labels(&format!("{}=shim", names::LABEL_COMPONENT));
        let listed = Api::<ConfigMap>::namespaced(client.clone(), namespace).list_metadata(&shims).await;
        let mut shims = listed.map_err(failed(format!("list ConfigMaps in namespace {namespace}")))?.items;
        shims.sort_by_key(ResourceExt::creation_timestamp);
        Ok(shims.pop().map(|shim| shim.name_any()))
    }
}

/// What a Deployment says of its broker.
pub(super) struct Broker {
    /// Where pods are told to find it.
    pub(super) url: String,
    /// What its Secrets, and the ConfigMap in the job namespace, are called.
    pub(super) name: String,
}

impl Broker {
    /// The broker of a Deployment, if it has one.
    pub(super) fn of(deployment: &Deployment) -> Option<Self> {
        flag(deployment, "--broker-listen")?;
        let url = flag(deployment, "--broker-url")?;
        let name = flag(deployment, "--broker-name");
        Some(Self { url, name: name.unwrap_or_else(|| DEFAULT_NAME.to_owned()) })
    }

    /// What pods are told of it, but for what the operator alone can make.
    pub(super) fn access(&self) -> BrokerAccess {
        BrokerAccess {
            url: self.url.trim_end_matches('/').to_owned(),
            name: self.name.clone(),
            has_authority: self.url.starts_with("https:"),
            key: None,
        }
    }
}

/// The value of a variable of the operator's container.
pub(super) fn variable(deployment: &Deployment, name: &str) -> Option<String> {
    let Container { env, .. } = deployment::container(deployment)?;
    env.iter().flatten().find(|variable| variable.name == name)?.value.clone()
}

/// The value of a flag of the operator's container, given as an argument or by its variable.
pub(super) fn flag(deployment: &Deployment, name: &str) -> Option<String> {
    let Container { args, .. } = deployment::container(deployment)?;
    let mut words = args.iter().flatten();
    while let Some(word) = words.next() {
        match word.strip_prefix(name).map(|rest| rest.strip_prefix('=')) {
            Some(Some(value)) => return Some(value.to_owned()),
            Some(None) if word == name => return words.next().cloned(),
            _ => {}
        }
    }
    let name = name.trim_start_matches("--").replace('-', "_").to_uppercase();
    variable(deployment, &format!("BUILDKITE_{name}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_are_told_of_the_broker_that_the_deployment_has() {
        const LISTEN: &str = "--broker-listen=0.0.0.0:8444";
        let with = |args: &[&str]| {
            let container = json!({ "name": "operator", "args": args });
            let deployment =
                json!({ "spec": { "selector": {}, "template": { "spec": { "containers": [container] } } } });
            Broker::of(&serde_json::from_value(deployment).expect("a Deployment"))
        };
        assert!(with(&["--broker-url=https://broker.ci.svc:8444/v3/"]).is_none(), "nobody listens");
        let access =
            with(&[LISTEN, "--broker-url=https://broker.ci.svc:8444/v3/"]).expect("a broker").access();
        assert_eq!((access.url.as_str(), access.has_authority), ("https://broker.ci.svc:8444/v3", true));
        assert_eq!(access.name, "buildkite-operator-broker");
        let access =
            with(&[LISTEN, "--broker-url", "http://b/v3", "--broker-name=mine"]).expect("a broker").access();
        assert_eq!((access.name.as_str(), access.has_authority, access.key), ("mine", false, None));
    }
}
