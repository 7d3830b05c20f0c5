//! Agents that register by way of the operator: what no pod knows, and what a one-time token is good for.

use anyhow::{Result, ensure};
use bk_api::config::TOKEN_KEY;
use bk_e2e::{
    Run, World,
    agent::Broker,
    buildkite::QUEUE,
    eventually,
    node::PlayedNode,
    registry::{Manner, Registry},
    scenario,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::DeleteParams};
use reqwest::{Method, StatusCode};
use rstest::rstest;
use serde_json::json;

/// A step whose command runs until it is stopped.
const ENDLESS: &str = "{command: 'echo on its way; sleep 600'}";
const UNDER_WAY: &str = "on its way\r\n";

/// Shows a token to the broker; what it says.
async fn show(world: &World, token: &str) -> Result<(StatusCode, String)> {
    let broker = Broker::of(world).await?;
    let request = broker.call(Method::POST, "register")?.header("Authorization", format!("Token {token}"));
    let answer = request.json(&json!({ "name": "thief", "meta_data": ["queue=other"] })).send().await?;
    Ok((answer.status(), answer.text().await?))
}

async fn under_way(world: &World) -> Result<(Run<'_>, Pod)> {
    let run = world.submit(ENDLESS).await?;
    run.output(UNDER_WAY).await?;
    let pod = run.pod(1).await?;
    Ok((run, pod))
}

/// Neither spec nor environment, neither volumes nor logs, neither events nor anything else in the job namespace.
#[tokio::test(flavor = "multi_thread")]
async fn no_pod_knows_the_agent_token() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let (run, pod) = under_way(world).await?;
        let token = &world.buildkite.agent_token;
        let said = |args: &[&str]| world.cluster.kubectl(args, None);
        let objects = said(&["get", "pods,events,buildjobs,configmaps,jobs.batch", "-o", "json"])?;
        assert!(!objects.contains(token) && objects.contains(&pod.name_any()), "{objects}");
        let spec = serde_json::to_string(&pod.spec)?;
        assert!(!spec.contains("buildkite-agent-token") && !spec.contains("secretRef"), "{spec}");
        let look = "cat /proc/*/environ | tr '\\0' '\\n'; find / -xdev -type f -size -64k -not -path '/proc/*' -not -path '/usr/*' \
                    -exec cat {} + 2>/dev/null | tr -cd '[:print:]'";
        for container in ["agent", "container-0"] {
            let seen = said(&["exec", &run.name, "-c", container, "--", "sh", "-c", look])?;
            assert!(!seen.contains(token), "{container} knows the token");
            let log = said(&["logs", &run.name, "-c", container])?;
            assert!(!log.contains(token), "{log}");
        }
        // It is there to be found.
        let environment = said(&["exec", &run.name, "-c", "agent", "--", "sh", "-c", "cat /proc/*/environ"])?;
        assert!(environment.contains(&Broker::ticket(&pod)?), "the agent has a one-time token");
        assert!(!world.operator_log().contains(token) && !world.operator_log().contains(&Broker::ticket(&pod)?));
        run.cancel().await?;
        Ok(())
    })
    .await;
}

#[rstest]
#[case::by_a_pod_spec(
    "containers: [{image: 'IMAGE', command: [env], env: [{name: T, valueFrom: {secretKeyRef: {name: NAME, key: BUILDKITE_AGENT_TOKEN}}}]}]",
    "buildkite-agent-token"
)]
#[case::by_env_from(
    "containers: [{image: 'IMAGE', command: [env], envFrom: [{secretRef: {name: NAME}}]}]",
    "buildkite-agent-token"
)]
#[case::by_a_volume(
    "volumes: [{name: v, secret: {secretName: NAME}}], containers: [{image: 'IMAGE', command: [ls]}]",
    "buildkite-agent-token"
)]
#[case::by_the_key_of_one_time_tokens(
    "containers: [{image: 'IMAGE', command: [env], envFrom: [{secretRef: {name: NAME}}]}]",
    "buildkite-operator-broker"
)]
#[case::by_sessions_of_others(
    "containers: [{image: 'IMAGE', command: [env], envFrom: [{secretRef: {name: NAME}}]}]",
    "buildkite-operator-broker-sessions-2"
)]
#[case::by_the_record_of_an_installation(
    "volumes: [{name: v, secret: {secretName: NAME}}], containers: [{image: 'IMAGE', command: [ls]}]",
    "sh.helm.release.v1.buildkite-operator.v1"
)]
#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_refers_to_tokens_is_refused(#[case] spec: &str, #[case] secret: &str) {
    scenario(async |world| {
        let _operator = world.process().await?;
        let spec = spec.replace("IMAGE", &world.environment.toolbox_image).replace("NAME", secret);
        let step = format!("{{plugins: [{{kubernetes: {{podSpec: {{{spec}}}}}}}]}}");
        let end = world.submit(&step).await?.end().await?;
        end.assert_refused("InvalidSpec").assert_detail(&format!("the Secret `{secret}`"));
        assert!(end.pods.is_empty(), "{end:?}");
        Ok(())
    })
    .await;
}

