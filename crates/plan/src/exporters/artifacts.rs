//! Which files of a job become artifacts.

use bk_api::BuildJobSpec;

use super::{Missing, Offer};
use crate::pod::PodSettings;

/// What the artifact exporter of a job's pod does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Artifacts {
    /// The directory whose files become artifacts.
    pub(crate) directory: String,
}

/// What a job gets of the artifact exporter. A job that says nothing about it gets what the configuration has for all.
pub(crate) fn offer(spec: &BuildJobSpec, settings: &PodSettings) -> Offer<Artifacts> {
    let config = &settings.artifacts;
    let own = spec.artifact_exporter.as_ref();
    if !own.map_or(config.enabled, |own| own.enabled) {
        return Offer::NOTHING;
    }
    if spec.buildkite.is_none() {
        // What is on for all is not asked for by this one.
        return match own {
            None => Offer::NOTHING,
            Some(_) => Offer::refused(missing(
                "NoBuildkite",
                "files that it writes do not become artifacts, as there is no Buildkite behind a standalone job",
            )),
        };
    }
    if settings.config.operator_image.is_none() {
        return Offer::refused(missing(
            "NoOperatorImage",
            "files that it writes do not become artifacts, as the operator does not know its own image; set `operatorImage` in `pod_config`",
        ));
    }
    let directory = own.and_then(|own| own.path.clone()).unwrap_or_else(|| config.path.clone());
    Offer { granted: Some(Artifacts { directory }), missing: None }
}

fn missing(reason: &'static str, message: &str) -> Missing {
    Missing { condition: "ArtifactsExported", reason, message: message.to_owned() }
}
