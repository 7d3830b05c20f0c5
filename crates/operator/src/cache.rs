//! Objects of one kind as the API server last told us of them.

use std::{fmt::Debug, sync::Arc};

use futures::{Stream, TryStreamExt};
use kube::{
    Resource,
    runtime::{
        WatchStreamExt,
        reflector::{self, ObjectRef, Store, store::Writer},
        watcher,
    },
};
use tokio::sync::watch;

/// The readers' end. Cheap to clone.
pub struct Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store: Store<K>,
    complete: watch::Receiver<bool>,
}

/// The end that a watch fills.
pub struct Feed<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    writer: Writer<K>,
    complete: watch::Sender<bool>,
}

/// An empty cache, and what fills it.
pub fn cache<K>() -> (Cache<K>, Feed<K>)
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let (store, writer) = reflector::store();
    let (sender, receiver) = watch::channel(false);
    (Cache { store, complete: receiver }, Feed { writer, complete: sender })
}

impl<K> Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    /// Waits until every object that existed at the start is here.
    ///
    /// The store has such a wait of its own, but of several waiters it wakes only the last.
    pub async fn complete(&self) {
        // The feed is gone only while the process ends; then there is nothing left to wait for.
        let mut complete = self.complete.clone();
        let _ending = complete.wait_for(|complete| *complete).await;
    }

    /// All objects.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    /// One object.
    pub fn get(&self, object: &ObjectRef<K>) -> Option<Arc<K>> {
        self.store.get(object)
    }

    /// The store underneath, for the runtime's controller.
    pub(crate) fn store(&self) -> Store<K> {
        self.store.clone()
    }
}

impl<K> Clone for Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), complete: self.complete.clone() }
    }
}

impl<K> Feed<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
{
    /// Fills the cache with what a watch says, and hands it on.
    pub fn fill(
        self,
        watch: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
    ) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> {
        let Self { writer, complete } = self;
        watch.reflect(writer).inspect_ok(move |event| {
            if matches!(event, watcher::Event::InitDone) {
                complete.send_replace(true);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};
    use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};

    use super::*;

    #[tokio::test]
    async fn every_waiter_is_woken_once_the_first_list_is_in() {
        let (cache, feed) = cache::<ConfigMap>();
        let waiters: Vec<_> = (0..5)
            .map(|_| {
                let cache = cache.clone();
                tokio::spawn(async move { cache.complete().await })
            })
            .collect();
        let object = ConfigMap {
            metadata: ObjectMeta { name: Some("one".to_owned()), ..ObjectMeta::default() },
            ..ConfigMap::default()
        };
        let events = [watcher::Event::Init, watcher::Event::InitApply(object), watcher::Event::InitDone];
        let filled: Vec<_> = feed.fill(stream::iter(events.map(Ok))).collect().await;
        assert_eq!(filled.len(), 3);
        for waiter in waiters {
            waiter.await.unwrap();
        }
        assert_eq!(cache.all().len(), 1);
    }
}
