//! BuildJobs → pods → verdicts: observe, decide, act.
//!
//! - [`observe`]: reads only; builds the plain value that a decision depends on
//! - `bk_plan::decide`: the decision, pure
//! - [`act`]: writes only; performs a decision step by step

mod act;
mod departures;
mod happenings;
mod observe;
mod recalls;
mod reconcile;
mod surroundings;
mod sweep;
mod workload;

use std::{fmt::Debug, sync::Arc};

use bk_api::{BuildEnvironment, BuildJob, config::CONFIG_MAP, names};
use bk_buildkite::StacksClient;
use bk_plan::{
    decide::{Rules, Timeouts},
    pod::{self, PodSettings},
};
use futures::{Stream, StreamExt, TryStreamExt};
use jiff::SignedDuration;
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
    serde::de::DeserializeOwned,
};
use kube::{
    Api, Client, Resource,
    core::NamespaceResourceScope,
    runtime::{
        WatchStreamExt,
        controller::Config,
        events::{Recorder, Reporter},
        reflector, watcher,
    },
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    cache::{Cache, Feed, cache},
    error::Error,
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
    feeds: Feeds,
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
    batch_jobs: Cache<Job>,
    environments: Cache<BuildEnvironment>,
    remote: Arc<RemoteStates>,
    recorder: Recorder,
    failures: reconcile::Failures,
    recalls: recalls::Recalls,
    happenings: happenings::Happenings,
}

/// What fills the caches.
struct Feeds {
    jobs: Feed<BuildJob>,
    pods: Feed<Pod>,
    batch_jobs: Feed<Job>,
    environments: Feed<BuildEnvironment>,
}

impl Controller {
    /// A controller of the BuildJobs in the settings' namespace, unless these make no pod.
    pub fn new(
        client: Client,
        settings: &Settings,
        shim_config_map: String,
        remote: Arc<RemoteStates>,
    ) -> Result<Self, Error> {
        let rules = rules(settings, shim_config_map);
        pod::try_out(&rules.pod).map_err(|error| {
            Error::Setup(format!("ConfigMap {CONFIG_MAP}: no pod can be made with its settings: {error}"))
        })?;
        let (jobs, job_feed) = cache();
        let (pods, pod_feed) = cache();
        let (batch_jobs, batch_job_feed) = cache();
        let (environments, environment_feed) = cache();
        let reporter = Reporter { controller: names::FIELD_MANAGER.to_owned(), instance: None };
        let context = Context {
            recorder: Recorder::new(client.clone(), reporter),
            client,
            namespace: settings.namespace.clone(),
            buildkite: settings.buildkite.clone(),
            stack_key: settings.config.spawner.stack_key.clone(),
            rules,
            jobs,
            pods,
            batch_jobs,
            environments,
            remote,
            failures: reconcile::Failures::default(),
            recalls: recalls::Recalls::default(),
            happenings: happenings::Happenings::default(),
        };
        let feeds = Feeds {
            jobs: job_feed,
            pods: pod_feed,
            batch_jobs: batch_job_feed,
            environments: environment_feed,
        };
        Ok(Self { context: Arc::new(context), feeds })
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
        let Self { context, feeds } = self;
        let ours = || watcher::Config::default().labels(names::LABEL_BUILD_JOB);
        let jobs = feeds.jobs.fill(watch(&context, watcher::Config::default()));
        let pods = feeds.pods.fill(watch(&context, ours()));
        let batch_jobs = feeds.batch_jobs.fill(watch(&context, ours()));
        let environments = feeds.environments.fill(watch(&context, watcher::Config::default()));

        let (aside, remembering) = (context.clone(), context.clone());
        let (leaving, departed) = mpsc::unbounded_channel();
        let jobs = jobs.inspect_ok(move |event| forget(&remembering, event, &leaving));
        let (freed, room) = mpsc::unbounded_channel();
        let remembering = context.clone();
        let pods = pods.inspect_ok(move |event| {
            let watcher::Event::Delete(pod) = event else {
                return;
            };
            remembering.happenings.forget(pod);
            if let Some(next) = remembering.recalls.next_in_line() {
                // The controller is gone only while the process ends.
                let _ending = freed.send(next);
            }
        });
        let namespace = context.namespace.clone();
        let owner = move |meta: &ObjectMeta| owner(meta, &namespace);
        let (pod_owner, batch_job_owner) = (owner.clone(), owner);
        let controlling = kube::runtime::Controller::for_stream(jobs.applied_objects(), context.jobs.store())
            .with_config(Config::default().concurrency(CONCURRENCY))
            .watches_stream(pods.touched_objects(), move |pod| pod_owner(&pod.metadata))
            .watches_stream(batch_jobs.touched_objects(), move |job| batch_job_owner(&job.metadata))
            .reconcile_on(into_stream(remote_changes))
            .reconcile_on(into_stream(room))
            .reconcile_on(happenings::follow(&context))
            .reconcile_all_on(context.pods.relisted())
            .graceful_shutdown_on(shutdown.clone().cancelled_owned())
            .run(reconcile::reconcile, reconcile::error_policy, context)
            // Failures are logged where they happen: of a round with its job, of a watch with its kind.
            .for_each(|_| std::future::ready(()));
        // A new environment wakes nobody: who refers to one that is not there has failed by then.
        let following = environments.for_each(|_| std::future::ready(()));
        tokio::join!(
            controlling,
            shutdown.run_until_cancelled(following),
            shutdown.run_until_cancelled(departures::run(aside.clone(), departed)),
            shutdown.run_until_cancelled(sweep::run(aside)),
        );
    }
}

