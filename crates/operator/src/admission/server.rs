//! Questions and answers.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, State},
    http::StatusCode,
    routing::post,
};
use bk_api::{BuildEnvironment, BuildJob, names};
use bk_plan::{
    admission::{self, Certainty, Finding, defaults, references},
    surroundings::Surroundings,
};
use kube::core::{
    DynamicObject,
    admission::{AdmissionRequest, AdmissionResponse, AdmissionReview},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Terms, facts::Facts};
use crate::error::Error;

/// The most that a question may be: an object, and what it was before.
const MAX_QUESTION: usize = 8 << 20;

/// How long looking may take. Whoever applies an object waits, and the API server itself waits a little longer.
const PATIENCE: Duration = Duration::from_secs(4);

/// Where BuildJobs are validated.
pub(super) const VALIDATE_JOB: &str = "/build-jobs/validate";
/// Where BuildEnvironments are validated.
pub(super) const VALIDATE_ENVIRONMENT: &str = "/build-environments/validate";
/// Where BuildEnvironments get their defaults.
pub(super) const MUTATE_ENVIRONMENT: &str = "/build-environments/mutate";

/// What every answer depends on.
#[derive(Clone)]
struct Desk {
    facts: Facts,
    terms: watch::Receiver<Option<Arc<Terms>>>,
}

type Question = AdmissionRequest<DynamicObject>;
type Answer = Result<Json<AdmissionReview<DynamicObject>>, (StatusCode, String)>;

pub(super) fn routes(facts: Facts, terms: watch::Receiver<Option<Arc<Terms>>>) -> Router {
    Router::new()
        .route(VALIDATE_JOB, post(validate_job))
        .route(VALIDATE_ENVIRONMENT, post(validate_environment))
        .route(MUTATE_ENVIRONMENT, post(mutate_environment))
        .layer(DefaultBodyLimit::max(MAX_QUESTION))
        .with_state(Desk { facts, terms })
}

async fn validate_job(
    State(desk): State<Desk>,
    Json(review): Json<AdmissionReview<DynamicObject>>,
) -> Answer {
    let (question, terms) = open(&desk, review)?;
    let looking = async || {
        let job: BuildJob = object(&question)?;
        let namespace = &terms.namespace;
        let surroundings = desk.facts.surroundings(&job, Surroundings::default(), namespace).await?;
        let pod = admission::pod_of(&job, &surroundings, &terms.demands);
        let wanted = pod.as_ref().map(|pod| references::of(pod, &terms.demands.pod)).unwrap_or_default();
        let known = desk.facts.look(&wanted, namespace).await;
        let pod = pod.as_ref().map_err(Clone::clone);
        Ok(admission::build_job(&job, pod, &surroundings, &known, &terms.demands))
    };
    answer(&question, &terms, looking).await
}

async fn validate_environment(
    State(desk): State<Desk>,
    Json(review): Json<AdmissionReview<DynamicObject>>,
) -> Answer {
    let (question, terms) = open(&desk, review)?;
    let looking = async || {
        let environment: BuildEnvironment = object(&question)?;
        let [trial, _] = admission::trials(&environment);
        let own = admission::surroundings_of(&question.name, environment.spec.clone());
        let surroundings = desk.facts.surroundings(&trial, own, &terms.namespace).await?;
        let pod = admission::pod_with(&environment, &surroundings, &terms.demands);
        let wanted = pod.as_ref().map(|pod| references::of(pod, &terms.demands.pod)).unwrap_or_default();
        let known = desk.facts.look(&wanted, &terms.namespace).await;
        let pod = pod.as_ref().map_err(Clone::clone);
        Ok(admission::build_environment(&environment, pod, &surroundings, &known, &terms.demands))
    };
    answer(&question, &terms, looking).await
}

async fn mutate_environment(
    State(desk): State<Desk>,
    Json(review): Json<AdmissionReview<DynamicObject>>,
) -> Answer {
    let (question, terms) = open(&desk, review)?;
    let mut response = AdmissionResponse::from(&question);
    let environment: BuildEnvironment = match object(&question) {
        Ok(environment) => environment,
        // Whoever validates it says why.
        Err(_) => return Ok(Json(response.into_review())),
    };
    let defaults = &terms.demands.validation.environment_defaults;
    if question.namespace.as_deref() == Some(&terms.namespace)
        && let Some(changes) = defaults::changes(&environment, defaults)
    {
        let patch = serde_json::from_value(patch(&environment, changes)).map_err(|error| broken(&error))?;
        response = response.with_patch(patch).map_err(|error| broken(&error))?;
    }
    Ok(Json(response.into_review()))
}

