//! Pods that the API server does not take, or that no node takes.

use anyhow::{Context, Result};
use bk_e2e::{
    World, eventually,
    proxy::{Failure, Kind, Proxy},
    scenario,
    webhook::Webhook,
};
use reqwest::{Method, StatusCode};
use rstest::rstest;

const STEP: &str = "{command: ./hello.sh}";

async fn passes(world: &World, run: &bk_e2e::Run<'_>) -> Result<()> {
    let job = world.buildkite.ended(run.id).await?;
    assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(0)), "{job:?}");
    assert_eq!(run.pods().len(), 1);
    world.cluster.no_pods().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_no_node_takes_ends_with_the_schedulers_reasons() {
    scenario(async |world| {
        world.cluster.configure("pod_config", "timeouts: {scheduleSeconds: 4}").await?;
        let _operator = world.operator().await?;
        let step = "{command: x, plugins: [{kubernetes: {podSpec: {nodeSelector: {no-node: has-this}, \
                    containers: [{image: any}]}}}]}";
        let end = world.submit(step).await?.end().await?;
        end.assert_refused("Unschedulable").assert_exit_status(-1).assert_detail("nodes are available");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_quota_is_waited_for_and_the_job_runs_when_there_is_room() {
    scenario(async |world| {
        world.cluster.quota(0).await?;
        let _operator = world.operator().await?;
        let run = world.submit(STEP).await?;
        run.waiting_for("quota").await?;
        world.cluster.quota(10).await?;
        passes(world, &run).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_stays_full_is_named() {
    scenario(async |world| {
        world.cluster.configure("pod_config", "timeouts: {scheduleSeconds: 4}").await?;
        world.cluster.quota(0).await?;
        let _operator = world.operator().await?;
        let end = world.submit(STEP).await?.end().await?;
        end.assert_refused("QuotaExceeded").assert_exit_status(-1).assert_detail("exceeded quota: pods");
        assert!(end.pods.is_empty(), "{end:?}");
        Ok(())
    })
    .await;
}

/// Refuses every job pod in one namespace.
const POLICY: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAMESPACE}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: "false", message: "no pods on Sundays"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAMESPACE}
spec:
  policyName: NAMESPACE
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}
"#;

/// Waits until no pod can be created any more.
async fn refused_by_now(world: &World) -> Result<()> {
    let probe = "apiVersion: v1\nkind: Pod\nmetadata: {name: probe}\n\
                 spec: {containers: [{name: probe, image: any}]}\n";
    eventually("pods are refused", async || {
        let tried = world.cluster.try_kubectl(&["create", "--dry-run=server", "-f", "-"], Some(probe))?;
        Ok((!tried.status.success()).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_a_policy_refuses_is_reported_in_its_words() {
    scenario(async |world| {
        let policy = POLICY.replace("NAMESPACE", &world.cluster.namespace);
        world.cluster.kubectl(&["apply", "-f", "-"], Some(&policy))?;
        refused_by_now(world).await?;
        let _operator = world.operator().await?;
        let end = world.submit(STEP).await?.end().await?;
        end.assert_refused("PodRefused").assert_exit_status(-1).assert_detail("no pods on Sundays");
        world.cluster.kubectl(&["delete", "-f", "-"], Some(&policy)).map(drop)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_a_webhook_refuses_is_reported_in_its_words() {
    scenario(async |world| {
        let webhook = Webhook::refuse_pods(world, "no pods on Mondays").await?;
        refused_by_now(world).await?;
        let _operator = world.operator().await?;
        let end = world.submit(STEP).await?.end().await?;
        end.assert_refused("PodRefused").assert_exit_status(-1).assert_detail("no pods on Mondays");
        webhook.remove()
    })
    .await;
}

#[rstest]
#[case::service_account(
    "{command: x, plugins: [{kubernetes: {podSpec: {serviceAccountName: none-such, containers: [{image: any}]}}}]}",
    "ServiceAccountMissing",
    "none-such"
)]
#[case::invalid(
    "{plugins: [{kubernetes: {podSpec: {containers: [{image: x, name: Not_A_Name}]}}}]}",
    "InvalidSpec",
    "spec.containers[0].name: Invalid value: \"Not_A_Name\""
)]
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_cannot_be_is_refused_for_good(
    #[case] step: &str,
    #[case] code: &str,
    #[case] reason: &str,
) {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let end = world.submit(step).await?.end().await?;
        end.assert_refused(code).assert_exit_status(-1).assert_detail(reason);
        assert!(end.pods.is_empty(), "{end:?}");
        Ok(())
    })
    .await;
}

/// Takes from the operator's role what lets it create pods, or gives it back.
fn may_create_pods(world: &World, may: bool) -> Result<()> {
    // Helm would bring the whole role with the operator.
    world.needs_process()?;
    world.weaken();
    let verbs = if may { "get,list,watch,create,delete" } else { "get,list,watch,delete" };
    let role = world.cluster.kubectl(&["get", "role", "buildkite-operator-jobs", "-o", "json"], None)?;
    let mut role: serde_json::Value = serde_json::from_str(&role)?;
    let mut rules = role["rules"].as_array_mut().into_iter().flatten();
    let of_pods = |rule: &&mut serde_json::Value| rule["resources"] == serde_json::json!(["pods"]);
    let about_pods = rules.find(of_pods).context("a rule is about pods")?;
    about_pods["verbs"] = verbs.split(',').collect();
    world.cluster.kubectl(&["replace", "-f", "-"], Some(&role.to_string())).map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_may_not_create_pods_says_so_and_goes_on_when_it_may() {
    scenario(async |world| {
        may_create_pods(world, false)?;
        let _operator = world.operator().await?;
        let run = world.submit(STEP).await?;
        run.waiting_for("may not create").await?;
        may_create_pods(world, true)?;
        passes(world, &run).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_never_may_create_pods_gives_the_job_up() {
    scenario(async |world| {
        world.cluster.configure("pod_config", "timeouts: {scheduleSeconds: 4}").await?;
        may_create_pods(world, false)?;
        let _operator = world.operator().await?;
        let end = world.submit(STEP).await?.end().await?;
        end.assert_refused("OperatorForbidden").assert_exit_status(-1);
        Ok(())
    })
    .await;
}

#[rstest]
#[case::too_many_requests(StatusCode::TOO_MANY_REQUESTS)]
#[case::internal_error(StatusCode::INTERNAL_SERVER_ERROR)]
#[case::unavailable(StatusCode::SERVICE_UNAVAILABLE)]
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_fails_for_a_while_costs_nothing_but_time(#[case] status: StatusCode) {
    scenario(async |world| {
        let proxy = Proxy::serve(&world.environment).await?;
        proxy.fail(Failure { method: Method::POST, path: "/pods", kind: Kind::Answer(status), times: 3 });
        let _operator = world.operator_through(&proxy).await?;
        let run = world.submit(STEP).await?;
        passes(world, &run).await?;
        assert_eq!(proxy.left(), 0, "all failures came");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_fails_for_good_is_named() {
    scenario(async |world| {
        world.cluster.configure("pod_config", "timeouts: {scheduleSeconds: 4}").await?;
        let proxy = Proxy::serve(&world.environment).await?;
        let kind = Kind::Answer(StatusCode::INTERNAL_SERVER_ERROR);
        proxy.fail(Failure { method: Method::POST, path: "/pods", kind, times: usize::MAX });
        let _operator = world.operator_through(&proxy).await?;
        let end = world.submit(STEP).await?.end().await?;
        end.assert_refused("ApiServerUnavailable").assert_exit_status(-1);
        assert!(end.pods.is_empty(), "{end:?}");
        Ok(())
    })
    .await;
}
