//! Jobs that cannot start: reported to Buildkite with the real reason while they are merely reserved.

use anyhow::Result;
use bk_api::{BuildJob, Phase, VerdictCode, names};
use bk_e2e::{World, buildkite::Job, eventually, scenario};

/// Runs one step and returns how its job ended, which no agent ever had.
async fn refused(world: &World, plugin: &str, code: VerdictCode) -> Result<(Job, String)> {
    let _operator = world.operator().await?;
    let steps = format!(
        "agents: {{queue: bk-operator}}\nsteps: [{{command: x, plugins: [{{kubernetes: {plugin}}}]}}]"
    );
    let build = world.buildkite.build(&world.repository.url, &steps).await?;
    let job = world.buildkite.ended(build.jobs[0].id).await?;
    assert_eq!(job.job_state, "finished");
    assert_eq!(job.signal_reason.as_deref(), Some("stack_error"));
    assert!(job.agent.is_none(), "no agent acquired the job: {job:?}");
    let detail = job.events.iter().filter_map(|event| event.detail.clone()).collect::<Vec<_>>().join("\n");

    let name = names::build_job(&job.id.to_string());
    let status =
        world.cluster.build_job_with(&name, "over", BuildJob::is_terminal).await?.status.unwrap_or_default();
    assert_eq!(status.phase, Phase::Failed);
    assert_eq!(status.verdict.map(|verdict| verdict.code), Some(code));
    world.cluster.no_pods().await?;
    Ok((job, detail))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_does_not_exist_is_named() {
    scenario(async |world| {
        let plugin = "{podSpec: {containers: [{image: x, comand: [y]}]}}";
        let (_, detail) = refused(world, plugin, VerdictCode::InvalidSpec).await?;
        let expected =
            "spec.kubernetes.podSpec.containers[0].comand: unknown key `comand`; did you mean `command`?";
        assert!(detail.contains(expected), "{detail}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_the_api_server_refuses_is_reported_in_its_words() {
    scenario(async |world| {
        let plugin = "{podSpec: {containers: [{image: x, name: Not_A_Name}]}}";
        let (_, detail) = refused(world, plugin, VerdictCode::InvalidSpec).await?;
        assert!(detail.contains("spec.containers[0].name: Invalid value: \"Not_A_Name\""), "{detail}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_init_container_that_fails_is_named_with_its_exit_status() {
    scenario(async |world| {
        let image = &world.environment.toolbox_image;
        let plugin = format!(
            "{{podSpec: {{initContainers: [{{name: prepare, image: '{image}', command: [sh, -c, exit 9]}}], \
             containers: [{{image: '{image}', command: ['true']}}]}}}}"
        );
        let (job, detail) = refused(world, &plugin, VerdictCode::InitFailed).await?;
        assert_eq!(job.exit_status, Some(9));
        assert!(detail.contains("init container prepare ended with exit status 9"), "{detail}");
        Ok(())
    })
    .await;
}

/// Refuses BuildJobs with a certain command in one namespace.
const POLICY: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAMESPACE}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [buildkite-operator.dev], apiVersions: ["*"], operations: [CREATE], resources: [buildjobs]}]
  validations: [{expression: "object.spec.command != 'not here'", message: "such jobs do not run here"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAMESPACE}
spec:
  policyName: NAMESPACE
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_may_have_no_build_job_is_given_back_and_others_go_on() {
    scenario(async |world| {
        let policy = POLICY.replace("NAMESPACE", &world.cluster.namespace);
        world.cluster.kubectl(&["apply", "-f", "-"], Some(&policy))?;
        let bad = "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildJob\nmetadata: {name: probe}\n\
                   spec: {command: not here}\n";
        eventually("the policy works", async || {
            let tried = world.cluster.try_kubectl(&["create", "--dry-run=server", "-f", "-"], Some(bad))?;
            Ok((!tried.status.success()).then_some(()))
        })
        .await?;
        let _operator = world.operator().await?;
        let steps = "agents: {queue: bk-operator}\nsteps: [{command: not here}, {command: ./hello.sh}]";
        let build = world.buildkite.build(&world.repository.url, steps).await?;
        let refused = world.buildkite.ended(build.jobs[0].id).await?;
        assert_eq!(refused.signal_reason.as_deref(), Some("stack_error"));
        let detail = refused.events.iter().filter_map(|event| event.detail.clone()).collect::<String>();
        assert!(detail.contains("such jobs do not run here"), "{detail}");
        let passed = world.buildkite.ended(build.jobs[1].id).await?;
        assert_eq!((passed.job_state.as_str(), passed.exit_status), ("finished", Some(0)));
        world.cluster.kubectl(&["delete", "-f", "-"], Some(&policy)).map(drop)
    })
    .await;
}
