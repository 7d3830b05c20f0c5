//! What the cluster has of what an object refers to. Reads only.

use bk_api::BuildJob;
use bk_plan::{
    admission::{
        Existence, Known,
        references::{Kind, Object, Reference},
    },
    surroundings::Surroundings,
};
use futures::{FutureExt, StreamExt, future::join_all};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Node, PersistentVolumeClaim, Secret, ServiceAccount},
    node::v1::RuntimeClass,
    scheduling::v1::PriorityClass,
};
use kube::{
    Api, Client, Resource,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use std::{
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    cache::{Cache, Feed, cache},
    error::Error,
    settings::{self, Cluster},
    surroundings::{self, Place, is_object_name},
};

/// What is known of the cluster, and can be asked of it. Cheap to clone.
#[derive(Clone)]
pub(super) struct Facts {
    client: Client,
    nodes: Cache<Node>,
    feed: Arc<Mutex<Option<Feed<Node>>>>,
}

impl Facts {
    pub(super) fn new(cluster: &Cluster) -> Self {
        let (nodes, feed) = cache();
        Self { client: cluster.calls.clone(), nodes, feed: Arc::new(Mutex::new(Some(feed))) }
    }

    /// Keeps the nodes up to date. Of each only what matters is kept.
    pub(super) async fn watch_nodes(self, cluster: Cluster) {
        let Some(feed) = self.feed.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let api = Api::<Node>::all(cluster.streams.clone());
        let nodes = feed.fill(watcher(api, settings::watch()).backoff(settings::pauses()).modify(slim));
        nodes.for_each(async |_| {}).await;
    }

    pub(super) async fn surroundings(
        &self,
        job: &BuildJob,
        found: Surroundings,
        namespace: &str,
    ) -> Result<Surroundings, Error> {
        let place = Place { client: &self.client, namespace, environments: None };
        surroundings::find(place, job, found).await
    }

    /// Whether what a pod refers to is there, and which nodes there are.
    pub(super) async fn look(&self, references: &[Reference], namespace: &str) -> Known {
        let objects = join_all(references.iter().map(async |reference| {
            (reference.object.clone(), self.look_for(&reference.object, namespace).await)
        }));
        let is_complete = self.nodes.complete().now_or_never().is_some();
        let nodes = is_complete.then(|| self.nodes.all());
        Known { objects: objects.await.into_iter().collect(), nodes }
    }

    async fn look_for(&self, object: &Object, namespace: &str) -> Existence {
        let Object { kind, name } = object;
        let client = || self.client.clone();
        match kind {
            Kind::ConfigMap => exists(Api::<ConfigMap>::namespaced(client(), namespace), name).await,
            Kind::PersistentVolumeClaim => {
                exists(Api::<PersistentVolumeClaim>::namespaced(client(), namespace), name).await
            }
            Kind::PriorityClass => exists(Api::<PriorityClass>::all(client()), name).await,
            Kind::RuntimeClass => exists(Api::<RuntimeClass>::all(client()), name).await,
            Kind::Secret => exists(Api::<Secret>::namespaced(client(), namespace), name).await,
            Kind::ServiceAccount => {
                exists(Api::<ServiceAccount>::namespaced(client(), namespace), name).await
            }
        }
    }
}

/// Asks for metadata only: what Secrets hold is nobody's business.
async fn exists<K>(api: Api<K>, name: &str) -> Existence
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    if !is_object_name(name) {
        return Existence::Missing;
    }
    match api.get_metadata_opt(name).await {
        Ok(Some(_)) => Existence::Found,
        Ok(None) => Existence::Missing,
        Err(kube::Error::Api(status)) if status.code == 403 => {
            Existence::Untold("the operator may not look".to_owned())
        }
        Err(error) => Existence::Untold(bk_ops::report::one_line(&error)),
    }
}

fn slim(node: &mut Node) {
    node.metadata.managed_fields = None;
    node.metadata.annotations = None;
    if let Some(status) = &mut node.status {
        let allocatable = status.allocatable.take();
        *status = k8s_openapi::api::core::v1::NodeStatus { allocatable, ..Default::default() };
    }
}
