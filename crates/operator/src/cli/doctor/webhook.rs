//! The admission webhooks: whether the API server asks, and would believe who answers.

use std::{sync::Arc, time::Duration};

use bk_api::names;
use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
        },
        apps::v1::Deployment,
        core::v1::Secret,
    },
};
use kube::{Api, Client};
use rustls::{
    CertificateError, RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};

use super::{UNREADABLE, finding::Finding};
use crate::cli::{
    connection::failed,
    installation::{Installation, flag},
};

const CHECK: &str = "webhook";

/// A certificate with less than this left should have been replaced long ago.
const MARGIN: Duration = Duration::from_hours(24 * 7);

/// What a Deployment says of its webhooks.
pub(super) struct Webhook {
    /// What the configurations, and the Secret with the certificate, are called.
    pub(super) name: String,
    /// Whether the operator makes the certificate.
    pub(super) is_own: bool,
}

impl Webhook {
    /// The webhooks of a Deployment, if they are switched on.
    pub(super) fn of(deployment: &Deployment) -> Option<Self> {
        flag(deployment, "--webhook-listen")?;
        let name = flag(deployment, "--webhook-name");
        Some(Self {
            name: name.unwrap_or_else(|| "buildkite-operator-webhook".to_owned()),
            is_own: flag(deployment, "--webhook-certs").is_none(),
        })
    }
}

/// What was read of the webhooks. What may not be read is told by its error.
struct Seen {
    secret: Result<Option<Secret>, String>,
    validating: Result<Option<ValidatingWebhookConfiguration>, String>,
    mutating: Result<Option<MutatingWebhookConfiguration>, String>,
}

/// Looks at the webhooks of an installation, if they are switched on.
pub(super) async fn examine(client: &Client, installation: &Installation) -> Vec<Finding> {
    let Some(webhook) = installation.deployment().and_then(Webhook::of) else { return Vec::new() };
    let (namespace, name) = (&installation.namespace, &webhook.name);
    let secret = Api::<Secret>::namespaced(client.clone(), namespace).get_opt(name).await;
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone()).get_opt(name).await;
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone()).get_opt(name).await;
    let attempt = |what: &str| failed(format!("read {what} {name}"));
    let seen = Seen {
        secret: secret.map_err(|error| attempt("Secret")(error).to_string()),
        validating: validating.map_err(|error| attempt("ValidatingWebhookConfiguration")(error).to_string()),
        mutating: mutating.map_err(|error| attempt("MutatingWebhookConfiguration")(error).to_string()),
    };
    findings(&webhook, &seen, Timestamp::now())
}

fn findings(webhook: &Webhook, seen: &Seen, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut asked = Vec::new();
    let validating = seen.validating.as_ref().map(|found| {
        let webhooks = found.as_ref()?.webhooks.iter().flatten();
        Some(webhooks.map(|one| (one.name.clone(), one.client_config.clone())).collect::<Vec<_>>())
    });
    let mutating = seen.mutating.as_ref().map(|found| {
        let webhooks = found.as_ref()?.webhooks.iter().flatten();
        Some(webhooks.map(|one| (one.name.clone(), one.client_config.clone())).collect::<Vec<_>>())
    });
    for (kind, found) in [("Validating", validating), ("Mutating", mutating)] {
        match found {
            Ok(Some(found)) => asked.extend(found),
            Ok(None) => findings.push(Finding::fail(
                CHECK,
                format!("there is no {kind}WebhookConfiguration {}: nobody is asked", webhook.name),
                "upgrade the chart",
            )),
            Err(problem) => findings.push(Finding::warn(CHECK, problem, UNREADABLE)),
        }
    }
    let secret = match &seen.secret {
        Ok(secret) => secret.as_ref(),
        Err(problem) => {
            findings.push(Finding::warn(CHECK, problem, UNREADABLE));
            return findings;
        }
    };
    let Some(certificate) = secret.and_then(|secret| secret.data.as_ref()?.get("tls.crt")) else {
        let problem = format!("there is no certificate in Secret {}: nobody can answer", webhook.name);
        findings.push(Finding::fail(CHECK, problem, cure(webhook)));
        return findings;
    };
    let distrusted = asked.iter().filter_map(|(name, config)| {
        let finding = trust(config, certificate, now, webhook)?;
        Some(Finding { message: format!("{name}: {}", finding.message), ..finding })
    });
    findings.extend(distrusted);
    if findings.is_empty() {
        let until =
            secret.and_then(|secret| secret.metadata.annotations.as_ref()?.get(names::ANNOTATION_NOT_AFTER));
        let until = until.map(|until| format!(", good until {until}")).unwrap_or_default();
        let message = format!("{} trust the certificate in Secret {}{until}", asked.len(), webhook.name);
        findings.push(Finding::ok(CHECK, message));
    }
    findings
}

