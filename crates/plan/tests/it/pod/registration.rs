//! What a pod's agent registers with: a one-time token by way of the operator, or the agent token.

use bk_api::{
    BuildJob,
    config::{PodConfig, RegistrationProof, TOKEN_KEY},
};
use bk_plan::{
    broker::{Key, Ticket},
    pod::{AUDIENCE, AUTHORITY_FILE, BrokerAccess, PodSettings, render},
    surroundings::Surroundings,
};
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, PodSpec};
use rstest::rstest;

use crate::{
    environment::difference,
    fixtures::{broker, job, pod_settings},
};

const UUID: &str = "0198f0a0-0000-7000-8000-000000000001";

/// A job with a container beside the agent's, an init container and a sidecar: none of them is to have what the agent has.
fn buildkite() -> BuildJob {
    job(&format!(
        "spec: {{ buildkite: {{ jobUUID: {UUID} }}, command: make, image: 'golang:1', kubernetes: {{ podSpec: {{ \
         initContainers: [{{ name: prepare, image: a }}] }}, sidecars: [{{ image: b }}] }} }}"
    ))
}

/// Settings by which pods prove by their addresses who they are.
fn by_address() -> PodSettings {
    let config = PodConfig { registration_proof: RegistrationProof::Address, ..pod_settings().config };
    PodSettings { config, ..pod_settings() }
}

fn with_broker() -> PodSettings {
    PodSettings { broker: Some(broker()), ..by_address() }
}

/// By default they do so by their service accounts.
fn with_proof() -> PodSettings {
    PodSettings { broker: Some(broker()), ..pod_settings() }
}

fn plain() -> PodSettings {
    let broker = BrokerAccess { url: "http://broker:8080".to_owned(), has_authority: false, ..broker() };
    PodSettings { broker: Some(broker), ..by_address() }
}

fn pod(job: &BuildJob, attempt: u32, settings: &PodSettings) -> Pod {
    render(job, attempt, &Surroundings::default(), settings).unwrap_or_else(|error| panic!("{error}"))
}

fn spec(settings: &PodSettings) -> PodSpec {
    pod(&buildkite(), 0, settings).spec.expect("a pod has a spec")
}

fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.containers.iter().chain(spec.init_containers.iter().flatten())
}

fn variable<'a>(spec: &'a PodSpec, name: &str) -> Option<&'a EnvVar> {
    let agent =
        spec.containers.iter().find(|container| container.name == "agent").expect("there is an agent");
    agent.env.iter().flatten().find(|variable| variable.name == name)
}

fn value<'a>(spec: &'a PodSpec, name: &str) -> Option<&'a str> {
    variable(spec, name)?.value.as_deref()
}

/// The containers that have a volume mounted.
fn who_mounts<'a>(spec: &'a PodSpec, volume: &str) -> Vec<&'a str> {
    let has =
        |container: &&Container| container.volume_mounts.iter().flatten().any(|mount| mount.name == volume);
    containers(spec).filter(has).map(|container| container.name.as_str()).collect()
}

/// What a broker changes in a pod. The token depends on the key, and is looked at below.
#[rstest]
#[case("broker", with_broker())]
#[case("broker-without-authority", plain())]
#[case("broker-with-proof", with_proof())]
fn a_broker_changes_pods(#[case] name: &str, #[case] mut settings: PodSettings) {
    if let Some(broker) = &mut settings.broker {
        broker.key = None;
    }
    let difference =
        difference::between(&pod(&buildkite(), 0, &pod_settings()), &pod(&buildkite(), 0, &settings));
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false, snapshot_path => "snapshots" }, {
        insta::assert_snapshot!(format!("registration-{name}"), difference);
    });
}

#[rstest]
#[case(0)]
#[case(2)]
fn the_one_time_token_is_for_this_job_and_attempt(#[case] attempt: u32) {
    let spec = pod(&buildkite(), attempt, &with_broker()).spec.expect("a pod has a spec");
    let token = value(&spec, TOKEN_KEY).expect("the agent has a token");
    let key = broker().key.expect("there is one");
    let expected = Ticket {
        job_uuid: UUID.to_owned(),
        uid: "8f2c".to_owned(),
        attempt,
        build_job: "nightly".to_owned(),
    };
    assert_eq!(Ticket::read(token, &key), Some(expected));
    let another = Key::new(b"a key that somebody else has, or an old one").expect("it is long enough");
    assert_eq!(Ticket::read(token, &another), None);
}

#[test]
fn nobody_but_the_agent_has_the_one_time_token() {
    let spec = spec(&with_broker());
    let token = value(&spec, TOKEN_KEY).expect("the agent has a token");
    let others: Vec<_> = containers(&spec).filter(|container| container.name != "agent").collect();
    assert_eq!(others.len(), 4, "the command, its checkout, what runs before and beside them");
    for container in others {
        let text = serde_json::to_string(container).expect("containers can be written");
        assert!(!text.contains(token), "{}", container.name);
    }
}

