//! A Lease, read and written.

use std::time::{Duration, Instant};

use bk_plan::election::{Election, Record};
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference},
};
use kube::{ResourceExt, runtime::watcher};

/// What matters of a Lease.
pub(super) fn record(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds =
        spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default();
    Record {
        version: lease.resource_version().unwrap_or_default(),
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        lasts: Duration::from_secs(seconds),
        transitions: spec.lease_transitions.unwrap_or_default(),
    }
}

/// Takes in what a watch says; answers whether it says how the Lease is.
pub(super) fn see(election: &mut Election, change: watcher::Result<watcher::Event<Lease>>) -> bool {
    match change {
        Ok(watcher::Event::Apply(lease) | watcher::Event::InitApply(lease)) => {
            election.see(Some(record(&lease)), Instant::now());
        }
        Ok(watcher::Event::Delete(_)) => election.see(None, Instant::now()),
        Ok(watcher::Event::Init | watcher::Event::InitDone) => return false,
        Err(error) => {
            tracing::debug!(error = %bk_ops::report::one_line(&error), "the watch of the Lease is begun anew");
            return false;
        }
    }
    true
}

/// The Lease with its holder, based on what it was before; anew if somebody else had it.
pub(super) fn held(
    name: &str,
    holder: &str,
    owner: Option<&OwnerReference>,
    before: Option<&Record>,
    anew: bool,
    lasts: Duration,
) -> Lease {
    let now = MicroTime(Timestamp::now());
    let transitions = before.map_or(0, |record| record.transitions);
    let spec = LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: i32::try_from(lasts.as_secs()).ok(),
        acquire_time: anew.then(|| now.clone()),
        renew_time: Some(now),
        lease_transitions: Some(transitions.saturating_add(i32::from(anew))),
        ..LeaseSpec::default()
    };
    named(name, owner, before, spec)
}

/// The Lease without a holder.
pub(super) fn free(name: &str, owner: Option<&OwnerReference>, before: &Record) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        renew_time: Some(MicroTime(Timestamp::now())),
        lease_transitions: Some(before.transitions),
        ..LeaseSpec::default()
    };
    named(name, owner, Some(before), spec)
}

fn named(name: &str, owner: Option<&OwnerReference>, before: Option<&Record>, spec: LeaseSpec) -> Lease {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        resource_version: before.map(|record| record.version.clone()),
        owner_references: owner.map(|owner| vec![owner.clone()]),
        ..ObjectMeta::default()
    };
    Lease { metadata, spec: Some(spec) }
}
