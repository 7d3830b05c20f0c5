use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::build::JobKind;
use crate::pipeline::{self, step::Kind};

fn retry(automatic: &str) -> Retry {
    let yaml = format!("steps: [{{command: x, retry: {{automatic: {automatic}}}}}]");
    match pipeline::from_yaml(&yaml).unwrap().steps.remove(0).step.kind {
        Kind::Command(command) => command.retry,
        other => panic!("{other:?}"),
    }
}

fn ended(exit_status: Option<i64>, signal: Option<&str>, reason: Option<&str>) -> Job {
    let mut job = Job::new(Uuid::nil(), Uuid::nil(), JobKind::Command, Timestamp::UNIX_EPOCH);
    job.state = JobState::Finished;
    job.exit_status = exit_status;
    job.signal = signal.map(str::to_owned);
    job.signal_reason = reason.map(str::to_owned);
    job
}

#[rstest]
#[case::nothing("false", 1, false)]
#[case::anything("true", 1, true)]
#[case::anything_lost("true", -1, true)]
#[case::success("true", 0, false)]
#[case::named("{exit_status: 7}", 7, true)]
#[case::not_named("{exit_status: 7}", 8, false)]
#[case::as_text("{exit_status: '7'}", 7, true)]
#[case::listed("{exit_status: [7, 9]}", 9, true)]
#[case::not_listed("{exit_status: [7, 9]}", 8, false)]
#[case::star_lowest("{exit_status: '*'}", 1, true)]
#[case::star_highest("{exit_status: '*'}", 255, true)]
#[case::star_beyond("{exit_status: '*'}", 256, false)]
#[case::star_is_not_lost("{exit_status: '*'}", -1, false)]
#[case::star_and_lost("{exit_status: ['*', -1]}", -1, true)]
#[case::lost("{exit_status: -1}", -1, true)]
#[case::lost_is_not_failed("{exit_status: -1}", 1, false)]
#[case::never("{exit_status: 1, limit: 0}", 1, false)]
#[case::no_condition("{limit: 1}", -1, true)]
fn exit_statuses(#[case] automatic: &str, #[case] status: i64, #[case] granted: bool) {
    assert_eq!(granting_rule(&ended(Some(status), None, None), &retry(automatic)).is_some(), granted);
}

#[rstest]
#[case::full("SIGTERM", Some("SIGTERM"), true)]
#[case::short("term", Some("SIGTERM"), true)]
#[case::reported_short("SIGTERM", Some("term"), true)]
#[case::reported_upper("sigterm", Some("TERM"), true)]
#[case::another("SIGTERM", Some("SIGKILL"), false)]
#[case::no_signal("SIGTERM", None, false)]
#[case::any("'*'", Some("SIGHUP"), true)]
#[case::any_without("'*'", None, false)]
#[case::none("none", None, true)]
#[case::none_with("none", Some("SIGTERM"), false)]
fn signals(#[case] wanted: &str, #[case] reported: Option<&str>, #[case] granted: bool) {
    let job = ended(Some(-1), reported, None);
    assert_eq!(granting_rule(&job, &retry(&format!("{{signal: {wanted}}}"))).is_some(), granted);
}

#[rstest]
#[case::named("agent_stop", Some("agent_stop"), true)]
#[case::another("agent_stop", Some("cancel"), false)]
#[case::absent("agent_stop", None, false)]
#[case::listed("[agent_stop, stack_error]", Some("stack_error"), true)]
#[case::any("'*'", Some("process_run_error"), true)]
#[case::any_without("'*'", None, false)]
#[case::none("none", None, true)]
#[case::none_with("none", Some("cancel"), false)]
#[case::none_or("[none, cancel]", Some("cancel"), true)]
fn signal_reasons(#[case] wanted: &str, #[case] reported: Option<&str>, #[case] granted: bool) {
    let job = ended(Some(1), None, reported);
    assert_eq!(granting_rule(&job, &retry(&format!("{{signal_reason: {wanted}}}"))).is_some(), granted);
}

#[rstest]
#[case::all(Some(-1), Some("SIGKILL"), Some("agent_stop"), true)]
#[case::status_differs(Some(1), Some("SIGKILL"), Some("agent_stop"), false)]
#[case::signal_differs(Some(-1), None, Some("agent_stop"), false)]
#[case::reason_differs(Some(-1), Some("SIGKILL"), None, false)]
#[case::no_status(None, Some("SIGKILL"), Some("agent_stop"), false)]
fn every_condition_of_a_rule_must_hold(
    #[case] status: Option<i64>,
    #[case] signal: Option<&str>,
    #[case] reason: Option<&str>,
    #[case] granted: bool,
) {
    let rules = retry("{exit_status: -1, signal: kill, signal_reason: agent_stop}");
    assert_eq!(granting_rule(&ended(status, signal, reason), &rules).is_some(), granted);
}

#[rstest]
#[case(JobState::Finished, true)]
#[case(JobState::TimedOut, true)]
#[case(JobState::Canceled, false)]
#[case(JobState::Expired, false)]
#[case(JobState::WaitingFailed, false)]
#[case(JobState::Running, false)]
fn cancelled_jobs_are_not_retried(#[case] state: JobState, #[case] granted: bool) {
    let job = Job { state, ..ended(Some(1), None, None) };
    assert_eq!(granting_rule(&job, &retry("true")).is_some(), granted);
}

#[test]
fn the_first_matching_rule_decides_even_when_it_is_used_up() {
    let rules = retry("[{exit_status: 1, limit: 1}, {exit_status: '*', limit: 5}]");
    let mut job = ended(Some(1), None, None);
    assert_eq!(granting_rule(&job, &rules), Some(0));
    job.rule_uses = vec![1];
    assert_eq!(granting_rule(&job, &rules), None);
    job.exit_status = Some(2);
    assert_eq!(granting_rule(&job, &rules), Some(1));
}

proptest! {
    /// However a job fails again and again, no rule grants more than its limit, and all that it granted are
    /// counted.
    #[test]
    fn each_rule_counts_for_itself(limits in prop::collection::vec(0u32..4, 3), ends in prop::collection::vec(1i64..4, 0..30)) {
        let rules = limits.iter().enumerate().map(|(at, limit)| format!("{{exit_status: {}, limit: {limit}}}", at + 1));
        let rules = retry(&format!("[{}]", rules.collect::<Vec<_>>().join(", ")));
        let mut used = [0u32; 3];
        let mut job = ended(Some(1), None, None);
        for status in ends {
            job.state = JobState::Finished;
            job.exit_status = Some(status);
            let Some(rule) = granting_rule(&job, &rules) else { continue };
            prop_assert_eq!(Some(rule), usize::try_from(status - 1).ok());
            used[rule] += 1;
            prop_assert!(used[rule] <= limits[rule]);
            let next = successor(&job, Uuid::from_u128(1), Some(rule), Timestamp::UNIX_EPOCH);
            prop_assert_eq!(next.retry_count, used.iter().sum::<u32>());
            job = next;
        }
    }
}