/// A watch of objects in the job namespace, without what only the API server needs.
fn watch<K>(
    context: &Context,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + use<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + Debug + DeserializeOwned + Send + 'static,
{
    let api = Api::<K>::namespaced(context.client.clone(), &context.namespace);
    watcher(api, config).default_backoff().modify(|object| object.meta_mut().managed_fields = None)
}

/// Drops what is remembered about BuildJobs that are gone, and passes on those that others have deleted.
fn forget(context: &Context, event: &watcher::Event<BuildJob>, leaving: &mpsc::UnboundedSender<BuildJob>) {
    match event {
        watcher::Event::Delete(job) => {
            context.remote.forget(&reflector::ObjectRef::from_obj(job));
            let ours = context.recalls.forget(job).has_deleted();
            // One that was replaced lives on in another.
            let lives_on = || context.jobs.all().iter().any(|other| other.job_uuid() == job.job_uuid());
            if !ours && !job.is_terminal() && job.job_uuid().is_some() && !lives_on() {
                // The receiver is gone only while the process ends.
                let _ending = leaving.send(job.clone());
            }
        }
        // Some may have gone unseen.
        watcher::Event::InitDone => context.recalls.retain(&context.jobs.all()),
        _ => {}
    }
}

/// The BuildJob that an object says it belongs to.
fn owner(meta: &ObjectMeta, namespace: &str) -> Option<reflector::ObjectRef<BuildJob>> {
    let name = meta.labels.as_ref()?.get(names::LABEL_BUILD_JOB)?;
    Some(reflector::ObjectRef::new(name).within(namespace))
}

fn into_stream<T>(items: mpsc::UnboundedReceiver<T>) -> impl Stream<Item = T> {
    futures::stream::unfold(items, |mut items| async move { items.recv().await.map(|item| (item, items)) })
}

fn rules(settings: &Settings, shim_config_map: String) -> Rules {
    let pods = &settings.config.pods;
    Rules {
        pod: PodSettings {
            config: pods.clone(),
            resource_classes: settings.config.resource_classes.clone(),
            endpoint: settings.buildkite.endpoint().to_owned(),
            shim_config_map,
            architecture: bk_api::config::Architecture::OWN,
            queue: settings.config.spawner.queue.clone(),
        },
        timeouts: Timeouts::of(pods.timeouts),
        image_pull_grace: SignedDuration::from_secs(pods.image_pull_grace_seconds.into()),
        succeeded_ttl: SignedDuration::from_secs(pods.succeeded_ttl_seconds.into()),
        failed_ttl: SignedDuration::from_secs(pods.failed_ttl_seconds.into()),
        keep_pod_on_failure: pods.keep_pod_on_failure,
        max_attempts: MAX_ATTEMPTS,
    }
}
