//! A node that the test plays itself, for what must not happen to the one that every test uses.

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{Run, cluster::Cluster, eventually};

/// A node that only pods of the test's namespace go to. No kubelet works on it.
pub struct PlayedNode {
    /// Its name.
    pub name: String,
    client: Client,
    namespace: String,
}

impl PlayedNode {
    /// Makes a node that is ready.
    pub async fn create(cluster: &Cluster) -> Result<Self> {
        let name = format!("{}-node", cluster.namespace);
        let node = Self { name, client: cluster.client.clone(), namespace: cluster.namespace.clone() };
        let manifest = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": node.name, "labels": { "e2e": node.namespace } },
            "spec": { "taints": [{ "key": "e2e", "effect": "NoSchedule" }] },
        }))?;
        node.nodes().create(&PostParams::default(), &manifest).await?;
        let resources = json!({ "cpu": "4", "memory": "8Gi", "ephemeral-storage": "8Gi", "pods": "110" });
        node.set(json!({ "capacity": resources, "allocatable": resources })).await?;
        node.answer("True").await?;
        Ok(node)
    }

    /// What a pod spec needs to be there.
    pub fn selection(&self) -> String {
        format!("nodeSelector: {{e2e: {}}}, tolerations: [{{key: e2e, operator: Exists}}]", self.namespace)
    }

    /// No longer answers, and is marked as the control plane marks such a node after its patience is over.
    pub async fn fall_silent(&self) -> Result<()> {
        self.answer("Unknown").await?;
        self.taint("node.kubernetes.io/unreachable", "NoExecute").await
    }

    /// Has another taint.
    pub async fn taint(&self, key: &str, effect: &str) -> Result<()> {
        let taints = json!([{ "key": key, "effect": effect }, { "key": "e2e", "effect": "NoSchedule" }]);
        let patch = json!({ "spec": { "taints": taints } });
        self.nodes().patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn answer(&self, ready: &str) -> Result<()> {
        let now = Timestamp::now();
        let condition = json!({ "type": "Ready", "status": ready, "reason": "PlayedByTest",
            "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now });
        self.set(json!({ "conditions": [condition] })).await
    }

    /// Says what became of a pod, as the kubelet does.
    pub async fn report(&self, pod: &Pod, status: Value) -> Result<()> {
        let patch = json!({ "status": status });
        self.pods().patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await?;
        Ok(())
    }

    /// Says that a pod's containers run.
    pub async fn run(&self, pod: &Pod) -> Result<()> {
        self.run_since(pod, Timestamp::now()).await
    }

    /// The same, and since when they do.
    pub async fn run_since(&self, pod: &Pod, begun: Timestamp) -> Result<()> {
        let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
        let running: Vec<Value> = containers
            .iter()
            .map(|container| {
                json!({ "name": container.name, "image": container.image, "imageID": "", "ready": true,
                    "restartCount": 0, "started": true, "state": { "running": { "startedAt": begun } } })
            })
            .collect();
        self.report(pod, json!({ "phase": "Running", "startTime": begun, "containerStatuses": running }))
            .await
    }

    /// Waits until one of a job's pods is on the node.
    pub async fn placed(&self, run: &Run<'_>) -> Result<Pod> {
        eventually("its pod is on the node", async || {
            let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            Ok(run.pods().into_iter().find(|pod| node(pod).as_ref() == Some(&self.name)))
        })
        .await
    }

    /// Lets a pod that is to go be gone, as the kubelet does when its containers have ended.
    pub async fn let_go(&self, pod: &Pod) -> Result<()> {
        self.pods().delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    /// Takes it out of the cluster.
    pub async fn remove(&self) -> Result<()> {
        self.nodes().delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }

    async fn set(&self, status: Value) -> Result<()> {
        let patch = json!({ "status": status });
        self.nodes().patch_status(&self.name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
        Ok(())
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}
