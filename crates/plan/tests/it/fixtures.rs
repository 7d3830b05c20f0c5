//! What the tests have in common: settings, rules and jobs.

use bk_api::{
    BuildJob,
    config::{PodConfig, ResourceClasses},
};
use bk_plan::{
    decide::{Rules, Timeouts},
    pod::PodSettings,
};
use jiff::SignedDuration;

/// The image that job pods take the agent from.
pub(crate) const AGENT_IMAGE: &str = "buildkite/agent:3";

/// A BuildJob from YAML; its metadata may be left out.
pub(crate) fn job(yaml: &str) -> BuildJob {
    let head = "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildJob\n";
    let metadata = "metadata: { name: nightly, namespace: ci, uid: 8f2c, generation: 1 }\n";
    let metadata = if yaml.contains("metadata:") { "" } else { metadata };
    serde_saphyr::from_str(&format!("{head}{metadata}{yaml}")).expect("the fixture is a BuildJob")
}

pub(crate) fn pod_settings() -> PodSettings {
    PodSettings {
        config: PodConfig { agent_image: AGENT_IMAGE.to_owned(), ..PodConfig::default() },
        resource_classes: ResourceClasses::new(),
        endpoint: "https://agent.buildkite.com/v3".to_owned(),
        shim_config_map: "buildkite-shim-0123456789ab".to_owned(),
        architecture: bk_api::config::Architecture::Amd64,
        queue: "bk-operator".to_owned(),
    }
}

pub(crate) fn rules() -> Rules {
    Rules {
        pod: pod_settings(),
        timeouts: Timeouts {
            schedule: SignedDuration::from_secs(120),
            pull: SignedDuration::from_secs(90),
            start: SignedDuration::from_secs(120),
            run: None,
            terminate: SignedDuration::from_secs(60),
        },
        image_pull_grace: SignedDuration::from_secs(30),
        succeeded_ttl: SignedDuration::ZERO,
        failed_ttl: SignedDuration::from_secs(60),
        keep_pod_on_failure: false,
        max_attempts: 3,
    }
}
