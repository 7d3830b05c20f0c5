//! What the chart has from the code: definitions, permissions and the schema of the configuration.

use std::{fs, path::PathBuf};

use bk_api::config::ValuesSchema;
use buildkite_operator::permissions::{self, Names};
use rstest::rstest;
use serde_json::Value;

use crate::{documents::yaml, operator, output};

/// Set to write the files anew.
const WRITE: &str = "WRITE_CHART";

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../charts/buildkite-operator").join(name)
}

/// The operator's rules, for templates of the chart.
fn rules() -> String {
    let include = |name: &str| format!("{{{{ include \"buildkite-operator.{name}\" . }}}}");
    let names = Names {
        agent_token: include("agentTokenSecret"),
        api_token: include("apiTokenSecret"),
        deployment: include("fullname"),
    };
    let define = |name: &str, rules: &str| {
        format!("{{{{- define \"buildkite-operator.rules.{name}\" -}}}}\n{rules}{{{{- end }}}}\n")
    };
    let own = permissions::rules(&permissions::in_own_namespace(&names));
    let jobs = permissions::rules(&permissions::in_job_namespace(&names));
    let webhook = include("webhook.fullname");
    let broker = include("broker.fullname");
    let secrets = "{{ join \", \" .Values.repoSyncer.secrets }}";
    let others = [
        ("webhook.own", permissions::webhooks_in_own_namespace(&webhook)),
        ("webhook.jobs", permissions::webhooks_in_job_namespace()),
        ("webhook.secrets", permissions::secrets_in_job_namespace()),
        ("webhook.cluster", permissions::webhooks_in_cluster()),
        ("webhook.configurations", permissions::webhook_configurations(&webhook)),
        ("broker.own", permissions::broker_in_own_namespace(&broker)),
        ("broker.jobs", permissions::broker_in_job_namespace()),
        ("broker.cluster", permissions::broker_in_cluster()),
        ("broker.tokenReviews", permissions::token_reviews_in_cluster()),
        ("syncer.own", permissions::syncer_in_own_namespace()),
        ("syncer.jobs", permissions::syncer_in_job_namespace()),
        ("syncer.secrets", permissions::syncer_secrets(vec![secrets.to_owned()])),
    ]
    .map(|(name, rules)| define(name, &permissions::rules(&rules)))
    .join("\n");
    let source = "{{- /* Written from crates/operator/src/permissions.rs. */ -}}\n";
    format!("{source}{}\n{}\n{others}", define("own", &own), define("jobs", &jobs))
}

/// The schema of the values, with the parts that come from types as these are now.
fn schema() -> String {
    let written = fs::read_to_string(file("values.schema.json")).expect("the chart has a schema");
    let mut schema: Value = serde_json::from_str(&written).expect("it is JSON");
    let ValuesSchema { config, definitions } = ValuesSchema::new();
    schema["properties"]["config"] = config;
    schema["$defs"] = definitions;
    schema.sort_all_objects();
    format!("{schema:#}\n")
}

#[rstest]
#[case::definitions("files/crds.yaml", output(operator().arg("crds")))]
#[case::permissions("templates/_permissions.tpl", rules())]
#[case::values("values.schema.json", schema())]
fn the_chart_has_what_the_code_says(#[case] name: &str, #[case] expected: String) {
    if std::env::var_os(WRITE).is_some() {
        fs::write(file(name), &expected).unwrap();
    }
    assert!(
        fs::read_to_string(file(name)).unwrap_or_default() == expected,
        "charts/buildkite-operator/{name} is out of date; run: {WRITE}=1 cargo test -p buildkite-operator --test it chart"
    );
}

#[test]
fn the_chart_has_the_version_of_the_operator() {
    let chart = yaml(&fs::read_to_string(file("Chart.yaml")).unwrap());
    assert_eq!(
        (&chart["version"], &chart["appVersion"]),
        (&Value::from(buildkite_operator::VERSION), &Value::from(buildkite_operator::VERSION))
    );
}

/// Whoever reads the values finds all of them, with a comment.
#[test]
fn every_value_is_in_the_file() {
    let values = yaml(&fs::read_to_string(file("values.yaml")).unwrap());
    let schema: Value =
        serde_json::from_str(&fs::read_to_string(file("values.schema.json")).unwrap()).unwrap();
    let known = schema["properties"].as_object().unwrap();
    for name in known.keys().filter(|name| *name != "global") {
        assert!(values.get(name).is_some(), "{name} is not in values.yaml");
    }
}
