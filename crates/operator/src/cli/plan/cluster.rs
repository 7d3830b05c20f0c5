//! `plan --cluster`: the pod with the cluster's own configuration, what the API server makes of it, and where it could run.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, bail};
use bk_api::{BuildJob, config::Config};
use bk_plan::{
    nodes::{self, Amounts, Obstacle},
    pod::PodSettings,
    surroundings::Surroundings,
};
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
};

use crate::{
    cli::{
        connection::{ClusterArgs, Connection, failed},
        installation::{Broker, Installation},
        output::table,
    },
    settings::deployment,
    surroundings::{self, Place},
};

/// A cluster as plans need it.
pub(super) struct Ground {
    client: Client,
    /// Where the job would be.
    pub(super) namespace: String,
    /// The operator's configuration.
    pub(super) config: Config,
    /// The shim's ConfigMap.
    shim: Option<String>,
    /// The operator's broker, if it has one.
    broker: Option<Broker>,
    /// The operator's own service account, if it is in the job namespace.
    own_account: Option<String>,
}

impl Ground {
    pub(super) async fn find(args: &ClusterArgs) -> Result<Self> {
        let Connection { cluster, namespace } = args.connect().await?;
        let client = cluster.calls;
        let installation = Box::pin(Installation::read(&client, &namespace)).await;
        let is_own = installation.job_namespace() == namespace;
        let own_account = installation.account().filter(|_| is_own);
        let namespace = installation.job_namespace().to_owned();
        let shim = installation.shim(&client).await?;
        let mut config = installation.config.as_ref().map_err(|problem| anyhow!(problem.clone()))?.clone();
        if config.pods.operator_image.is_none() {
            config.pods.operator_image = installation.deployment().and_then(deployment::image);
        }
        let broker = installation.broker();
        Ok(Self { client, namespace, config, shim, broker, own_account })
    }

    /// What the operator makes pods of.
    pub(super) fn pods(&self) -> PodSettings {
        let uses = self.config.pods.registers_by_operator();
        let broker = self.broker.as_ref();
        PodSettings {
            broker: broker.filter(|_| uses).map(Broker::access),
            broker_secrets: broker.iter().flat_map(|broker| bk_plan::broker::secrets(&broker.name)).collect(),
            own_account: self.own_account.clone(),
            ..super::pods(&self.config, self.shim.clone())
        }
    }

    /// What the job refers to, as it is in the cluster.
    pub(super) async fn surroundings(&self, job: &BuildJob) -> Result<Surroundings> {
        let place = Place { client: &self.client, namespace: &self.namespace, environments: None };
        Ok(surroundings::find(place, job, Surroundings::default()).await?)
    }

    /// The pod as the API server would store it. Nothing is made.
    pub(super) async fn try_out(&self, pod: &Pod) -> Result<Pod> {
        let mut trial = pod.clone();
        // Its owner is not stored, and its name may be taken by the real one.
        trial.metadata.owner_references = None;
        trial.metadata.namespace = Some(self.namespace.clone());
        trial.metadata.generate_name = trial.metadata.name.take().map(|name| format!("{name}-"));
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let tried =
            Api::<Pod>::namespaced(self.client.clone(), &self.namespace).create(&params, &trial).await;
        let attempt = format!("create the pod in namespace {}, were it to be", self.namespace);
        let mut tried = tried.map_err(failed(attempt))?;
        tried.metadata.name.clone_from(&pod.metadata.name);
        tried.metadata.generate_name = None;
        tried.metadata.managed_fields = None;
        tried.status = None;
        Ok(tried)
    }

    /// Which nodes the pod fits, and what keeps it from the others.
    pub(super) async fn nodes(&self, pod: &Pod) -> Result<Fits> {
        let all = ListParams::default();
        let nodes = Api::<Node>::all(self.client.clone()).list(&all).await.map_err(failed("list nodes"))?;
        let pods = Api::<Pod>::all(self.client.clone()).list(&all).await;
        let used = Amounts::by_node(&pods.map_err(failed("list the pods of all namespaces"))?.items);
        Ok(Fits::of(pod.spec.as_ref().context("the pod has a spec")?, &nodes.items, &used))
    }
}

/// Nodes, and what keeps a pod from each.
pub(super) struct Fits {
    nodes: Vec<(String, Vec<Obstacle>)>,
    unexamined: Vec<&'static str>,
}

impl Fits {
    fn of(pod: &PodSpec, nodes: &[Node], used: &BTreeMap<String, Amounts>) -> Self {
        let nothing = Amounts::default();
        let obstacles = |node: &Node| {
            let name = node.name_any();
            let used = used.get(&name).unwrap_or(&nothing);
            let obstacles = nodes::obstacles(pod, node, used);
            (name, obstacles)
        };
        let mut nodes: Vec<_> = nodes.iter().map(obstacles).collect();
        nodes.sort_by_key(|(name, obstacles)| (!obstacles.is_empty(), name.clone()));
        Self { nodes, unexamined: nodes::unexamined(pod) }
    }

    /// As people read it.
    pub(super) fn lines(&self) -> Vec<String> {
        let rows: Vec<Vec<String>> = self
            .nodes
            .iter()
            .map(|(name, obstacles)| {
                let fits = match obstacles.as_slice() {
                    [] => "yes",
                    obstacles if obstacles.iter().all(Obstacle::may_pass) => "later",
                    _ => "no",
                };
                let why: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
                vec![name.clone(), fits.to_owned(), why.join("; ")]
            })
            .collect();
        let mut lines = table(&["NODE", "FITS", "WHY NOT"], &rows);
        if !self.unexamined.is_empty() {
            lines.push(format!(
                "The scheduler also looks at what is not looked at here: {}",
                self.unexamined.join(", ")
            ));
        }
        lines
    }

    /// Refuses a pod that no node will ever take.
    pub(super) fn check(&self) -> Result<()> {
        if self.nodes.iter().any(|(_, obstacles)| obstacles.iter().all(Obstacle::may_pass)) {
            return Ok(());
        }
        bail!("the pod fits none of the {} nodes, and waiting does not change that", self.nodes.len())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::sample;

    fn fits(cpu: &str) -> Fits {
        let node = |name: &str, cpu: &str, taints: serde_json::Value| -> Node {
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"taints": taints},
                "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}},
            }))
            .unwrap()
        };
        let taint = json!([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]);
        let nodes = [
            node("small", "2", json!([])),
            node("busy", "8", json!([])),
            node("gpu", "64", taint),
            node("free", "8", json!([])),
        ];
        let busy: Pod = serde_json::from_value(json!({
            "metadata": {}, "spec": {"nodeName": "busy", "containers": [{"name": "c", "resources": {"requests": {"cpu": "7"}}}]},
        }))
        .unwrap();
        let spec = json!({"affinity": {"podAffinity": {}}, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
        Fits::of(&serde_json::from_value(spec).unwrap(), &nodes, &Amounts::by_node([&busy]))
    }

    #[test]
    fn those_that_fit_come_first() {
        insta::assert_snapshot!(fits("4").lines().join("\n"));
        sample::documented(&fits("4").lines().join("\n"));
        assert!(fits("4").check().is_ok());
    }

    #[test]
    fn what_fits_nowhere_is_refused() {
        let refusal = fits("16").check().unwrap_err().to_string();
        assert_eq!(refusal, "the pod fits none of the 4 nodes, and waiting does not change that");
    }
}
