//! What the broker proves itself with, what pods trust, and where sessions are kept.

use bk_api::names;
use bk_plan::pod::AUTHORITY_FILE;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

use super::{CHECK, Facts};
use crate::{
    broker::identity::{AUTHORITY_CERTIFICATE, CERTIFICATE, HOST, text},
    cli::doctor::{UNREADABLE, checks::REINSTALL, finding::Finding},
};

/// Who fills the Secret.
const FILLED: &str = "see the operator's log: it fills the Secret";

/// Whether the Secrets are there and what is in the first is good, and whether pods trust that.
pub(super) fn findings(facts: &Facts<'_>, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::from_iter(sessions(facts));
    let mut whole = None;
    match &facts.seen.secret {
        Err(problem) => findings.push(Finding::warn(CHECK, problem, UNREADABLE)),
        Ok(secret) => match of_secret(facts, secret.as_ref(), now) {
            Some(problem) => findings.push(problem),
            None => whole = secret.as_ref(),
        },
    }
    if facts.address.has_tls {
        findings.extend(trust(facts, whole));
    }
    findings
}

fn sessions(facts: &Facts<'_>) -> Option<Finding> {
    match &facts.seen.sessionless {
        Err(problem) => Some(Finding::warn(CHECK, problem, UNREADABLE)),
        Ok(missing) if missing.is_empty() => None,
        Ok(missing) => {
            let (namespace, missing) = (&facts.installation.namespace, missing.join(", "));
            let problem = format!(
                "namespace {namespace} lacks the Secrets for sessions {missing}, so agents cannot register"
            );
            Some(Finding::fail(CHECK, problem, REINSTALL))
        }
    }
}

/// What is wrong with the Secret that has the certificate.
fn of_secret(facts: &Facts<'_>, secret: Option<&Secret>, now: Timestamp) -> Option<Finding> {
    let (namespace, name, host) = (&facts.installation.namespace, &facts.broker.name, &facts.address.host);
    let Some(secret) = secret else {
        let problem =
            format!("certificate: there is no Secret {namespace}/{name}, so agents cannot register");
        return Some(Finding::fail(CHECK, problem, REINSTALL));
    };
    if text(secret, CERTIFICATE).is_none() {
        let problem =
            format!("certificate: there is none in Secret {namespace}/{name} yet, so nobody answers agents");
        return Some(Finding::fail(CHECK, problem, FILLED));
    }
    let made_for = text(secret, HOST).unwrap_or_default();
    if made_for != *host {
        let problem = format!(
            "certificate: that in Secret {namespace}/{name} is for {made_for:?}, and job pods expect {host}"
        );
        return Some(Finding::fail(CHECK, problem, FILLED));
    }
    let until = secret.metadata.annotations.as_ref().and_then(|all| all.get(names::ANNOTATION_NOT_AFTER));
    match until.map(|until| until.parse::<Timestamp>()) {
        Some(Ok(until)) if until > now => None,
        Some(Ok(until)) => {
            let problem = format!("certificate: that in Secret {namespace}/{name} has ended, {until}");
            Some(Finding::fail(CHECK, problem, FILLED))
        }
        _ => {
            let problem =
                format!("certificate: Secret {namespace}/{name} does not say until when it is good");
            Some(Finding::warn(CHECK, problem, FILLED))
        }
    }
}

/// Whether pods trust the authority of the certificate. Nothing is compared with a Secret that is not whole, or not read.
fn trust(facts: &Facts<'_>, secret: Option<&Secret>) -> Option<Finding> {
    let (namespace, name) = (facts.installation.job_namespace(), &facts.broker.name);
    let trusted = match &facts.seen.trusted {
        Ok(Some(trusted)) => trusted,
        Ok(None) => {
            let problem =
                format!("certificate: there is no ConfigMap {namespace}/{name}, so no job pod can start");
            return Some(Finding::fail(
                CHECK,
                problem,
                "the operator makes it, and puts it back: see its log",
            ));
        }
        Err(problem) => return Some(Finding::warn(CHECK, problem, UNREADABLE)),
    };
    let trusted = trusted.data.as_ref().and_then(|data| data.get(AUTHORITY_FILE)).map(String::as_str);
    let is_it = text(secret?, AUTHORITY_CERTIFICATE) == trusted.filter(|text| !text.is_empty());
    let problem = format!(
        "certificate: ConfigMap {namespace}/{name} does not have the authority of the operator's, so agents do not trust it"
    );
    let cure = "the operator puts it right within seconds: see its log if it does not";
    (!is_it).then(|| Finding::fail(CHECK, problem, cure))
}
