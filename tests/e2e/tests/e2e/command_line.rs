//! The commands that talk to a cluster, on jobs of an operator that is installed there.

use std::{
    fs::{self, File},
    process::{Command, Output, Stdio},
};

use anyhow::{Result, ensure};
use bk_api::{BuildJob, Phase};
use bk_e2e::{World, eventually, scenario};
use serde_json::Value;

use crate::installation;

/// A command of the program, in an environment of its own.
fn command(world: &World, args: &[&str]) -> Command {
    let mut command = Command::new(&world.environment.operator);
    command
        .args(args)
        .arg(format!("--kubeconfig={}", world.environment.kubeconfig.display()))
        .arg(format!("--namespace={}", world.cluster.namespace))
        .env_clear()
        .stdin(Stdio::null());
    command
}

/// How it ended, its output, and what it said.
async fn outcome(world: &World, args: &[&str]) -> Result<(Option<i32>, String, String)> {
    let mut command = command(world, args);
    let Output { status, stdout, stderr } = tokio::task::spawn_blocking(move || command.output()).await??;
    let [printed, said] = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    world.note(&format!("{args:?}: {status}\n{printed}{said}"))?;
    Ok((status.code(), printed, said))
}

/// What it prints when it succeeds.
async fn output(world: &World, args: &[&str]) -> Result<String> {
    let (code, printed, said) = outcome(world, args).await?;
    ensure!(code == Some(0), "{args:?} ended with {code:?}: {printed}{said}");
    Ok(printed)
}

/// The one line that it says when it fails.
async fn complaint(world: &World, args: &[&str]) -> Result<String> {
    let (code, printed, said) = outcome(world, args).await?;
    ensure!(code == Some(1) && said.lines().count() == 1, "{args:?} ended with {code:?}: {printed}{said}");
    Ok(said)
}

fn apply(world: &World, name: &str, command: &str) -> Result<()> {
    let manifest = format!(
        "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildJob\nmetadata: {{name: {name}, labels: {{team: web}}}}\n\
         spec: {{image: \"{}\", command: '{command}'}}\n",
        world.environment.toolbox_image
    );
    world.cluster.kubectl(&["apply", "-f", "-"], Some(&manifest)).map(drop)
}

async fn in_phase(world: &World, name: &str, phase: Phase) -> Result<BuildJob> {
    world
        .cluster
        .build_job_with(name, &format!("{phase:?}"), |job| job.status_or_default().phase == phase)
        .await
}

