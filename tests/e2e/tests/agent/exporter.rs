//! The artifact exporter beside real jobs: it uploads with the real agent, and the shim's hooks tell it of the job.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use bk_api::exporters::{ArtifactExporterDocument, ExporterReport};
use bk_e2e::eventually;
use reqwest::Method;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::process::{Agent, program};
use crate::stage::{Placed, Stage};

/// A stage with an exporter, as in a pod of one container.
struct World {
    stage: Stage,
    exporter: JoinHandle<ExporterReport>,
}

impl World {
    async fn new() -> Self {
        let stage = Stage::new().await.unwrap();
        let at = |name: &str| stage.directory().join(name).display().to_string();
        for directory in ["artifacts", "environments", "hooks", "w/.buildkite-operator/1"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        let shim = std::env::var("BUILDKITE_SHIM")
            .expect("BUILDKITE_SHIM names the shim: run `cargo xtask test --only agent`");
        for hook in ["environment", "pre-command", "pre-exit"] {
            symlink(&shim, at(&format!("hooks/{hook}"))).unwrap();
        }
        let document = ArtifactExporterDocument {
            directory: at("artifacts"),
            job_ended: vec![at("w/.buildkite-operator/1/job-ended")],
            environments: at("environments"),
            drain: at("w/.buildkite-operator/1/drain"),
            drained: at("w/.buildkite-operator/1/drained"),
            agent: program().unwrap().display().to_string(),
            drain_seconds: 20,
            grace_seconds: 20,
        };
        let exporter =
            tokio::spawn(
                async move { bk_artifacts::exporter::export(&document, CancellationToken::new()).await },
            );
        Self { stage, exporter }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.stage.directory().join(name)
    }

    /// A job that runs this, and an agent for it.
    async fn job(&self, command: &str) -> (Placed, Agent) {
        let directory = self.stage.directory().display();
        let steps = format!(
            "env:\n  OUT: {directory}/artifacts\n  BUILDKITE_SHIM_WORKSPACE: {directory}/w\n  BUILDKITE_SHIM_RUN: \"1\"\n  \
             BUILDKITE_SHIM_NAME: container-0\n  BUILDKITE_SHIM_ENVIRONMENTS: {directory}/environments\n\
             steps:\n  - key: one\n    command: |\n      cd \"$$OUT\"\n      {}\n",
            command.replace('\n', "\n      ")
        );
        let placed = self.stage.build(&steps).await.unwrap();
        let job = self.stage.job(&placed, "one").await.unwrap();
        let hooks = format!("--additional-hooks-paths={directory}/hooks");
        let agent = self.stage.agent(&["--acquire-job", job["id"].as_str().unwrap(), &hooks]).unwrap();
        (placed, agent)
    }

    /// The job once it has ended.
    async fn ended(&self, placed: &Placed) -> Value {
        self.stage.job_when(placed, "one", "has ended", |job| job["finished_at"].is_string()).await.unwrap()
    }

    /// The artifacts of a job that has just ended: paths and sizes. Each is whole.
    async fn artifacts(&self, placed: &Placed) -> Vec<(String, u64)> {
        let artifacts = self.stage.show(placed, "/artifacts").await.unwrap();
        let all = artifacts.as_array().unwrap();
        assert!(all.iter().all(|artifact| artifact["state"] == "finished"), "{artifacts}");
        let entry = |artifact: &Value| {
            (artifact["path"].as_str().unwrap().to_owned(), artifact["file_size"].as_u64().unwrap())
        };
        let mut found: Vec<_> = all.iter().map(entry).collect();
        found.sort();
        found
    }

    /// The exporter's report, as the job's end reaches it.
    async fn report(self) -> ExporterReport {
        fs::write(self.path("w/.buildkite-operator/1/job-ended"), "0").unwrap();
        self.exporter.await.unwrap()
    }
}

fn expected<const N: usize>(artifacts: [(&str, u64); N]) -> Vec<(String, u64)> {
    artifacts.map(|(path, size)| (path.to_owned(), size)).to_vec()
}

#[tokio::test]
async fn files_of_any_name_are_there_when_the_job_has_passed() {
    let world = World::new().await;
    let command = r"mkdir -p 'deep/a b'
printf 1 > 'deep/a b/c;d*.txt'
printf 12 > 'käse 🧀'
printf 123 > -n
printf 1234 > ' leading'
ln -s -- -n link
ln -s /etc/passwd out
mkfifo pipe
: > .empty";
    let (placed, _agent) = world.job(command).await;
    assert_eq!(world.ended(&placed).await["state"], "passed");
    let names =
        [(" leading", 4), ("-n", 3), (".empty", 0), ("deep/a b/c;d*.txt", 1), ("käse 🧀", 2), ("link", 3)];
    let mut names = expected(names);
    names.sort();
    assert_eq!(world.artifacts(&placed).await, names);
    let sink = world.report().await.sinks.remove(0);
    assert_eq!((sink.sent, sink.waiting, sink.lost), (6, 0, 1), "{sink:?}");
    assert_eq!(sink.reason.as_deref(), Some("out: a link that leads out of the directory"));
}

#[tokio::test]
async fn what_was_written_is_there_when_the_job_has_failed() {
    let world = World::new().await;
    let (placed, _agent) = world.job("echo report > junit.xml\nexit 3").await;
    let job = world.ended(&placed).await;
    assert_eq!((&job["state"], &job["exit_status"]), (&"failed".into(), &3.into()));
    assert_eq!(world.artifacts(&placed).await, expected([("junit.xml", 7)]));
    assert_eq!(world.report().await.sinks[0].sent, 1);
}

#[tokio::test]
async fn what_was_written_is_there_when_the_job_was_cancelled() {
    let world = World::new().await;
    // The file stays open, so nobody would upload it before the end.
    let (placed, _agent) = world.job("exec 3> open.log\necho begun >&3\nsleep 3600").await;
    eventually("the job writes", async || {
        Ok(fs::read_to_string(world.path("artifacts/open.log"))
            .is_ok_and(|text| !text.is_empty())
            .then_some(()))
    })
    .await
    .unwrap();
    let job = world.stage.job(&placed, "one").await.unwrap();
    let path = format!("jobs/{}/cancel", job["id"].as_str().unwrap());
    world.stage.rest(Method::PUT, &path, None).await.unwrap();
    assert_eq!(world.ended(&placed).await["state"], "canceled");
    assert_eq!(world.artifacts(&placed).await, expected([("open.log", 6)]));
    assert_eq!(world.report().await.sinks[0].sent, 1);
}

/// As the kernel does it with a job that has used up its memory: no hook runs any more.
#[tokio::test]
async fn what_was_written_is_there_when_the_bootstrap_is_killed() {
    let world = World::new().await;
    let command = r"exec 3> open.log
echo begun >&3
p=$$PPID
until tr '\000' ' ' < /proc/$$p/cmdline | grep -q ' bootstrap '; do p=$$(cut -d ' ' -f 4 /proc/$$p/stat); done
kill -KILL $$p
sleep 3600";
    let (placed, _agent) = world.job(command).await;
    let job = world.ended(&placed).await;
    assert_eq!((&job["state"], &job["exit_status"]), (&"failed".into(), &(-1).into()));
    assert_eq!(world.artifacts(&placed).await, expected([("open.log", 6)]));
    assert_eq!(world.report().await.sinks[0].sent, 1);
}

#[tokio::test]
async fn files_are_there_while_the_job_runs() {
    let world = World::new().await;
    let (placed, _agent) = world
        .job("n=0\nwhile ! test -e stop; do n=$$((n+1)); echo x > early-$$n; sleep 0.2; done\nrm stop")
        .await;
    // Those that are written before the exporter watches take longer, so there are several.
    eventually("an artifact of the running job", async || {
        let artifacts = world.stage.show(&placed, "/artifacts").await?;
        let finished = artifacts.as_array().unwrap().iter().any(|artifact| artifact["state"] == "finished");
        Ok(finished.then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(world.stage.job(&placed, "one").await.unwrap()["state"], "running");
    fs::write(world.path("artifacts/.stop"), "").unwrap();
    fs::rename(world.path("artifacts/.stop"), world.path("artifacts/stop")).unwrap();
    assert_eq!(world.ended(&placed).await["state"], "passed");
}

/// `cargo xtask test --only agent --ignored --filter many_and_large`.
#[tokio::test]
#[ignore = "takes minutes and 4 GB of disk"]
async fn many_and_large_files() {
    let world = World::new().await;
    let command = r"i=0
while [ $$i -lt 10000 ]; do echo $$i > small-$$i; i=$$((i+1)); done
head -c 2000000000 /dev/zero > large";
    let (placed, agent) = world.job(command).await;
    let job = tokio::time::timeout(std::time::Duration::from_mins(10), async {
        loop {
            let job = world.stage.job(&placed, "one").await.unwrap();
            if job["finished_at"].is_string() {
                return job;
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    });
    let job = job.await.unwrap_or_else(|_| panic!("the agent wrote: {}", agent.log()));
    assert_eq!(job["state"], "passed");
    let sink = world.report().await.sinks.remove(0);
    assert_eq!((sink.sent, sink.waiting, sink.lost), (10_001, 0, 0), "{sink:?}");
}
