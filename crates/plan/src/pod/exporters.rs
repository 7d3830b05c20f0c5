//! What a job wants from services that this version does not have. A job that relies on one must not run without it.

use bk_api::BuildJobSpec;

use super::RenderError;

/// Refuses what would be left undone.
pub(super) fn check(spec: &BuildJobSpec) -> Result<(), RenderError> {
    let wanted = [
        ("logExporter", "log exporter", spec.log_exporter.as_ref().is_some_and(|own| own.enabled)),
        (
            "artifactExporter",
            "artifact exporter",
            spec.artifact_exporter.as_ref().is_some_and(|own| own.enabled),
        ),
        (
            "metricsExporter",
            "metrics exporter",
            spec.metrics_exporter.as_ref().is_some_and(|own| own.enabled),
        ),
        ("repoMirror", "repository mirror", spec.repo_mirror.as_ref().is_some_and(|own| own.enabled)),
    ];
    match wanted.into_iter().find(|(_, _, enabled)| *enabled) {
        None => Ok(()),
        Some((field, what, _)) => Err(RenderError {
            path: format!("spec.{field}.enabled"),
            problem: format!("this version of the operator has no {what}; leave `{field}` out"),
        }),
    }
}
