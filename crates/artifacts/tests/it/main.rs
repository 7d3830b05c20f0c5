//! The artifact exporter as a whole, with a program in the agent's place that does what the test wants. What the real one does is
//! tested with it, end to end.
#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bk_api::exporters::{ArtifactExporterDocument, ExporterReport, SinkReport};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long anything may take.
const LONGEST: Duration = Duration::from_secs(30);

/// Writes down the files that it is asked to upload, one in a line.
const GOOD: &str = r#"printf '%s\n' "$8" | sed 's,//\./,\n,g; s,^\./,,' >> "$OLDPWD/../uploaded""#;

/// A job with an exporter.
struct World {
    directory: TempDir,
    stop: CancellationToken,
    task: JoinHandle<ExporterReport>,
}

impl World {
    /// An exporter whose agent runs this script.
    fn new(agent: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let at = |name: &str| directory.path().join(name).display().to_string();
        for name in ["artifacts", "environments", "drain"] {
            fs::create_dir(at(name)).unwrap();
        }
        // What it finds is what the test says there is.
        let agent = format!("#!/bin/sh\nif [ $2 = search ]; then cat $OLDPWD/../found; exit; fi\n{agent}\n");
        fs::write(at("agent"), agent.replace("$OLDPWD/..", &directory.path().display().to_string())).unwrap();
        fs::set_permissions(at("agent"), fs::Permissions::from_mode(0o755)).unwrap();
        let environment =
            "BUILDKITE_AGENT_ACCESS_TOKEN=t\0BUILDKITE_AGENT_ENDPOINT=http://b\0BUILDKITE_JOB_ID=7\0";
        fs::write(at("environments/container-0"), environment).unwrap();
        let document = ArtifactExporterDocument {
            directory: at("artifacts"),
            job_ended: vec![at("other-mark"), at("job-ended")],
            environments: at("environments"),
            drain: at("drain"),
            drained: at("drained"),
            agent: at("agent"),
            drain_seconds: 2,
            grace_seconds: 3,
        };
        let stop = CancellationToken::new();
        let token = stop.clone();
        let task = tokio::spawn(async move { bk_artifacts::exporter::export(&document, token).await });
        Self { directory, stop, task }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path("artifacts").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Files in the order in which they were uploaded.
    fn uploaded(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("uploaded")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    async fn end(self) -> (SinkReport, Vec<String>) {
        fs::write(self.path("job-ended"), "1").unwrap();
        self.ended().await
    }

    async fn ended(mut self) -> (SinkReport, Vec<String>) {
        let report = tokio::time::timeout(LONGEST, &mut self.task).await.expect("it ends").unwrap();
        (report.sinks[0].clone(), self.uploaded())
    }
}

async fn until(what: &str, mut look: impl FnMut() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < LONGEST, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn sent(count: u64) -> SinkReport {
    SinkReport { name: "artifacts".to_owned(), sent: count, ..SinkReport::default() }
}

#[tokio::test]
async fn files_that_are_closed_are_uploaded_while_the_job_runs_and_the_rest_at_its_end() {
    let world = World::new(GOOD);
    let open = fs::File::create(world.path("artifacts/open")).unwrap();
    // Only when the exporter has begun to watch does it know of a file that it is closed.
    let mut count: u64 = 0;
    until("closed ones are uploaded", || {
        count += 1;
        world.write(&format!("closed file {count}"), "1");
        !world.uploaded().is_empty()
    })
    .await;
    assert!(!world.uploaded().contains(&"open".to_owned()), "{:?}", world.uploaded());
    let (report, uploaded) = world.end().await;
    assert_eq!((report, uploaded.len()), (sent(count + 1), usize::try_from(count).unwrap() + 1));
    assert!(uploaded.contains(&"open".to_owned()), "{uploaded:?}");
    drop(open);
}

#[tokio::test]
async fn a_container_that_is_about_to_end_is_told_when_its_files_are_there() {
    let world = World::new(GOOD);
    world.write("deep/er/a", "1");
    fs::create_dir(world.path("drained")).unwrap();
    fs::write(world.path("drain/container-0"), "").unwrap();
    until("it is told", || world.path("drained/container-0").exists()).await;
    assert_eq!(world.uploaded(), ["deep/er/a"]);
    until("a sign", || world.path("drained/.alive").exists()).await;
    let (report, uploaded) = world.end().await;
    assert_eq!((report, uploaded.len()), (sent(1), 1));
}

#[tokio::test]
async fn a_file_that_changes_is_uploaded_again() {
    let world = World::new(GOOD);
    world.write("a", "1");
    fs::write(world.path("drain/container-0"), "").unwrap();
    until("it is told", || world.path("drained/container-0").exists()).await;
    world.write("a", "12");
    assert_eq!(world.end().await, (sent(2), vec!["a".to_owned(), "a".to_owned()]));
}

#[tokio::test]
async fn a_failure_is_tried_again_in_smaller_calls() {
    // Fails for every call that has the file `bad`.
    let world = World::new(&format!(r#"case "$8" in *bad*) echo 'fatal: no' >&2; exit 1;; esac; {GOOD}"#));
    for name in ["a", "bad", "c"] {
        world.write(name, name);
    }
    let (report, mut uploaded) = world.end().await;
    uploaded.sort();
    assert_eq!(uploaded, ["a", "c"]);
    let reason = Some("the agent cannot upload: fatal: no".to_owned());
    assert_eq!(report.waiting + report.lost, 1, "{report:?}");
    assert_eq!((report.sent, report.reason), (2, reason));
}

#[tokio::test]
async fn what_a_call_that_failed_has_uploaded_is_not_uploaded_again() {
    // The first call uploads `a` and `c`, and fails for `b`.
    let first =
        r#"if ! [ -e "$OLDPWD/../found" ]; then printf '1 a\0001 c\000' > "$OLDPWD/../found"; exit 1; fi"#;
    let world = World::new(&format!("{first}; {GOOD}"));
    for name in ["a", "b", "c"] {
        world.write(name, "1");
    }
    let (report, uploaded) = world.end().await;
    assert_eq!((report.sent, report.waiting, report.lost, uploaded), (3, 0, 0, vec!["b".to_owned()]));
}

#[tokio::test]
async fn an_agent_that_hangs_keeps_nobody() {
    let world = World::new("exec sleep 3600");
    world.write("a", "1");
    fs::write(world.path("drain/container-0"), "").unwrap();
    until("the container is told all the same", || world.path("drained/container-0").exists()).await;
    let (report, _) = world.end().await;
    assert_eq!((report.sent, report.waiting + report.lost), (0, 1));
    assert_eq!(report.reason.as_deref(), Some("the agent has not uploaded in 2 s"));
}

#[tokio::test]
async fn a_file_that_grows_for_ever_does_not_keep_the_job() {
    // Each upload finds the file longer than the one before.
    let world = World::new(&format!("echo more >> growing; {GOOD}"));
    world.write("growing", "1");
    fs::write(world.path("drain/container-0"), "").unwrap();
    until("the container is told", || world.path("drained/container-0").exists()).await;
    let (report, uploaded) = world.end().await;
    assert_eq!(uploaded, ["growing", "growing"], "once for the container, and once for the end of the job");
    assert_eq!((report.sent, report.waiting), (2, 1));
    assert_eq!(report.reason.as_deref(), Some("it was written to after its upload"));
}

#[tokio::test]
async fn when_the_pod_ends_everything_is_uploaded_at_once() {
    let world = World::new(GOOD);
    let _open = fs::File::create(world.path("artifacts/open")).unwrap();
    world.stop.cancel();
    assert_eq!(world.ended().await, (sent(1), vec!["open".to_owned()]));
}

#[tokio::test]
async fn when_the_pod_ends_an_agent_that_hangs_gets_the_grace_period() {
    let world = World::new("exec sleep 3600");
    world.write("a", "1");
    fs::write(world.path("drain/container-0"), "").unwrap();
    let began = Instant::now();
    world.stop.cancel();
    let (report, _) = world.ended().await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!((report.sent, report.waiting + report.lost), (0, 1), "{report:?}");
}

#[tokio::test]
async fn what_cannot_become_an_artifact_is_in_the_report() {
    let world = World::new(GOOD);
    std::os::unix::fs::symlink("/etc/hostname", world.path("artifacts/out")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(world.path("artifacts/socket")).unwrap();
    world.write("a", "1");
    let (report, uploaded) = world.end().await;
    assert_eq!(uploaded, ["a"]);
    let reason = Some("out: a link that leads out of the directory".to_owned());
    assert_eq!(report, SinkReport { lost: 1, reason, ..sent(1) });
}

#[tokio::test]
async fn many_files_go_in_few_calls() {
    let world = World::new(&format!(r#"echo call >> "$OLDPWD/../calls"; {GOOD}"#));
    for number in 0..1000 {
        fs::write(world.path("artifacts").join(number.to_string()), "").unwrap();
    }
    let calls = world.path("calls");
    let count = |path: &Path| fs::read_to_string(path).unwrap().lines().count();
    fs::write(world.path("drain/container-0"), "").unwrap();
    until("all are uploaded", || world.path("drained/container-0").exists()).await;
    assert!((5..=6).contains(&count(&calls)), "{}", count(&calls));
    let (report, uploaded) = world.end().await;
    assert_eq!((report.sent, uploaded.len()), (1000, 1000));
}
