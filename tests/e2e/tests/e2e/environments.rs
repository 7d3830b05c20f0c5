//! BuildEnvironments on a real kubelet: what a job runs in, and what runs before and beside it; and nodes that it waits for.

use bk_api::{BuildJob, Phase, VerdictCode};
use bk_e2e::scenario;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt, api::ListParams};

/// The database is slow: without the wait for its readiness the job would not find its file.
const COMPANY: &str = r#"
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildEnvironment
metadata: {name: tools}
spec:
  image: IMAGE
  env: [{name: MODE, value: slow}, {name: COLOUR, value: red}]
  extraContainers: [{environment: database}]
---
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildEnvironment
metadata: {name: database}
spec:
  image: IMAGE
  command: [sh, -c]
  args: ["test -e /workspace/fixture && echo early > /workspace/order; sleep 3; touch /workspace/ready; exec sleep 1000"]
  container:
    readinessProbe:
      exec: {command: [test, -e, /workspace/ready]}
      periodSeconds: 1
---
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildJob
metadata: {name: in-company}
spec:
  environment: tools
  env: [{name: MODE, value: fast}]
  initContainers:
    - name: fixtures
      container:
        image: IMAGE
        command: [sh, -c, "test -e /workspace/ready && echo fixture > /workspace/fixture"]
  extraContainers:
    - name: reporter
      startup: with
      container:
        image: IMAGE
        command: [sh, -c, "echo here > /workspace/reporter; exec sleep 1000"]
  command: |
    test "$MODE $COLOUR" = "fast red"
    test -e /workspace/ready
    test "$(cat /workspace/fixture)" = fixture
    test ! -e /workspace/order
    until test -e /workspace/reporter; do sleep 0.1; done
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_finds_the_company_that_its_environment_brings() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let manifest = COMPANY.replace("IMAGE", &world.environment.toolbox_image);
        world.cluster.kubectl(&["apply", "-f", "-"], Some(&manifest))?;
        let ended = world.cluster.build_job_with("in-company", "over", BuildJob::is_terminal).await?;
        let status = ended.status.unwrap_or_default();
        assert_eq!((status.phase, status.exit_status), (Phase::Succeeded, Some(0)), "{:?}", status.verdict);
        // The others would have run for a thousand seconds.
        world.cluster.no_pods().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_a_command_runs_its_environments() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let manifest = "
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildEnvironment
metadata: {name: tool}
spec: {image: IMAGE, command: [sh, -c], args: [\"exit 5\"]}
---
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildJob
metadata: {name: tool}
spec: {environment: tool}
";
        let manifest = manifest.replace("IMAGE", &world.environment.toolbox_image);
        world.cluster.kubectl(&["apply", "-f", "-"], Some(&manifest))?;
        let ended = world.cluster.build_job_with("tool", "over", BuildJob::is_terminal).await?;
        let status = ended.status.unwrap_or_default();
        assert_eq!((status.phase, status.exit_status), (Phase::Failed, Some(5)), "{:?}", status.verdict);
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn environments_that_cannot_be_are_refused_with_the_path_that_leads_there() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let manifest = "
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildEnvironment
metadata: {name: a}
spec: {image: a, extraContainers: [{environment: b}]}
---
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildEnvironment
metadata: {name: b}
spec: {image: b, initContainers: [{environment: a}]}
---
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildJob
metadata: {name: cycle}
spec: {environment: a, command: date}
---
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildJob
metadata: {name: unknown}
spec: {command: date, extraContainers: [{environment: c}]}
";
        world.cluster.kubectl(&["apply", "-f", "-"], Some(manifest))?;
        let unknown = format!(
            "spec.extraContainers[0]: there is no BuildEnvironment \"c\" in namespace \"{}\"",
            world.cluster.namespace
        );
        for (name, expected) in [
            ("cycle", "spec.environment: a → extraContainers[0]: b → initContainers[0]: a: \"a\" would bring itself: a cycle"),
            ("unknown", unknown.as_str()),
        ] {
            let ended = world.cluster.build_job_with(name, "over", BuildJob::is_terminal).await?;
            let verdict = ended.status.and_then(|status| status.verdict).expect("an ended job has a verdict");
            assert_eq!(verdict.code, VerdictCode::InvalidSpec);
            assert!(verdict.message.contains(expected), "{}", verdict.message);
        }
        world.cluster.no_pods().await
    })
    .await;
}

/// A job waits for a node that has the label and whose taint it tolerates, and says so; then one has.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_waits_for_the_node_that_it_needs() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let label = format!("{}/pool", world.cluster.namespace);
        let manifest = format!(
            "
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildJob
metadata: {{name: picky}}
spec:
  command: date
  image: {image}
  nodeRequirements: [{{key: {label}, values: [gpu]}}]
  nodePreferences: [{{weight: 10, requirements: [{{key: disk, values: [ssd]}}]}}]
",
            image = world.environment.toolbox_image,
        );
        world.cluster.kubectl(&["apply", "-f", "-"], Some(&manifest))?;
        let waits = |job: &BuildJob| {
            let waiting_for = job.status.as_ref().and_then(|status| status.waiting_for.as_deref());
            waiting_for.is_some_and(|text| text.contains("node affinity"))
        };
        world.cluster.build_job_with("picky", "waiting for a node", waits).await?;
        let nodes = Api::<Node>::all(world.cluster.client.clone()).list(&ListParams::default()).await?;
        // Others may play nodes meanwhile.
        let is_real = |node: &&Node| !node.labels().contains_key("e2e");
        let node = nodes.items.iter().find(is_real).map(ResourceExt::name_any);
        let node = node.expect("the cluster has a node");
        world.cluster.kubectl(&["label", "node", &node, &format!("{label}=gpu")], None)?;
        let ended = world.cluster.build_job_with("picky", "over", BuildJob::is_terminal).await?;
        world.cluster.kubectl(&["label", "node", &node, &format!("{label}-")], None)?;
        let status = ended.status.unwrap_or_default();
        assert_eq!((status.phase, status.node_name), (Phase::Succeeded, Some(node)), "{:?}", status.verdict);
        Ok(())
    })
    .await;
}
