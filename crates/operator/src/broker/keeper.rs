//! Keeps the broker's Secret whole, and hands on what is in it. All replicas share it; its version lets only one of them fill it.

use std::time::Duration;

use bk_api::names;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::PostParams};
use tokio::{sync::watch, time::Instant};

use super::identity::{self, Identity};
use crate::{
    error::Error,
    settings::{Cluster, watch_one},
};

/// How often to look at the clock. Nothing is asked of anybody.
const LOOK: Duration = Duration::from_secs(30);

/// How soon a certificate may be made again.
const PAUSE: Duration = Duration::from_secs(10);

/// Keeps the Secret of this name, for as long as the process lives.
pub(super) async fn keep(
    cluster: Cluster,
    name: String,
    host: String,
    identities: watch::Sender<Option<Identity>>,
) {
    let api = Api::<Secret>::namespaced(cluster.streams.clone(), &cluster.namespace);
    let time = stream::unfold((), async |()| {
        tokio::time::sleep(LOOK).await;
        Some((None, ()))
    });
    let versions = watch_one(api, &name).map(Some);
    let mut news = std::pin::pin!(stream::select(versions, time));
    let (mut secret, mut told) = (None, false);
    let mut renewed_at: Option<Instant> = None;
    while let Some(new) = news.next().await {
        match new {
            Some(Ok(version)) => secret = version,
            Some(Err(error)) => {
                let error = bk_ops::report::one_line(&error);
                tracing::warn!(secret = name, error, "cannot watch what the broker needs");
                continue;
            }
            None => {}
        }
        let Some(secret) = &secret else {
            if !told {
                tracing::error!(
                    namespace = cluster.namespace,
                    secret = name,
                    "agents cannot register: there is no Secret for the broker's certificate; upgrade the chart, or apply deploy/broker.yaml"
                );
            }
            told = true;
            continue;
        };
        told = false;
        match Identity::of(secret, &host, Timestamp::now()) {
            Some(identity) => serve(&identities, identity),
            // Two replicas that are told of different hosts, as while an update replaces one by the other, take turns, and do not race.
            None if renewed_at.is_some_and(|at| at.elapsed() < PAUSE) => {}
            None => {
                renewed_at = Some(Instant::now());
                if let Err(error) = renew(&cluster, secret, &host).await {
                    let error = bk_ops::report::one_line(&error);
                    tracing::warn!(secret = name, error, "the broker's certificate is not in order");
                }
            }
        }
    }
}

fn serve(identities: &watch::Sender<Option<Identity>>, identity: Identity) {
    identities.send_if_modified(|served| {
        let is_new = served.as_ref() != Some(&identity);
        *served = Some(identity);
        is_new
    });
}

/// Puts what it lacks into the Secret, unless another replica has just done so.
async fn renew(cluster: &Cluster, secret: &Secret, host: &str) -> Result<(), Error> {
    let name = secret.metadata.name.clone().unwrap_or_default();
    let renewed = identity::renewed(secret, host, Timestamp::now())
        .map_err(|error| Error::Setup(format!("{host}: {}", bk_ops::report::one_line(&error))))?;
    let api = Api::<Secret>::namespaced(cluster.calls.clone(), &cluster.namespace);
    let params = PostParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match api.replace(&name, &params, &renewed).await {
        Ok(_) => {
            tracing::info!(secret = name, host, "made a new certificate for the broker");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(Error::kubernetes(format!("put a certificate into Secret {name}"))(error)),
    }
}