/// What makes of an environment one with its defaults.
fn patch(environment: &BuildEnvironment, (changes, record): (defaults::Changes, String)) -> Value {
    let mut annotations = environment.metadata.annotations.clone().unwrap_or_default();
    annotations.insert(names::ANNOTATION_DEFAULTED.to_owned(), record);
    if annotations[names::ANNOTATION_DEFAULTED].is_empty() {
        annotations.remove(names::ANNOTATION_DEFAULTED);
    }
    let mut steps: Vec<Value> = changes
        .into_iter()
        .map(|(field, value)| json!({"op": "add", "path": format!("/spec/{field}"), "value": value}))
        .collect();
    steps.push(json!({"op": "add", "path": "/metadata/annotations", "value": annotations}));
    Value::Array(steps)
}

/// The question, and what its answer depends on. While that is not known, the API server does as its configuration says.
fn open(
    desk: &Desk,
    review: AdmissionReview<DynamicObject>,
) -> Result<(Question, Arc<Terms>), (StatusCode, String)> {
    let question = review.try_into().map_err(|error| broken(&error))?;
    let terms = desk.terms.borrow().clone();
    let terms = terms.ok_or_else(|| {
        (StatusCode::SERVICE_UNAVAILABLE, "the operator has not read its configuration yet".to_owned())
    })?;
    Ok((question, terms))
}

fn broken(error: &dyn std::error::Error) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, error.to_string())
}

fn object<T: DeserializeOwned>(question: &Question) -> Result<T, Error> {
    let object = serde_json::to_value(&question.object).unwrap_or_default();
    serde_path_to_error::deserialize(object).map_err(|error| Error::Setup(error.to_string()))
}

/// Looks, and tells. What cannot be learnt keeps nobody from going on, and is said.
async fn answer(
    question: &Question,
    terms: &Terms,
    looking: impl AsyncFnOnce() -> Result<Vec<Finding>, Error>,
) -> Answer {
    let response = AdmissionResponse::from(question);
    if question.namespace.as_deref() != Some(&terms.namespace) {
        return Ok(Json(response.into_review()));
    }
    let unchecked = |why: String| {
        tracing::warn!(name = question.name, why, "cannot check an object");
        vec![Finding {
            path: "spec".to_owned(),
            problem: format!("the operator could not check it: {why}"),
            certainty: Certainty::Warning,
        }]
    };
    let findings = match tokio::time::timeout(PATIENCE, looking()).await {
        Ok(Ok(findings)) => findings,
        Ok(Err(error)) => unchecked(bk_ops::report::one_line(&error)),
        Err(_) => unchecked(format!("it took longer than {} s", PATIENCE.as_secs())),
    };
    Ok(Json(verdict(response, &findings).into_review()))
}

fn verdict(mut response: AdmissionResponse, findings: &[Finding]) -> AdmissionResponse {
    let of = |certainty| {
        let these = findings.iter().filter(move |finding| finding.certainty == certainty);
        these.map(ToString::to_string).collect::<Vec<_>>()
    };
    let warnings = of(Certainty::Warning);
    response.warnings = (!warnings.is_empty()).then_some(warnings);
    let refusals = of(Certainty::Refusal);
    if refusals.is_empty() { response } else { response.deny(refusals.join("; ")) }
}

#[cfg(test)]
mod tests {
    use bk_api::config::Config;
    use bk_plan::{admission::Demands, pod::PodSettings};

    use super::*;
    use crate::api_server::{ApiServer, refusal};

    /// A cluster that has the service account `builder`, and does not show Secrets.
    async fn desk(terms: Option<&str>) -> (ApiServer, Desk) {
        let server = ApiServer::start(|call, _| match &call.path {
            path if path.ends_with("/serviceaccounts/builder") => {
                (200, json!({"metadata": {"name": "builder"}}))
            }
            path if path.contains("/secrets/") => refusal(403, "Forbidden"),
            path if path.ends_with("/configmaps/broken") => refusal(500, "InternalError"),
            _ => refusal(404, "NotFound"),
        })
        .await;
        let terms = terms.map(|validation| {
            let data = [("validation_config".to_owned(), validation.to_owned())].into();
            let config = Config::from_data(&data).unwrap();
            let pod = PodSettings::of(&config, "http://buildkite", "shim".to_owned());
            Arc::new(Terms {
                namespace: "ci".to_owned(),
                demands: Demands { pod, validation: config.validation },
            })
        });
        let (_, terms) = watch::channel(terms);
        let facts = Facts::new(&server.cluster);
        (server, Desk { facts, terms })
    }