/// The rows of a table, by their words.
fn rows(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(|line| line.split_whitespace().collect()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_listed_described_read_and_cancelled() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        apply(world, "fails", "echo to no avail; exit 3")?;
        let log = world.directory().join("followed.log");
        apply(world, "runs", "echo it has begun; sleep 600")?;
        // It may not have started yet.
        let mut following =
            command(world, &["logs", "--follow", "buildjob/runs"]).stdout(File::create(&log)?).spawn()?;
        in_phase(world, "fails", Phase::Failed).await?;
        in_phase(world, "runs", Phase::Running).await?;

        let table = output(world, &["get"]).await?;
        assert!(rows(&table)[0].starts_with(&["NAME", "PHASE", "EXIT"]), "{table}");
        assert!(rows(&table).iter().any(|row| row.starts_with(&["fails", "Failed", "3"])), "{table}");
        assert!(table.contains("CommandFailed"), "{table}");
        let named =
            output(world, &["get", "jobs", "--phase=failed", "--selector=team=web", "-o", "name"]).await?;
        assert_eq!(named, "buildjob.buildkite-operator.dev/fails\n");
        let json: Value = serde_json::from_str(&output(world, &["get", "bj", "runs", "-o", "json"]).await?)?;
        assert_eq!((&json["kind"], &json["status"]["phase"]), (&"BuildJob".into(), &"Running".into()));
        let (_, nothing, said) = outcome(world, &["get", "mirrors"]).await?;
        assert!(nothing.is_empty() && said.contains("no repomirrors in namespace"), "{said}");

        let page = output(world, &["describe", "fails", "runs"]).await?;
        for part in [
            "CommandFailed",
            "exit status 3",
            "finished",
            "Pod runs on node",
            "container-0",
            "none: a standalone job",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        eventually("the log is followed", async || {
            Ok(fs::read_to_string(&log)?.contains("it has begun").then_some(()))
        })
        .await?;
        assert!(output(world, &["logs", "runs"]).await?.contains("it has begun"));
        assert!(output(world, &["logs", "runs", "-c", "agent"]).await.is_ok());
        assert!(
            complaint(world, &["logs", "runs", "-c", "nobody"]).await?.contains("it has container-0, agent")
        );
        assert!(complaint(world, &["logs", "fails"]).await?.contains("the pod of BuildJob fails is gone"));
        assert!(
            complaint(world, &["describe", "nobody"])
                .await?
                .contains("there is no BuildJob nobody in namespace")
        );

        assert!(complaint(world, &["cancel", "runs"]).await?.contains("pass --yes"));
        let (code, done, said) = outcome(world, &["cancel", "runs", "fails", "--yes"]).await?;
        assert_eq!((code, done.as_str()), (Some(0), "BuildJob runs is deleted: its pod is stopped\n"));
        assert_eq!(said, "BuildJob fails has ended already: Failed\n");
        world.cluster.no_pods().await?;
        eventually("nothing is left to follow", async || Ok(following.try_wait()?)).await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_is_examined_watched_and_planned_for() {
    scenario(async |world| {
        installation::install(world).await?;
        let report = output(world, &["doctor"]).await?;
        for check in [
            "definitions",
            "configuration",
            "operator",
            "leader",
            "permissions",
            "shim",
            "token",
            "buildkite",
        ] {
            assert!(rows(&report).iter().any(|row| row.starts_with(&["ok", check])), "{check}: {report}");
        }
        assert!(!report.contains(&world.buildkite.agent_token));

        // A Buildkite job is known by its UUID and by the address of its page.
        let steps = "agents: {queue: bk-operator}\nsteps: [{command: 'echo on its way; sleep 600'}]";
        let build = world.buildkite.build(&world.repository.url, steps).await?;
        let id = build.jobs[0].id;
        // The kubelet tells later than the agent that a container runs.
        in_phase(world, &format!("buildkite-{id}"), Phase::Running).await?;
        eventually("the log is read", async || {
            Ok(output(world, &["logs", &id.to_string()]).await?.contains("on its way").then_some(()))
        })
        .await?;
        let page = output(world, &["describe", &format!("https://buildkite.com/any/builds/1#{id}")]).await?;
        assert!(page.contains(&id.to_string()) && page.contains("bk-operator"), "{page}");
        let listed = output(world, &["get", "--queue=bk-operator", "--phase=running"]).await?;
        assert!(listed.contains(&id.to_string()), "{listed}");

        let top: Value = serde_json::from_str(&output(world, &["top", "-o", "json"]).await?)?;
        let queue = &top["queues"][0];
        assert_eq!(
            (&queue["queue"], &queue["connected"], &queue["inFlight"]),
            (&"bk-operator".into(), &true.into(), &1.into())
        );
        assert_eq!(top["phases"]["Running"], 1);
        let once = output(world, &["top", "--once"]).await?;
        assert!(once.contains("CONNECTED") && once.contains("Running 1"), "{once}");

        let done = output(world, &["cancel", &id.to_string(), "--yes"]).await?;
        assert!(
            done.contains("its agent is stopped with its pod") && done.contains("BuildJobDeleted"),
            "{done}"
        );
        assert_ne!(world.buildkite.ended(id).await?.exit_status, Some(0));

        // A plan is the pod as the API server has it, and where it fits.
        let file = world.directory().join("job.yaml");
        let planned = file.to_string_lossy().into_owned();
        let job = |cpu: &str| {
            let head =
                "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildJob\nmetadata: {name: planned}\n";
            fs::write(
                &file,
                format!("{head}spec: {{command: 'true', resources: {{requests: {{cpu: '{cpu}'}}}}}}\n"),
            )
        };
        job("10m")?;
        let (code, pod, nodes) = outcome(world, &["plan", "--cluster", "--job", &planned]).await?;
        assert_eq!(code, Some(0), "{nodes}");
        assert!(pod.contains("schedulerName: default-scheduler"), "it was tried out: {pod}");
        assert!(rows(&nodes).iter().any(|row| row.get(1) == Some(&"yes")), "{nodes}");
        assert!(world.cluster.build_job("planned").await?.is_none(), "nothing was made");
        job("9999")?;
        let (code, _, nodes) = outcome(world, &["plan", "--cluster", "--job", &planned]).await?;
        assert_eq!(code, Some(1));
        assert!(nodes.contains("cpu: ") && nodes.contains("wanted, the node has"), "{nodes}");
        assert!(nodes.contains("the pod fits none of the"), "{nodes}");

        world.cluster.kubectl(&["delete", "secret", "buildkite-agent-token"], None)?;
        let (code, report, _) = outcome(world, &["doctor"]).await?;
        assert_eq!(code, Some(1), "{report}");
        assert!(rows(&report).iter().any(|row| row.starts_with(&["FAIL", "token"])), "{report}");
        let misspelt = r#"{"data": {"job_spawner_config": "quue: linux"}}"#;
        let patch = ["patch", "configmap", "buildkite-operator-config", "--type=merge", "--patch", misspelt];
        world.cluster.kubectl(&patch, None)?;
        let (code, report, _) = outcome(world, &["doctor"]).await?;
        assert_eq!(code, Some(1), "{report}");
        assert!(report.contains("unknown field `quue`; did you mean `queue`?"), "{report}");
        Ok(())
    })
    .await;
}
