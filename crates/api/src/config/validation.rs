//! `validation_config`: what may run here, and what BuildEnvironments get that do not have it.

mod expression;

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{EnvVar, LocalObjectReference, ResourceRequirements, Taint, Toleration},
    apimachinery::pkg::api::resource::Quantity,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PullPolicy;
use crate::{container_use::ContainerUse, placement::NodeRequirement};

pub use expression::Expression;

/// `validation_config`: what may run here, and what BuildEnvironments get that do not have it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ValidationConfig {
    /// Rules that jobs and environments have to keep.
    pub rules: Vec<ValidationRule>,
    /// Which nodes may come besides those that there are: with `any`, what no node can run is a warning; else it is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NewNodes")]
    pub new_nodes: Option<NewNodes>,
    /// Kinds of nodes that an autoscaler may add, by name.
    pub node_classes: BTreeMap<String, NodeClass>,
    /// What BuildEnvironments get that do not have it.
    pub environment_defaults: EnvironmentDefaults,
}

/// A rule that jobs or environments have to keep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ValidationRule {
    /// What has to be true, in CEL: `self` is the object, and for a BuildJob `pod` the pod that it becomes.
    pub expression: Expression,
    /// What whoever broke the rule reads.
    pub message: String,
    /// What it leads to.
    pub action: RuleAction,
    /// What the rule is for.
    pub kind: RuleKind,
    /// Only jobs of these queues; `*` stands for any characters.
    pub queues: Vec<String>,
    /// Only jobs of these pipelines, by slug; `*` stands for any characters.
    pub pipelines: Vec<String>,
    /// Only objects in these namespaces; `*` stands for any characters.
    pub namespaces: Vec<String>,
}

/// What a broken rule leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RuleAction {
    /// The object is refused, and a job of a queue ends.
    #[default]
    Refuse,
    /// Whoever applies the object reads the message.
    Warn,
}

/// What a rule is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RuleKind {
    /// Jobs.
    #[default]
    BuildJob,
    /// Environments.
    BuildEnvironment,
}

/// Which nodes may come besides those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NewNodes {
    /// Nobody knows.
    Any,
    /// None.
    None,
    /// Those of `nodeClasses`.
    NodeClasses,
}

/// A kind of node that an autoscaler may add.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeClass {
    /// Labels of such a node.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// What pods may have of it, as in a node's `status.allocatable`: `cpu`, `memory`, `nvidia.com/gpu`. What is not named counts as
    /// plenty, but for resources that only some nodes have, whose names have a domain.
    pub allocatable: BTreeMap<String, Quantity>,
}

/// What BuildEnvironments get that do not have it, when they are created or changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EnvironmentDefaults {
    /// When the image is pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PullPolicy")]
    pub image_pull_policy: Option<PullPolicy>,
    /// Requests and limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// The pod's service account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Variables; an environment's own of the same name stay.
    pub env: Vec<EnvVar>,
    /// Secrets with the credentials of image registries.
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// What a node must be like, unless the environment says something about the same label.
    pub node_requirements: Vec<NodeRequirement>,
    /// Taints of nodes that are tolerated.
    pub tolerations: Vec<Toleration>,
    /// Containers that run before the job.
    pub init_containers: Vec<ContainerUse>,
    /// Containers that run beside the job.
    pub extra_containers: Vec<ContainerUse>,
}

impl ValidationConfig {
    /// Which nodes may come: where nothing is said, those of the classes if there are any.
    pub fn new_nodes(&self) -> NewNodes {
        let unsaid = if self.node_classes.is_empty() { NewNodes::Any } else { NewNodes::NodeClasses };
        self.new_nodes.unwrap_or(unsaid)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        for (index, rule) in self.rules.iter().enumerate() {
            rule.check().map_err(|problem| format!("`rules[{index}]`: {problem}"))?;
        }
        if self.new_nodes == Some(NewNodes::NodeClasses) && self.node_classes.is_empty() {
            return Err("`newNodes: nodeClasses` needs `nodeClasses`".to_owned());
        }
        let defaults = &self.environment_defaults;
        let lists =
            [("initContainers", &defaults.init_containers), ("extraContainers", &defaults.extra_containers)];
        for (list, containers) in lists {
            for (index, container) in containers.iter().enumerate() {
                container
                    .check(list == "extraContainers")
                    .map_err(|problem| format!("`environmentDefaults.{list}[{index}]`: {problem}"))?;
            }
        }
        Ok(())
    }
}

impl ValidationRule {
    fn check(&self) -> Result<(), String> {
        self.expression.check().map_err(|problem| format!("`expression`: {problem}"))?;
        if self.message.trim().is_empty() {
            return Err("`message` must say what is wrong, for whoever breaks the rule".to_owned());
        }
        if self.kind == RuleKind::BuildEnvironment {
            if !(self.queues.is_empty() && self.pipelines.is_empty()) {
                return Err("`queues` and `pipelines` are for jobs; an environment has none".to_owned());
            }
            if self.expression.mentions("pod") {
                return Err(
                    "`expression`: there is no `pod` of an environment, only of a BuildJob".to_owned()
                );
            }
        }
        Ok(())
    }
}

impl ContainerUse {
    /// What the definition of a resource would refuse, where a container is written elsewhere.
    fn check(&self, may_start_late: bool) -> Result<(), &'static str> {
        if self.environment.is_some() == self.container.is_some() {
            return Err("give either `environment`, the name of a BuildEnvironment, or `container`");
        }
        if self.startup.is_some() && !may_start_late {
            return Err("init containers run before the job; `startup` is for extraContainers");
        }
        Ok(())
    }
}
