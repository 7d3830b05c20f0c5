//! What the log says about requests: never what a path gives away.

use axum::extract::Request;
use tracing::Span;

/// The span of a request. Queries and headers are left out; they hold tokens, or nothing of interest.
pub(super) fn span(request: &Request) -> Span {
    tracing::debug_span!("request", method = %request.method(), path = shown(request.uri().path()))
}

/// A path as it may be logged. Whoever has the path of an artifact or of a repository may use it, so what makes
/// it hard to guess is left out.
pub(super) fn shown(path: &str) -> String {
    let mut segments: Vec<&str> = path.split('/').collect();
    let secret = match segments.get(1) {
        Some(&"_artifacts") if segments.len() > 3 => Some(segments.len() - 1),
        Some(&"git") if segments.len() > 2 => Some(2),
        _ => None,
    };
    if let Some(at) = secret {
        segments[at] = "…";
    }
    segments.join("/")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/v3/jobs/1/start", "/v3/jobs/1/start")]
    #[case("/_artifacts/1/download/123-abc", "/_artifacts/1/download/…")]
    #[case("/_artifacts/1/parts/2/123-abc", "/_artifacts/1/parts/2/…")]
    #[case("/git/0123abc/app.git/info/refs", "/git/…/app.git/info/refs")]
    #[case("/git/0123abc", "/git/…")]
    #[case("/", "/")]
    #[case("", "")]
    fn what_may_be_used_by_whoever_knows_it_is_left_out(#[case] path: &str, #[case] expected: &str) {
        assert_eq!(shown(path), expected);
    }
}