/// It has an account of the cluster's, and asks the API server.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_looks_for_the_agent_token_finds_nothing() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let account = "/var/run/secrets/kubernetes.io/serviceaccount";
        let url = format!("https://kubernetes.default.svc/api/v1/namespaces/{}/secrets", world.cluster.namespace);
        let look = format!(
            "env | sort; for name in '' /buildkite-agent-token /buildkite-operator-broker; do curl --silent --cacert {account}/ca.crt \
             --header \"Authorization: Bearer $(cat {account}/token)\" {url}$name; done; echo looked $((40 + 2))"
        );
        let image = &world.environment.agent_image;
        let container = json!({ "image": image, "command": [look] });
        let spec = json!({ "serviceAccountName": "default", "automountServiceAccountToken": true, "containers": [container] });
        let step = json!({ "plugins": [{ "kubernetes": { "podSpec": spec } }] });
        let run = world.submit(&step.to_string()).await?;
        let log = run.output("looked 42").await?;
        assert!(!log.contains(&world.buildkite.agent_token) && !log.contains(TOKEN_KEY), "{log}");
        assert_eq!(log.matches("\"reason\": \"Forbidden\"").count(), 3, "{log}");
        assert!(!log.contains("SSL_CERT"), "what the agent trusts is no affair of the command's: {log}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_one_time_token_is_good_once_and_for_its_pod() {
    scenario(async |world| {
        world.cluster.configure("pod_config", "registrationProof: address").await?;
        let registry = Registry::serve(&world.environment).await?;
        let _operator = world.process().await?;
        let (run, pod) = under_way(world).await?;
        let used = Broker::ticket(&pod)?;
        let refused = async |token: &str, why: &str| {
            let (status, text) = show(world, token).await?;
            assert_eq!((status, text.contains(why)), (StatusCode::UNAUTHORIZED, true), "{text}");
            assert!(token.is_empty() || !text.contains(token), "{text}");
            anyhow::Ok(())
        };
        refused(&used, "has been used").await?;
        refused(&used.replace("~0~", "~1~"), "no one-time token").await?;
        refused(&world.buildkite.agent_token, "no one-time token").await?;
        refused("", "no one-time token").await?;

        // One whose agent waits for an image, and has not registered.
        let image = registry.image(Manner::Broken);
        let step = format!("{{plugins: [{{kubernetes: {{podSpec: {{containers: [{{image: '{image}', command: ['true']}}]}}}}}}]}}");
        let waiting = world.submit(&step).await?;
        let held = eventually("the pod has an address", async || {
            let address = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some());
            Ok(waiting.pods().into_iter().find(address))
        })
        .await?;
        let unused = Broker::ticket(&held)?;
        refused(&unused, "another pod's").await?;
        let pods = Api::<Pod>::namespaced(world.cluster.client.clone(), &world.cluster.namespace);
        pods.delete(&held.name_any(), &DeleteParams::default().grace_period(0)).await?;
        refused(&unused, "pod is gone").await?;

        let broker = Broker::of(world).await?;
        for path in ["ping", "register", ""] {
            let answer = broker.call(Method::GET, path)?.send().await?;
            assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        }
        world.buildkite.cancel(waiting.id).await?;
        run.cancel().await?;
        Ok(())
    })
    .await;
}

