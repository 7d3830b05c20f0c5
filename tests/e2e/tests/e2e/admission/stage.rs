//! The chart's webhooks, for an operator that is no pod.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, Result, ensure};
use bk_e2e::{World, eventually, helm::Helm, operator::Operator};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::rules::{self, Rule};

/// The values that every test begins with.
pub(super) const VALUES: &str = "timeoutSeconds: 2, lookUpSecrets: true";

/// The operator on this machine, and how the cluster calls it.
pub(super) struct Stage<'a> {
    pub(super) world: &'a World,
    /// What the Secret, the webhook configurations and the `ClusterRole` are called.
    pub(super) name: String,
    pub(super) address: SocketAddr,
    /// What the webhooks' roles allow.
    rules: Vec<Rule>,
}

/// What became of an object that was applied.
#[derive(Debug)]
pub(super) struct Answer {
    /// Whether it is stored, or would be.
    pub(super) stored: bool,
    /// What kubectl said: the refusal, or warnings.
    pub(super) said: String,
    /// The object as it is stored, or would be.
    pub(super) object: Value,
}

impl<'a> Stage<'a> {
    /// The objects of the chart, by these values of `webhook`, and the configuration.
    pub(super) async fn set(world: &'a World, config: &str, values: &str) -> Result<Self> {
        world.needs_process()?;
        world.cluster.configure("validation_config", config).await?;
        let address = TcpListener::bind((world.environment.host, 0))?.local_addr()?;
        let namespace = &world.cluster.namespace;
        let name = format!("{namespace}-buildkite-operator");
        let values = format!("agentToken: x\nwebhook: {{enabled: true, {values}}}");
        let mut rules = Vec::new();
        for object in Helm::new(&world.environment.helm)?.render(&values)? {
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
            rules.extend(rules::of(&object.to_string())?);
            world.cluster.kubectl(&["apply", "-f", "-"], Some(&object.to_string()))?;
        }
        Ok(Self { world, name, address, rules })
    }

    /// An operator that answers.
    pub(super) async fn operator(&self) -> Result<Operator> {
        let Self { world, name, address, .. } = self;
        let host = address.ip();
        let args = [
            "--queue=bk-operator".to_owned(),
            format!("--webhook-listen={address}"),
            format!("--webhook-host={host}"),
            format!("--webhook-name={name}"),
        ];
        world.operator_given(None, args).await
    }

    /// What kubectl says of an object, and what becomes of it.
    pub(super) fn apply(&self, kind: &str, metadata: &Value, spec: &Value, args: &[&str]) -> Result<Answer> {
        let object = json!({
            "apiVersion": "buildkite-operator.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec,
        });
        let args = [&["apply", "-f", "-", "-o", "json"], args].concat();
        let output = self.world.cluster.try_kubectl(&args, Some(&object.to_string()))?;
        Ok(Answer {
            stored: output.status.success(),
            said: String::from_utf8_lossy(&output.stderr).into_owned(),
            object: serde_json::from_slice(&output.stdout).unwrap_or_default(),
        })
    }

    /// Stores an object.
    pub(super) fn store(&self, kind: &str, name: &str, spec: &Value) -> Result<Answer> {
        self.apply(kind, &json!({ "name": name }), spec, &[])
    }

    /// What would become of an object.
    pub(super) fn try_out(&self, kind: &str, spec: &Value) -> Result<Answer> {
        self.apply(kind, &json!({"name": "trial"}), spec, &["--dry-run=server"])
    }

    /// Waits until somebody answers.
    pub(super) async fn answered(&self) -> Result<()> {
        eventually("the webhook answers", async || {
            let answer = self.try_out("BuildJob", &refused())?;
            ensure!(!answer.stored, "{answer:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Changes each webhook of a configuration.
    pub(super) fn change(&self, kind: &str, change: &Value) -> Result<()> {
        let kind = format!("{kind}webhookconfiguration");
        let names = ["get", &kind, &self.name, "-o", "jsonpath={.webhooks[*].name}"];
        for webhook in self.world.cluster.kubectl(&names, None)?.split_whitespace() {
            let mut changed = change.clone();
            changed["name"] = webhook.into();
            let patch = json!({ "webhooks": [changed] }).to_string();
            let args = ["patch", &kind, &self.name, "--type=strategic", "-p", &patch];
            self.world.cluster.kubectl(&args, None)?;
        }
        Ok(())
    }

    /// Waits until each of the webhooks' permissions was used. That nothing was refused is looked at after every test.
    pub(super) async fn permissions_are_all_needed(&self) -> Result<()> {
        eventually("the record shows a use of each permission", async || {
            let unused = rules::unused(&self.rules, &self.world.api_calls(Timestamp::UNIX_EPOCH)?, &[]);
            ensure!(unused.is_empty(), "nothing has used {unused:#?}");
            Ok(Some(()))
        })
        .await
    }

    /// What `doctor` finds of the webhooks and of permissions. The Deployment that it looks at has no pods.
    pub(super) async fn examined(&self) -> Result<Vec<(String, String)>> {
        let Self { world, name, .. } = self;
        let (args, version) =
            (["--webhook-listen=[::]:8443", "--webhook-name", name], env!("CARGO_PKG_VERSION"));
        let env = json!([{"name": "BUILDKITE_OPERATOR_DEPLOYMENT", "value": "buildkite-operator"}]);
        let container =
            json!({"name": "operator", "image": format!("operator:{version}"), "args": args, "env": env});
        let labels = json!({"app": "operator"});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "buildkite-operator"},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
                "spec": {"serviceAccountName": "buildkite-operator", "containers": [container]}}},
        });
        world.cluster.kubectl(&["apply", "-f", "-"], Some(&deployment.to_string()))?;
        let environment = &world.environment;
        let doctor = tokio::process::Command::new(&environment.operator)
            .args(["doctor", "--output=json", "--namespace", &world.cluster.namespace])
            .arg(format!("--kubeconfig={}", environment.kubeconfig.display()))
            .output()
            .await?;
        let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
        let findings: Vec<Value> = serde_json::from_str(&text).with_context(|| text)?;
        let asked = ["webhook", "version", "permissions"];
        let told = findings.iter().filter(|finding| asked.iter().any(|check| finding["check"] == *check));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(told
            .map(|finding| {
                (
                    format!("{} {}", text(&finding["grade"]), text(&finding["check"])),
                    text(&finding["message"]),
                )
            })
            .collect())
    }

    pub(super) fn remove(&self) -> Result<()> {
        let kinds =
            "validatingwebhookconfiguration,mutatingwebhookconfiguration,clusterrole,clusterrolebinding";
        self.world.cluster.kubectl(&["delete", kinds, &self.name], None).map(drop)
    }
}

/// A job that the first rule of the tests' configurations refuses.
pub(super) fn refused() -> Value {
    json!({"command": "make", "timeout": "5m", "image": "evil/image"})
}
