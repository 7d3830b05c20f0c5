//! Each refusal, warning and change, by the real API server.

use anyhow::{Result, ensure};
use bk_e2e::{eventually, node::PlayedNode, scenario};
use serde_json::{Value, json};

use super::stage::{Stage, VALUES, refused};

const CONFIG: &str = r#"
newNodes: none
rules:
  - {expression: "!has(self.spec.image) || !self.spec.image.startsWith('evil/')", message: no images of evil}
  - {expression: "pod.spec.containers.all(c, c.image != 'evil/pod')", message: nor in pods}
  - {expression: has(self.spec.timeout), message: say how long it may take, action: warn}
  - {expression: "self.spec.image != 'scratch'", message: scratch has no shell, kind: BuildEnvironment}
  - {expression: has(self.metadata.labels), message: say whose it is, kind: BuildEnvironment, action: warn}
environmentDefaults:
  imagePullPolicy: IfNotPresent
  resources: {requests: {cpu: 10m}}
  serviceAccountName: default
  env: [{name: HTTP_PROXY, value: "http://proxy"}]
  imagePullSecrets: [{name: registry}]
  nodeRequirements: [{key: kubernetes.io/os, operator: In, values: [linux]}]
  tolerations: [{key: ci, operator: Exists}]
  initContainers: [{name: prepare, container: {image: prepare}}]
  extraContainers: [{name: proxy, container: {image: proxy}}]
"#;

/// What an environment gets by this configuration that has none of it.
const DEFAULTED: &str = "spec.imagePullPolicy, spec.resources, spec.serviceAccountName, spec.env[HTTP_PROXY], \
                         spec.imagePullSecrets[registry], spec.nodeRequirements[kubernetes.io/os], spec.tolerations[ci=:], \
                         spec.initContainers[prepare], spec.extraContainers[proxy]";

/// Only a class has so many.
const CLASSES: &str =
    "nodeClasses: {huge: {taints: [{key: huge, effect: NoSchedule}], allocatable: {cpu: 9999}}}";

/// A job that says how long it may take, and this.
fn job(more: Value) -> Value {
    let mut spec = json!({"command": "make", "timeout": "5m"});
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    spec
}

fn in_pod(spec: &Value) -> Value {
    job(json!({"kubernetes": {"podSpec": spec}}))
}

/// A container of a pod, with this.
fn with(more: Value) -> Value {
    let mut container = json!({"image": "a"});
    if let (Some(container), Value::Object(more)) = (container.as_object_mut(), more) {
        container.extend(more);
    }
    in_pod(
        &json!({ "containers": [container], "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}] }),
    )
}

/// What is wrong with jobs, on a node that only `here` chooses.
fn jobs(here: &str) -> Vec<(Value, &'static str)> {
    let on_node = json!([{"key": "e2e", "values": [here]}]);
    let tolerated = json!([{"key": "e2e", "operator": "Exists"}]);
    let mount = |volume: &str| json!({"name": volume, "mountPath": "/x"});
    vec![
        (refused(), "rules[0] of validation_config: no images of evil"),
        (with(json!({"image": "evil/pod"})), "rules[1] of validation_config: nor in pods"),
        (
            job(json!({"environment": "bare"})),
            "BuildEnvironment \"bare\": rules[3] of validation_config: scratch has no shell",
        ),
        (
            job(json!({"environment": "nowhere"})),
            "spec.environment: there is no BuildEnvironment \"nowhere\"",
        ),
        (
            job(json!({"environment": "one"})),
            "spec.environment: one → extraContainers[0]: two → extraContainers[0]: one: \"one\" would bring itself: a cycle",
        ),
        (job(json!({"image": "Golang"})), "is not the name of an image"),
        (with(json!({"imagee": "b"})), "unknown key `imagee`; did you mean `image`?"),
        (
            with(json!({"volumeMounts": [mount("nothing")]})),
            "`/x` is to show the volume `nothing`, but the pod has no volume of that name",
        ),
        (
            with(json!({"volumeMounts": [mount("v"), mount("w")]})),
            "pod.spec.containers[container-0].volumeMounts[/x]: both volume `v` and volume `w` are to be mounted there",
        ),
        (
            with(json!({"envFrom": [{"secretRef": {"name": "none"}}]})),
            "envFrom[0]: there is no Secret \"none\"",
        ),
        (
            with(json!({"envFrom": [{"configMapRef": {"name": "none"}}]})),
            "envFrom[0]: there is no ConfigMap \"none\"",
        ),
        (in_pod(&json!({"serviceAccountName": "none"})), "there is no ServiceAccount"),
        (in_pod(&json!({"serviceAccountName": "buildkite-operator"})), "pod.spec.serviceAccountName"),
        (in_pod(&json!({"priorityClassName": "none"})), "there is no PriorityClass"),
        (in_pod(&json!({"runtimeClassName": "none"})), "there is no RuntimeClass"),
        (
            in_pod(&json!({"volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "none"}}]})),
            "there is no PersistentVolumeClaim",
        ),
        (
            job(json!({"resources": {"requests": {"cpu": "4000"}}, "tolerations": [{"operator": "Exists"}]})),
            "resources.requests.cpu: no node can run it",
        ),
        (
            job(json!({"nodeRequirements": [{"key": "pool", "values": ["none"]}]})),
            "not what it requires of nodes",
        ),
        (
            job(json!({"nodeRequirements": on_node})),
            "has the taint e2e:NoSchedule, which it does not tolerate",
        ),
        (
            job(
                json!({"nodeRequirements": on_node, "tolerations": tolerated, "resources": {"limits": {"nvidia.com/gpu": 1}}}),
            ),
            "less nvidia.com/gpu than the 1 that it requests",
        ),
        (job(json!({"logExporter": {"enabled": true}})), "spec.logExporter: its logs are not exported"),
        (
            job(
                json!({"extraContainers": [{"name": "a", "container": {"image": "b"}}, {"name": "a", "container": {"image": "c"}}]}),
            ),
            "the container's name `a` is taken",
        ),
    ]
}

/// What is wrong with environments.
fn environments() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"image": "scratch"}), "rules[3] of validation_config: scratch has no shell"),
        (json!({"image": "Golang"}), "is not the name of an image"),
        (
            json!({"image": "a", "extraContainers": [{"environment": "trial"}]}),
            "\"trial\" would bring itself: a cycle",
        ),
        (
            json!({"image": "a", "volumes": [{"name": "x", "emptyDirr": {}}]}),
            "spec.volumes[0].emptyDirr: unknown key `emptyDirr`; did you mean `emptyDir`?",
        ),
        (
            json!({"image": "a", "volumeMounts": [{"name": "x", "mountPath": "/x"}]}),
            "but the pod has no volume of that name",
        ),
    ]
}

