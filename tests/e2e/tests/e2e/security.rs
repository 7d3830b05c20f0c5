//! What jobs cannot get at, and what the operator may do: no less than it needs, and no more.

use anyhow::Result;
use bk_api::BuildJob;
use bk_e2e::{World, eventually, scenario};
use jiff::Timestamp;
use rstest::rstest;

use crate::rules;

/// The permissions of an installation.
const RBAC: &str = concat!(
    include_str!("../../../../deploy/rbac.yaml"),
    "\n---\n",
    include_str!("../../../../deploy/broker.yaml")
);

#[rstest]
#[case::as_a_volume(
    "{command: 'true', plugins: [{kubernetes: {podSpec: {volumes: [{name: t, secret: {secretName: buildkite-agent-token}}]}}}]}",
    "pod.spec.volumes[t].secret.secretName"
)]
#[case::as_the_operator(
    "{command: 'true', plugins: [{kubernetes: {podSpec: {serviceAccountName: buildkite-operator}}}]}",
    "pod.spec.serviceAccountName"
)]
#[tokio::test(flavor = "multi_thread")]
async fn a_step_cannot_get_at_the_agent_token(#[case] step: &str, #[case] path: &str) {
    scenario(async |world| {
        // Its account counts where the jobs are.
        let _operator = world.process().await?;
        let end = world.submit(step).await?.end().await?;
        end.assert_refused("InvalidSpec").assert_detail(path);
        assert!(end.pods.is_empty(), "{end:?}");
        Ok(())
    })
    .await;
}

/// The command sees neither the agent token nor one for the cluster's API.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_no_token_of_the_cluster() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let look = "env; ls /var/run/secrets/kubernetes.io 2>&1 || true; cat /proc/*/environ | tr '\\\\0' '\\\\n'; echo looked $((40 + 2))";
        let run = world.submit(&format!("{{command: \"{look}\"}}")).await?;
        let log = run.output("looked 42").await?;
        assert!(!log.contains(&world.buildkite.agent_token) && !log.contains("BUILDKITE_AGENT_TOKEN"), "{log}");
        assert!(log.contains("No such file or directory"), "no account's token is mounted: {log}");
        Ok(())
    })
    .await;
}

/// What an operator in trouble does, and this one is in none. The client library patches an Event that happens again.
const IN_TROUBLE: [(&str, &str); 7] = [
    ("events", "patch"),
    // Asked for when a cache does not show what should be there.
    ("buildjobs", "get"),
    ("pods", "get"),
    ("jobs", "get"),
    ("buildenvironments", "get"),
    // Asked for before a job is ended because its node is silent, or moved because it is about to go.
    ("nodes", "get"),
    ("pods/eviction", "create"),
];

/// Jobs of every kind: from a queue and by hand, in pods and in Jobs, with a template and an environment, that pass and fail.
async fn live(world: &World) -> Result<()> {
    let image = &world.environment.toolbox_image;
    let objects = format!(
        "
apiVersion: v1
kind: PodTemplate
metadata: {{name: plain}}
template: {{spec: {{containers: [{{name: container-0, image: '{image}'}}]}}}}
---
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildEnvironment
metadata: {{name: toolbox}}
spec: {{image: '{image}'}}
---
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildJob
metadata: {{name: by-hand}}
spec: {{workload: Job, environment: toolbox, command: exit 4}}
"
    );
    world.cluster.kubectl(&["apply", "-f", "-"], Some(&objects))?;
    // One after the other: the second choice is written over the first.
    for step in ["{command: 'true', plugins: [{kubernetes: {podTemplate: plain}}]}", "{command: 'true'}"] {
        let passed = world.buildkite.ended(world.submit(step).await?.id).await?;
        assert_eq!(passed.exit_status, Some(0), "{passed:?}");
    }
    world.cluster.build_job_with("by-hand", "over", BuildJob::is_terminal).await?;
    world.cluster.no_pods().await?;
    world.cluster.kubectl(&["delete", "buildjob", "by-hand"], None)?;
    eventually("no BuildJob is left", async || {
        let jobs = world.cluster.kubectl(&["get", "buildjobs", "-o", "name"], None)?;
        Ok(jobs.is_empty().then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_permissions_are_all_needed_and_all_it_needs() {
    scenario(async |world| {
        let leader = world.installed_operator().await?;
        world.leader_after(None).await?;
        let standby = world.installed_operator().await?;
        live(world).await?;
        // Watches are on record when they are over.
        drop((leader, standby));
        let rules = rules::of(RBAC)?;
        eventually("the record shows a use of each permission", async || {
            let unused = rules::unused(&rules, &world.api_calls(Timestamp::UNIX_EPOCH)?, &IN_TROUBLE);
            anyhow::ensure!(unused.is_empty(), "nothing has used {unused:#?}");
            // That nothing was refused is looked at after every test.
            Ok(Some(()))
        })
        .await
    })
    .await;
}
