//! What pods show, in the words of kubelet 1.34 and containerd → THE reason for the job's end.

mod properties;
mod signs;

use std::collections::BTreeSet;

use bk_api::{Phase, Verdict, VerdictCode, config::ValidationConfig};
use bk_plan::{admission::rules, facts::PodFacts, plugin::PluginError, surroundings::Surroundings, verdicts};
use rstest::rstest;
use signs::{SIGNS, Sign, When};

use crate::fixtures;

fn verdict(sign: &Sign) -> Verdict {
    let facts = sign.facts();
    match sign.when {
        When::Blocked => {
            let blocker = verdicts::blocker(&facts).expect("something is in the way");
            assert!(blocker.permanent, "{}: waiting cannot help", sign.what);
            blocker.verdict
        }
        When::Waiting => {
            let blocker = verdicts::blocker(&facts).expect("something is in the way");
            assert!(!blocker.permanent, "{}: it may pass", sign.what);
            blocker.verdict
        }
        When::Late => {
            assert!(!verdicts::blocker(&facts).is_some_and(|blocker| blocker.permanent), "{}", sign.what);
            verdicts::start_timeout(Some(&facts), 900)
        }
        When::Untaken => verdicts::not_taken(Some(&facts), 3),
        When::Running => verdicts::lost(Some(&facts)),
        When::Ended => verdicts::by_exit_status(&facts).1,
    }
}

#[test]
fn every_sign_is_read() {
    for sign in SIGNS {
        let verdict = verdict(sign);
        assert_eq!(verdict.code, sign.code, "{}: {}", sign.what, verdict.message);
        assert!(verdict.message.contains(sign.says), "{}: {}", sign.what, verdict.message);
        let exit_status = (!sign.exit_status.is_empty()).then(|| sign.exit_status.parse().expect("a number"));
        assert_eq!(verdict.exit_status, exit_status, "{}", sign.what);
    }
}

/// A condition may say that a pod was disrupted, and not why.
#[test]
fn a_pod_that_was_taken_away_without_a_word_has_a_verdict() {
    let deleted_at = "2027-01-15T08:00:09Z".parse().expect("a time");
    let facts =
        PodFacts { deleting_since: Some(deleted_at), disrupted: Some(Box::default()), ..PodFacts::default() };
    let verdict = verdicts::not_taken(Some(&facts), 3);
    assert_eq!(verdict.code, VerdictCode::NodeLost);
    assert!(verdict.message.ends_with("took its pod away and does not say why"), "{}", verdict.message);
}

/// What the API server answers to the creation of a pod.
const ANSWERS: [(u16, &str, VerdictCode, bool); 10] = [
    (422, "Pod \"x\" is invalid: spec.containers[0].name: Invalid value", VerdictCode::InvalidSpec, true),
    (
        400,
        "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error",
        VerdictCode::InvalidSpec,
        true,
    ),
    (
        403,
        "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\"",
        VerdictCode::PodRefused,
        true,
    ),
    (400, "admission webhook \"policy.example.com\" denied the request: no", VerdictCode::PodRefused, true),
    (
        422,
        "pods \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
        VerdictCode::PodRefused,
        true,
    ),
    (
        403,
        "pods \"x\" is forbidden: error looking up service account ci/deployer: serviceaccount \"deployer\" not found",
        VerdictCode::ServiceAccountMissing,
        true,
    ),
    (
        403,
        "pods \"x\" is forbidden: exceeded quota: ci, requested: pods=1",
        VerdictCode::QuotaExceeded,
        false,
    ),
    (
        403,
        "pods is forbidden: User \"system:serviceaccount:ci:operator\" cannot create resource \"pods\"",
        VerdictCode::OperatorForbidden,
        false,
    ),
    (429, "Too many requests, please try again later", VerdictCode::ApiServerUnavailable, false),
    (
        500,
        "Internal error occurred: failed calling webhook \"policy.example.com\": connection refused",
        VerdictCode::ApiServerUnavailable,
        false,
    ),
];

#[test]
fn every_answer_of_the_api_server_is_read() {
    for (status, message, code, permanent) in ANSWERS {
        let blocker = verdicts::not_created(status, message);
        assert_eq!((blocker.verdict.code, blocker.permanent), (code, permanent), "{status} {message}");
        assert!(blocker.verdict.message.ends_with(message), "{}", blocker.verdict.message);
    }
}

