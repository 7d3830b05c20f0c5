//! The BuildJob and its pod, as they change. Watches that break are made anew.

use bk_api::{BuildJob, names};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use tokio::sync::watch;

use crate::cli::output::say;

/// What is known of a job at a moment.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct Known {
    /// The BuildJob as it last was.
    pub(in crate::cli) job: Option<BuildJob>,
    /// Whether it is gone.
    pub(in crate::cli) is_gone: bool,
    /// Its pod.
    pub(in crate::cli) pod: Option<Pod>,
    /// Whether the list that a watch begins with has shown the BuildJob.
    listed_job: bool,
    /// Likewise for the pod.
    listed_pod: bool,
}

impl Known {
    /// Whether nothing more will happen.
    pub(in crate::cli) fn is_over(&self) -> bool {
        self.is_gone || self.job.as_ref().is_some_and(BuildJob::is_terminal)
    }
}

/// The readers' end of two watches, which end with its last clone.
#[derive(Clone)]
pub(in crate::cli) struct Watched(watch::Receiver<Known>);

impl Watched {
    /// Watches a BuildJob, of which this is known.
    pub(in crate::cli) fn start(client: Client, namespace: &str, created: &BuildJob) -> Self {
        let (sender, receiver) = watch::channel(Known { job: Some(created.clone()), ..Known::default() });
        let uid = created.uid().unwrap_or_default();
        let jobs = Api::<BuildJob>::namespaced(client.clone(), namespace);
        let only_it = watcher::Config::default().fields(&format!("metadata.name={}", created.name_any()));
        let of_job = sender.clone();
        tokio::spawn(async move {
            let events = watcher(jobs, only_it).default_backoff();
            keep(events, &of_job, |known, event| of_build_job(known, event, &uid)).await;
        });
        let pods = Api::<Pod>::namespaced(client, namespace);
        let its =
            watcher::Config::default().labels(&format!("{}={}", names::LABEL_BUILD_JOB, created.name_any()));
        tokio::spawn(async move { keep(watcher(pods, its).default_backoff(), &sender, of_pod).await });
        Self(receiver)
    }

    /// What is known now.
    pub(in crate::cli) fn now(&self) -> Known {
        self.0.borrow().clone()
    }

    /// Waits for a change.
    pub(in crate::cli) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The watches never end by themselves.
            std::future::pending::<()>().await;
        }
    }

    /// Waits until something holds.
    pub(in crate::cli) async fn until(&mut self, holds: impl Fn(&Known) -> bool) -> Known {
        loop {
            let known = self.0.borrow_and_update().clone();
            if holds(&known) {
                return known;
            }
            self.changed().await;
        }
    }

    /// The BuildJob at its end; nothing if somebody deleted it before.
    pub(in crate::cli) async fn ended(mut self) -> Option<BuildJob> {
        self.until(Known::is_over).await.job.filter(BuildJob::is_terminal)
    }
}

/// Keeps up with a watch for as long as somebody wants to know.
async fn keep<K>(
    events: impl futures::Stream<Item = watcher::Result<Event<K>>>,
    sender: &watch::Sender<Known>,
    note: impl Fn(&mut Known, Event<K>),
) {
    let mut told = false;
    let mut events = std::pin::pin!(events.into_stream());
    while let Some(event) = tokio::select! { event = events.next() => event, () = sender.closed() => None } {
        match event {
            Ok(event) => {
                told = false;
                sender.send_modify(|known| note(known, event));
            }
            // Once for each time that it is out of order.
            Err(_) if told => {}
            Err(error) => {
                told = true;
                say(&format!("cannot watch the job, trying again: {}", bk_ops::report::one_line(&error)));
            }
        }
    }
}

fn of_build_job(known: &mut Known, event: Event<BuildJob>, uid: &str) {
    match event {
        // Another one under its name is not it.
        Event::Apply(job) | Event::InitApply(job) if job.uid().as_deref() == Some(uid) => {
            known.job = Some(job);
            known.listed_job = true;
        }
        Event::Init => known.listed_job = false,
        // Nothing else tells of what was deleted while the watch was broken.
        Event::InitDone => known.is_gone = !known.listed_job,
        Event::Delete(job) if job.uid().as_deref() == Some(uid) => {
            known.job = Some(job);
            known.is_gone = true;
        }
        _ => {}
    }
}

fn of_pod(known: &mut Known, event: Event<Pod>) {
    match event {
        Event::Apply(pod) | Event::InitApply(pod) => {
            known.pod = Some(pod);
            known.listed_pod = true;
        }
        Event::Init => known.listed_pod = false,
        Event::InitDone if known.listed_pod => {}
        Event::InitDone | Event::Delete(_) => known.pod = None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn job(uid: &str) -> BuildJob {
        let metadata = ObjectMeta { uid: Some(uid.to_owned()), ..ObjectMeta::default() };
        BuildJob { metadata, ..BuildJob::new("run", bk_api::BuildJobSpec::default()) }
    }

    fn is_gone_after(events: impl IntoIterator<Item = Event<BuildJob>>) -> bool {
        let mut known = Known::default();
        let mut before_the_end = false;
        for event in events {
            assert!(!before_the_end, "what is gone stays gone");
            of_build_job(&mut known, event, "mine");
            before_the_end = known.is_gone;
        }
        known.is_gone
    }

    #[test]
    fn a_watch_that_is_made_anew_does_not_lose_the_job() {
        assert!(!is_gone_after([
            Event::Init,
            Event::InitApply(job("mine")),
            Event::InitDone,
            Event::Init,
            Event::InitApply(job("mine")),
            Event::InitDone,
        ]));
    }

    #[test]
    fn a_job_that_was_deleted_is_gone() {
        assert!(is_gone_after([
            Event::Init,
            Event::InitApply(job("mine")),
            Event::InitDone,
            Event::Delete(job("mine"))
        ]));
        assert!(is_gone_after([Event::Init, Event::InitDone]));
        assert!(is_gone_after([Event::Init, Event::InitApply(job("another's")), Event::InitDone]));
    }
}
