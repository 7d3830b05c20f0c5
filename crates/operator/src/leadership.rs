//! One of several operators works; the others stand by for it. A Lease in the operator's own namespace says which.
//!
//! `bk_plan::election` decides; this asks and writes. What the one that works writes to the API server goes through [`fence`], and what
//! it tells Buildkite by [`Intakes::fenced`](crate::intake::Intakes::fenced): nothing passes once the Lease may be somebody else's.

mod fence;
mod lease;

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bk_plan::election::{Election, Move, Terms};
use futures::StreamExt;
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api,
    runtime::{WatchStreamExt, watcher},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    settings::{self, Cluster},
    telemetry::{Health, Metrics},
};

/// Another replica takes over 8 s after the last renewal that it has seen; the one that works stops a second before that. It has seven
/// attempts until then, as a machine that is busy may hold each of them up.
const TERMS: Terms =
    Terms { lease: Duration::from_secs(8), renew: Duration::from_secs(1), give_up: Duration::from_secs(7) };

/// How soon to ask again when the API server does not answer.
const RETRY: Duration = Duration::from_millis(500);

/// How long giving the Lease back may take.
const GOODBYE: Duration = Duration::from_secs(5);

/// Until when this process may write. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tenure(Arc<Mutex<Option<Instant>>>);

