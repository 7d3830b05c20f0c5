//! What the tests have in common: settings, rules and jobs.

use bk_api::{
    BuildJob,
    config::{
        ArtifactExporterConfig, LogExporterConfig, MetricsExporterConfig, MirrorConfig, PodConfig,
        ResourceClasses, ValidationConfig,
    },
};
use bk_plan::{
    broker::Key,
    decide::{Rules, Timeouts},
    facts::{JobPod, PodFacts},
    pod::{BrokerAccess, PodSettings},
};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;

/// The image that job pods take the agent from.
pub(crate) const AGENT_IMAGE: &str = "buildkite/agent:3";

/// A BuildJob from YAML; its metadata may be left out.
pub(crate) fn job(yaml: &str) -> BuildJob {
    let head = "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildJob\n";
    let metadata = "metadata: { name: nightly, namespace: ci, uid: 8f2c, generation: 1 }\n";
    let metadata = if yaml.contains("metadata:") { "" } else { metadata };
    serde_saphyr::from_str(&format!("{head}{metadata}{yaml}")).expect("the fixture is a BuildJob")
}

/// What the operator's cache keeps of a pod.
pub(crate) fn kept(pod: &Pod) -> PodFacts {
    let told = serde_json::to_value(pod).expect("pods can be written");
    serde_json::from_value::<JobPod>(told).expect("job pods can be read").into_facts()
}

pub(crate) fn pod_settings() -> PodSettings {
    PodSettings {
        config: PodConfig { agent_image: AGENT_IMAGE.to_owned(), ..PodConfig::default() },
        resource_classes: ResourceClasses::new(),
        mirrors: MirrorConfig::default(),
        endpoint: "https://agent.buildkite.com/v3".to_owned(),
        broker: None,
        shim_config_map: "buildkite-shim-0123456789ab".to_owned(),
        architecture: bk_api::config::Architecture::Amd64,
        queue: "bk-operator".to_owned(),
        artifacts: ArtifactExporterConfig::default(),
        logs: LogExporterConfig::default(),
        metrics: MetricsExporterConfig::default(),
        api_token_secret: "buildkite-api-token".to_owned(),
        broker_secrets: Vec::new(),
        own_account: None,
    }
}

/// A way to register by way of the operator.
pub(crate) fn broker() -> BrokerAccess {
    BrokerAccess {
        url: "https://broker.buildkite.svc:8443".to_owned(),
        name: "broker".to_owned(),
        has_authority: true,
        key: Key::new(b"a key that nobody but the operator has"),
    }
}

pub(crate) fn rules() -> Rules {
    Rules {
        pod: pod_settings(),
        validation: ValidationConfig::default(),
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
