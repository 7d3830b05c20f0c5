//! Webhooks: what they refuse, warn of and change, and that nothing is lost without them.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, Result, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use bk_e2e::{World, eventually, helm::Helm, operator::Operator, scenario};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::{Value, json};

const CONFIG: &str = r#"
newNodes: none
rules:
  - {expression: "!has(self.spec.image) || !self.spec.image.startsWith('evil/')", message: no images of evil}
  - {expression: "pod.spec.containers.all(c, c.image != 'evil/pod')", message: nor in pods}
  - {expression: has(self.spec.timeout), message: say how long it may take, action: warn}
environmentDefaults:
  env: [{name: HTTP_PROXY, value: "http://proxy"}]
  extraContainers: [{name: proxy, container: {image: proxy}}]
"#;

/// The operator on this machine, and how the cluster calls it.
struct Stage<'a> {
    world: &'a World,
    /// What the Secret, the webhook configurations and the `ClusterRole` are called.
    name: String,
    address: SocketAddr,
}

impl<'a> Stage<'a> {
    /// The objects of the chart, for an operator that is no pod.
    async fn set(world: &'a World) -> Result<Self> {
        world.cluster.configure("validation_config", CONFIG).await?;
        let address = TcpListener::bind((world.environment.host, 0))?.local_addr()?;
        let namespace = &world.cluster.namespace;
        let name = format!("{namespace}-buildkite-operator");
        let values = "agentToken: x\nwebhook: {enabled: true, timeoutSeconds: 2, lookUpSecrets: true}";
        for object in Helm::new(&world.environment.helm)?.render(values)? {
            let is_cluster = object["metadata"]["name"] == "ci-buildkite-operator";
            let is_role = object["metadata"]["name"].as_str().is_some_and(|name| name.contains("-webhook"))
                && object["kind"].as_str().is_some_and(|kind| kind.starts_with("Role"));
            if !(is_cluster || is_role) {
                continue;
            }
            let text = object.to_string().replace("\"ci\"", &format!("\"{namespace}\""));
            let mut object: Value = serde_json::from_str(&text.replace("ci-buildkite-operator", &name))?;
            for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
                let path = webhook["clientConfig"]["service"]["path"].as_str().context("a path")?;
                webhook["clientConfig"] = json!({ "url": format!("https://{address}{path}") });
            }
            world.cluster.kubectl(&["apply", "-f", "-"], Some(&object.to_string()))?;
        }
        Ok(Self { world, name, address })
    }

    async fn operator(&self) -> Result<Operator> {
        let Self { world, name, address } = self;
        let host = address.ip();
        let args = [
            format!("--webhook-listen={address}"),
            format!("--webhook-host={host}"),
            format!("--webhook-name={name}"),
        ];
        world.operator_given(None, args).await
    }

    /// What kubectl says of an object, and whether it would be stored.
    fn apply(&self, kind: &str, name: &str, spec: &Value, args: &[&str]) -> Result<(bool, String)> {
        let object = json!({
            "apiVersion": "buildkite-operator.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        let args = [&["apply", "-f", "-", "-o", "json"], args].concat();
        let output = self.world.cluster.try_kubectl(&args, Some(&object.to_string()))?;
        let text = [output.stderr, output.stdout].map(|text| String::from_utf8_lossy(&text).into_owned());
        Ok((output.status.success(), text.concat()))
    }

    fn try_out(&self, kind: &str, spec: &Value) -> Result<(bool, String)> {
        self.apply(kind, "trial", spec, &["--dry-run=server"])
    }

    /// Waits until somebody answers.
    async fn answered(&self) -> Result<()> {
        eventually("the webhook answers", async || {
            let (stored, text) = self.try_out("BuildJob", &refused())?;
            ensure!(!stored, "{text}");
            Ok(Some(()))
        })
        .await
    }

    fn remove(&self) -> Result<()> {
        let kinds =
            "validatingwebhookconfiguration,mutatingwebhookconfiguration,clusterrole,clusterrolebinding";
        self.world.cluster.kubectl(&["delete", kinds, &self.name], None).map(drop)
    }
}

fn refused() -> Value {
    json!({"command": "make", "timeout": "5m", "image": "evil/image"})
}

fn in_pod(spec: &Value) -> Value {
    json!({"command": "make", "timeout": "5m", "kubernetes": {"podSpec": spec}})
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_never_run_is_refused_when_it_is_applied() {
    scenario(async |world| {
        let stage = Stage::set(world).await?;
        let _operator = stage.operator().await?;
        stage.answered().await?;
        let container = json!([{"image": "a"}]);
        let refusals = [
            (refused(), "rules[0] of validation_config: no images of evil"),
            (in_pod(&json!({"containers": [{"image": "evil/pod"}]})), "rules[1] of validation_config: nor in pods"),
            (json!({"timeout": "5m", "command": "x", "environment": "nowhere"}), "spec.environment: there is no BuildEnvironment"),
            (json!({"timeout": "5m", "command": "x", "image": "Golang"}), "is not the name of an image"),
            (in_pod(&json!({"containers": [{"image": "a", "envFrom": [{"secretRef": {"name": "none"}}]}]})), "there is no Secret"),
            (in_pod(&json!({"containers": [{"image": "a", "envFrom": [{"configMapRef": {"name": "none"}}]}]})), "there is no ConfigMap"),
            (in_pod(&json!({"containers": container, "serviceAccountName": "none"})), "there is no ServiceAccount"),
            (in_pod(&json!({"containers": container, "priorityClassName": "none"})), "there is no PriorityClass"),
            (in_pod(&json!({"containers": container, "runtimeClassName": "none"})), "there is no RuntimeClass"),
            (in_pod(&json!({"containers": container, "volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "none"}}]})), "there is no PersistentVolumeClaim"),
            (json!({"timeout": "5m", "command": "x", "resources": {"requests": {"cpu": "4000"}}}), "resources.requests.cpu: no node can run it"),
            (json!({"timeout": "5m", "command": "x", "nodeRequirements": [{"key": "pool", "values": ["none"]}]}), "not what it requires of nodes"),
            (json!({"timeout": "5m", "command": "x", "logExporter": {"enabled": true}}), "spec.logExporter: its logs are not exported"),
            (json!({"timeout": "5m", "command": "x", "extraContainers": [{"name": "a", "container": {"image": "b"}}, {"name": "a", "container": {"image": "c"}}]}), "the container's name `a` is taken"),
        ];
        for (spec, expected) in &refusals {
            let (stored, text) = stage.try_out("BuildJob", spec)?;
            ensure!(!stored && text.contains("denied the request") && text.contains(expected), "{expected}: {text}");
        }
        let untimed = json!({"command": "make", "kubernetes": {"podSpec": {"containers": container, "imagePullSecrets": [{"name": "none"}]}}});
        let (stored, text) = stage.try_out("BuildJob", &untimed)?;
        ensure!(stored && text.contains("Warning: rules[2]") && text.contains("imagePullSecrets[none]: there is no Secret"), "{text}");

        let (stored, text) = stage.apply("BuildEnvironment", "one", &json!({"image": "a", "envFrom": [{"secretRef": {"name": "none"}}]}), &[])?;
        ensure!(stored && text.contains("Warning: ") && text.contains("there is no Secret"), "{text}");
        for part in ["HTTP_PROXY", "\"name\": \"proxy\"", "spec.env[HTTP_PROXY], spec.extraContainers[proxy]"] {
            ensure!(text.contains(part), "{part}: {text}");
        }
        let again = world.cluster.kubectl(&["get", "buildenvironment", "one", "-o", "json"], None)?;
        let touched = world.cluster.kubectl(&["label", "buildenvironment", "one", "a=b", "-o", "json"], None)?;
        let spec = |text: &str| serde_json::from_str::<Value>(text).map(|object| object["spec"].clone());
        ensure!(spec(&again)? == spec(&touched)?, "defaults are given once: {touched}");
        let back = json!({"image": "a", "extraContainers": [{"environment": "two"}]});
        let (stored, text) = stage.apply("BuildEnvironment", "two", &back, &[])?;
        ensure!(!stored && text.contains("\"two\" would bring itself: a cycle"), "{text}");

        let nothing = "rules: [{expression: 'false', message: nothing}]";
        world.cluster.reconfigure([("validation_config", nothing)]).await?;
        eventually("the changed configuration is answered by", async || {
            let (stored, text) = stage.try_out("BuildJob", &json!({"command": "x"}))?;
            Ok((!stored && text.contains("rules[0] of validation_config: nothing")).then_some(()))
        })
        .await?;
        stage.remove()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_while_nobody_answers() {
    scenario(async |world| {
        let stage = Stage::set(world).await?;
        let mut operator = stage.operator().await?;
        stage.answered().await?;
        operator.freeze()?;
        let (stored, text) = stage.try_out("BuildJob", &refused())?;
        ensure!(stored, "a webhook that is slow keeps nobody: {text}");
        operator.thaw()?;
        stage.answered().await?;
        operator.kill()?;
        let (stored, text) = stage.apply("BuildJob", "unchecked", &refused(), &[])?;
        ensure!(stored, "a webhook that is down keeps nobody: {text}");
        let (stored, text) = stage.try_out("BuildJob", &json!({"timeout": "no", "command": "x"}))?;
        ensure!(!stored, "definitions hold: {text}");

        expire(&stage)?;
        let _operator = stage.operator().await?;
        let ended = |job: &bk_api::BuildJob| job.is_terminal();
        let job = world.cluster.build_job_with("unchecked", "refused by the controller", ended).await?;
        let verdict = job.status.and_then(|status| status.verdict).context("it has a verdict")?;
        ensure!(verdict.code == bk_api::VerdictCode::ValidationRefused, "{verdict:?}");
        let (stored, text) = stage.try_out("BuildJob", &refused())?;
        ensure!(stored, "nobody trusts a certificate that has expired, and nobody is kept: {text}");
        world
            .cluster
            .kubectl(&["annotate", "secret", &stage.name, "buildkite-operator.dev/not-after-"], None)?;
        stage.answered().await?;
        stage.remove()
    })
    .await;
}

/// Puts a certificate into the Secret that has expired, though nobody says so.
fn expire(stage: &Stage<'_>) -> Result<()> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([stage.address.ip().to_string()])?;
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2020, 1, 2));
    let certificate = STANDARD.encode(params.self_signed(&key)?.pem());
    let key = STANDARD.encode(key.serialize_pem());
    let patch = json!({
        "metadata": {"annotations": {"buildkite-operator.dev/not-after": "2099-01-01T00:00:00Z"}},
        "data": {"tls.crt": certificate, "tls.key": key, "ca.crt": certificate},
    });
    let args = ["patch", "secret", &stage.name, "--type=merge", "-p", &patch.to_string()];
    stage.world.cluster.kubectl(&args, None).map(drop)
}
