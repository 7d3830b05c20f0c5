//! What the API server and Buildkite are asked, and what they answer.

use std::time::Duration;

use axum::http::{Method, Uri};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use super::seconds;

const CALL_SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0];

/// What stands for the code of a call that was not answered.
pub(crate) const UNANSWERED: &str = "none";

/// The numbers of calls. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    kubernetes: Family<Answer, Counter>,
    kubernetes_seconds: Family<Request, Histogram, fn() -> Histogram>,
    buildkite: Family<Outcome, Counter>,
    buildkite_seconds: Family<Call, Histogram, fn() -> Histogram>,
}

/// What is asked of the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Request {
    verb: &'static str,
    resource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    verb: &'static str,
    resource: String,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    call: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    call: &'static str,
    code: String,
}

impl Request {
    /// What a request asks for, in Kubernetes' words. No names are in it.
    pub(crate) fn of(method: &Method, uri: &Uri) -> Self {
        let mut path = uri.path().split('/').filter(|part| !part.is_empty());
        let group = match path.next() {
            Some("api") => 1,
            Some("apis") => 2,
            other => {
                return Self { verb: "get", resource: other.unwrap_or_default().to_owned() };
            }
        };
        let mut rest: Vec<&str> = path.skip(group).collect();
        if rest.len() > 2 && rest[0] == "namespaces" {
            rest.drain(..2);
        }
        let is_one = rest.len() > 1;
        let watches = uri.query().is_some_and(|query| query.split('&').any(|part| part == "watch=true"));
        let verb = match *method {
            Method::GET if watches => "watch",
            Method::GET if is_one => "get",
            Method::GET => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if is_one => "delete",
            _ => "deletecollection",
        };
        // The second part is a name.
        let resource: Vec<&str> = rest.iter().take(1).chain(rest.iter().skip(2)).copied().collect();
        Self { verb, resource: resource.join("/") }
    }
}

impl Calls {
    pub(super) fn new(all: &mut Registry) -> Self {
        let call_seconds: fn() -> Histogram = || seconds(&CALL_SECONDS);
        let calls = Self {
            kubernetes: Family::default(),
            kubernetes_seconds: Family::new_with_constructor(call_seconds),
            buildkite: Family::default(),
            buildkite_seconds: Family::new_with_constructor(call_seconds),
        };
        all.register(
            "kubernetes_requests",
            "Requests to the API server, by the code of the answer",
            calls.kubernetes.clone(),
        );
        all.register(
            "kubernetes_request_seconds",
            "How long the API server took to begin its answer",
            calls.kubernetes_seconds.clone(),
        );
        all.register("buildkite_calls", "Calls to Buildkite, by what came of them", calls.buildkite.clone());
        all.register(
            "buildkite_call_seconds",
            "How long calls to Buildkite took, waits for its limits included",
            calls.buildkite_seconds.clone(),
        );
        calls
    }

    /// The API server has answered with this code, or not at all.
    pub(crate) fn kubernetes(&self, request: &Request, code: Option<u16>, took: Duration) {
        let code = code.map_or_else(|| UNANSWERED.to_owned(), |code| code.to_string());
        let Request { verb, resource } = request.clone();
        self.kubernetes.get_or_create(&Answer { verb, resource, code }).inc();
        self.kubernetes_seconds.get_or_create(request).observe(took.as_secs_f64());
    }

    /// This came of a call to Buildkite.
    pub(crate) fn buildkite(&self, call: &'static str, code: String, took: Duration) {
        self.buildkite.get_or_create(&Outcome { call, code }).inc();
        self.buildkite_seconds.get_or_create(&Call { call }).observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("GET", "/version", "get version")]
    #[case("GET", "/api/v1/namespaces/ci", "get namespaces")]
    #[case("GET", "/api/v1/namespaces/ci/pods?labelSelector=a", "list pods")]
    #[case("GET", "/api/v1/namespaces/ci/pods?allowWatchBookmarks=true&watch=true", "watch pods")]
    #[case("DELETE", "/api/v1/namespaces/ci/pods/buildkite-1", "delete pods")]
    #[case("POST", "/api/v1/namespaces/ci/configmaps?fieldManager=a", "create configmaps")]
    #[case("POST", "/apis/events.k8s.io/v1/namespaces/ci/events", "create events")]
    #[case("PUT", "/apis/coordination.k8s.io/v1/namespaces/ci/leases/a", "update leases")]
    #[case(
        "PATCH",
        "/apis/buildkite-operator.dev/v1alpha1/namespaces/ci/buildjobs/a/status?force=true",
        "patch buildjobs/status"
    )]
    fn requests_are_told_by_verb_and_resource(
        #[case] method: &str,
        #[case] uri: &str,
        #[case] expected: &str,
    ) {
        let request = Request::of(&method.parse().unwrap(), &uri.parse().unwrap());
        assert_eq!(format!("{} {}", request.verb, request.resource), expected);
    }
}
