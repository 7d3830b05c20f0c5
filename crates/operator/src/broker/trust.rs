//! The ConfigMap in the job namespace by which pods trust the broker.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use bk_api::names;
use bk_plan::pod::AUTHORITY_FILE;
use futures::StreamExt;
use k8s_openapi::{
    api::core::v1::ConfigMap,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};

use crate::{
    error::Error,
    settings::{Cluster, patience, watch_one},
};

/// How long it is left alone after it was put back: somebody else may hold it for theirs.
const PAUSE: Duration = Duration::from_secs(5);

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

/// Puts it back when somebody deletes or alters it: without it no pod can start, or its agent trusts nobody.
pub(super) async fn keep(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    authority: &str,
    owner: Option<&OwnerReference>,
) {
    let api = Api::<ConfigMap>::namespaced(cluster.streams.clone(), namespace);
    let mut versions = pin!(watch_one(api, name));
    while let Some(version) = versions.next().await {
        match version {
            Ok(Some(config_map)) if holds(&config_map, authority) => {}
            Ok(_) => {
                let put = async || ensure(&cluster.calls, namespace, name, authority, owner).await;
                patience::put_back("the ConfigMap with the broker's authority", put).await;
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => {
                let error = bk_ops::report::one_line(&error);
                tracing::warn!(error, "cannot watch the ConfigMap with the broker's authority");
            }
        }
    }
}

fn holds(config_map: &ConfigMap, authority: &str) -> bool {
    config_map.data.as_ref().and_then(|data| data.get(AUTHORITY_FILE)).is_some_and(|held| held == authority)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api_server::{ApiServer, Call};

    /// What there is of it, in a list.
    fn listed(held: Option<&str>) -> (u16, Value) {
        let it = |held: &str| json!({"metadata": {"name": "broker", "resourceVersion": "1"}, "data": {"ca.crt": held}});
        let items: Vec<Value> = held.into_iter().map(it).collect();
        (200, json!({"metadata": {"resourceVersion": "1"}, "items": items}))
    }

    /// What is written, until the ConfigMap is seen for the second time: by the watch that follows the first look.
    async fn puts_back(held: Option<&'static str>) -> Option<Call> {
        let server = ApiServer::start(move |call, _| match call.method.as_str() {
            "PATCH" => (200, call.body.clone()),
            _ => listed(held),
        })
        .await;
        let is_write = |call: &Call| call.method == "PATCH";
        let is_over = |calls: &[Call]| calls.len() > 1;
        tokio::select! {
            () = keep(&server.cluster, "ci", "broker", "ours", None) => unreachable!("it goes on for ever"),
            calls = server.calls_when(is_over) => calls.into_iter().find(is_write),
        }
    }

    #[tokio::test]
    async fn the_authority_is_put_back() {
        for held in [None, Some("theirs")] {
            let call = puts_back(held).await.expect("it is written");
            assert_eq!(call.body["data"]["ca.crt"], "ours", "{held:?}");
        }
        assert!(puts_back(Some("ours")).await.is_none());
    }
}
