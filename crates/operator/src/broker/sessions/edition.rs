//! A Secret for whoever knows what is in it, and wants to hear of others that write it: its version, and nothing else.
//!
//! All other metadata is passed over where it is read: who manages the fields of a Secret takes a line for each session.

use std::borrow::Cow;

use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource;
use serde::Deserialize;

/// A version of a Secret.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Wire")]
pub(super) struct Edition {
    metadata: ObjectMeta,
}

impl Edition {
    /// Its number; later ones are higher.
    pub(super) fn version(&self) -> Option<u64> {
        version(&self.metadata)
    }
}

/// The number of an object's version.
pub(super) fn version(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_deref()?.parse().ok()
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMeta {
    name: Option<String>,
    resource_version: Option<String>,
}

impl From<Wire> for Edition {
    fn from(Wire { metadata: WireMeta { name, resource_version } }: Wire) -> Self {
        Self { metadata: ObjectMeta { name, resource_version, ..ObjectMeta::default() } }
    }
}

impl Resource for Edition {
    type DynamicType = ();
    type Scope = <Secret as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        Secret::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Secret::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        <Secret as Resource>::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Secret::plural(&())
    }

    /// The API server does not send the rest.
    fn metadata_api() -> bool {
        true
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
