//! What a pod's artifact exporter is told.

use serde::{Deserialize, Serialize};

/// Everything that the artifact exporter of one pod has to know, as in [`super::DOCUMENT_VARIABLE`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ArtifactExporterDocument {
    /// The directory whose files become artifacts.
    pub directory: String,
    /// Files of which one exists once the job has ended.
    pub job_ended: Vec<String>,
    /// The directory with the environment of each container, once it runs: `NAME=value`, each ended by a NUL.
    pub environments: String,
    /// The directory in which containers say that they are about to end.
    pub drain: String,
    /// The directory in which they hear that their artifacts are uploaded.
    pub drained: String,
    /// The agent, which uploads.
    pub agent: String,
    /// How long the exporter tries on at the end while nothing can be uploaded.
    pub drain_seconds: u32,
    /// How long the pod may take to end once it is told to.
    pub grace_seconds: u32,
}
