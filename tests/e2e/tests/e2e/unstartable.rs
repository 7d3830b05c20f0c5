//! Jobs that cannot start: reported to Buildkite with the real reason while they are merely reserved.

use bk_e2e::{eventually, scenario};

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_does_not_exist_is_named() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let step =
            "{command: x, plugins: [{kubernetes: {podSpec: {containers: [{image: x, comand: [y]}]}}}]}";
        let end = world.submit(step).await?.end().await?;
        end.assert_refused("InvalidSpec").assert_exit_status(-1).assert_detail(
            "spec.kubernetes.podSpec.containers[0].comand: unknown key `comand`; did you mean `command`?",
        );
        assert!(end.pods.is_empty(), "{end:?}");
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
