//! Many jobs at once whose pods wait, so that they can be counted.

use std::collections::HashSet;

use anyhow::{Result, ensure};
use bk_api::{BuildJob, names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};

use crate::{World, buildkite::Job, eventually_for, record::Record};

/// A step whose pods no scheduler looks at.
const STEP: &str = "plugins: [{kubernetes: {podSpec: {schedulingGates: [{name: e2e.test/wait}], \
                    containers: [{image: any, command: ['true']}]}}}]";

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

    /// Waits until all have pods, and returns the longest time since `mark` in which nothing was created. That tells a job
    /// which was left lying from a machine that is slow.
    #[expect(clippy::print_stdout, reason = "figures to look at, with --show-output")]
    pub async fn all_go_on(&self, mark: Timestamp) -> Result<SignedDuration> {
        self.pods(self.jobs.len()).await?;
        let mut times: Vec<Timestamp> = self
            .world
            .api_calls(mark)?
            .iter()
            .filter(|call| call.verb == "create")
            .map(|call| call.at)
            .collect();
        times.push(mark);
        times.sort_unstable();
        let pause = times.windows(2).map(|pair| pair[1].duration_since(pair[0])).max().unwrap_or_default();
        let all = times.last().map(|last| last.duration_since(mark)).unwrap_or_default();
        println!("all jobs have pods after {all:#}; the longest pause was {pause:#}");
        Ok(pause)
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
