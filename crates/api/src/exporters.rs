//! What a job wants from the services around it, and what those in its pod are told and report.

mod artifacts;
mod logs;
mod metrics;
mod report;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use artifacts::ArtifactExporterDocument;
pub use logs::{ChosenSink, ContainerOutput, LogExporterDocument, LogOrigin};
pub use metrics::{MetricsDelivery, MetricsExporterDocument};
pub use report::{ExporterReport, ExporterStatus, LONGEST_MESSAGE, SinkReport};

/// The environment variable of an exporter's container that holds, as JSON, what it is told.
pub const DOCUMENT_VARIABLE: &str = "BUILDKITE_OPERATOR_EXPORTER";

/// The environment variable of an exporter's container that holds the name of its node, from the downward API.
pub const NODE_VARIABLE: &str = "BUILDKITE_OPERATOR_NODE";

/// The environment variable of an exporter's container that holds its pod's UID, from the downward API.
pub const POD_UID_VARIABLE: &str = "BUILDKITE_OPERATOR_POD_UID";

/// The environment variable of containers beside the job that names the file by which they learn of its end.
pub const JOB_ENDED_VARIABLE: &str = "BUILDKITE_OPERATOR_JOB_ENDED";

/// Which logs go to the cluster's log sinks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogExporter {
    /// Whether it runs.
    #[serde(default)]
    pub enabled: bool,
    /// Files and globs to follow, also those that appear later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub paths: Vec<String>,
    /// A directory that is mounted into the job's containers; every file written there is followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Whether to export what containers write to their standard output.
    #[serde(default)]
    pub stdout: bool,
    /// Whether to export what containers write to their standard error.
    #[serde(default)]
    pub stderr: bool,
    /// Names of sinks in the operator's configuration; its default if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub sinks: Vec<String>,
}

/// Which files become artifacts of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactExporter {
    /// Whether it runs.
    #[serde(default)]
    pub enabled: bool,
    /// The directory whose files become artifacts; /artifacts if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Which files hold metrics of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricsExporter {
    /// Whether it runs.
    #[serde(default)]
    pub enabled: bool,
    /// The directory whose files hold metrics; /metrics if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How metrics leave the pod: they are served on a port (`scrape`), sent to a Pushgateway (`push`) or by OTLP (`otlp`).
    /// The operator's configuration decides if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MetricsMode")]
    pub mode: Option<MetricsMode>,
}

/// How metrics leave the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MetricsMode {
    /// They are served on a port.
    Scrape,
    /// They are sent to a Pushgateway.
    Push,
    /// They are sent by OTLP.
    Otlp,
}

/// How a job uses mirrors of git repositories.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepoMirrorUse {
    /// Whether the checkout borrows from a mirror, if there is one.
    #[serde(default)]
    pub enabled: bool,
    /// Addresses of further repositories to clone beside the checkout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub extra_repos: Vec<String>,
}
