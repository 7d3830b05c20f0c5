#![allow(clippy::needless_pass_by_value, reason = "tests are shorter so")]

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::cli::sample;

const AUTHORITY: &str = "an authority";
const JOB_PODS: &str = "buildkite-operator.dev/build-job";
const LISTEN: &str = "--broker-listen=[::]:8444";

/// An installation in namespace `buildkite`, with jobs in namespace `ci`.
fn installation(args: &[&str], pod_config: &str) -> Installation {
    let data =
        [("job_namespace".to_owned(), "ci".to_owned()), ("pod_config".to_owned(), pod_config.to_owned())];
    let ports =
        json!([{"name": "metrics", "containerPort": 8080}, {"name": "broker", "containerPort": 8444}]);
    let template = json!({
        "metadata": {"labels": {"app": "operator"}},
        "spec": {"containers": [{"name": "operator", "image": "ci/operator:0.1.0", "args": args, "ports": ports}]},
    });
    let deployment =
        json!({"metadata": {"name": "operator"}, "spec": {"selector": {}, "template": template}});
    Installation {
        namespace: "buildkite".to_owned(),
        config: bk_plan::configuration::read(&data.into()),
        is_configured: true,
        deployment: Ok(serde_json::from_value(deployment).unwrap()),
    }
}

fn read<K: serde::de::DeserializeOwned>(manifest: Value) -> K {
    serde_json::from_value(manifest).unwrap()
}

fn bytes(text: &str) -> Value {
    json!(k8s_openapi::ByteString(text.as_bytes().to_vec()))
}

fn secret(host: &str, until: &str, certificate: &str) -> Secret {
    read(json!({
        "metadata": {"annotations": {"buildkite-operator.dev/not-after": until}},
        "data": {"tls.crt": bytes(certificate), "ca.crt": bytes(AUTHORITY), "host": bytes(host)},
    }))
}

fn policy(name: &str, spec: Value) -> NetworkPolicy {
    read(json!({"metadata": {"name": name}, "spec": spec}))
}

/// A policy of job pods with these rules for what they may reach.
fn egress(name: &str, rules: Value) -> NetworkPolicy {
    let pods = json!({"matchExpressions": [{"key": JOB_PODS, "operator": "Exists"}]});
    policy(name, json!({"podSelector": pods, "policyTypes": ["Egress"], "egress": rules}))
}

/// A policy of the operator's pods with these rules for who may reach them.
fn ingress(name: &str, rules: Value) -> NetworkPolicy {
    let pods = json!({"matchLabels": {"app": "operator"}});
    policy(name, json!({"podSelector": pods, "policyTypes": ["Ingress"], "ingress": rules}))
}

fn slice(is_ready: bool) -> EndpointSlice {
    let endpoint = json!({"addresses": ["10.4.0.7"], "conditions": {"ready": is_ready}});
    read(json!({"addressType": "IPv4", "endpoints": [endpoint], "ports": []}))
}

fn stuck(name: &str) -> BuildJob {
    let condition = json!({"type": "Registered", "status": "False", "reason": "AgentNotRegistered", "message": "",
        "lastTransitionTime": "2026-11-18T10:04:00Z"});
    sample::job(name, json!({"phase": "Running", "attempt": 0, "podName": name, "conditions": [condition]}))
}

fn labels(name: &str) -> BTreeMap<String, String> {
    [("kubernetes.io/metadata.name".to_owned(), name.to_owned())].into()
}

/// Everything as it should be.
fn well() -> Seen {
    let port = json!({"name": "broker", "port": 443, "targetPort": "broker"});
    Seen {
        service: Ok(Some(read(json!({"spec": {"ports": [port]}})))),
        slices: Ok(vec![slice(false), slice(true)]),
        secret: Ok(Some(secret("broker.buildkite.svc", "2027-01-01T00:00:00Z", "a certificate"))),
        trusted: Ok(Some(read(json!({"data": {"ca.crt": AUTHORITY}})))),
        sessionless: Ok(Vec::new()),
        jobs: Ok(vec![sample::job("well", json!({"phase": "Running", "attempt": 0}))]),
        pods: Ok(Vec::new()),
        of_jobs: Ok(Vec::new()),
        of_operator: Ok(Vec::new()),
        namespaces: [("buildkite".to_owned(), Ok(labels("buildkite"))), ("ci".to_owned(), Ok(labels("ci")))]
            .into(),
    }
}

