//! BuildJobs → pods → verdicts: observe, decide, act.
//!
//! - [`observe`]: reads only; builds the plain value that a decision depends on
//! - `bk_plan::decide`: the decision, pure
//! - [`act`]: writes only; performs a decision step by step

mod act;
mod departures;
mod endings;
mod happenings;
mod job_pods;
mod nodes;
mod observe;
mod recalls;
mod reconcile;
mod sessions;
mod sweep;
mod workload;

use std::{fmt::Debug, sync::Arc};

use bk_api::{BuildEnvironment, BuildJob, Phase, names};
use bk_plan::{
    decide::{Rules, Timeouts},
    facts::JobPod,
    origin::Origin,
    pod::PodSettings,
    slim,
};
use futures::{Stream, StreamExt, TryStreamExt};
use jiff::SignedDuration;
use k8s_openapi::{api::batch::v1::Job, serde::de::DeserializeOwned};
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
    broker::Spokesman,
    cache::{Cache, Feed, cache},
    intake::Intakes,
    notices::Notices,
    settings::{self, Cluster, Settings},
    spawner::Slots,
    states::{RemoteChanges, RemoteStates},
    telemetry::Telemetry,
    wakefulness::Wakefulness,
};

/// How many BuildJobs are worked on at once. The work is waiting for the API server.
const CONCURRENCY: u16 = 64;

/// How many pods a job may have before no agent took it for good.
const MAX_ATTEMPTS: u32 = 3;

/// The controller, ready to run.
pub struct Controller {
    context: Arc<Context>,
    feeds: Feeds,
    /// BuildJobs for whose pods there may be room again.
    room: mpsc::UnboundedReceiver<reflector::ObjectRef<BuildJob>>,
}

/// What every round of work needs.
struct Context {
    client: Client,
    /// For watches.
    streams: Client,
    namespace: String,
    intakes: Intakes,
    rules: Rules,
    jobs: Cache<BuildJob>,
    pods: Cache<JobPod>,
    job_pods: job_pods::JobPods,
    batch_jobs: Cache<Job>,
    environments: Cache<BuildEnvironment>,
    nodes: nodes::Nodes,
    remote: Arc<RemoteStates>,
    notices: Notices,
    spokesman: Spokesman,
    recorder: Recorder,
    failures: reconcile::Failures,
    recalls: recalls::Recalls,
    happenings: happenings::Happenings,
    wakefulness: Arc<Wakefulness>,
    telemetry: Telemetry,
    endings: endings::Endings,
}

/// What the controller shares with the rest of the operator.
pub struct Links {
    /// Buildkite's words on jobs.
    pub remote: Arc<RemoteStates>,
    /// Lines for their timelines.
    pub notices: Notices,
    /// Who speaks for agents that cannot.
    pub(crate) spokesman: Spokesman,
    /// Whether the process has slept.
    pub wakefulness: Arc<Wakefulness>,
}

/// What fills the caches.
struct Feeds {
    jobs: Feed<BuildJob>,
    pods: Feed<JobPod>,
    batch_jobs: Feed<Job>,
    environments: Feed<BuildEnvironment>,
}

impl Controller {
    /// A controller of the BuildJobs in the settings' namespace, which makes such pods.
    pub fn new(
        cluster: &Cluster,
        settings: &Settings,
        pods: PodSettings,
        links: Links,
        telemetry: &Telemetry,
    ) -> Self {
        let Links { remote, notices, spokesman, wakefulness } = links;
        let rules = rules(settings, pods);
        let nodes = nodes::Nodes::new(cluster, &rules.pod);
        let (jobs, job_feed) = cache();
        let (pods, pod_feed) = cache();
        let (batch_jobs, batch_job_feed) = cache();
        let (environments, environment_feed) = cache();
        let reporter = Reporter { controller: names::FIELD_MANAGER.to_owned(), instance: None };
        let (recalls, room) = recalls::Recalls::new();
        let context = Context {
            recorder: Recorder::new(cluster.calls.clone(), reporter),
            client: cluster.calls.clone(),
            streams: cluster.streams.clone(),
            namespace: settings.namespace.clone(),
            intakes: settings.intakes.clone(),
            rules,
            jobs,
            pods,
            job_pods: job_pods::JobPods::default(),
            batch_jobs,
            environments,
            nodes,
            remote,
            notices,
            spokesman,
            failures: reconcile::Failures::default(),
            recalls,
            happenings: happenings::Happenings::default(),
            wakefulness,
            telemetry: telemetry.clone(),
            endings: endings::Endings::default(),
        };
        let feeds = Feeds {
            jobs: job_feed,
            pods: pod_feed,
            batch_jobs: batch_job_feed,
            environments: environment_feed,
        };
        Self { context: Arc::new(context), feeds, room }
    }

    /// The BuildJobs as the controller sees them.
    pub fn jobs(&self) -> Cache<BuildJob> {
        self.context.jobs.clone()
    }

    /// Their pods as the controller sees them.
    pub fn pods(&self) -> Cache<JobPod> {
        self.context.pods.clone()
    }

