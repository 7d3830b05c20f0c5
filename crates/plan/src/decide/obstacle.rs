//! While the pod cannot be created: wait and say why, or give up.

use bk_api::{BuildJobStatus, VerdictCode, build_job::WorkloadKind, names};
use jiff::SignedDuration;

use super::{Case, Decision, conditions, ladder, notice};
use crate::{recall::Creation, verdicts::Blocker};

/// How long to leave a full quota alone, unless a pod of ours ends.
const QUOTA: SignedDuration = SignedDuration::from_secs(30);

/// How long to wait for the pod of a standalone job that may have been made: by then a watch that was broken shows it,
/// and if it is gone, that it was there. A second one would run the command again.
const DOUBT: SignedDuration = SignedDuration::from_secs(30);

/// The shortest and the longest pause between two attempts otherwise.
const PAUSES: (SignedDuration, SignedDuration) =
    (SignedDuration::from_secs(1), SignedDuration::from_secs(30));

pub(super) fn decide(case: &Case<'_>, blocker: &Blocker) -> Decision {
    let code = blocker.verdict.code;
    let waited = ladder::elapsed(case, conditions::not_created_since(&case.status));
    let patience = patience(case, blocker);
    if waited >= patience {
        return case.fail_unacquired(blocker.verdict.clone());
    }
    let pause = match code {
        VerdictCode::QuotaExceeded => QUOTA,
        _ if blocker.doubtful && case.is_standalone() => DOUBT,
        _ => waited.clamp(PAUSES.0, PAUSES.1),
    };
    let mut decision = Decision::wait(!case.is_standalone(), pause.min(patience - waited));
    // What passes with the next attempt is not worth a write.
    let lasts =
        code != VerdictCode::ApiServerUnavailable || matches!(case.seen.creation, Creation::Failed { .. });
    let status = obstructed(case, blocker);
    let names = |status: &BuildJobStatus| (status.pod_name.clone(), status.job_name.clone());
    let is_news = notice::is_news(status.waiting_for.as_deref(), &case.status);
    if lasts && is_news || names(&status) != names(&case.status) {
        decision.actions.push(Case::write(status));
    }
    // The next attempt is soon enough for a notice.
    let look_again = decision.look_again;
    let since = conditions::not_created_since(&case.status).or(Some(case.seen.now));
    notice::add(case, &mut decision, &blocker.verdict.message, since);
    decision.look_again = look_again;
    decision
}

/// How long to wait for it to pass.
pub(super) fn patience(case: &Case<'_>, blocker: &Blocker) -> SignedDuration {
    match blocker.verdict.code {
        // Whoever sets up a namespace creates one thing after the other.
        VerdictCode::ServiceAccountMissing => case.rules.image_pull_grace,
        _ if blocker.permanent => SignedDuration::ZERO,
        _ => case.rules.timeouts.schedule,
    }
}

/// The status while the pod cannot be created.
fn obstructed(case: &Case<'_>, blocker: &Blocker) -> BuildJobStatus {
    let mut status = case.current();
    // The pod of a standalone job that may have been made stays named.
    let name = case.seen.job.metadata.name.as_deref().unwrap_or_default();
    let name = (case.is_standalone() && blocker.doubtful).then(|| names::pod(name, status.attempt));
    match case.workload() {
        WorkloadKind::Pod => status.pod_name = name,
        WorkloadKind::Job => status.job_name = name,
    }
    status.waiting_for = Some(blocker.verdict.message.clone());
    conditions::not_created(case, &mut status, blocker.verdict.code.as_str(), &blocker.verdict.message);
    status
}
