//! Objects of one kind as the API server last told us of them.

use std::{fmt::Debug, sync::Arc};

use futures::{Stream, TryStreamExt, stream};
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
    lists: watch::Receiver<u64>,
}

/// The end that a watch fills.
pub struct Feed<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    writer: Writer<K>,
    /// How many complete lists there have been.
    lists: watch::Sender<u64>,
}

/// An empty cache, and what fills it.
pub fn cache<K>() -> (Cache<K>, Feed<K>)
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let (store, writer) = reflector::store();
    let (sender, receiver) = watch::channel(0);
    (Cache { store, lists: receiver }, Feed { writer, lists: sender })
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
        let mut lists = self.lists.clone();
        let _ending = lists.wait_for(|lists| *lists > 0).await;
    }

    /// Yields whenever the cache was filled anew. After a gap in the watch, nothing else tells of the objects
    /// that were deleted in it.
    pub fn relisted(&self) -> impl Stream<Item = ()> + use<K> {
        stream::unfold(self.lists.clone(), async |mut lists| lists.changed().await.ok().map(|()| ((), lists)))
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
        Self { store: self.store.clone(), lists: self.lists.clone() }
    }
}

impl<K> Feed<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
{
    /// Fills the cache with what a watch says, and hands it on. Failures are logged: the watch tries again by itself.
    pub fn fill(
        self,
        watch: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
    ) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> {
        let Self { writer, lists } = self;
        watch
            .reflect(writer)
            .inspect_ok(move |event| {
                if matches!(event, watcher::Event::InitDone) {
                    lists.send_modify(|lists| *lists += 1);
                }
            })
            .inspect_err(|error| {
                tracing::warn!(kind = %K::kind(&()), error = %bk_ops::report::one_line(error), "cannot watch");
            })
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
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
        let mut relisted = std::pin::pin!(cache.relisted());
        assert!(relisted.next().await.is_some(), "whoever asks is told of the list");
    }
}
