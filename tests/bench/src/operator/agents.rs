//! The agents of pods that only seem to run: each takes its job, and leaves when the containers of its pod have ended.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use bk_e2e::agent::PlayedAgent;
use bk_e2e::buildkite::Buildkite;
use bk_e2e::kwok::EXIT_STATUS;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::pods::Pods;
use super::stage::Stage;

/// Agents that are busy at once: they are one process here.
const AGENTS: usize = 32;
/// How often somebody looks whether a pod runs, or has ended.
const LOOK: Duration = Duration::from_millis(50);
/// Longer than the containers of a pod take to end when they are told to.
const PATIENCE: Duration = Duration::from_mins(2);

/// Agents for all pods that come to run. They stop with this value.
pub(super) struct Agents {
    failure: Arc<Mutex<Option<String>>>,
    _play: AbortOnDropHandle<()>,
}

impl Agents {
    /// Begins to play them.
    pub(super) fn play(stage: &Stage) -> Self {
        let failure = Arc::<Mutex<Option<String>>>::default();
        let player = Player {
            api: Api::namespaced(stage.world.cluster.client.clone(), &stage.world.cluster.namespace),
            buildkite: stage.world.buildkite.clone(),
            pods: stage.pods.clone(),
            turns: Arc::new(Semaphore::new(AGENTS)),
        };
        let play = tokio::spawn(player.play(Arc::clone(&failure)));
        Self { failure, _play: AbortOnDropHandle::new(play) }
    }

    /// Fails if one of them has failed.
    pub(super) fn check(&self) -> Result<()> {
        match &*self.failure.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(failure) => bail!("an agent failed: {failure}"),
            None => Ok(()),
        }
    }
}

#[derive(Clone)]
struct Player {
    api: Api<Pod>,
    buildkite: Buildkite,
    pods: Pods,
    turns: Arc<Semaphore>,
}

impl Player {
    async fn play(self, failure: Arc<Mutex<Option<String>>>) {
        let mut served = HashSet::new();
        let mut agents = JoinSet::new();
        let mut looks = interval(LOOK);
        loop {
            looks.tick().await;
            for job in self.pods.running() {
                if served.insert(job) {
                    let (player, failure) = (self.clone(), Arc::clone(&failure));
                    agents.spawn(async move {
                        if let Err(error) = player.serve(job).await {
                            let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                            failure.get_or_insert_with(|| format!("{error:#}"));
                        }
                    });
                }
            }
        }
    }

    /// What an agent and its pod do.
    async fn serve(&self, job: Uuid) -> Result<()> {
        let _turn = self.turns.acquire().await?;
        let Some(pod) = self.pods.of(job) else { return Ok(()) };
        let agent = PlayedAgent::register(&self.buildkite, &pod.name).await?;
        agent.take(job).await?;
        agent.log(job, "hello\n").await?;
        let patch = json!({ "metadata": { "annotations": { EXIT_STATUS: "0" } } });
        self.api.patch_metadata(&pod.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        let ended = async {
            let mut looks = interval(LOOK);
            while self.pods.of(job).is_some_and(|pod| !pod.ended && pod.gone.is_none()) {
                looks.tick().await;
            }
        };
        if timeout(PATIENCE, ended).await.is_err() {
            bail!("the containers of pod {} did not end", pod.name);
        }
        agent.finish(job, 0).await?;
        agent.disconnect().await
    }
}
