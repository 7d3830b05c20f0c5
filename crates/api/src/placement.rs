//! What nodes must and should be like.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a node's labels must be like.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.operator in ['Exists', 'DoesNotExist'] ? size(self.values) == 0 : size(self.values) > 0")
        .message("In, NotIn, Gt and Lt need `values`; Exists and DoesNotExist take none"),
    validation = Rule::new("!(self.operator in ['Gt', 'Lt']) || (size(self.values) == 1 && self.values[0].matches('^-?[0-9]+$'))")
        .message("Gt and Lt need one value, a whole number")
)]
pub struct NodeRequirement {
    /// The label's key, e.g. `kubernetes.io/arch`.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// How the label's value relates to `values`: it is one of them (`In`, the default) or none of them (`NotIn`), there is such
    /// a label (`Exists`) or none (`DoesNotExist`), or it is a number greater (`Gt`) or less (`Lt`) than the one value.
    #[serde(default)]
    pub operator: NodeOperator,
    /// Values of the label. None for `Exists` and `DoesNotExist`.
    #[serde(default)]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    pub values: Vec<String>,
}

/// How a label's value relates to the values of a requirement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodeOperator {
    /// It is one of them.
    #[default]
    In,
    /// It is none of them, or there is no such label.
    NotIn,
    /// There is such a label.
    Exists,
    /// There is no such label.
    DoesNotExist,
    /// It is a number greater than the one value.
    Gt,
    /// It is a number less than the one value.
    Lt,
}

/// What a node should be like, if there is a choice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePreference {
    /// How much it matters beside other preferences: 1 to 100.
    #[serde(default = "lightest")]
    #[schemars(range(min = 1, max = 100))]
    pub weight: i32,
    /// What the node's labels should be like. All of them hold.
    #[schemars(length(min = 1, max = 32))]
    pub requirements: Vec<NodeRequirement>,
}

fn lightest() -> i32 {
    1
}
