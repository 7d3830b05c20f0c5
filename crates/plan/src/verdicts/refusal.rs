//! Why the API server does not take a pod.

use bk_api::{Verdict, VerdictCode};

use super::{secrets, start::Blocker};

/// What the API server's answer to the creation of a pod, or of what it stands in, means for the job. Whether
/// it is permanent says if trying again can help. Status 0 is no answer at all.
pub fn not_created(status: u16, message: &str) -> Blocker {
    let code = code_of(status, message);
    let what = match code {
        VerdictCode::QuotaExceeded => "there is no room for the job's pod",
        VerdictCode::OperatorForbidden => "the operator may not create the job's pod",
        VerdictCode::ApiServerUnavailable => "the API server cannot take the job's pod now",
        _ => "the API server refused the job's pod",
    };
    let verdict = Verdict::new(code, secrets::hidden(&format!("{what}: {message}")));
    // Who is asked to come back later, or is in somebody's way, has not been served.
    let doubtful = code == VerdictCode::ApiServerUnavailable && !(400..500).contains(&status);
    Blocker { doubtful, ..Blocker::new(verdict) }
}

fn code_of(status: u16, message: &str) -> VerdictCode {
    match status {
        // A webhook or a policy chooses the status of its refusal.
        _ if message.contains("denied the request") || message.contains("denied request") => {
            VerdictCode::PodRefused
        }
        400 | 413 | 422 => VerdictCode::InvalidSpec,
        401 => VerdictCode::OperatorForbidden,
        403 if message.contains("exceeded quota") => VerdictCode::QuotaExceeded,
        403 if message.contains("error looking up service account") => VerdictCode::ServiceAccountMissing,
        403 if message.contains("forbidden: User") => VerdictCode::OperatorForbidden,
        403 => VerdictCode::PodRefused,
        _ => VerdictCode::ApiServerUnavailable,
    }
}
