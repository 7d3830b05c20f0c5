//! What Events say about pods and the Jobs around them, as far as it can matter to a BuildJob.
//!
//! A volume that cannot be mounted, or a Job that may not create its pod, shows nowhere else. Little is kept: the
//! last few Events of objects that are here. They are hints; after a restart those that still stand are listed again.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bk_api::BuildJob;
use bk_plan::{facts::PodEvent, origin::Origin};
use futures::{FutureExt, Stream, StreamExt, future};
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use kube::{
    Resource, ResourceExt,
    runtime::{reflector::ObjectRef, watcher},
};

use super::{Context, owner, watch};
use crate::{cache::Cache, settings};

/// How many Events are kept for one object.
const MOST: usize = 12;

/// The last Events of each object, by its id: the Event's name and what it says.
#[derive(Default)]
pub(super) struct Happenings(Mutex<HashMap<String, Vec<(String, PodEvent)>>>);

impl Happenings {
    /// What is known to have happened to the object with this id, oldest first.
    pub(super) fn of(&self, id: &str) -> Vec<PodEvent> {
        let kept = self.lock();
        kept.get(id).map(|events| events.iter().map(|(_, event)| event.clone()).collect()).unwrap_or_default()
    }

    /// Keeps an Event. One that is repeated takes the place of what it was before.
    fn keep(&self, id: &str, name: String, event: PodEvent) {
        let mut kept = self.lock();
        let events = kept.entry(id.to_owned()).or_default();
        events.retain(|(known, _)| *known != name);
        events.push((name, event));
        if events.len() > MOST {
            events.remove(0);
        }
    }

    /// Drops what concerns an object that is gone.
    pub(super) fn forget(&self, object: &impl Resource) {
        self.lock().remove(object.meta().uid.as_deref().unwrap_or_default());
    }

    /// Drops what concerns objects that went unseen.
    fn retain(&self, context: &Context) {
        let pods = context.pods.all();
        let jobs = context.batch_jobs.all();
        let ids: HashSet<&str> = pods
            .iter()
            .filter_map(|pod| pod.meta().uid.as_deref())
            .chain(jobs.iter().filter_map(|job| job.metadata.uid.as_deref()))
            .collect();
        self.lock().retain(|id, _| ids.contains(id.as_str()));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<(String, PodEvent)>>> {
        // Nothing inside can be left half-done by a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the Events of pods and Jobs, and yields the BuildJobs for which something went wrong.
pub(super) fn follow(context: &Arc<Context>) -> impl Stream<Item = ObjectRef<BuildJob>> + Send + use<> {
    let about = |kind: &str| settings::watch().fields(&format!("involvedObject.kind={kind}"));
    let (of_pods, of_jobs) = (context.clone(), context.clone());
    let ready = context.clone();
    let pods = watch::<Event>(context, about("Pod"))
        .filter_map(move |event| future::ready(take(&of_pods, &of_pods.pods, event)));
    let jobs = watch::<Event>(context, about("Job"))
        .filter_map(move |event| future::ready(take(&of_jobs, &of_jobs.batch_jobs, event)));
    // An Event about an object that is not here yet would be lost.
    let complete = async move {
        ready.pods.complete().await;
        ready.batch_jobs.complete().await;
        futures::stream::select(pods, jobs)
    };
    complete.flatten_stream()
}

/// Keeps an Event about an object in the cache; answers which BuildJob should hear of it.
fn take<K>(
    context: &Context,
    cache: &Cache<K>,
    event: watcher::Result<watcher::Event<Event>>,
) -> Option<ObjectRef<BuildJob>>
where
    K: Origin + Resource<DynamicType = ()> + Clone + 'static,
{
    let event = match event {
        Ok(watcher::Event::Apply(event) | watcher::Event::InitApply(event)) => event,
        Ok(watcher::Event::InitDone) => {
            context.happenings.retain(context);
            return None;
        }
        Ok(watcher::Event::Init | watcher::Event::Delete(_)) => return None,
        Err(error) => {
            tracing::warn!(error = %bk_ops::report::one_line(&error), "cannot watch Events");
            return None;
        }
    };
    let ObjectReference { name, uid, .. } = &event.involved_object;
    let object = cache.get(&ObjectRef::new(name.as_deref()?).within(&context.namespace))?;
    if object.meta().uid != *uid {
        return None;
    }
    let told = PodEvent::of(&event)?;
    let is_warning = told.warning;
    context.happenings.keep(uid.as_deref()?, event.name_any(), told);
    is_warning.then(|| owner(object.as_ref(), &context.namespace)).flatten()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};

    use super::*;

    fn pod(id: &str) -> Pod {
        Pod { metadata: ObjectMeta { uid: Some(id.to_owned()), ..ObjectMeta::default() }, ..Pod::default() }
    }

    fn said(message: &str) -> PodEvent {
        PodEvent { message: message.to_owned(), ..PodEvent::default() }
    }

    #[test]
    fn the_last_few_events_of_each_object_are_kept() {
        let happenings = Happenings::default();
        for number in 0..20 {
            happenings.keep("one", format!("event-{number}"), said(&number.to_string()));
        }
        happenings.keep("one", "event-15".to_owned(), said("again"));
        happenings.keep("two", "event".to_owned(), said("other"));
        let messages: Vec<_> = happenings.of("one").into_iter().map(|event| event.message).collect();
        assert_eq!(messages.len(), MOST);
        assert_eq!((messages[0].as_str(), messages[MOST - 1].as_str()), ("8", "again"));
        happenings.forget(&pod("one"));
        assert_eq!(happenings.of("one"), []);
        assert_eq!(happenings.of("two").len(), 1);
    }
}
