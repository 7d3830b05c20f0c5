//! What a pod's agent registers with, and where: a one-time token by way of the operator, or the agent token by itself.
//!
//! The agent's credentials and endpoint appear here and nowhere else in a pod.

use bk_api::{
    BuildJob,
    build_job::BuildkiteJob,
    config::{RegistrationProof, TOKEN_KEY},
};
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, EnvVar, EnvVarSource, PodSpec, ProjectedVolumeSource, SecretKeySelector,
    ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};

use super::{AGENT_CONTAINER, BrokerAccess, PodSettings, mount, variables::env};
use crate::broker::Ticket;

/// Whom the service account token of a pod is for: nobody but the broker accepts it.
pub const AUDIENCE: &str = "buildkite-operator";

/// The file with the authority's certificate, in its ConfigMap.
pub const AUTHORITY_FILE: &str = "ca.crt";

const TRUST_VOLUME: &str = "buildkite-broker";
/// Where the agent looks for authorities by itself, besides its image's own. A variable that names another place would reach the command.
const TRUST_FILE: &str = "/etc/ssl/certs/buildkite-operator-broker.crt";
const PROOF_VOLUME: &str = "buildkite-broker-proof";
const PROOF_DIRECTORY: &str = "/buildkite/broker-proof";
const PROOF_FILE: &str = "token";

/// Whom a token is shown in place of one that only the operator can make.
const UNSEALED: &str = "made-when-the-pod-is-created";

/// How long a service account token is good for, in seconds. The kubelet renews it when four fifths have passed, and the agent has read it by
/// then, perhaps a moment before: what is left has to be enough for as long as it tries to register. It is worth nothing without the one-time
/// token.
const PROOF_SECONDS: i64 = 3600;

/// The variables that tell the agent where to register, and with what.
pub(super) fn variables(
    job: &BuildJob,
    buildkite: &BuildkiteJob,
    attempt: u32,
    settings: &PodSettings,
) -> Vec<EnvVar> {
    let endpoint = |url: &str| env("BUILDKITE_AGENT_ENDPOINT", url);
    let Some(broker) = &settings.broker else {
        return vec![endpoint(&settings.endpoint), agent_token(settings)];
    };
    let mut vars = vec![endpoint(&broker.url), env(TOKEN_KEY, ticket(job, buildkite, attempt, broker))];
    if needs_proof(settings) {
        vars.push(env("BUILDKITE_SHIM_PROOF", format!("{PROOF_DIRECTORY}/{PROOF_FILE}")));
    }
    vars
}

fn ticket(job: &BuildJob, buildkite: &BuildkiteJob, attempt: u32, broker: &BrokerAccess) -> String {
    let ticket = Ticket {
        job_uuid: buildkite.job_uuid.clone(),
        uid: job.metadata.uid.clone().unwrap_or_default(),
        attempt,
        build_job: job.metadata.name.clone().unwrap_or_default(),
    };
    broker.key.as_ref().map_or_else(|| UNSEALED.to_owned(), |key| ticket.sealed(key))
}

/// The variable with the agent token, by reference to its Secret: what a pod may have of it that registers by itself.
pub(super) fn agent_token(settings: &PodSettings) -> EnvVar {
    let secret_key_ref = Some(SecretKeySelector {
        name: settings.config.agent_token_secret.clone(),
        key: TOKEN_KEY.to_owned(),
        optional: None,
    });
    EnvVar {
        name: TOKEN_KEY.to_owned(),
        value: None,
        value_from: Some(EnvVarSource { secret_key_ref, ..EnvVarSource::default() }),
    }
}

/// Puts the token behind all other variables of a finished pod's agent: Kubernetes replaces `$(NAME)` by what stands before, and some of
/// them a step has written.
pub(super) fn hide_token(spec: &mut PodSpec) {
    let agents = spec.containers.iter_mut().filter(|container| container.name == AGENT_CONTAINER);
    agents
        .filter_map(|agent| agent.env.as_mut())
        .for_each(|vars| vars.sort_by_key(|var| var.name == TOKEN_KEY));
}

/// The volumes that the agent needs to register, each with its mount.
pub(super) fn volumes(settings: &PodSettings) -> Vec<(Volume, VolumeMount)> {
    let trust = settings.broker.as_ref().filter(|broker| broker.has_authority).map(|broker| {
        let name = broker.name.clone();
        let config_map = Some(ConfigMapVolumeSource { name, ..ConfigMapVolumeSource::default() });
        let volume = Volume { name: TRUST_VOLUME.to_owned(), config_map, ..Volume::default() };
        let sub_path = Some(AUTHORITY_FILE.to_owned());
        (volume, VolumeMount { sub_path, ..mount(TRUST_VOLUME, TRUST_FILE, Some(true)) })
    });
    let proof = needs_proof(settings).then(|| {
        let token = ServiceAccountTokenProjection {
            audience: Some(AUDIENCE.to_owned()),
            expiration_seconds: Some(PROOF_SECONDS),
            path: PROOF_FILE.to_owned(),
        };
        let source = VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() };
        let projected =
            Some(ProjectedVolumeSource { sources: Some(vec![source]), ..ProjectedVolumeSource::default() });
        let volume = Volume { name: PROOF_VOLUME.to_owned(), projected, ..Volume::default() };
        (volume, mount(PROOF_VOLUME, PROOF_DIRECTORY, Some(true)))
    });
    trust.into_iter().chain(proof).collect()
}

fn needs_proof(settings: &PodSettings) -> bool {
    settings.broker.is_some() && settings.config.registration_proof == RegistrationProof::ServiceAccount
}
