//! Keeps certificate, Secret and webhook configurations in step.
//!
//! All replicas share the Secret. Whichever finds that its certificate ends soon puts another one in; the Secret's version lets only
//! one of them. Then each sees to it that the configurations trust the new authority, and only then serves the new certificate.

use std::{path::PathBuf, time::Duration};

use bk_api::names;
use futures::{Stream, StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
        },
        core::v1::Secret,
    },
    serde::de::DeserializeOwned,
};
use kube::{
    Api, Resource,
    api::{Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;
use tokio::sync::watch;

use super::{
    WebhookArgs,
    identity::{self, Identity},
};
use crate::{
    error::Error,
    settings::{self, Cluster},
};

/// How often to look at the clock. Nothing is asked of anybody.
const LOOK: Duration = Duration::from_secs(30);

/// How often to look at files. The kubelet replaces them with a delay of its own.
const LOOK_AT_FILES: Duration = Duration::from_secs(5);

/// Keeps the certificate that is served up to date.
pub(super) struct Keeper {
    source: Source,
    identities: watch::Sender<Option<Identity>>,
}

/// Where the certificate comes from.
enum Source {
    /// Somebody else puts it into a directory, and has the configurations trust it.
    Files(PathBuf),
    /// The operator makes it.
    Own { cluster: Box<Cluster>, name: String, hosts: Vec<String> },
}

/// What was last seen.
#[derive(Clone, Debug, Default)]
struct Seen {
    secret: Option<Secret>,
    validating: Option<ValidatingWebhookConfiguration>,
    mutating: Option<MutatingWebhookConfiguration>,
}

/// News, each of one object that may be gone.
enum News {
    Secret(Option<Box<Secret>>),
    Validating(Option<Box<ValidatingWebhookConfiguration>>),
    Mutating(Option<Box<MutatingWebhookConfiguration>>),
    Time,
}

/// What to do next.
#[derive(Debug, PartialEq)]
enum Step {
    /// Put a new certificate into the Secret.
    Renew(Box<Secret>),
    /// Have these webhooks trust what the identity says.
    Inject { validating: Vec<String>, mutating: Vec<String>, identity: Identity },
    /// Serve this one.
    Serve(Identity),
    /// Wait for somebody to make the Secret.
    Miss,
}

impl Keeper {
    pub(super) fn new(
        args: &WebhookArgs,
        cluster: &Cluster,
        identities: watch::Sender<Option<Identity>>,
    ) -> Result<Self, Error> {
        let source = match &args.webhook_certs {
            Some(directory) => Source::Files(directory.clone()),
            None if args.webhook_host.is_empty() => {
                return Err(Error::Setup(
                    "--webhook-listen needs --webhook-host, the name by which the API server calls the webhooks, or \
                     --webhook-certs"
                        .to_owned(),
                ));
            }
            None => Source::Own {
                cluster: Box::new(cluster.clone()),
                name: args.webhook_name.clone(),
                hosts: args.webhook_host.clone(),
            },
        };
        Ok(Self { source, identities })
    }

    /// Works for as long as the process lives.
    pub(super) async fn run(self) {
        match &self.source {
            Source::Files(directory) => self.follow_files(directory).await,
            Source::Own { cluster, name, hosts } => self.keep(cluster, name, hosts).await,
        }
    }

    /// Looks at what the files hold: the kubelet replaces them by links.
    async fn follow_files(&self, directory: &std::path::Path) {
        loop {
            let read = async |name: &str| tokio::fs::read_to_string(directory.join(name)).await;
            match (read("tls.crt").await, read("tls.key").await) {
                (Ok(certificate), Ok(key)) => self.serve(Identity { certificate, key, trust: String::new() }),
                (Err(error), _) | (_, Err(error)) => {
                    tracing::warn!(directory = %directory.display(), %error, "cannot read the webhooks' certificate");
                }
            }
            tokio::time::sleep(LOOK_AT_FILES).await;
        }
    }

    fn serve(&self, identity: Identity) {
        self.identities.send_if_modified(|served| {
            let is_new = served.as_ref() != Some(&identity);
            *served = Some(identity);
            is_new
        });
    }

    async fn keep(&self, cluster: &Cluster, name: &str, hosts: &[String]) {
        let mut seen = Seen::default();
        let mut told = false;
        let mut news = std::pin::pin!(news(cluster, name));
        while let Some(new) = news.next().await {
            match new {
                News::Secret(secret) => seen.secret = secret.map(|secret| *secret),
                News::Validating(found) => seen.validating = found.map(|found| *found),
                News::Mutating(found) => seen.mutating = found.map(|found| *found),
                News::Time => {}
            }
            let step = next(&seen, Timestamp::now());
            let missing = step == Step::Miss;
            if missing && !told {
                tracing::error!(secret = name, "the webhooks have no certificate: there is no Secret for it");
            }
            told = missing;
            if let Err(error) = self.perform(step, cluster, name, hosts).await {
                tracing::warn!(
                    error = bk_ops::report::one_line(&error),
                    "the webhooks' certificate is not in order"
                );
            }
        }
    }

    async fn perform(
        &self,
        step: Step,
        cluster: &Cluster,
        name: &str,
        hosts: &[String],
    ) -> Result<(), Error> {
        match step {
            Step::Miss => Ok(()),
            Step::Serve(identity) => {
                self.serve(identity);
                Ok(())
            }
            Step::Renew(secret) => renew(cluster, &secret, hosts).await,
            Step::Inject { validating, mutating, identity } => {
                let trust = ByteString(identity.trust.clone().into_bytes());
                inject::<ValidatingWebhookConfiguration>(cluster, name, &validating, &trust).await?;
                inject::<MutatingWebhookConfiguration>(cluster, name, &mutating, &trust).await
            }
        }
    }
}

/// What to do next about the certificate.
fn next(seen: &Seen, now: Timestamp) -> Step {
    let Some(secret) = &seen.secret else { return Step::Miss };
    let Some(identity) = Identity::of(secret).filter(|_| !identity::is_due(secret, now)) else {
        return Step::Renew(Box::new(secret.clone()));
    };
    let distrusts = |config: &WebhookClientConfig| {
        config.ca_bundle.as_ref().is_none_or(|bundle| bundle.0 != identity.trust.as_bytes())
    };
    let validating = seen.validating.iter().flat_map(|found| found.webhooks.iter().flatten());
    let validating: Vec<String> = validating
        .filter(|webhook| distrusts(&webhook.client_config))
        .map(|webhook| webhook.name.clone())
        .collect();
    let mutating = seen.mutating.iter().flat_map(|found| found.webhooks.iter().flatten());
    let mutating: Vec<String> = mutating
        .filter(|webhook| distrusts(&webhook.client_config))
        .map(|webhook| webhook.name.clone())
        .collect();
    if validating.is_empty() && mutating.is_empty() {
        Step::Serve(identity)
    } else {
        Step::Inject { validating, mutating, identity }
    }
}

fn news<'a>(cluster: &Cluster, name: &'a str) -> impl Stream<Item = News> + use<'a> {
    let (streams, namespace) = (&cluster.streams, &cluster.namespace);
    let time = stream::unfold((), async |()| {
        tokio::time::sleep(LOOK).await;
        Some((News::Time, ()))
    });
    stream::select_all([
        told(Api::<Secret>::namespaced(streams.clone(), namespace), name, News::Secret).boxed(),
        told(Api::<ValidatingWebhookConfiguration>::all(streams.clone()), name, News::Validating).boxed(),
        told(Api::<MutatingWebhookConfiguration>::all(streams.clone()), name, News::Mutating).boxed(),
        time.boxed(),
    ])
}

