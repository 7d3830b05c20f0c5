//! BuildJobs applied with kubectl: with a Buildkite job behind them, and standalone.

use bk_api::{BuildJob, Phase, VerdictCode};
use bk_e2e::scenario;

#[tokio::test(flavor = "multi_thread")]
async fn a_buildkite_job_can_be_taken_by_hand() {
    scenario(async |world| {
        let steps = "agents: {queue: by-hand}\nsteps: [{command: ./hello.sh}]";
        let build = world.buildkite.build(&world.repository.url, steps).await?;
        let id = build.jobs[0].id;
        let manifest = format!(
            "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildJob\nmetadata: {{name: by-hand}}\n\
             spec: {{buildkite: {{jobUUID: {id}}}}}\n"
        );
        // Applied while no operator is there, which is when it is easiest to be judged too early. The operator
        // serves another queue, so nothing but the BuildJob brings it to this job.
        world.cluster.kubectl(&["apply", "-f", "-"], Some(&manifest))?;
        let _operator = world.operator_on("another").await?;
        // `kubectl wait` asks the API server's cache, which may not know yet what was applied a moment ago.
        world.cluster.build_job_with("by-hand", "over", BuildJob::is_terminal).await?;
        let succeeded = "--for=jsonpath={.status.phase}=Succeeded";
        world.cluster.kubectl(&["wait", "buildjob/by-hand", succeeded, "--timeout=120s"], None)?;
        let job = world.buildkite.job(id).await?;
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(0)));
        assert!(world.buildkite.log(id).await?.contains("hello from the repository"));
        world.cluster.no_pods().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_buildkite_does_not_know_is_said_to_be_unknown() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let manifest = "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildJob\nmetadata: {name: unknown}\n\
                        spec: {buildkite: {jobUUID: 0198f0a0-0000-4000-8000-00000000000a}}\n";
        world.cluster.kubectl(&["apply", "-f", "-"], Some(manifest))?;
        let job = world.cluster.build_job_with("unknown", "over", BuildJob::is_terminal).await?;
        let verdict = job.status.and_then(|status| status.verdict).expect("an ended job has a verdict");
        assert_eq!(verdict.code, VerdictCode::InvalidSpec);
        assert!(verdict.message.contains("Buildkite does not know the job 0198f0a0"), "{}", verdict.message);
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standalone_job_runs_without_buildkite() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let manifest = format!(
            r#"
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildJob
metadata: {{name: with-source}}
spec:
  source: {{repo: "{repo}"}}
  image: {image}
  command: ./hello.sh && test "$GREETING" = hello
  env: [{{name: GREETING, value: hello}}]
---
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildJob
metadata: {{name: without-source}}
spec:
  image: {image}
  command: exit 4
"#,
            repo = world.repository.url,
            image = world.environment.toolbox_image,
        );
        world.cluster.kubectl(&["apply", "-f", "-"], Some(&manifest))?;

        let passed = world.cluster.build_job_with("with-source", "over", BuildJob::is_terminal).await?;
        let status = passed.status.unwrap_or_default();
        assert_eq!((status.phase, status.exit_status), (Phase::Succeeded, Some(0)), "{:?}", status.verdict);

        let failed = world.cluster.build_job_with("without-source", "over", BuildJob::is_terminal).await?;
        let status = failed.status.unwrap_or_default();
        assert_eq!((status.phase, status.exit_status), (Phase::Failed, Some(4)), "{:?}", status.verdict);

        world.cluster.no_pods().await?;
        let table = world.cluster.kubectl(&["get", "buildjobs"], None)?;
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(
            rows.iter().any(|row| row.starts_with(&["with-source", "Succeeded", "Passed", "0"])),
            "{table}"
        );
        assert!(
            rows.iter().any(|row| row.starts_with(&["without-source", "Failed", "CommandFailed", "4"])),
            "{table}"
        );
        Ok(())
    })
    .await;
}
