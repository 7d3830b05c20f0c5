//! Agents that do not register by way of the operator, although all containers run: since the second second here. After 15 s that is on record,
//! and Buildkite is told.

use bk_api::{BuildJobStatus, Verdict};
use bk_plan::{
    decide::{Action, Decision, Rules, decide},
    pod::BrokerAccess,
    remote::RemoteState::{Acquired, Waiting},
};
use rstest::rstest;

use crate::{
    decide::scene::{
        Scene, buildkite, deleting_since, ended, failed, pod, running, standalone, waiting, words_of,
    },
    fixtures,
};

const WAIT: &str = "the agent to register by way of the operator at https://broker.ci.svc:8444/v3: it has not for 15 s; \
                    `buildkite-operator doctor` looks at NetworkPolicies, DNS and the certificate, and the operator's log has whom \
                    it refused";

/// As elsewhere, and agents register by way of the operator.
fn rules() -> Rules {
    let mut rules = fixtures::rules();
    rules.pod.broker = Some(BrokerAccess {
        url: "https://broker.ci.svc:8444/v3".to_owned(),
        name: "broker".to_owned(),
        has_authority: true,
        key: None,
    });
    rules
}

fn decided(scene: &Scene) -> Decision {
    decide(&scene.observed(), &rules())
}

/// The status that is written last.
fn written(scene: &Scene) -> Option<BuildJobStatus> {
    decided(scene).actions.into_iter().rev().find_map(|action| match action {
        Action::WriteStatus(status) => Some(*status),
        _ => None,
    })
}

/// The verdict that Buildkite hears.
fn finished(scene: &Scene) -> Verdict {
    let verdict = decided(scene).actions.into_iter().find_map(|action| match action {
        Action::FinishRemote(verdict) => Some(verdict),
        _ => None,
    });
    verdict.expect("the job is finished")
}

/// What is said of the registration in a condition, as `status reason`.
fn told(status: &BuildJobStatus) -> Option<String> {
    let condition = status.conditions.iter().find(|condition| condition.type_ == "Registered")?;
    Some(format!("{} {}", condition.status, condition.reason))
}

/// All containers run, and no agent has the job.
fn started() -> Scene {
    buildkite().pod(pod(running(), running())).word(Waiting, 9)
}

/// The same when it has been noticed, at 17 s.
fn noticed() -> Scene {
    let mut scene = started().at(17);
    scene.job.status = written(&scene);
    scene.explained(WAIT, 17)
}

#[rstest]
#[case::in_time(started().at(10), "ask; again in 7s")]
#[case::for_too_long(started().at(17), &format!("write Running (waits for {WAIT}); explain the; ask; again in 1m 44s"))]
#[case::it_was_noticed(noticed().word(Waiting, 29).at(30), "ask; again in 1m 31s")]
#[case::another_operator_noticed(
    { let mut scene = started().at(30); scene.job.status = noticed().job.status; scene },
    "explain the; ask; again in 1m 31s"
)]
#[case::running_is_on_record_already(started().running_since(2).at(10), "ask; again in 7s")]
#[case::running_is_on_record_and_it_takes_too_long(
    started().running_since(2).at(17),
    &format!("write Running (waits for {WAIT}); explain the; ask; again in 1m 44s")
)]
#[case::it_has_registered(started().with_session().at(17), "ask; again in 45s")]
#[case::it_has_the_job(started().with_session().word(Acquired, 10).at(10), "write Running; again in 1h")]
#[case::it_has_registered_after_all(noticed().with_session().at(20), "ask; again in 42s")]
#[case::it_has_the_job_after_all(
    noticed().with_session().word(Acquired, 30).at(30), "write Running; again in 1h"
)]
#[case::it_still_starts(
    buildkite().pod(pod(waiting("ContainerCreating", ""), running())).word(Waiting, 19).at(20),
    "ask; again in 41s"
)]
#[case::nobody_knows_whether_an_agent_has_the_job(
    buildkite().pod(pod(running(), running())).at(20), "ask; again in 42s"
)]
#[case::its_pod_is_about_to_go(
    buildkite().pod(deleting_since(16, pod(running(), running()))).word(Waiting, 17).at(20),
    "ask; again in 42s"
)]
#[case::a_job_without_buildkite(standalone().pod(pod(running(), running())).at(20), "write Running; again in 1h")]
fn of_an_agent(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(words_of(&decided(&scene)), expected);
}

#[rstest]
#[case::for_too_long(started().at(17), Some("False AgentNotRegistered"))]
#[case::after_all(noticed().with_session().word(Acquired, 30).at(30), Some("True AgentRegistered"))]
#[case::as_always(started().with_session().word(Acquired, 10).at(10), None)]
fn conditions(#[case] scene: Scene, #[case] expected: Option<&str>) {
    let status = written(&scene).expect("a status is written");
    assert_eq!(told(&status).as_deref(), expected);
    assert_eq!(status.waiting_for.is_some(), expected == Some("False AgentNotRegistered"));
}

#[test]
fn without_a_broker_nothing_is_missed() {
    assert_eq!(started().at(17).decides(), "ask; again in 45s");
}

#[rstest]
#[case::it_never_registered(
    started().word(Waiting, 124).at(124),
    "StartTimeout",
    "the job did not start within 120 s; it was waiting for its agent to register by way of the operator at https://broker.ci.svc:8444/v3",
    "run `buildkite-operator doctor`: it tells whether a NetworkPolicy, DNS or the certificate keeps pods from the operator"
)]
#[case::it_registered_and_did_not_take_the_job(
    started().with_session().word(Waiting, 124).at(124),
    "StartTimeout",
    "the job did not start within 120 s; it was waiting for its agent to take it",
    "see what the pod waited for, or raise timeouts in pod_config"
)]
#[case::it_gave_up(
    buildkite().starting(2).pod(failed(pod(ended(1, 60), ended(1, 60)))).word(Waiting, 64).at(64),
    "AgentNotRegistered",
    "no agent took the job in 3 attempts: the agent ended with exit status 1",
    "read the agent's last words; it was to register by way of the operator at https://broker.ci.svc:8444/v3, and `buildkite-operator doctor` \
     tells whether it can"
)]
fn the_end(#[case] scene: Scene, #[case] code: &str, #[case] message: &str, #[case] advice: &str) {
    let verdict = finished(&scene);
    assert_eq!((verdict.code.as_str(), verdict.message.as_str()), (code, message));
    assert_eq!(verdict.advice.as_deref(), Some(advice));
}
