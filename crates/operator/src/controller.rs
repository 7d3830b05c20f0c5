//! BuildJobs → pods → verdicts: observe, decide, act.
//!
//! - [`observe`]: reads only; builds the plain value that a decision depends on
//! - `bk_plan::decide`: the decision, pure
//! - [`act`]: writes only; performs a decision step by step

mod act;
mod observe;
mod recalls;
mod reconcile;

use std::sync::Arc;

use bk_api::{BuildJob, names};
use bk_buildkite::StacksClient;
use bk_plan::{decide::Rules, pod::PodSettings};
use futures::{Stream, StreamExt, TryStreamExt};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    runtime::{
        WatchStreamExt,
        controller::Config,
        events::{Recorder, Reporter},
        reflector, watcher,
    },
};
use tokio_util::sync::CancellationToken;

use crate::{
    cache::{Cache, Feed, cache},
    settings::Settings,
    states::{RemoteChanges, RemoteStates},
};

/// How many BuildJobs are worked on at once. The work is waiting for the API server.
const CONCURRENCY: u16 = 32;

/// How many pods a job may have before no agent took it for good.
const MAX_ATTEMPTS: u32 = 3;

/// The controller, ready to run.
pub struct Controller {
    context: Arc<Context>,
    job_feed: Feed<BuildJob>,
    pod_feed: Feed<Pod>,
}

/// What every round of work needs.
struct Context {
    client: Client,
    namespace: String,
    buildkite: StacksClient,
    stack_key: String,
    rules: Rules,
    jobs: Cache<BuildJob>,
    pods: Cache<Pod>,
    remote: Arc<RemoteStates>,
    recorder: Recorder,
    failures: reconcile::Failures,
    recalls: recalls::Recalls,
}

impl Controller {
    /// A controller of the BuildJobs in the settings' namespace.
    pub fn new(
        client: Client,
        settings: &Settings,
        shim_config_map: String,
        remote: Arc<RemoteStates>,
    ) -> Self {
        let (jobs, job_feed) = cache();
        let (pods, pod_feed) = cache();
        let reporter = Reporter { controller: names::FIELD_MANAGER.to_owned(), instance: None };
        let context = Context {
            recorder: Recorder::new(client.clone(), reporter),
            client,
            namespace: settings.namespace.clone(),
            buildkite: settings.buildkite.clone(),
            stack_key: settings.config.spawner.stack_key.clone(),
            rules: rules(settings, shim_config_map),
            jobs: jobs.clone(),
            pods,
            remote,
            failures: reconcile::Failures::default(),
            recalls: recalls::Recalls::default(),
        };
        Self { context: Arc::new(context), job_feed, pod_feed }
    }

    /// The BuildJobs as the controller sees them.
    pub fn jobs(&self) -> Cache<BuildJob> {
        self.context.jobs.clone()
    }

    /// Their pods as the controller sees them.
    pub fn pods(&self) -> Cache<Pod> {
        self.context.pods.clone()
    }

    /// Works until `shutdown`, then finishes what it is doing.
    pub async fn run(self, remote_changes: RemoteChanges, shutdown: CancellationToken) {
        let Self { context, job_feed, pod_feed } = self;
        let job_api = Api::<BuildJob>::namespaced(context.client.clone(), &context.namespace);
        let pod_api = Api::<Pod>::namespaced(context.client.clone(), &context.namespace);
        let job_watch = watcher(job_api, watcher::Config::default())
            .default_backoff()
            .modify(|job| job.managed_fields_mut().clear());
        let pod_watch = watcher(pod_api, watcher::Config::default().labels(names::LABEL_BUILD_JOB))
            .default_backoff()
            .modify(|pod| pod.managed_fields_mut().clear());
        let deletions = context.clone();
        let job_events = job_feed.fill(job_watch).inspect_ok(move |event| match event {
            watcher::Event::Delete(job) => {
                deletions.recalls.forget(job);
            }
            watcher::Event::InitDone => deletions.recalls.retain(&deletions.jobs.all()),
            _ => {}
        });
        kube::runtime::Controller::for_stream(job_events.applied_objects(), context.jobs.store())
            .with_config(Config::default().concurrency(CONCURRENCY))
            .owns_stream(pod_feed.fill(pod_watch).touched_objects())
            .reconcile_on(into_stream(remote_changes))
            .reconcile_all_on(context.pods.relisted())
            .graceful_shutdown_on(shutdown.cancelled_owned())
            .run(reconcile::reconcile, reconcile::error_policy, context)
            // Failures are logged where they happen: of a round with its job, of a watch with its kind.
            .for_each(|_| std::future::ready(()))
            .await;
    }
}

fn into_stream(changes: RemoteChanges) -> impl Stream<Item = reflector::ObjectRef<BuildJob>> {
    futures::stream::unfold(
        changes,
        |mut changes| async move { changes.recv().await.map(|item| (item, changes)) },
    )
}

fn rules(settings: &Settings, shim_config_map: String) -> Rules {
    let pods = &settings.config.pods;
    Rules {
        pod: PodSettings {
            config: pods.clone(),
            resource_classes: settings.config.resource_classes.clone(),
            endpoint: settings.buildkite.endpoint().to_owned(),
            shim_config_map,
            queue: settings.config.spawner.queue.clone(),
        },
        start_deadline: SignedDuration::from_secs(pods.start_deadline_seconds.into()),
        image_pull_grace: SignedDuration::from_secs(pods.image_pull_grace_seconds.into()),
        succeeded_ttl: SignedDuration::from_secs(pods.succeeded_ttl_seconds.into()),
        failed_ttl: SignedDuration::from_secs(pods.failed_ttl_seconds.into()),
        keep_pod_on_failure: pods.keep_pod_on_failure,
        max_attempts: MAX_ATTEMPTS,
    }
}
