//! What people are told while a job runs, and the exit status at its end.

use std::time::Duration;

use bk_api::{BuildJob, Fault, Phase};
use kube::ResourceExt;

use crate::cli::{
    follow::{Known, Watched},
    output::say,
};

/// Exit status for a job that could not be run, or was lost: nothing that its command said.
pub(super) const NOT_RUN: u8 = 125;

/// Exit status for a job that took too long.
pub(super) const TIMED_OUT: u8 = 124;

/// How long nobody may look at a new BuildJob before it is worth a word.
const UNNOTICED: Duration = Duration::from_secs(10);

/// How it all ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    /// The exit status.
    pub(super) code: u8,
    /// What to say about it.
    pub(super) text: Option<String>,
    /// Whether the BuildJob stays for people to look at.
    pub(super) keeps_build_job: bool,
}

impl Ending {
    /// Somebody, or a limit, has stopped the job.
    pub(super) fn stopped(text: String, code: u8) -> Self {
        Self { code, text: Some(text), keeps_build_job: false }
    }

    /// What a BuildJob's end means here; it may have been deleted before it ended.
    pub(super) fn of(job: Option<&BuildJob>) -> Self {
        let Some(job) = job else {
            return Self::stopped("the BuildJob was deleted before the job had ended".to_owned(), NOT_RUN);
        };
        let status = job.status_or_default();
        let sentence = status.verdict.as_ref().map(bk_api::Verdict::sentence);
        match status.phase {
            Phase::Succeeded => Self { code: 0, text: None, keeps_build_job: false },
            Phase::TimedOut => Self { code: TIMED_OUT, text: sentence, keeps_build_job: true },
            _ => {
                let is_commands = status.verdict.as_ref().is_some_and(|verdict| verdict.fault == Fault::User);
                let code =
                    status.exit_status.filter(|_| is_commands).and_then(|status| u8::try_from(status).ok());
                Self {
                    code: code.filter(|code| *code != 0).unwrap_or(NOT_RUN),
                    text: sentence,
                    keeps_build_job: true,
                }
            }
        }
    }
}

/// Says what the job waits for, each time that it is something else, until it is over.
pub(super) async fn tell(mut watched: Watched) {
    let noticed = watched.until(|known| progress(known).is_some() || known.is_over());
    if tokio::time::timeout(UNNOTICED, noticed).await.is_err() {
        let job = watched.now().job;
        let namespace = job.as_ref().and_then(ResourceExt::namespace).unwrap_or_default();
        say(&format!("no operator has taken up the job yet; does one run for namespace {namespace}?"));
    }
    let mut last = None;
    loop {
        let known = watched.until(|known| known.is_over() || progress(known) != last).await;
        if known.is_over() {
            return;
        }
        last = progress(&known);
        if let Some(text) = &last {
            say(text);
        }
    }
}

/// How far the job has come, in a few words.
fn progress(known: &Known) -> Option<String> {
    let status = known.job.as_ref()?.status.as_ref();
    if let Some(reason) = status.and_then(|status| status.waiting_for.as_deref()) {
        return Some(format!("waiting for {reason}"));
    }
    let pod = known.pod.as_ref()?;
    let name = pod.name_any();
    Some(match pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
        Some(node) => format!("pod {name} is on node {node}"),
        None => format!("pod {name} waits for a node"),
    })
}

#[cfg(test)]
mod tests {
    use bk_api::{BuildJobSpec, BuildJobStatus, Verdict, VerdictCode};
    use rstest::rstest;

    use super::*;

    fn ended(phase: Phase, code: VerdictCode, exit_status: Option<i32>) -> BuildJob {
        let verdict = Some(Verdict { exit_status, ..Verdict::new(code, "as it was") });
        let status = BuildJobStatus { phase, exit_status, verdict, ..BuildJobStatus::default() };
        BuildJob { status: Some(status), ..BuildJob::new("run", BuildJobSpec::default()) }
    }

    #[rstest]
    #[case::it_passed(Phase::Succeeded, VerdictCode::Passed, Some(0), 0)]
    #[case::the_command_failed(Phase::Failed, VerdictCode::CommandFailed, Some(3), 3)]
    #[case::a_signal(Phase::Failed, VerdictCode::OutOfMemory, Some(137), 137)]
    #[case::nothing_ran(Phase::Failed, VerdictCode::InvalidSpec, Some(-1), NOT_RUN)]
    #[case::it_was_lost(Phase::Failed, VerdictCode::NodeLost, Some(137), NOT_RUN)]
    #[case::too_long(Phase::TimedOut, VerdictCode::TimedOut, None, TIMED_OUT)]
    #[case::nobody_knows(Phase::Failed, VerdictCode::ResultUnknown, None, NOT_RUN)]
    fn exit_statuses(
        #[case] phase: Phase,
        #[case] code: VerdictCode,
        #[case] exit_status: Option<i32>,
        #[case] expected: u8,
    ) {
        let ending = Ending::of(Some(&ended(phase, code, exit_status)));
        assert_eq!(ending.code, expected);
        assert_eq!(ending.text.is_some(), expected != 0);
        assert_eq!(ending.keeps_build_job, expected != 0, "who fails may want to look at it");
    }

    #[test]
    fn a_job_that_is_gone_was_not_run() {
        assert_eq!(Ending::of(None).code, NOT_RUN);
    }
}