/// Waits until an object is answered like this: configurations take effect by themselves.
async fn answered(stage: &Stage<'_>, spec: &Value, stored: bool, expected: &str) -> Result<()> {
    eventually(expected, async || {
        let answer = stage.try_out("BuildJob", spec)?;
        ensure!(answer.stored == stored && answer.said.contains(expected), "{answer:?}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_never_run_is_refused_when_it_is_applied() {
    scenario(async |world| {
        let stage = Stage::set(world, CONFIG, VALUES).await?;
        // Nobody looks yet.
        for (name, spec) in [
            ("one", json!({"image": "a", "extraContainers": [{"environment": "two"}]})),
            ("two", json!({"image": "a", "extraContainers": [{"environment": "one"}]})),
            ("bare", json!({"image": "scratch"})),
        ] {
            let answer = stage.store("BuildEnvironment", name, &spec)?;
            ensure!(answer.stored, "{answer:?}");
        }
        let node = PlayedNode::create(&world.cluster).await?;
        let operator = stage.operator().await?;
        stage.answered().await?;

        for (spec, expected) in &jobs(&world.cluster.namespace) {
            let answer = stage.try_out("BuildJob", spec)?;
            let said = &answer.said;
            ensure!(!answer.stored && said.contains("denied the request") && said.contains(expected), "{expected}: {said}");
        }
        for (spec, expected) in &environments() {
            let answer = stage.try_out("BuildEnvironment", spec)?;
            let said = &answer.said;
            ensure!(!answer.stored && said.contains("denied the request") && said.contains(expected), "{expected}: {said}");
        }
        let fits = json!({"nodeRequirements": [{"key": "e2e", "values": [world.cluster.namespace]}], "tolerations": [{"key": "e2e", "operator": "Exists"}]});
        let answer = stage.try_out("BuildJob", &job(fits))?;
        ensure!(answer.stored && answer.said.is_empty(), "nothing is wrong with it: {answer:?}");

        // What may come is as good as what is there, if the configuration says what that is.
        world.cluster.reconfigure([("validation_config", CLASSES)]).await?;
        let large = json!({"resources": {"requests": {"cpu": "4000"}}});
        answered(&stage, &job(large.clone()), false, "1 node class").await?;
        let mut tolerant = job(large.clone());
        tolerant["tolerations"] = json!([{"key": "huge", "operator": "Exists"}]);
        let answer = stage.try_out("BuildJob", &tolerant)?;
        ensure!(answer.stored && answer.said.is_empty(), "a node of the class can run it: {answer:?}");
        world.cluster.reconfigure([("validation_config", "rules: [{expression: 'false', message: nothing}]")]).await?;
        answered(&stage, &job(large), false, "rules[0] of validation_config: nothing").await?;
        node.remove().await?;
        // Watches are on record when they are over.
        drop(operator);
        stage.permissions_are_all_needed().await?;
        stage.remove()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_come_right_is_a_warning_and_what_is_missing_is_given() {
    scenario(async |world| {
        let stage = Stage::set(world, CONFIG, VALUES).await?;
        let _operator = stage.operator().await?;
        stage.answered().await?;
        let warns = |answer: &super::stage::Answer, expected: &str| {
            ensure!(
                answer.stored && answer.said.contains(expected) && answer.said.contains("Warning: "),
                "{expected}: {answer:?}"
            );
            Ok(())
        };
        warns(
            &stage.try_out("BuildJob", &json!({"command": "make"}))?,
            "rules[2] of validation_config: say how long it may take",
        )?;
        let pulls = in_pod(&json!({"imagePullSecrets": [{"name": "none"}]}));
        warns(&stage.try_out("BuildJob", &pulls)?, "pod.spec.imagePullSecrets[none]: there is no Secret")?;
        let spawned =
            json!({"name": "trial", "labels": {"buildkite-operator.dev/spawned-from": "bk-operator"}});
        let exports = job(json!({"logExporter": {"enabled": true}}));
        let answer = stage.apply("BuildJob", &spawned, &exports, &["--dry-run=server"])?;
        warns(&answer, "spec.logExporter: its logs are not exported")?;
        for (spec, expected) in [
            (
                json!({"image": "a", "extraContainers": [{"environment": "later"}]}),
                "there is no BuildEnvironment \"later\"",
            ),
            (
                json!({"image": "a", "envFrom": [{"secretRef": {"name": "none"}}]}),
                "there is no Secret \"none\"",
            ),
            (json!({"image": "a", "resources": {"requests": {"cpu": "4000"}}}), "no node can run it"),
            (json!({"image": "a"}), "rules[4] of validation_config: say whose it is"),
        ] {
            warns(&stage.try_out("BuildEnvironment", &spec)?, expected)?;
        }
        given(&stage)?;

        // Where nobody says which nodes may come, any may.
        world.cluster.reconfigure([("validation_config", "{}")]).await?;
        let large =
            job(json!({"resources": {"requests": {"cpu": "4000"}}, "tolerations": [{"operator": "Exists"}]}));
        answered(&stage, &large, true, "it waits for one that can").await?;
        // Without lookUpSecrets the operator has no such permission.
        world.weaken();
        world.cluster.kubectl(&["delete", "rolebinding", "buildkite-operator-webhook-jobs"], None)?;
        let secret = with(json!({"envFrom": [{"secretRef": {"name": "none"}}]}));
        answered(
            &stage,
            &secret,
            true,
            "cannot tell whether there is a Secret \"none\": the operator may not look",
        )
        .await?;
        stage.remove()
    })
    .await;
}

/// All nine defaults are given, once, to whoever does without none.
fn given(stage: &Stage<'_>) -> Result<()> {
    let answer = stage.store("BuildEnvironment", "given", &json!({"image": "a"}))?;
    ensure!(answer.stored, "{answer:?}");
    let (metadata, spec) = (&answer.object["metadata"], &answer.object["spec"]);
    ensure!(metadata["annotations"]["buildkite-operator.dev/defaulted"] == DEFAULTED, "{metadata:#}");
    for (path, expected) in [
        ("/imagePullPolicy", json!("IfNotPresent")),
        ("/resources/requests/cpu", json!("10m")),
        ("/serviceAccountName", json!("default")),
        ("/env/0/name", json!("HTTP_PROXY")),
        ("/imagePullSecrets/0/name", json!("registry")),
        ("/nodeRequirements/0/key", json!("kubernetes.io/os")),
        ("/tolerations/0/key", json!("ci")),
        ("/initContainers/0/name", json!("prepare")),
        ("/extraContainers/0/name", json!("proxy")),
    ] {
        ensure!(spec.pointer(path) == Some(&expected), "{path}: {spec:#}");
    }
    let touched =
        stage.world.cluster.kubectl(&["label", "buildenvironment", "given", "a=b", "-o", "json"], None)?;
    let touched: Value = serde_json::from_str(&touched)?;
    ensure!(&touched["spec"] == spec, "defaults are given once: {touched:#}");

    let own =
        json!({"image": "a", "imagePullPolicy": "Never", "env": [{"name": "HTTP_PROXY", "value": "mine"}]});
    let answer = stage.store("BuildEnvironment", "own", &own)?;
    let spec = &answer.object["spec"];
    ensure!(
        spec["imagePullPolicy"] == "Never" && spec["env"] == own["env"],
        "what it says itself stays: {spec:#}"
    );

    let without = json!({"name": "without", "annotations": {"buildkite-operator.dev/defaults": "none"}});
    let answer = stage.apply("BuildEnvironment", &without, &json!({"image": "a"}), &[])?;
    ensure!(answer.stored && answer.object["spec"] == json!({"image": "a"}), "{answer:?}");
    Ok(())
}
