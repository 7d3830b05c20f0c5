//! Alerts and the dashboard: what the real promtool says, and that people can look up what they see.
#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{collections::BTreeSet, fs};

use bk_e2e::{helm::CHART, program::promtool};
use serde_json::Value;

use crate::{behaviour::render, only};

const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");

fn rules() -> String {
    format!("{CHART}/files/rules.yaml")
}

fn dashboard() -> Value {
    serde_json::from_str(&fs::read_to_string(format!("{CHART}/files/dashboard.json")).unwrap()).unwrap()
}

#[test]
fn alerts_are_raised_when_they_should_be() {
    promtool(&["check", "rules", &rules()], "").unwrap();
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chart/rules.test.yaml");
    let said = promtool(&["test", "rules", tests], "").unwrap();
    assert!(said.contains("SUCCESS"), "{said}");
    let cases = fs::read_to_string(tests).unwrap();
    for alert in alerts(&serde_saphyr::from_str(&fs::read_to_string(rules()).unwrap()).unwrap()) {
        let raised = format!("alertname: {alert}\n        exp_alerts:");
        assert!(cases.contains(&raised), "no test raises {alert}");
        assert!(DOCUMENT.contains(&format!("| `{alert}` |")), "{alert} is not in docs/metrics.md");
    }
}

fn alerts(rules: &Value) -> Vec<String> {
    let groups = rules["groups"].as_array().unwrap();
    let all = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    all.map(|rule| rule["alert"].as_str().unwrap().to_owned()).collect()
}

/// The metrics that a text names.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours =
        words.filter(|word| word.starts_with("buildkite_operator_") || word.starts_with("buildkite_repo_"));
    let histogram = |name: &str| {
        let suffixes = ["_seconds_bucket", "_seconds_sum", "_seconds_count"];
        let cut = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
        cut.map_or_else(|| name.to_owned(), |name| format!("{name}_seconds"))
    };
    ours.map(histogram).collect()
}

#[test]
fn alerts_and_panels_ask_for_metrics_that_there_are() {
    let known = metrics(DOCUMENT);
    let asked = metrics(&fs::read_to_string(rules()).unwrap());
    let shown = metrics(&dashboard().to_string());
    assert!(asked.len() > 10 && shown.len() > 20, "{asked:?} {shown:?}");
    let unknown: Vec<_> = asked.union(&shown).filter(|metric| !known.contains(*metric)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn rules_and_dashboard_come_with_the_chart_if_asked_for() {
    let objects = render(
        "{prometheusRule: {enabled: true, labels: {release: prometheus}}, dashboard: {enabled: true, annotations: {folder: CI}}}",
    );
    let rule = only(&objects, "PrometheusRule");
    assert_eq!(rule["metadata"]["labels"]["release"], "prometheus");
    assert_eq!(alerts(&rule["spec"]).len(), 14);
    let summary = &rule["spec"]["groups"][0]["rules"][3]["annotations"]["summary"];
    assert_eq!(summary, "Jobs of queue {{ $labels.queue }} cannot be taken.", "helm leaves it alone");
    let maps =
        objects.iter().find(|object| object["metadata"]["labels"]["grafana_dashboard"] == "1").unwrap();
    assert_eq!(maps["metadata"]["annotations"]["folder"], "CI");
    let printed: Value =
        serde_json::from_str(maps["data"]["buildkite-operator.json"].as_str().unwrap()).unwrap();
    assert_eq!(printed, dashboard());
    let objects = render("{}");
    assert!(objects.iter().all(|object| object["kind"] != "PrometheusRule"));
    assert!(objects.iter().all(|object| object["metadata"]["labels"]["grafana_dashboard"] != "1"));
}
