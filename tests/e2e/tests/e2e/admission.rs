//! Webhooks: what they refuse, warn of and change, and that nothing is lost without them.
//!
//! - [`stage`]: the chart's webhooks, for an operator that is no pod
//! - [`findings`]: each refusal, warning and change
//! - [`queue`]: rules and webhooks, and jobs of a queue

mod findings;
mod queue;
mod stage;

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use bk_e2e::scenario;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::json;

use self::stage::{Stage, VALUES, refused};

const CONFIG: &str = r#"
newNodes: none
rules:
  - {expression: "!has(self.spec.image) || !self.spec.image.startsWith('evil/')", message: no images of evil}
environmentDefaults:
  env: [{name: HTTP_PROXY, value: "http://proxy"}]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_while_nobody_answers() {
    scenario(async |world| {
        let stage = Stage::set(world, CONFIG, VALUES).await?;
        let mut operator = stage.operator().await?;
        stage.answered().await?;
        operator.freeze()?;
        let answer = stage.try_out("BuildJob", &refused())?;
        ensure!(answer.stored, "a webhook that is slow keeps nobody: {answer:?}");
        operator.thaw()?;
        stage.answered().await?;
        operator.kill()?;
        let answer = stage.store("BuildJob", "unchecked", &refused())?;
        ensure!(answer.stored, "a webhook that is down keeps nobody: {answer:?}");
        let answer = stage.try_out("BuildJob", &json!({"timeout": "no", "command": "x"}))?;
        ensure!(!answer.stored, "definitions hold: {answer:?}");

        expire(&stage)?;
        let _operator = stage.operator().await?;
        let ended = |job: &bk_api::BuildJob| job.is_terminal();
        let job = world.cluster.build_job_with("unchecked", "refused by the controller", ended).await?;
        let verdict = job.status.and_then(|status| status.verdict).context("it has a verdict")?;
        ensure!(verdict.code == bk_api::VerdictCode::ValidationRefused, "{verdict:?}");
        let answer = stage.try_out("BuildJob", &refused())?;
        ensure!(
            answer.stored,
            "nobody trusts a certificate that has expired, and nobody is kept: {answer:?}"
        );
        let found = stage.examined().await?;
        ensure!(
            found.iter().any(|(check, told)| check == "fail webhook" && told.contains("has expired")),
            "{found:?}"
        );
        world
            .cluster
            .kubectl(&["annotate", "secret", &stage.name, "buildkite-operator.dev/not-after-"], None)?;
        stage.answered().await?;
        let found = stage.examined().await?;
        let checks: Vec<&str> = found.iter().map(|(check, _)| check.as_str()).collect();
        ensure!(checks == ["ok version", "ok permissions", "ok webhook"], "{found:?}");
        stage.remove()?;
        let found = stage.examined().await?;
        for expected in ["fail permissions", "fail webhook"] {
            ensure!(found.iter().any(|(check, _)| check == expected), "{expected}: {found:?}");
        }
        Ok(())
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

/// Certificates in a directory, as the kubelet shows the Secret of cert-manager, which also has the configurations trust them.
struct Directory(PathBuf);

impl Directory {
    /// Puts another certificate in, all of it at once; what callers have to trust then.
    fn replace(&self, stage: &Stage<'_>, version: &str) -> Result<String> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new([stage.address.ip().to_string()])?.self_signed(&key)?.pem();
        let data = self.0.join(version);
        fs::create_dir_all(&data)?;
        fs::write(data.join("tls.crt"), &certificate)?;
        fs::write(data.join("tls.key"), key.serialize_pem())?;
        let (new, current) = (self.0.join("..new"), self.0.join("..data"));
        symlink(version, &new)?;
        fs::rename(&new, &current)?;
        for file in ["tls.crt", "tls.key"] {
            let link = self.0.join(file);
            if !link.is_symlink() {
                symlink(Path::new("..data").join(file), link)?;
            }
        }
        Ok(STANDARD.encode(certificate))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_cert_manager_are_served_and_so_are_those_after_them() {
    scenario(async |world| {
        let values = "timeoutSeconds: 2, lookUpSecrets: true, certManager: {enabled: true}";
        let stage = Stage::set(world, CONFIG, values).await?;
        let directory = Directory(world.directory().join("webhook"));
        let trust = |bundle: &str| {
            let config = json!({"clientConfig": {"caBundle": bundle}});
            stage.change("validating", &config).and_then(|()| stage.change("mutating", &config))
        };
        trust(&directory.replace(&stage, "first")?)?;
        let args = [
            "--queue=bk-operator".to_owned(),
            format!("--webhook-listen={}", stage.address),
            format!("--webhook-certs={}", directory.0.display()),
        ];
        let operator = world.operator_given(None, args).await?;
        stage.answered().await?;
        let given = stage.store("BuildEnvironment", "given", &json!({"image": "a"}))?;
        ensure!(given.object["spec"]["env"][0]["name"] == "HTTP_PROXY", "{given:?}");

        // From now on nobody trusts the first.
        trust(&directory.replace(&stage, "second")?)?;
        stage.answered().await?;
        ensure!(operator.log()?.contains("the webhooks have a new certificate"), "it was not started anew");
        stage.remove()
    })
    .await;
}
