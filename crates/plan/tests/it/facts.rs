//! Pods as a cluster shows them → what matters about them.

use bk_plan::facts::{ContainerState, PodFacts};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use rstest::rstest;

use crate::fixtures::kept;

fn facts(yaml: &str) -> PodFacts {
    let pod: Pod = serde_saphyr::from_str(yaml).expect("the fixture is a pod");
    let facts = PodFacts::of(&pod);
    assert_eq!(kept(&pod), facts, "the cache keeps what matters");
    facts
}

fn at(time: &str) -> Timestamp {
    time.parse().expect("the fixture is a time")
}

/// What kubelet 1.34 says about a pod with `restartPolicy: Never` whose init container has failed.
#[test]
fn a_pod_that_failed_in_its_init_container() {
    let facts = facts(
        r#"
metadata: { name: nightly, uid: u1, creationTimestamp: "2027-01-15T08:00:00Z" }
spec:
  nodeName: node-1
  restartPolicy: Never
  initContainers:
  - { name: database, image: postgres, restartPolicy: Always }
  - { name: prepare, image: busybox }
  containers:
  - { name: container-0, image: busybox, command: [/buildkite/shim/buildkite-shim, job] }
  - { name: agent, image: "buildkite/agent:3", command: [/buildkite/shim/buildkite-shim, agent] }
status:
  phase: Failed
  startTime: "2027-01-15T08:03:00Z"
  initContainerStatuses:
  - name: database
    image: postgres
    imageID: ""
    ready: true
    restartCount: 1
    state: { running: { startedAt: "2027-01-15T08:03:02Z" } }
    lastState: { terminated: { exitCode: 1 } }
  - name: prepare
    image: busybox
    imageID: ""
    ready: false
    restartCount: 0
    state: { terminated: { exitCode: 4, reason: Error, finishedAt: "2027-01-15T08:03:04Z" } }
  containerStatuses:
  - name: container-0
    image: busybox
    imageID: ""
    ready: false
    restartCount: 0
    state: { waiting: { reason: PodInitializing } }
"#,
    );
    assert_eq!(facts.created_at, Some(at("2027-01-15T08:00:00Z")));
    assert_eq!(facts.accepted_at, Some(at("2027-01-15T08:03:00Z")));
    assert_eq!((facts.failed, &facts.given_up), (true, &None));
    assert_eq!(
        facts.failed_init().map(|(container, status)| (container.name.as_str(), status)),
        Some(("prepare", 4))
    );
    let sidecars: Vec<_> =
        facts.init.iter().map(|container| (container.sidecar, container.is_ended())).collect();
    assert_eq!(sidecars, [(true, false), (false, true)]);
    assert!(facts.agent.is_waiting() && facts.managed[0].is_waiting());
}

/// The API server stamps a pod with the time at which its grace period ends.
#[test]
fn a_pod_that_somebody_deletes() {
    let facts = facts(
        r#"
metadata:
  name: nightly
  deletionTimestamp: "2027-01-15T08:01:00Z"
  deletionGracePeriodSeconds: 60
spec:
  containers:
  - { name: agent, image: "buildkite/agent:3", command: [/buildkite/shim/buildkite-shim, agent] }
"#,
    );
    assert_eq!(facts.deleting_since, Some(at("2027-01-15T08:00:00Z")));
    assert_eq!(facts.agent.state, ContainerState::Waiting { reason: String::new(), message: String::new() });
}

/// What the kubelet and the control plane say about a pod that they take away.
#[rstest]
#[case::by_the_kubelet(
    "{ phase: Failed, reason: Evicted, message: The node was low on resource }",
    (true, Some("Evicted: The node was low on resource"), None)
)]
#[case::by_the_scheduler(
    "{ phase: Running, conditions: [{ type: DisruptionTarget, status: 'True', reason: PreemptionByScheduler }] }",
    (false, None, Some("PreemptionByScheduler"))
)]
#[case::not_at_all(
    "{ phase: Failed, conditions: [{ type: DisruptionTarget, status: 'False' }] }",
    (true, None, None)
)]
fn a_pod_that_is_taken_away(#[case] status: &str, #[case] expected: (bool, Option<&str>, Option<&str>)) {
    let facts = facts(&format!("metadata: {{ name: nightly }}\nstatus: {status}"));
    let [given_up, disrupted] =
        [&facts.given_up, &facts.disrupted].map(|told| told.as_ref().map(ToString::to_string));
    assert_eq!((facts.failed, given_up.as_deref(), disrupted.as_deref()), expected);
}