impl Tenure {
    /// Whether it may write now.
    pub fn holds(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| Instant::now() < until)
    }

    pub(crate) fn set(&self, until: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

/// Stands by for the Lease of this name until nobody else works. It goes with the operator's Deployment.
pub async fn win(
    cluster: &Cluster,
    lease: String,
    owner: Option<OwnerReference>,
    (health, metrics): (&Health, &Metrics),
) -> Leader {
    Candidate::new(cluster, lease, owner).win(health, metrics).await
}

/// One that stands by.
struct Candidate {
    api: Api<Lease>,
    streams: Api<Lease>,
    name: String,
    me: String,
    owner: Option<OwnerReference>,
    election: Election,
}

impl Candidate {
    fn new(cluster: &Cluster, name: String, owner: Option<OwnerReference>) -> Self {
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "operator".to_owned());
        // A process that comes after this one in the same pod is another.
        let me = format!("{host}_{}", uuid::Uuid::new_v4());
        Self {
            api: Api::namespaced(cluster.calls.clone(), &cluster.namespace),
            streams: Api::namespaced(cluster.streams.clone(), &cluster.namespace),
            election: Election::new(me.clone(), TERMS),
            name,
            me,
            owner,
        }
    }

    /// Stands by until nobody else works.
    async fn win(mut self, health: &Health, metrics: &Metrics) -> Leader {
        metrics.leads(false);
        let config = settings::watch().fields(&format!("metadata.name={}", self.name));
        let mut changes = pin!(watcher(self.streams.clone(), config).backoff(settings::pauses()));
        let mut told = None;
        while self.election.holds_until().is_none() {
            match self.election.next(Instant::now()) {
                Move::Wait(until) => {
                    let holder = self.election.holder().map(ToOwned::to_owned);
                    if told != holder {
                        tracing::info!(lease = self.name, holder, "stands by");
                        told = holder;
                    }
                    let change = tokio::time::timeout_at(until.into(), changes.next()).await;
                    if let Ok(Some(change)) = change
                        && lease::see(&mut self.election, change)
                    {
                        health.stand_by(Some(Instant::now()));
                    }
                }
                Move::Claim(before) => {
                    if !self.write(before.as_ref(), true).await {
                        tokio::time::sleep(RETRY).await;
                    }
                }
                // Only a holder renews or steps down.
                Move::Look | Move::Renew(_) | Move::StepDown => {
                    if self.look().await {
                        health.stand_by(Some(Instant::now()));
                    } else {
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        }
        tracing::info!(lease = self.name, identity = self.me, "works from now on");
        health.stand_by(None);
        metrics.leads(true);
        Leader::keep(self)
    }
}

/// The one that works.
pub struct Leader {
    tenure: Tenure,
    retire: CancellationToken,
    keeping: JoinHandle<()>,
}

impl Leader {
    /// Renews the Lease from now on, in a task of its own. If that fails, the process ends: whatever it would still do, it
    /// would do beside another.
    fn keep(mut candidate: Candidate) -> Self {
        let tenure = Tenure::default();
        tenure.set(candidate.election.holds_until());
        let retire = CancellationToken::new();
        let (retiring, held) = (retire.clone(), tenure.clone());
        let keeping = tokio::spawn(async move {
            if retiring.run_until_cancelled(candidate.renew(&held)).await.is_none() {
                return candidate.release(&held).await;
            }
            held.set(None);
            tracing::error!(
                lease = candidate.name,
                "the Lease is lost, and another replica may work: stopping at once"
            );
            #[allow(clippy::exit, reason = "nothing that this process does counts any more")]
            std::process::exit(1);
        });
        Self { tenure, retire, keeping }
    }

    /// The same way to the cluster, on which nothing is written any more once the Lease may be somebody else's.
    pub fn fence(&self, cluster: &Cluster) -> Cluster {
        Cluster { calls: fence::fenced(cluster, self.tenure.clone()), ..cluster.clone() }
    }

    /// Until when this process may write.
    pub fn tenure(&self) -> Tenure {
        self.tenure.clone()
    }

    /// Gives the Lease back, so that another takes over at once. All work has to be over.
    pub async fn retire(self) {
        self.retire.cancel();
        // It has logged what went wrong.
        drop(self.keeping.await);
    }
}

impl Candidate {
    /// Renews the Lease for as long as that succeeds.
    async fn renew(&mut self, tenure: &Tenure) {
        loop {
            let until = self.election.holds_until().unwrap_or_else(Instant::now);
            let known = match self.election.next(Instant::now()) {
                Move::Look => tokio::time::timeout_at(until.into(), self.look()).await,
                Move::Renew(record) => {
                    tokio::time::timeout_at(until.into(), self.write(Some(&record), false)).await
                }
                Move::Wait(due) => {
                    tokio::time::sleep_until(due.into()).await;
                    continue;
                }
                Move::StepDown | Move::Claim(_) => return,
            };
            tenure.set(self.election.holds_until());
            if !known.unwrap_or_default() {
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// Asks for the Lease; answers whether it is known now.
    async fn look(&mut self) -> bool {
        match self.api.get_opt(&self.name).await {
            Ok(found) => {
                self.election.see(found.as_ref().map(lease::record), Instant::now());
                true
            }
            Err(error) => {
                let error = bk_ops::report::one_line(&error);
                tracing::warn!(error, lease = self.name, "cannot read the Lease");
                false
            }
        }
    }

    /// Writes the Lease; answers whether the API server has said whose it is.
    async fn write(&mut self, before: Option<&bk_plan::election::Record>, anew: bool) -> bool {
        let sent = Instant::now();
        let lease = lease::held(&self.name, &self.me, self.owner.as_ref(), before, anew, TERMS.lease);
        let answer = match before {
            Some(_) => self.api.replace(&self.name, &kube::api::PostParams::default(), &lease).await,
            None => self.api.create(&kube::api::PostParams::default(), &lease).await,
        };
        match answer {
            Ok(written) => {
                self.election.wrote(lease::record(&written), sent);
                true
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                self.election.overtaken();
                true
            }
            Err(error) => {
                let error = bk_ops::report::one_line(&error);
                tracing::warn!(error, lease = self.name, "cannot write the Lease");
                false
            }
        }
    }

    /// Best effort: others notice by themselves after a while.
    async fn release(&mut self, tenure: &Tenure) {
        tenure.set(None);
        let Ok(Some(found)) =
            tokio::time::timeout(GOODBYE, self.api.get_opt(&self.name)).await.unwrap_or(Ok(None))
        else {
            return;
        };
        let record = lease::record(&found);
        if record.holder.as_ref() != Some(&self.me) {
            return;
        }
        let free = lease::free(&self.name, self.owner.as_ref(), &record);
        let params = kube::api::PostParams::default();
        match tokio::time::timeout(GOODBYE, self.api.replace(&self.name, &params, &free)).await {
            Ok(Ok(_)) => tracing::info!(lease = self.name, "the Lease is given back"),
            Ok(Err(error)) => {
                let error = bk_ops::report::one_line(&error);
                tracing::warn!(error, lease = self.name, "cannot give the Lease back");
            }
            Err(_) => tracing::warn!(
                lease = self.name,
                "the API server did not answer in time to give the Lease back"
            ),
        }
    }
}