/// What is found at an address, in short.
fn told_at(url: &str, seen: &Seen) -> Vec<(Grade, String)> {
    let installation = installation(&[LISTEN], "");
    let broker = Broker { url: url.to_owned(), name: "broker".to_owned() };
    let address = Address::of(url).unwrap();
    let deployment = installation.deployment().unwrap();
    let facts = Facts { broker: &broker, address: &address, installation: &installation, deployment, seen };
    findings(&facts, sample::now()).into_iter().map(|finding| (finding.grade, finding.message)).collect()
}

fn told(change: impl FnOnce(&mut Seen)) -> Vec<(Grade, String)> {
    let mut seen = well();
    change(&mut seen);
    told_at("https://broker.buildkite.svc/v3", &seen)
}

fn failed_with(message: &str) -> Vec<(Grade, String)> {
    vec![(Grade::Fail, message.to_owned())]
}

fn ok() -> Vec<(Grade, String)> {
    let message =
        "job pods find https://broker.buildkite.svc/v3, get there as far as NetworkPolicies go, and trust it";
    vec![(Grade::Ok, message.to_owned())]
}

#[test]
fn a_broker_that_pods_reach_and_trust() {
    assert_eq!(told(|_| {}), ok());
}

#[rstest]
#[case::no_service(
    |seen: &mut Seen| seen.service = Ok(None),
    "DNS: there is no Service buildkite/broker, so job pods cannot look up broker.buildkite.svc"
)]
#[case::another_port(
    |seen: &mut Seen| seen.service = Ok(Some(read(json!({"spec": {"ports": [{"port": 8444}]}})))),
    "Service buildkite/broker has no port 443"
)]
#[case::nobody_is_ready(
    |seen: &mut Seen| seen.slices = Ok(vec![slice(false)]),
    "no endpoint of Service buildkite/broker is ready, so agents reach nobody"
)]
#[case::nobody_is_there(
    |seen: &mut Seen| seen.slices = Ok(Vec::new()),
    "no endpoint of Service buildkite/broker is ready, so agents reach nobody"
)]
#[case::no_secret(
    |seen: &mut Seen| seen.secret = Ok(None),
    "certificate: there is no Secret buildkite/broker, so agents cannot register"
)]
#[case::an_empty_secret(
    |seen: &mut Seen| seen.secret = Ok(Some(Secret::default())),
    "certificate: there is none in Secret buildkite/broker yet, so nobody answers agents"
)]
#[case::another_host(
    |seen: &mut Seen| seen.secret = Ok(Some(secret("old.buildkite.svc", "2027-01-01T00:00:00Z", "a certificate"))),
    "certificate: that in Secret buildkite/broker is for \"old.buildkite.svc\", and job pods expect broker.buildkite.svc"
)]
#[case::an_old_certificate(
    |seen: &mut Seen| seen.secret = Ok(Some(secret("broker.buildkite.svc", "2026-11-01T00:00:00Z", "a certificate"))),
    "certificate: that in Secret buildkite/broker has ended, 2026-11-01T00:00:00Z"
)]
#[case::pods_have_no_authority(
    |seen: &mut Seen| seen.trusted = Ok(None),
    "certificate: there is no ConfigMap ci/broker, so no job pod can start"
)]
#[case::pods_have_another_authority(
    |seen: &mut Seen| seen.trusted = Ok(Some(read(json!({"data": {"ca.crt": "another"}})))),
    "certificate: ConfigMap ci/broker does not have the authority of the operator's, so agents do not trust it"
)]
#[case::nowhere_to_keep_sessions(
    |seen: &mut Seen| seen.sessionless = Ok(vec!["broker-sessions-0".to_owned(), "broker-sessions-3".to_owned()]),
    "namespace buildkite lacks the Secrets for sessions broker-sessions-0, broker-sessions-3, so agents cannot register"
)]
fn what_keeps_agents_from_registering(#[case] change: fn(&mut Seen), #[case] expected: &str) {
    assert_eq!(told(change), failed_with(expected));
}

const NO_EGRESS: &str =
    "NetworkPolicy ci/strict keeps job pods from the operator: no egress to namespace buildkite on port 8444";
const NO_DNS: &str = "NetworkPolicy ci/strict keeps job pods from DNS, so they cannot look up broker.buildkite.svc: no egress on port 53";