fn cure(webhook: &Webhook) -> &'static str {
    if webhook.is_own {
        "see the operator's log: it makes the certificate, and has the configurations trust it"
    } else {
        "see what `kubectl describe certificate` says, and cert-manager's log"
    }
}

/// What keeps the API server from believing a webhook, now or soon.
fn trust(
    config: &WebhookClientConfig,
    certificate: &ByteString,
    now: Timestamp,
    webhook: &Webhook,
) -> Option<Finding> {
    let Some(bundle) = &config.ca_bundle else {
        return Some(Finding::fail(
            CHECK,
            "it has no caBundle, so the API server trusts nobody",
            cure(webhook),
        ));
    };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().unsigned_abs()));
    let soon = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs()) + MARGIN);
    match (verify(config, bundle, certificate, now), verify(config, bundle, certificate, soon)) {
        (Ok(()), Ok(())) => None,
        (Ok(()), Err(_)) => {
            let days = MARGIN.as_secs() / 86_400;
            Some(Finding::warn(CHECK, format!("its certificate ends within {days} days"), cure(webhook)))
        }
        (Err(problem), _) => Some(Finding::fail(CHECK, problem, cure(webhook))),
    }
}

/// Does what the API server does with a certificate that it is shown.
fn verify(
    config: &WebhookClientConfig,
    bundle: &ByteString,
    certificate: &ByteString,
    at: UnixTime,
) -> Result<(), String> {
    let pem = |text: &ByteString, what: &str| {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text.0).collect();
        certificates.map_err(|error| format!("{what} is not PEM: {error}"))
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(pem(bundle, "its caBundle")?);
    let verifier = WebPkiServerVerifier::builder(Arc::new(roots))
        .build()
        .map_err(|_| "there is no certificate in its caBundle".to_owned())?;
    let chain = pem(certificate, "the certificate")?;
    let Some((own, others)) = chain.split_first() else {
        return Err("the certificate is empty".to_owned());
    };
    let host = host(config).ok_or("it names no service")?;
    let name = ServerName::try_from(host.clone()).map_err(|_| format!("{host} is not a host"))?;
    match verifier.verify_server_cert(own, others, &name, &[], at) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InvalidCertificate(problem)) => Err(match problem {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired".to_owned()
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its caBundle is not of the certificate that is served".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("its certificate is not for {host}")
            }
            other => format!("its certificate is no good: {other}"),
        }),
        Err(error) => Err(format!("its certificate is no good: {error}")),
    }
}

