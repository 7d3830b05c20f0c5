//! The ConfigMap in the job namespace by which pods trust the broker.

use std::collections::BTreeMap;

use bk_api::names;
use bk_plan::pod::AUTHORITY_FILE;
use k8s_openapi::{
    api::core::v1::ConfigMap,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};

use crate::{error::Error, settings::patience};

/// Makes sure that the job namespace has the authority's certificate in a ConfigMap of this name. It goes with its owner, if that is there.
pub(super) async fn ensure(
    client: &Client,
    namespace: &str,
    name: &str,
    authority: &str,
    owner: Option<&OwnerReference>,
) -> Result<(), Error> {
    let config_map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([(names::LABEL_COMPONENT.to_owned(), "broker".to_owned())])),
            owner_references: owner.map(|owner| vec![owner.clone()]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(AUTHORITY_FILE.to_owned(), authority.to_owned())])),
        ..ConfigMap::default()
    };
    let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let attempt = format!("put the broker's authority into ConfigMap {namespace}/{name}");
    let params = PatchParams::apply(names::FIELD_MANAGER).force();
    let patch = Patch::Apply(&config_map);
    let written = patience::insist(&attempt, || api.patch(name, &params, &patch)).await;
    written.map(drop).map_err(Error::kubernetes(attempt))
}