/// What a watch tells of one object.
fn told<K>(api: Api<K>, name: &str, news: impl Fn(Option<Box<K>>) -> News) -> impl Stream<Item = News>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    watcher::watch_object(api, name).backoff(settings::pauses()).filter_map(move |version| {
        let version = version.inspect_err(|error| {
            let error = bk_ops::report::one_line(error);
            tracing::warn!(kind = %K::kind(&()), error, "cannot watch what the webhooks need");
        });
        std::future::ready(version.ok().map(|object| news(object.map(Box::new))))
    })
}

/// Puts a new certificate into the Secret, unless another replica has just done so.
async fn renew(cluster: &Cluster, secret: &Secret, hosts: &[String]) -> Result<(), Error> {
    let name = secret.metadata.name.clone().unwrap_or_default();
    let (identity, until) =
        Identity::make(hosts, Timestamp::now(), Identity::of(secret).as_ref()).map_err(|error| {
            Error::Setup(format!("cannot make a certificate for {}: {error}", hosts.join(", ")))
        })?;
    let api = Api::<Secret>::namespaced(cluster.calls.clone(), &cluster.namespace);
    let params = PostParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match api.replace(&name, &params, &identity.put_into(secret, until)).await {
        Ok(_) => {
            tracing::info!(secret = name, %until, "made a new certificate for the webhooks");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(Error::kubernetes(format!("put a certificate into Secret {name}"))(error)),
    }
}

async fn inject<K>(
    cluster: &Cluster,
    name: &str,
    webhooks: &[String],
    trust: &ByteString,
) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    if webhooks.is_empty() {
        return Ok(());
    }
    let api = Api::<K>::all(cluster.calls.clone());
    let webhooks: Vec<_> = webhooks
        .iter()
        .map(|webhook| json!({"name": webhook, "clientConfig": {"caBundle": trust}}))
        .collect();
    // Webhooks are told apart by their names, and keep what is not named here.
    let patch = Patch::Strategic(json!({ "webhooks": webhooks }));
    let params =
        PatchParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let attempt = format!("have {} {name} trust the webhooks", K::kind(&()));
    api.patch(name, &params, &patch).await.map(drop).map_err(Error::kubernetes(attempt))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::admissionregistration::v1::ValidatingWebhook;

    use super::*;

    fn configuration(bundle: Option<&str>) -> ValidatingWebhookConfiguration {
        let client_config = WebhookClientConfig {
            ca_bundle: bundle.map(|text| ByteString(text.as_bytes().to_vec())),
            ..WebhookClientConfig::default()
        };
        let webhook =
            ValidatingWebhook { name: "jobs".to_owned(), client_config, ..ValidatingWebhook::default() };
        ValidatingWebhookConfiguration { webhooks: Some(vec![webhook]), ..Default::default() }
    }

    #[test]
    fn a_certificate_is_served_once_it_is_trusted() {
        let now = Timestamp::UNIX_EPOCH;
        let mut seen = Seen::default();
        assert_eq!(next(&seen, now), Step::Miss);
        seen.secret = Some(Secret::default());
        assert_eq!(next(&seen, now), Step::Renew(Box::default()));
        let (identity, until) = Identity::make(&["a.b.svc".to_owned()], now, None).unwrap();
        let secret = identity.put_into(&Secret::default(), until);
        seen.secret = Some(secret.clone());
        for untrusting in [None, Some("another")] {
            seen.validating = Some(configuration(untrusting));
            let step = Step::Inject {
                validating: vec!["jobs".to_owned()],
                mutating: Vec::new(),
                identity: identity.clone(),
            };
            assert_eq!(next(&seen, now), step);
        }
        seen.validating = Some(configuration(Some(&identity.trust)));
        assert_eq!(next(&seen, now), Step::Serve(identity));
        assert_eq!(next(&seen, until), Step::Renew(Box::new(secret)), "by the clock");
    }
}