    fn question(kind: &str, namespace: &str, spec: &Value) -> AdmissionReview<DynamicObject> {
        let group = json!({"group": "buildkite-operator.dev", "version": "v1alpha1", "kind": kind});
        let resource = json!({"group": "buildkite-operator.dev", "version": "v1alpha1", "resource": "x"});
        serde_json::from_value(json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "1", "kind": group, "resource": resource, "name": "mine", "namespace": namespace,
                "operation": "CREATE", "userInfo": {}, "dryRun": true,
                "object": {
                    "apiVersion": "buildkite-operator.dev/v1alpha1", "kind": kind,
                    "metadata": {"name": "mine", "namespace": namespace}, "spec": spec,
                },
            },
        }))
        .unwrap()
    }

    fn said(answer: Answer) -> (bool, String, Vec<String>, Value) {
        let response = answer.unwrap().0.response.unwrap();
        let patch = response.patch.map(|patch| serde_json::from_slice(&patch).unwrap()).unwrap_or_default();
        (response.allowed, response.result.message, response.warnings.unwrap_or_default(), patch)
    }

    fn referring() -> Value {
        json!({"command": "make", "kubernetes": {"podSpec": {
            "serviceAccountName": "deployer",
            "containers": [{"image": "a", "envFrom": [{"secretRef": {"name": "hidden"}}, {"configMapRef": {"name": "broken"}}]}],
        }}})
    }

    #[tokio::test]
    async fn what_is_missing_is_refused_and_what_cannot_be_seen_is_a_warning() {
        let (_server, desk) = desk(Some("")).await;
        let answer = validate_job(State(desk.clone()), Json(question("BuildJob", "ci", &referring()))).await;
        let (allowed, message, warnings, _) = said(answer);
        assert!(!allowed);
        assert_eq!(message, "pod.spec.serviceAccountName: there is no ServiceAccount \"deployer\"");
        let tells = |part: &str| warnings.iter().any(|warning| warning.contains(part));
        assert!(tells(
            "envFrom[0]: cannot tell whether there is a Secret \"hidden\": the operator may not look"
        ));
        assert!(tells("envFrom[1]: cannot tell whether there is a ConfigMap \"broken\": "), "{warnings:?}");

        let elsewhere = question("BuildJob", "other", &referring());
        let (allowed, _, warnings, _) = said(validate_job(State(desk), Json(elsewhere)).await);
        assert!(allowed && warnings.is_empty(), "it is not ours to judge");
    }

    #[tokio::test]
    async fn nothing_is_answered_before_the_configuration_is_known() {
        let (_server, desk) = desk(None).await;
        let answer = validate_job(State(desk), Json(question("BuildJob", "ci", &referring()))).await;
        assert_eq!(answer.unwrap_err().0, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test]
    async fn environments_get_a_patch() {
        let defaults = "environmentDefaults: {serviceAccountName: builder, env: [{name: A, value: b}]}";
        let (_server, desk) = desk(Some(defaults)).await;
        let spec = json!({"image": "a", "env": [{"name": "B", "value": "c"}]});
        let (allowed, _, _, patch) = said(
            mutate_environment(State(desk.clone()), Json(question("BuildEnvironment", "ci", &spec))).await,
        );
        assert!(allowed);
        assert_eq!(
            patch,
            json!([
                {"op": "add", "path": "/spec/env", "value": [{"name": "B", "value": "c"}, {"name": "A", "value": "b"}]},
                {"op": "add", "path": "/spec/serviceAccountName", "value": "builder"},
                {"op": "add", "path": "/metadata/annotations",
                    "value": {"buildkite-operator.dev/defaulted": "spec.serviceAccountName, spec.env[A]"}},
            ])
        );
        let complete =
            json!({"image": "a", "serviceAccountName": "builder", "env": [{"name": "A", "value": "x"}]});
        let asked = question("BuildEnvironment", "ci", &complete);
        let (.., patch) = said(mutate_environment(State(desk.clone()), Json(asked)).await);
        assert_eq!(patch, Value::Null, "it lacks nothing");

        let asked = question("BuildEnvironment", "ci", &json!({"image": "NO"}));
        let (allowed, message, ..) = said(validate_environment(State(desk), Json(asked)).await);
        assert!(!allowed && message.contains("is not the name of an image"), "{message}");
    }
}