#[rstest]
#[case(Phase::Pending, "before it had a pod")]
#[case(Phase::Starting, "while its pod started")]
#[case(Phase::Running, "while it ran")]
fn a_cancelled_job_says_how_far_it_was(#[case] phase: Phase, #[case] when: &str) {
    let (ended, verdict) = verdicts::canceled(phase);
    assert_eq!((ended, verdict.code, verdict.exit_status), (Phase::Canceled, VerdictCode::Canceled, None));
    assert!(verdict.message.ends_with(when), "{}", verdict.message);
}

/// Each code of the catalogue comes of something; none is there for its own sake.
#[test]
fn every_code_is_given() {
    let config = "rules: [{expression: 'false', message: nothing}]";
    let validation: ValidationConfig = serde_saphyr::from_str(config).expect("a configuration");
    let job = fixtures::job("spec: {command: make}");
    let plain = [
        verdicts::passed(),
        verdicts::canceled(Phase::Running).1,
        verdicts::timed_out().1,
        verdicts::never_ran().1,
        verdicts::result_unknown().1,
        verdicts::build_job_deleted("nightly"),
        verdicts::lost(None),
        verdicts::unreadable_plugins(&PluginError::NotOneKey { index: 0 }),
        rules::refusal(&job, None, &Surroundings::default(), &validation).expect("it breaks the rule"),
    ];
    let given: BTreeSet<_> = SIGNS
        .iter()
        .map(|sign| sign.code)
        .chain(ANSWERS.iter().map(|(_, _, code, _)| *code))
        .chain(plain.iter().map(|verdict| verdict.code))
        .collect();
    let missing: Vec<_> = VerdictCode::ALL.iter().filter(|code| !given.contains(code)).collect();
    assert!(missing.is_empty(), "nothing gives {missing:?}");
}

#[test]
fn evidence_outlives_the_pod() {
    let sign = SIGNS.iter().find(|sign| sign.code == VerdictCode::DiskPressure).expect("there is one");
    insta::assert_snapshot!(verdict(sign).evidence.join("\n"), @r"
    pod: Evicted: The node was low on resource: ephemeral-storage. Container container-0 was using 9Gi, request is 0, has larger consumption of ephemeral-storage.
    disrupted: TerminationByKubelet: The node was low on resource: ephemeral-storage.
    container container-0: exit status 137 Error
    node: node-1
    ");
}

/// A pod whose status says nothing yet is in no trouble.
#[test]
fn nothing_is_in_the_way_of_a_pod_that_has_just_begun() {
    assert_eq!(verdicts::blocker(&PodFacts::default()), None);
}

/// What Buildkite hears of an end in the agent's place. Retry rules go by it: `signal_reason: agent_stop` is an interruption.
#[rstest]
#[case::taken_away(VerdictCode::PodDeleted, None, (-1, "", "agent_stop"))]
#[case::by_a_drain(VerdictCode::NodeDrained, Some(143), (143, "", "agent_stop"))]
#[case::by_a_preemption(VerdictCode::Preempted, None, (-1, "", "agent_stop"))]
#[case::with_its_node(VerdictCode::NodeLost, None, (-1, "", "agent_stop"))]
#[case::evicted(VerdictCode::Evicted, Some(137), (137, "", "agent_stop"))]
#[case::the_agent_alone(VerdictCode::AgentLost, None, (-1, "", "agent_stop"))]
#[case::the_agent_for_its_memory(VerdictCode::AgentOutOfMemory, Some(137), (137, "", "agent_stop"))]
#[case::the_command_for_its_memory(VerdictCode::OutOfMemory, Some(137), (137, "SIGKILL", ""))]
#[case::the_command(VerdictCode::CommandFailed, Some(3), (3, "", ""))]
#[case::it_never_started(VerdictCode::StartTimeout, None, (-1, "", ""))]
fn ends_are_told_in_agents_words(
    #[case] code: VerdictCode,
    #[case] status: Option<i32>,
    #[case] expected: (i32, &str, &str),
) {
    let verdict = Verdict { exit_status: status, ..Verdict::new(code, "as recorded") };
    assert_eq!(verdicts::in_agents_words(&verdict), expected);
}