#[test]
fn the_agent_registers_at_the_broker_and_trusts_its_authority() {
    let spec = spec(&with_broker());
    assert_eq!(value(&spec, "BUILDKITE_AGENT_ENDPOINT"), Some("https://broker.buildkite.svc:8443"));
    assert_eq!(variable(&spec, "SSL_CERT_DIR"), None, "whom its image trusts is trusted too");
    let agent =
        spec.containers.iter().find(|container| container.name == "agent").expect("there is an agent");
    let mounts = agent.volume_mounts.iter().flatten();
    let trusted: Vec<_> = mounts.filter(|mount| mount.name == "buildkite-broker").collect();
    assert_eq!(trusted.len(), 1);
    assert!(trusted[0].mount_path.starts_with("/etc/ssl/certs/"), "{}", trusted[0].mount_path);
    assert_eq!((trusted[0].sub_path.as_deref(), trusted[0].read_only), (Some(AUTHORITY_FILE), Some(true)));
    assert_eq!(who_mounts(&spec, "buildkite-broker"), ["agent"]);
    assert_eq!(variable(&spec, "BUILDKITE_SHIM_PROOF"), None);
    assert!(who_mounts(&spec, "buildkite-broker-proof").is_empty());
}

#[test]
fn without_an_authority_there_is_nothing_to_trust() {
    let spec = spec(&plain());
    assert_eq!(value(&spec, "BUILDKITE_AGENT_ENDPOINT"), Some("http://broker:8080"));
    assert_eq!(variable(&spec, "SSL_CERT_DIR"), None);
    assert!(spec.volumes.iter().flatten().all(|volume| volume.name != "buildkite-broker"));
}

#[test]
fn the_agent_alone_has_the_proof_of_its_pod() {
    let spec = spec(&with_proof());
    let path = value(&spec, "BUILDKITE_SHIM_PROOF").expect("the shim is told where it is");
    assert_eq!(path, "/buildkite/broker-proof/token");
    assert_eq!(who_mounts(&spec, "buildkite-broker-proof"), ["agent"]);
    let volume = spec.volumes.iter().flatten().find(|volume| volume.name == "buildkite-broker-proof");
    let sources =
        volume.and_then(|volume| volume.projected.as_ref()?.sources.as_ref()).expect("it is projected");
    let token = sources[0].service_account_token.as_ref().expect("it is a token");
    assert_eq!((sources.len(), token.audience.as_deref(), token.path.as_str()), (1, Some(AUDIENCE), "token"));
}

#[test]
fn without_a_broker_the_agent_has_the_agent_token() {
    let spec = spec(&pod_settings());
    let token = variable(&spec, TOKEN_KEY).expect("the agent has a token");
    let source =
        token.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref()).expect("by reference");
    assert_eq!(source.name, "buildkite-agent-token");
    assert_eq!(value(&spec, "BUILDKITE_AGENT_ENDPOINT"), Some("https://agent.buildkite.com/v3"));
    assert_eq!(variable(&spec, "SSL_CERT_DIR"), None);
}

#[rstest]
#[case::by_the_agent_token(pod_settings())]
#[case::by_way_of_the_operator(with_proof())]
fn a_standalone_job_registers_nobody(#[case] settings: PodSettings) {
    let standalone = job("spec: { command: make, image: 'golang:1' }");
    let text = serde_json::to_string(&pod(&standalone, 0, &settings)).expect("pods can be written");
    let signs =
        ["AGENT_TOKEN", "AGENT_ENDPOINT", "SSL_CERT_DIR", "SHIM_PROOF", "broker", "buildkite-agent-token"];
    for sign in signs {
        assert!(!text.contains(sign), "{sign}: {text}");
    }
}

#[test]
fn the_key_is_not_printed() {
    let bytes = b"a key that nobody but the operator has";
    let text = format!("{:?}", with_broker());
    assert!(text.contains("broker.buildkite.svc"), "{text}");
    let numbers: Vec<_> = bytes.iter().map(u8::to_string).collect();
    assert!(!text.contains("nobody but the operator") && !text.contains(&numbers[..4].join(", ")), "{text}");
}

/// What is only looked at, as by `render` of the command line, is made without the key.
#[test]
fn a_pod_that_is_only_looked_at_has_no_token() {
    let mut settings = with_broker();
    settings.broker.as_mut().expect("there is one").key = None;
    let spec = spec(&settings);
    let token = value(&spec, TOKEN_KEY).expect("it is shown that there will be one");
    assert_eq!(token, "made-when-the-pod-is-created");
}
