//! Many jobs at once whose pods wait, so that they can be counted.

use std::collections::HashSet;

use anyhow::{Result, ensure};
use bk_api::{BuildJob, names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};

use crate::{World, audit::ApiCall, buildkite::Job, eventually_for, record::Record};

/// A step whose pods no scheduler looks at.
const STEP: &str = "plugins: [{kubernetes: {podSpec: {schedulingGates: [{name: e2e.test/wait}], \
                    containers: [{image: any, command: ['true']}]}}}]";

/// How long jobs may take to go on after something has held all of them up, on a machine that does much else. One that is forgotten
/// stays so for minutes, until its reservation ends.
const RECOVERY: SignedDuration = SignedDuration::from_secs(20);

/// When the last of some objects is due, after what held all of them up: twice as long as all take at the pace of the middle ones, which
/// neither the first nor the last can change.
fn due(created: &[Timestamp]) -> SignedDuration {
    let at = |tenth: usize| created.get(created.len() * tenth / 10).copied();
    let pace = at(9).zip(at(1)).map(|(late, early)| late.duration_since(early) / 8 * 10);
    RECOVERY + pace.unwrap_or_default() * 2
}

/// Many jobs.
pub struct Crowd<'a> {
    /// The jobs.
    pub jobs: Vec<Job>,
    world: &'a World,
    pods: Record<Pod>,
    build_jobs: Record<BuildJob>,
}

impl World {
    /// So many jobs wait in the queue.
    pub async fn crowd(&self, count: usize) -> Result<Crowd<'_>> {
        let (client, namespace) = (self.cluster.client.clone(), &self.cluster.namespace);
        let pods = Record::begin(Api::namespaced(client.clone(), namespace));
        let build_jobs = Record::begin(Api::namespaced(client, namespace));
        let steps = format!("agents: {{queue: bk-operator}}\nsteps: [{{parallelism: {count}, {STEP}}}]");
        let build = self.buildkite.build(&self.repository.url, &steps).await?;
        ensure!(build.jobs.len() == count, "{} jobs", build.jobs.len());
        Ok(Crowd { jobs: build.jobs, world: self, pods, build_jobs })
    }
}

impl Crowd<'_> {
    /// Waits until so many pods have been there.
    pub async fn pods(&self, count: usize) -> Result<()> {
        eventually_for(count, "the jobs have pods", async || {
            let seen = self.pods.seen_if(|_| true).len();
            ensure!(seen >= count, "{seen} pods of {count}");
            Ok(Some(()))
        })
        .await
    }

    /// Waits until all have pods, and returns the longest time since `mark` in which no BuildJob and no pod was created. That tells
    /// jobs that were left lying from a machine that is slow. One that is left lying while others go on is found by the pace
    /// of those.
    #[expect(clippy::print_stdout, reason = "figures to look at, with --show-output")]
    pub async fn all_go_on(&self, mark: Timestamp) -> Result<SignedDuration> {
        self.pods(self.jobs.len()).await?;
        let calls = self.world.api_calls(mark)?;
        let mut times = vec![mark];
        for kind in ["buildjobs", "pods"] {
            let created = self.creations(&calls, kind);
            let (Some(last), due) = (created.last(), due(&created)) else { continue };
            let took = last.duration_since(mark);
            println!("{} {kind} are created after {took:#}; the last was due after {due:#}", created.len());
            assert!(took <= due, "one of {kind} was left lying: created after {took:#}, due after {due:#}");
            times.extend(created);
        }
        times.sort_unstable();
        let pause = times.windows(2).map(|pair| pair[1].duration_since(pair[0])).max().unwrap_or_default();
        println!("the longest pause was {pause:#}");
        Ok(pause)
    }

    /// When the jobs' objects of a kind were created, in order.
    fn creations(&self, calls: &[ApiCall], kind: &str) -> Vec<Timestamp> {
        let ours = self.names();
        let is_one = |call: &&ApiCall| {
            call.verb == "create"
                && call.code == 201
                && call.resource == kind
                && call.name.as_ref().is_some_and(|name| ours.contains(name))
        };
        let mut times: Vec<_> = calls.iter().filter(is_one).map(|call| call.at).collect();
        times.sort_unstable();
        times
    }

    /// Each job has had one BuildJob and one pod.
    pub fn assert_none_twice(&self) {
        let expected = self.names();
        let pods = self.pods.seen().iter().map(ResourceExt::name_any).collect();
        let build_jobs = self.build_jobs.seen().iter().map(ResourceExt::name_any).collect();
        for (kind, mut seen) in [("pods", pods), ("BuildJobs", build_jobs)] as [(&str, Vec<String>); 2] {
            seen.retain(|name| expected.contains(name));
            let distinct: HashSet<&String> = seen.iter().collect();
            assert_eq!((distinct.len(), seen.len()), (expected.len(), expected.len()), "{kind}: {seen:?}");
        }
    }

    /// What their BuildJobs and pods are called.
    fn names(&self) -> HashSet<String> {
        self.jobs.iter().map(|job| names::build_job(&job.id.to_string())).collect()
    }

    /// Cancels all of them; nothing of them is left.
    pub async fn cancel(&self) -> Result<()> {
        for job in &self.jobs {
            self.world.buildkite.cancel(job.id).await?;
        }
        eventually_for(self.jobs.len(), "none of their BuildJobs is left", async || {
            let listed = self.world.cluster.kubectl(&["get", "buildjobs", "-o", "name"], None)?;
            let ours = self.names();
            let left = listed.lines().filter_map(|line| line.rsplit('/').next());
            let left = left.filter(|name| ours.contains(*name)).count();
            ensure!(left == 0, "{left} are left");
            Ok(Some(()))
        })
        .await?;
        self.world.cluster.no_pods().await
    }
}
