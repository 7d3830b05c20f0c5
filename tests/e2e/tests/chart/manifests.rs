//! `deploy/` is what the chart becomes, without what only helm needs.

use std::{fs, path::Path};

use rstest::rstest;

use crate::{CHART, KUBE_VERSION, helm};

/// Set to write the files anew.
const WRITE: &str = "WRITE_DEPLOY";

/// What only helm needs.
const OF_HELM: [&str; 3] = ["# Source: ", "app.kubernetes.io/managed-by: ", "helm.sh/chart: "];

/// A template of the chart with these values, without what only helm needs.
fn made_of(template: &str, config: &str, more: &[&str]) -> String {
    let template = format!("--show-only=templates/{template}");
    let config = format!("--set-json=config={config}");
    let args =
        ["template", "buildkite-operator", CHART, KUBE_VERSION, "--namespace=buildkite", &template, &config];
    let rendered = helm().succeed(&[&args, more].concat()).expect("the values are accepted");
    let lines = rendered.lines().skip_while(|line| *line == "---");
    let lines = lines.filter(|line| !OF_HELM.iter().any(|text| line.trim_start().starts_with(text)));
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

fn check(name: &str, made: &str) {
    let expected = format!("# Made of charts/buildkite-operator.\n{made}");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    if std::env::var_os(WRITE).is_some() {
        fs::write(&file, &expected).expect("the file can be written");
    }
    assert!(
        fs::read_to_string(&file).unwrap_or_default() == expected,
        "deploy/{name} is out of date; run: {WRITE}=1 cargo xtask test --only chart"
    );
}

#[rstest]
#[case("config.yaml")]
#[case("deployment.yaml")]
#[case("rbac.yaml")]
#[case("broker.yaml")]
#[case("disruption.yaml")]
fn manifests_are_made_of_the_chart(#[case] name: &str) {
    let config = r#"{"job_spawner_config": {"queue": "bk-operator", "maxInFlight": 25}}"#;
    check(name, &made_of(name, config, &[]));
}

/// What both layouts of mirrors have in common is in a file of its own.
#[rstest]
#[case("rbac.yaml", "shared", &["ServiceAccount", "Role", "RoleBinding", "Service"])]
#[case("shared.yaml", "shared", &["PersistentVolumeClaim", "StatefulSet"])]
#[case("node-local.yaml", "nodeLocal", &["DaemonSet"])]
fn manifests_of_the_syncer_are_made_of_the_chart(
    #[case] name: &str,
    #[case] layout: &str,
    #[case] kinds: &[&str],
) {
    let place = match layout {
        "shared" => r#""claimName": "repo-mirrors""#,
        _ => r#""hostPath": "/var/lib/buildkite/repo-mirrors""#,
    };
    let endpoint = r#""endpoint": {"listen": "0.0.0.0:8081", "tokenSecret": "repo-syncer-token"}"#;
    let config = format!(r#"{{"repo_syncer_config": {{"layout": "{layout}", {place}, {endpoint}}}}}"#);
    let made = made_of("repo-syncer.yaml", &config, &["--set=repoSyncer.enabled=true"]);
    let is_wanted = |object: &&str| kinds.iter().any(|kind| object.contains(&format!("\nkind: {kind}\n")));
    let objects: Vec<&str> = made.trim_end().split("\n---\n").filter(is_wanted).collect();
    assert!(objects.len() >= kinds.len(), "{made}");
    check(&format!("repo-syncer/{name}"), &(objects.join("\n---\n") + "\n"));
}
