//! Objects as they were last seen, also when they are gone.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use futures::StreamExt;
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use tokio_util::task::AbortOnDropHandle;

/// Keeps the last version of every object that a watch tells of.
pub struct Record<K> {
    seen: Arc<Mutex<Vec<K>>>,
    _watch: AbortOnDropHandle<()>,
}

impl<K> Record<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// Begins to watch; what exists already is seen too.
    pub fn begin(api: Api<K>) -> Self {
        let seen = Arc::new(Mutex::new(Vec::<K>::new()));
        let writer = Arc::clone(&seen);
        let watch = tokio::spawn(async move {
            let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
            while let Some(event) = events.next().await {
                let Ok(
                    watcher::Event::Apply(object)
                    | watcher::Event::InitApply(object)
                    | watcher::Event::Delete(object),
                ) = event
                else {
                    continue;
                };
                let mut seen = writer.lock().unwrap_or_else(PoisonError::into_inner);
                match seen.iter_mut().find(|known| known.meta().uid == object.meta().uid) {
                    Some(known) => *known = object,
                    None => seen.push(object),
                }
            }
        });
        Self { seen, _watch: AbortOnDropHandle::new(watch) }
    }

    /// What was seen, in the order of first sight.
    pub fn seen(&self) -> Vec<K> {
        self.seen_if(|_| true)
    }

    /// Those of what was seen that are as `test` wants them.
    pub fn seen_if(&self, test: impl Fn(&K) -> bool) -> Vec<K> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter(|object| test(object)).cloned().collect()
    }
}
