//! Many nodes that cost nothing: kwok says that they are well and that their pods run.

use std::{
    fs::{self, File},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};
use serde_json::json;

use crate::World;

/// What nodes and pods go through.
const STAGES: &str = include_str!("kwok/stages.yaml");

/// The annotation that ends the containers of a pod, with this exit status.
pub const EXIT_STATUS: &str = "e2e.test/exit-status";

/// Running nodes. Dropping it stops kwok; the nodes are removed by [`Kwok::remove`].
pub struct Kwok<'a> {
    world: &'a World,
    child: Child,
}

impl<'a> Kwok<'a> {
    /// Makes so many nodes that only pods of the test's namespace go to.
    pub fn start(world: &'a World, nodes: usize) -> Result<Self> {
        let namespace = &world.cluster.namespace;
        let resources = json!({ "cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110" });
        let node = |number: usize| {
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": { "name": format!("{namespace}-{number}"), "labels": { "e2e": namespace } },
                "spec": { "taints": [{ "key": "e2e", "effect": "NoSchedule" }] },
                "status": { "capacity": resources, "allocatable": resources },
            })
        };
        let items: Vec<_> = (0..nodes).map(node).collect();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string();
        world.cluster.kubectl(&["create", "-f", "-"], Some(&list))?;
        let stages = world.directory().join("stages.yaml");
        fs::write(&stages, STAGES)?;
        let log = File::create(world.directory().join("kwok.log"))?;
        let child = Command::new(&world.environment.kwok)
            .arg(format!("--kubeconfig={}", world.environment.kubeconfig.display()))
            .arg(format!("--manage-nodes-with-label-selector=e2e={namespace}"))
            .arg(format!("--config={}", stages.display()))
            .arg("--node-lease-duration-seconds=40")
            // Else it keeps files in the developer's own directory.
            .env("HOME", world.directory())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start kwok")?;
        Ok(Self { world, child })
    }

    /// The number of kwok's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What a pod spec needs to be there.
    pub fn selection(&self) -> String {
        let namespace = &self.world.cluster.namespace;
        format!("nodeSelector: {{e2e: {namespace}}}, tolerations: [{{key: e2e, operator: Exists}}]")
    }

    /// Takes the nodes out of the cluster.
    pub fn remove(self) -> Result<()> {
        let selector = format!("e2e={}", self.world.cluster.namespace);
        self.world.cluster.kubectl(&["delete", "nodes", "-l", &selector, "--wait=false"], None).map(drop)
    }
}

impl Drop for Kwok<'_> {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