/// By which name the API server calls.
fn host(config: &WebhookClientConfig) -> Option<String> {
    if let Some(service) = &config.service {
        return Some(format!("{}.{}.svc", service.name, service.namespace));
    }
    let uri: axum::http::Uri = config.url.as_ref()?.parse().ok()?;
    Some(uri.host()?.trim_matches(['[', ']']).to_owned())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use serde_json::json;

    use super::*;
    use crate::cli::doctor::finding::Grade;

    const NAME: &str = "ci-buildkite-operator";
    const NOW: &str = "2026-11-18T10:00:00Z";

    /// A certificate that is its own authority, as PEM.
    fn certificate(host: &str, days: u8) -> String {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2026, 11, 1), date_time_ymd(2026, 11, days));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn secret(certificate: &str) -> Secret {
        let data = [("tls.crt".to_owned(), ByteString(certificate.as_bytes().to_vec()))];
        Secret { data: Some(data.into()), ..Secret::default() }
    }

    /// Configurations of one webhook each, which trust this.
    fn seen(secret: Option<Secret>, bundle: Option<&str>) -> Seen {
        let bundle = bundle.map(|text| ByteString(text.as_bytes().to_vec()));
        let service = json!({"name": "hooks", "namespace": "ci"});
        let webhooks = json!({"webhooks": [{"name": "jobs", "clientConfig": {"service": service, "caBundle": bundle},
            "sideEffects": "None", "admissionReviewVersions": ["v1"]}]});
        Seen {
            secret: Ok(secret),
            validating: Ok(Some(serde_json::from_value(webhooks.clone()).unwrap())),
            mutating: Ok(Some(serde_json::from_value(webhooks).unwrap())),
        }
    }

    /// What is found, in short.
    fn told(seen: &Seen) -> Vec<(Grade, String)> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let webhook = Webhook { name: NAME.to_owned(), is_own: true };
        let found = findings(&webhook, seen, NOW.parse().unwrap());
        found.into_iter().map(|finding| (finding.grade, finding.message)).collect()
    }

    #[test]
    fn a_webhook_that_is_asked_and_believed() {
        let good = certificate("hooks.ci.svc", 29);
        assert_eq!(
            told(&seen(Some(secret(&good)), Some(&good))),
            [(Grade::Ok, format!("2 trust the certificate in Secret {NAME}"))]
        );
    }

    #[test]
    fn what_the_api_server_would_not_believe() {
        let good = certificate("hooks.ci.svc", 29);
        let (other, ended) = (certificate("hooks.ci.svc", 29), certificate("hooks.ci.svc", 10));
        let (ending, elsewhere) = (certificate("hooks.ci.svc", 20), certificate("hooks.other.svc", 29));
        let cases = [
            (&good, Some(&other), Grade::Fail, "jobs: its caBundle is not of the certificate that is served"),
            (&ended, Some(&ended), Grade::Fail, "jobs: its certificate has expired"),
            (&ending, Some(&ending), Grade::Warn, "jobs: its certificate ends within 7 days"),
            (&elsewhere, Some(&elsewhere), Grade::Fail, "jobs: its certificate is not for hooks.ci.svc"),
            (&good, None, Grade::Fail, "jobs: it has no caBundle, so the API server trusts nobody"),
        ];
        for (served, trusted, grade, message) in cases {
            let found = told(&seen(Some(secret(served)), trusted.map(String::as_str)));
            assert_eq!(found, vec![(grade, message.to_owned()); 2]);
        }
    }

    #[test]
    fn what_is_missing_or_may_not_be_read() {
        let good = certificate("hooks.ci.svc", 29);
        let mut partly = seen(None, Some(&good));
        partly.validating = Ok(None);
        partly.mutating = Err("forbidden".to_owned());
        let expected = [
            (Grade::Fail, format!("there is no ValidatingWebhookConfiguration {NAME}: nobody is asked")),
            (Grade::Warn, "forbidden".to_owned()),
            (Grade::Fail, format!("there is no certificate in Secret {NAME}: nobody can answer")),
        ];
        assert_eq!(told(&partly), expected);
    }

    #[test]
    fn a_deployment_says_whether_it_has_webhooks() {
        let of = |args: &[&str]| {
            let containers = json!([{"name": "operator", "args": args}]);
            let deployment =
                json!({"spec": {"selector": {}, "template": {"spec": {"containers": containers}}}});
            let webhook = Webhook::of(&serde_json::from_value(deployment).unwrap())?;
            Some((webhook.name, webhook.is_own))
        };
        assert_eq!(of(&["run", "--listen=[::]:8080"]), None);
        let own = of(&["run", "--webhook-listen=[::]:8443", "--webhook-name", "mine"]);
        assert_eq!(own, Some(("mine".to_owned(), true)));
        let given = of(&["--webhook-listen=[::]:8443", "--webhook-certs=/certs"]);
        assert_eq!(given, Some(("buildkite-operator-webhook".to_owned(), false)));
    }
}
