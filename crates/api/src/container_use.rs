//! A container beside or before a job: a BuildEnvironment by name, or one written on the spot.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::schema;

/// A container beside or before a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.environment) != has(self.container)")
        .message("give either `environment`, the name of a BuildEnvironment, or `container`")
)]
pub struct ContainerUse {
    /// The container's name in the pod; that of its environment or container if absent. No two containers of a pod share
    /// one, so an environment that is used twice needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = schema::container_name())]
    pub name: Option<String>,

    /// The BuildEnvironment that it is made from. What the environment needs and brings comes along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = schema::object_name())]
    pub environment: Option<String>,

    /// The container itself, as in a pod's `containers`. It needs an image, and runs its own command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub container: Option<Map<String, Value>>,

    /// When an extra container starts. `before`: before the job, which waits until it is ready, and it is started again if it
    /// ends; for databases. `with`: together with the job, which does not wait for it; for reporters. Its environment decides if
    /// absent, and `before` if nobody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Startup")]
    pub startup: Option<Startup>,
}

/// When a container beside the job starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Startup {
    /// Before the job, which waits until it is ready: a database. It is started again if it ends.
    #[default]
    Before,
    /// Together with the job, which does not wait for it: a reporter.
    With,
}