#[rstest]
#[case::nothing_is_allowed(json!([]), &[NO_EGRESS, NO_DNS])]
#[case::everything_is_allowed(json!([{}]), &[])]
#[case::only_the_operator(
    json!([{"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "buildkite"}}}]}]), &[]
)]
#[case::another_namespace(
    json!([{"to": [{"namespaceSelector": {"matchLabels": {"team": "web"}}}]}]), &[NO_EGRESS]
)]
#[case::pods_of_the_own_namespace(json!([{"to": [{"podSelector": {}}]}]), &[NO_EGRESS])]
#[case::other_pods_of_the_operators_namespace(
    json!([{"to": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}}]}]), &[NO_EGRESS]
)]
#[case::the_port_of_the_service(json!([{"ports": [{"port": 443}]}]), &[NO_EGRESS, NO_DNS])]
#[case::the_port_of_the_pods(json!([{"ports": [{"port": 8444}, {"port": 53, "protocol": "UDP"}]}]), &[])]
#[case::a_range(json!([{"ports": [{"port": 53}]}, {"ports": [{"port": 8000, "endPort": 9000}]}]), &[])]
#[case::the_port_by_its_name(json!([{"ports": [{"port": "broker"}]}]), &[NO_DNS])]
#[case::another_protocol(json!([{"ports": [{"port": 8444, "protocol": "UDP"}]}]), &[NO_EGRESS, NO_DNS])]
#[case::the_addresses_of_pods(json!([{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]), &[])]
#[case::the_world_without_pods(
    json!([{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}]}]), &[NO_EGRESS]
)]
fn what_job_pods_may_reach(#[case] rules: Value, #[case] expected: &[&str]) {
    let found = told(|seen| seen.of_jobs = Ok(vec![egress("strict", rules)]));
    let expected: Vec<_> = expected.iter().flat_map(|message| failed_with(message)).collect();
    assert_eq!(found, if expected.is_empty() { ok() } else { expected });
}

#[rstest]
#[case::nothing_is_allowed(json!([]), false)]
#[case::other_ports(json!([{"ports": [{"port": "metrics"}]}]), false)]
#[case::everybody_on_the_port(json!([{"ports": [{"port": "broker"}]}]), true)]
#[case::only_its_own_namespace(json!([{"from": [{"podSelector": {}}]}]), false)]
#[case::job_pods(
    json!([{
        "ports": [{"port": "broker"}],
        "from": [{
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ci"}},
            "podSelector": {"matchExpressions": [{"key": JOB_PODS, "operator": "Exists"}]},
        }],
    }]),
    true
)]
#[case::addresses_of_whom_nobody_is_known(json!([{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]), true)]
fn who_may_reach_the_operator(#[case] rules: Value, #[case] is_allowed: bool) {
    let found = told(|seen| seen.of_operator = Ok(vec![ingress("own", rules)]));
    let message = "NetworkPolicy buildkite/own keeps job pods from the operator: no ingress from namespace ci on port 8444";
    assert_eq!(found, if is_allowed { ok() } else { failed_with(message) });
}

