//! Buildkite's queues → BuildJobs.
//!
//! For each queue, again and again: list what waits → choose no more than there are free places → write the choice down →
//! reserve it in one batch → read the jobs → create the BuildJobs. The choice is written down *before* it is reserved, so
//! that a crash at any point strands nothing: on start the last choice is reserved again, which extends what is
//! ours, and completed. An intent whose jobs all became BuildJobs is harmless to complete again: jobs that are
//! here are skipped and jobs that have ended cannot be reserved, so it need not be erased.
//!
//! - [`slots`]: who has the places that there are, for all queues together
//! - [`queue`]: the rounds of one queue
//! - [`intent`]: the written choice
//! - [`former`]: what was taken under another name
//! - [`take`]: from a reserved job to its BuildJob
//! - [`reservations`]: keeping what waits inside the cluster ours
//! - [`standing`]: what to tell people about a queue
//! - [`departure`]: whether anybody serves the queues after us

mod departure;
mod former;
mod intent;
mod queue;
mod reservations;
mod slots;
mod standing;
mod take;

use std::sync::Arc;

use bk_api::BuildJob;
use futures::future::join_all;
use kube::Client;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::{queue::Queue, take::Taker};
use crate::{
    cache::Cache,
    intake::{Intakes, Way},
    settings::{Deployed, Settings},
    telemetry::Telemetry,
    wakefulness::Wakefulness,
};

pub use slots::Slots;

/// How many jobs are read and created at once, from all queues together, and from one at least: queues do not wait for
/// one another.
const CONCURRENCY: usize = 64;
const CONCURRENCY_OF_QUEUE: usize = 8;

/// Takes jobs from all queues.
pub struct Spawner {
    client: Client,
    intakes: Intakes,
    queues: Vec<Queue>,
    former: Vec<Taker>,
    jobs: Cache<BuildJob>,
    deployed: Option<Deployed>,
    /// Whether the Deployment could be read when the operator began.
    could_tell: bool,
}

impl Spawner {
    /// A spawner for the settings' queues that counts the BuildJobs in `jobs`, which `slots` is told of, too.
    pub fn new(
        client: Client,
        settings: &Settings,
        jobs: Cache<BuildJob>,
        slots: &Slots,
        telemetry: &Telemetry,
        wakefulness: &Arc<Wakefulness>,
    ) -> Self {
        let permits = (CONCURRENCY / settings.intakes.served().len()).max(CONCURRENCY_OF_QUEUE);
        let validation = Arc::new(settings.config.validation.clone());
        let taker = |way: &Way| Taker {
            client: client.clone(),
            namespace: settings.namespace.clone(),
            terms: way.terms.clone(),
            validation: validation.clone(),
            intake: way.intake.clone(),
            slots: slots.clone(),
            permits: Arc::new(Semaphore::new(permits)),
            wakefulness: wakefulness.clone(),
            owner: settings.owner.clone(),
            is_fenced: settings.is_leased,
            version: Arc::default(),
        };
        let intakes = settings.intakes.clone();
        let served = intakes.served().iter().enumerate();
        let queues = served.map(|(index, way)| Queue::new(index, taker(way), telemetry.clone())).collect();
        let former = intakes.former().iter().map(taker).collect();
        Self { client, intakes, queues, former, jobs, deployed: settings.deployed.clone(), could_tell: false }
    }

    /// Takes jobs until `shutdown`. Queues do not wait for one another.
    pub async fn run(&mut self, shutdown: &CancellationToken) {
        let begin = departure::can_tell(self.client.clone(), self.deployed.as_ref());
        self.could_tell = shutdown.run_until_cancelled(begin).await.unwrap_or_default();
        let (intakes, jobs, queues) = (&self.intakes, &self.jobs, &mut self.queues);
        let work = async {
            // Free places are counted in the cache, so nothing is taken before it is complete.
            jobs.complete().await;
            let extending = intakes.all().iter().map(|way| reservations::extend(&way.intake, intakes, jobs));
            let former = self.former.iter().map(|taker| former::see_through(taker, intakes, jobs));
            tokio::join!(join_all(queues.iter_mut().map(Queue::run)), join_all(extending), join_all(former));
        };
        shutdown.run_until_cancelled(work).await;
    }

    /// How many BuildJobs are under way.
    pub fn under_way(&self) -> usize {
        self.jobs.all().iter().filter(|job| !job.is_terminal()).count()
    }

    /// Tells Buildkite that nobody serves the queues any more, unless another replica of the operator goes on.
    pub async fn leave(&self) {
        if departure::is_last(self.client.clone(), self.deployed.as_ref(), self.could_tell).await {
            join_all(self.intakes.all().iter().map(|way| departure::leave(way.intake.as_ref()))).await;
        }
    }
}
