//! `deploy/` is what the chart becomes, without what only helm needs.

use std::{fs, path::Path};

use rstest::rstest;

use crate::{CHART, KUBE_VERSION, helm};

/// Set to write the files anew.
const WRITE: &str = "WRITE_DEPLOY";

/// What only helm needs.
const OF_HELM: [&str; 3] = ["# Source: ", "app.kubernetes.io/managed-by: ", "helm.sh/chart: "];

#[rstest]
#[case("config.yaml")]
#[case("deployment.yaml")]
#[case("rbac.yaml")]
#[case("disruption.yaml")]
fn manifests_are_made_of_the_chart(#[case] name: &str) {
    let template = format!("--show-only=templates/{name}");
    let config = r#"--set-json=config={"job_spawner_config": {"queue": "bk-operator", "maxInFlight": 25}}"#;
    let rendered = helm()
        .succeed(&[
            "template",
            "buildkite-operator",
            CHART,
            KUBE_VERSION,
            "--namespace=buildkite",
            &template,
            config,
        ])
        .unwrap();
    let lines = rendered.lines().skip_while(|line| *line == "---");
    let lines = lines.filter(|line| !OF_HELM.iter().any(|text| line.trim_start().starts_with(text)));
    let note = "# Made of charts/buildkite-operator.";
    let expected = [note].into_iter().chain(lines).collect::<Vec<_>>().join("\n") + "\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    if std::env::var_os(WRITE).is_some() {
        fs::write(&file, &expected).unwrap();
    }
    assert!(
        fs::read_to_string(&file).unwrap_or_default() == expected,
        "deploy/{name} is out of date; run: {WRITE}=1 cargo xtask test --only chart"
    );
}
