//! What a pod's log exporter is told.

use serde::{Deserialize, Serialize};

use crate::config::{LogHandling, LogSink};

/// Everything that the log exporter of one pod has to know, as in [`super::DOCUMENT_VARIABLE`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LogExporterDocument {
    /// What every record says about the job.
    pub origin: LogOrigin,
    /// Files of which at least one exists once the job has ended.
    pub job_ended: Vec<String>,
    /// The directory with the environments of the job's containers, a file for each once it has one: `NAME=value`, each ended by
    /// a NUL.
    pub environments: String,
    /// Containers whose output is exported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<ContainerOutput>,
    /// Files and globs to follow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// A directory of which every file is followed, at any depth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Where the lines go.
    pub sinks: Vec<ChosenSink>,
    /// A directory of the exporter's own for what waits for sinks.
    pub spool: String,
    /// How lines are treated.
    #[serde(default)]
    pub handling: LogHandling,
    /// How long the exporter tries on after the job's end while no sink takes anything.
    pub drain_seconds: u32,
    /// How long the pod may take to end once it is told to.
    pub grace_seconds: u32,
}

/// What every record says about the job. What is not known is empty and left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LogOrigin {
    /// The BuildJob.
    pub build_job: String,
    /// The job's UUID at Buildkite.
    pub job: String,
    /// The pipeline's slug.
    pub pipeline: String,
    /// The build's number.
    pub build: String,
    /// The step's key.
    pub step: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's UID. The pod builder leaves it empty: see [`super::POD_UID_VARIABLE`].
    pub pod_uid: String,
    /// The pod's node. The pod builder leaves it empty: see [`super::NODE_VARIABLE`].
    pub node: String,
}

/// A container whose output is exported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerOutput {
    /// The container.
    pub container: String,
    /// The directory with the segments that its shim writes.
    pub directory: String,
    /// Whether its standard output is exported.
    pub stdout: bool,
    /// Whether its standard error is exported.
    pub stderr: bool,
}

/// A sink of this pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChosenSink {
    /// Its name in the operator's configuration.
    pub name: String,
    /// What it is.
    pub sink: LogSink,
    /// The directory that its Secret, or for files its volume, is mounted at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}
