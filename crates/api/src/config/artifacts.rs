//! `artifact_exporter_config`: which files of jobs become artifacts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::directory::check_directory;

/// `artifact_exporter_config`: which files of jobs become artifacts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ArtifactExporterConfig {
    /// Whether jobs that say nothing about it have the exporter.
    pub enabled: bool,
    /// The directory of jobs that name none.
    pub path: String,
    /// How long a job's end waits while nothing can be uploaded.
    pub drain_seconds: u32,
}

impl Default for ArtifactExporterConfig {
    fn default() -> Self {
        Self { enabled: false, path: "/artifacts".to_owned(), drain_seconds: 30 }
    }
}

impl ArtifactExporterConfig {
    /// Refuses what cannot work.
    pub(super) fn check(&self) -> Result<(), String> {
        check_directory(&self.path).map_err(|problem| format!("`path` {problem}"))?;
        if !(1..=600).contains(&self.drain_seconds) {
            return Err("`drainSeconds` must be 1 to 600".to_owned());
        }
        Ok(())
    }
}