    /// Works until `shutdown`, and tells `slots` of the BuildJobs that there are, then finishes what it is doing.
    pub async fn run(self, remote_changes: RemoteChanges, slots: Slots, shutdown: CancellationToken) {
        let Self { context, feeds, room } = self;
        let ours = || settings::watch().labels(names::LABEL_BUILD_JOB);
        let jobs = feeds.jobs.fill(watch(&context, settings::watch()).modify(slim::build_job));
        let pods = feeds.pods.fill(watch(&context, ours()));
        let batch_jobs = feeds.batch_jobs.fill(watch(&context, ours()).modify(slim::batch_job));
        let environments = feeds.environments.fill(watch(&context, settings::watch()));

        let (aside, remembering) = (context.clone(), context.clone());
        let (leaving, departed) = mpsc::unbounded_channel();
        let departing = slots.clone();
        let mut census = departures::Census::default();
        let jobs = jobs.inspect_ok(move |event| {
            slots.see(event);
            for job in census.gone_unseen(event, &remembering.jobs) {
                let ours = remembering.recalls.of(&job).has_deleted();
                pass_on(&job, ours, &slots, &leaving);
            }
            forget(&remembering, event, &slots, &leaving);
        });
        let remembering = context.clone();
        let pods = pods.inspect_ok(move |event| {
            remembering.job_pods.see(event);
            sessions::compare(&remembering, event);
            endings::see(&remembering, event);
            if remember(&remembering, event) {
                remembering.recalls.try_next();
            }
        });
        let remembering = context.clone();
        let batch_jobs = batch_jobs.inspect_ok(move |event| {
            remember(&remembering, event);
        });
        let namespace = context.namespace.clone();
        let jobs_namespace = namespace.clone();
        let controlling = kube::runtime::Controller::for_stream(jobs.applied_objects(), context.jobs.store())
            .with_config(Config::default().concurrency(CONCURRENCY))
            .watches_stream(pods.touched_objects(), move |pod| owner(&pod, &namespace))
            .watches_stream(batch_jobs.touched_objects(), move |job| owner(&job, &jobs_namespace))
            .reconcile_on(into_stream(remote_changes))
            .reconcile_on(into_stream(room))
            .reconcile_on(happenings::follow(&context))
            .reconcile_on(nodes::follow(&context))
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
            shutdown.run_until_cancelled(departures::run(aside.clone(), departing, departed)),
            shutdown.run_until_cancelled(aside.recalls.probe()),
            shutdown.run_until_cancelled(sweep::run(aside.clone())),
            shutdown.run_until_cancelled(sessions::tend(aside.clone())),
            shutdown.run_until_cancelled(aside.wakefulness.watch()),
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
    let api = Api::<K>::namespaced(context.streams.clone(), &context.namespace);
    watcher(api, config).backoff(settings::pauses()).modify(|object| object.meta_mut().managed_fields = None)
}

/// Drops what is remembered about BuildJobs that are gone, and passes on those that others have deleted.
fn forget(
    context: &Context,
    event: &watcher::Event<BuildJob>,
    slots: &Slots,
    leaving: &mpsc::UnboundedSender<BuildJob>,
) {
    match event {
        watcher::Event::Delete(job) => {
            context.failures.clear(job);
            context.remote.forget(job);
            let ours = context.recalls.forget(job).has_deleted();
            // Of one that ran for too long the agent may not have said so yet: it is spoken for if it is lost.
            if ours && job.status_or_default().phase != Phase::TimedOut {
                context.spokesman.forget(job);
            }
            pass_on(job, ours, slots, leaving);
        }
        // Some may have gone unseen.
        watcher::Event::InitDone => {
            context.recalls.retain(&context.jobs.all());
            context.failures.retain(&context.jobs);
        }
        _ => {}
    }
}

/// Passes on a BuildJob that is gone, unless its end or its deletion was our own doing. One that was replaced lives on in another.
fn pass_on(job: &BuildJob, ours: bool, slots: &Slots, leaving: &mpsc::UnboundedSender<BuildJob>) {
    let departed = |uuid| !slots.has_build_job(uuid);
    if !ours && !job.is_terminal() && job.job_uuid().is_some_and(departed) {
        // At once, and not when Buildkite can be told: a process after this one must not take it up again.
        slots.forsake(job);
        // The receiver is gone only while the process ends.
        let _ending = leaving.send(job.clone());
    }
}

/// Notes that an object of a BuildJob exists, or drops what is remembered about one that is gone; answers whether it is.
fn remember<K: Origin + Resource>(context: &Context, event: &watcher::Event<K>) -> bool {
    match event {
        watcher::Event::Apply(object) | watcher::Event::InitApply(object) => context.recalls.saw(object),
        watcher::Event::Delete(object) => {
            context.recalls.saw(object);
            context.happenings.forget(object);
            return true;
        }
        watcher::Event::Init | watcher::Event::InitDone => {}
    }
    false
}

/// The BuildJob that an object says it belongs to.
fn owner(object: &impl Origin, namespace: &str) -> Option<reflector::ObjectRef<BuildJob>> {
    Some(reflector::ObjectRef::new(object.build_job()?).within(namespace))
}

fn into_stream<T>(items: mpsc::UnboundedReceiver<T>) -> impl Stream<Item = T> {
    futures::stream::unfold(items, |mut items| async move { items.recv().await.map(|item| (item, items)) })
}

fn rules(settings: &Settings, pod: PodSettings) -> Rules {
    let pods = &settings.config.pods;
    Rules {
        pod,
        validation: settings.config.validation.clone(),
        timeouts: Timeouts::of(pods.timeouts),
        image_pull_grace: SignedDuration::from_secs(pods.image_pull_grace_seconds.into()),
        succeeded_ttl: SignedDuration::from_secs(pods.succeeded_ttl_seconds.into()),
        failed_ttl: SignedDuration::from_secs(pods.failed_ttl_seconds.into()),
        keep_pod_on_failure: pods.keep_pod_on_failure,
        max_attempts: MAX_ATTEMPTS,
    }
}