/// Its agent had ten minutes from when the pod's last container had started.
#[tokio::test(flavor = "multi_thread")]
async fn a_one_time_token_expires() {
    scenario(async |world| {
        let node = PlayedNode::create(&world.cluster).await?;
        let _operator = world.process().await?;
        let spec = format!("{}, containers: [{{image: any, command: ['true']}}]", node.selection());
        let run = world.submit(&format!("{{plugins: [{{kubernetes: {{podSpec: {{{spec}}}}}}}]}}")).await?;
        let pod = node.placed(&run).await?;
        let shown = Broker::of(world).await?.proven_ticket(&pod).await?;
        node.run_since(&pod, Timestamp::now() - SignedDuration::from_mins(11)).await?;
        let (status, text) = show(world, &shown).await?;
        assert_eq!((status, text.contains("has expired")), (StatusCode::UNAUTHORIZED, true), "{text}");
        // It is the time alone that was against it.
        node.run(&pod).await?;
        let (status, text) = show(world, &shown).await?;
        assert_eq!(status, StatusCode::OK, "{text}");
        world.buildkite.cancel(run.id).await?;
        node.remove().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_proves_who_a_pod_is() {
    scenario(async |world| {
        let registry = Registry::serve(&world.environment).await?;
        let _operator = world.process().await?;
        let (run, other) = under_way(world).await?;
        let image = registry.image(Manner::Broken);
        let step = format!("{{plugins: [{{kubernetes: {{podSpec: {{containers: [{{image: '{image}', command: ['true']}}]}}}}}}]}}");
        let waiting = world.submit(&step).await?;
        let unused = Broker::ticket(&waiting.pod(1).await?)?;
        let proof = ["exec", &other.name_any(), "-c", "agent", "--", "cat", "/buildkite/broker-proof/token"];
        let others = world.cluster.kubectl(&proof, None)?;
        for shown in [unused.clone(), format!("{unused}!nonsense"), format!("{unused}!{}", others.trim())] {
            let (status, text) = show(world, &shown).await?;
            assert_eq!((status, text.contains("another pod's")), (StatusCode::UNAUTHORIZED, true), "{text}");
        }
        world.buildkite.cancel(waiting.id).await?;
        run.cancel().await?;
        Ok(())
    })
    .await;
}

/// The agent token changes, and agents register on. Then the operator is away, and agents try again.
#[tokio::test(flavor = "multi_thread")]
async fn agents_register_through_a_change_of_the_token_and_wait_for_an_operator_that_is_away() {
    scenario(async |world| {
        let registry = Registry::serve(&world.environment).await?;
        let mut operator = world.process().await?;
        let passes = async || {
            let job = world.buildkite.ended(world.submit("{command: ./hello.sh}").await?.id).await?;
            assert_eq!(job.exit_status, Some(0), "{job:?}");
            anyhow::Ok(())
        };
        passes().await?;
        world.buildkite.interfere("token/rotate", json!({ "token": "bkct_another" })).await?;
        let patch = json!({ "stringData": { TOKEN_KEY: "bkct_another" } }).to_string();
        world.cluster.kubectl(&["patch", "secret", "buildkite-agent-token", "--patch", &patch], None)?;
        passes().await?;
        // Its agent does not start before the image is there.
        let image = registry.image(Manner::Broken);
        let step = format!("{{plugins: [{{kubernetes: {{podSpec: {{containers: [{{image: '{image}', command: ['true']}}]}}}}}}]}}");
        let run = world.submit(&step).await?;
        run.waiting_for("image").await?;
        operator.kill()?;
        registry.release();
        let log = ["logs", &run.name, "-c", "agent"];
        eventually("its agent has tried in vain", async || {
            let log = world.cluster.kubectl(&log, None)?;
            ensure!(log.contains("connection refused"), "{log}");
            Ok(Some(()))
        })
        .await?;
        let _operator = world.process().await?;
        let job = world.buildkite.ended(run.id).await?;
        assert_eq!(job.exit_status, Some(0), "{job:?}");
        Ok(())
    })
    .await;
}

/// Nobody answers where they are to register.
#[tokio::test(flavor = "multi_thread")]
async fn agents_that_do_not_reach_the_operator_are_told_of() {
    scenario(async |world| {
        let nowhere = format!("https://{}:1/v3", world.environment.host);
        let flags = world.broker_flags().into_iter().map(|flag| flag.replace(&world.broker_url(), &nowhere));
        let _operator = world.operator_given(None, flags.chain([format!("--queue={QUEUE}")])).await?;
        let run = world.submit("{command: ./hello.sh}").await?;
        let reason = run.waiting_for("register by way of the operator").await?;
        assert!(reason.contains(&nowhere), "{reason}");
        run.status("without a registered agent", |status| {
            status.conditions.iter().any(|condition| {
                (condition.type_.as_str(), condition.status.as_str()) == ("Registered", "False")
            })
        })
        .await?;
        eventually("Buildkite hears of it while the job waits", async || {
            let job = world.buildkite.job(run.id).await?;
            let is_told = job
                .events
                .iter()
                .filter_map(|event| event.detail.as_deref())
                .any(|detail| detail.contains(&nowhere));
            ensure!(is_told && job.started_at.is_none(), "{job:?}");
            Ok(Some(()))
        })
        .await?;
        run.cancel().await?;
        Ok(())
    })
    .await;
}