#[test]
fn policies_add_up_and_others_do_not_count() {
    let closed = || egress("closed", json!([]));
    let open = egress("open", json!([{}]));
    assert_eq!(told(|seen| seen.of_jobs = Ok(vec![closed(), open])), ok());
    let of_others =
        policy("others", json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Egress"]}));
    let inwards = policy("inwards", json!({"podSelector": {}, "ingress": []}));
    assert_eq!(told(|seen| seen.of_jobs = Ok(vec![of_others, inwards])), ok());
    let found =
        told(|seen| seen.of_jobs = Ok(vec![closed(), egress("dns", json!([{"ports": [{"port": 53}]}]))]));
    let message = "NetworkPolicies ci/closed, ci/dns keep job pods from the operator: no egress to namespace buildkite on port 8444";
    assert_eq!(found, failed_with(message));
}

#[test]
fn policies_are_held_against_the_pod_that_is_stuck() {
    let pod = |name: &str, team: &str| -> Pod {
        read(
            json!({"metadata": {"name": name, "labels": {JOB_PODS: name, "team": team}, "creationTimestamp": "2026-11-18T10:00:00Z"}}),
        )
    };
    let of_web =
        policy("web", json!({"podSelector": {"matchLabels": {"team": "web"}}, "policyTypes": ["Egress"]}));
    let found = told(|seen| {
        seen.of_jobs = Ok(vec![of_web]);
        seen.pods = Ok(vec![pod("a", "web"), pod("b", "db")]);
        seen.jobs = Ok(vec![stuck("a")]);
    });
    let message = "NetworkPolicy ci/web keeps job pods from the operator: no egress to namespace buildkite on port 8444";
    assert_eq!(found.first(), failed_with(message).first());
    let explained = format!("all containers of a job run, but no agent has registered: a; {message}");
    assert_eq!(found.last(), failed_with(&explained).last());
}

#[test]
fn agents_that_do_not_register_for_no_reason_that_is_seen() {
    let found = told(|seen| seen.jobs = Ok(["a", "b", "c", "d", "e"].map(stuck).into()));
    let message = "all containers of 5 jobs run, but no agent has registered: a, b, c, 2 more; nothing above explains it";
    assert_eq!(found, [ok(), failed_with(message)].concat());
    let mut over = stuck("over");
    over.status.as_mut().unwrap().phase = bk_api::Phase::Failed;
    assert_eq!(told(|seen| seen.jobs = Ok(vec![over])), ok());
}

#[test]
fn what_may_not_be_read_is_said() {
    let error = |what: &str| format!("cannot read {what}");
    let found = told(|seen| {
        seen.service = Err(error("Service"));
        seen.secret = Err(error("Secret"));
        seen.sessionless = Err(error("sessions"));
        seen.of_jobs = Err(error("policies"));
        seen.pods = Err(error("pods"));
        seen.jobs = Err(error("jobs"));
        seen.namespaces.insert("ci".to_owned(), Err(error("Namespace ci")));
        let elsewhere = json!([{"from": [{"namespaceSelector": {"matchLabels": {"ci": "yes"}}}]}]);
        seen.of_operator = Ok(vec![ingress("own", elsewhere)]);
    });
    assert!(found.iter().all(|(grade, _)| *grade == Grade::Warn), "{found:?}");
    let messages: Vec<&str> = found.iter().map(|(_, message)| message.as_str()).collect();
    let expected = [
        "cannot read Service",
        "cannot read sessions",
        "cannot read Secret",
        "cannot read policies",
        "cannot read pods",
        "NetworkPolicy buildkite/own keeps job pods from the operator: no ingress from namespace ci on port 8444, unless its labels allow it; \
         cannot read Namespace ci",
        "cannot read jobs",
    ];
    assert_eq!(messages, expected);
    let found = told(|seen| seen.trusted = Err(error("ConfigMap")));
    assert_eq!(found, [(Grade::Warn, error("ConfigMap"))]);
}

#[test]
fn a_host_that_is_no_service() {
    let mut seen = well();
    seen.secret = Ok(Some(secret("ci.example.com", "2027-01-01T00:00:00Z", "a certificate")));
    let message = "ci.example.com is not the name of a Service, so from here nobody knows where it leads";
    assert_eq!(told_at("https://ci.example.com:8444/v3", &seen), [(Grade::Warn, message.to_owned())]);
}

#[test]
fn without_tls_pods_trust_whoever_is_there() {
    let mut seen = well();
    seen.service = Ok(Some(read(json!({"spec": {"ports": [{"port": 80}]}}))));
    seen.trusted = Ok(None);
    assert_eq!(told_at("http://broker.buildkite.svc/v3", &seen)[0].0, Grade::Ok);
}

#[rstest]
#[case::none(&["run"], None, Err(None))]
#[case::one(&["run", LISTEN, "--broker-url=http://a"], None, Ok("buildkite-operator-broker"))]
#[case::by_its_name(&[LISTEN, "--broker-url", "http://a", "--broker-name=mine"], Some(AgentCredentials::Broker), Ok("mine"))]
#[case::nobody_uses_it(&[LISTEN, "--broker-url=http://a"], Some(AgentCredentials::Secret), Err(Some(Grade::Ok)))]
#[case::it_is_missing(&["run"], Some(AgentCredentials::Broker), Err(Some(Grade::Fail)))]
fn whether_there_is_one(
    #[case] args: &[&str],
    #[case] credentials: Option<AgentCredentials>,
    #[case] expected: Result<&str, Option<Grade>>,
) {
    let installation = installation(args, "");
    let broker = used(installation.broker(), credentials);
    let broker = broker.as_ref().map(|broker| broker.name.as_str());
    assert_eq!(broker.map_err(|finding| finding.as_ref().map(|finding| finding.grade)), expected);
}

#[test]
fn permissions_depend_on_the_proof() {
    let broker = Broker { url: String::new(), name: "broker".to_owned() };
    let asked = |pod_config: &str| {
        let all = permissions(&broker, &installation(&[], pod_config));
        all.into_iter().filter_map(|one| one.resource).collect::<std::collections::BTreeSet<_>>()
    };
    for without in ["registrationProof: address", "agentCredentials: secret"] {
        assert_eq!(asked(without), ["pods", "secrets"].map(str::to_owned).into(), "{without}");
    }
    assert_eq!(asked(""), ["pods", "secrets", "tokenreviews"].map(str::to_owned).into());
    assert_eq!(nodes(&[]), None);
    assert_eq!(nodes(&[ResourceAttributes::default()]).map(|finding| finding.grade), Some(Grade::Warn));
}
