//! `buildkite-operator migrate`: settings of Buildkite's own controller.

use bk_api::config::Config;
use k8s_openapi::api::core::v1::ConfigMap;
use tempfile::TempDir;

use crate::{documents::blocks, operator, output};

const MIGRATING: &str = include_str!("../../../../docs/migrating.md");

/// The blocks of the page's section about the command: values of the one, report, values of the other.
fn shown() -> (String, String, String) {
    let section = MIGRATING
        .split("\n## ")
        .find(|section| section.starts_with("Translating settings"))
        .expect("a section");
    let yaml = blocks(section, "yaml");
    (yaml[0].clone(), blocks(section, "text")[0].clone(), yaml[1].clone())
}

#[test]
fn the_page_shows_what_is_printed() {
    let (values, report, expected) = shown();
    let success = operator().args(["migrate", "-"]).write_stdin(values).assert().success();
    let printed = String::from_utf8_lossy(&success.get_output().stdout).into_owned();
    assert_eq!(printed, expected);
    success.stderr(report);
}

#[test]
fn without_helm_it_makes_the_config_map() {
    let directory = TempDir::new().expect("a directory of our own");
    let report = directory.path().join("report");
    let mut command = operator();
    command.args(["migrate", "-", "--to=config-map", "--report"]).arg(&report);
    let printed = output(command.write_stdin(shown().0));
    let map: ConfigMap = serde_saphyr::from_str(&printed).expect("a ConfigMap");
    Config::from_data(&map.data.unwrap_or_default()).expect("the operator takes it");
    assert_eq!(std::fs::read_to_string(report).expect("a report"), shown().1);
}

#[test]
fn what_the_operator_would_refuse_is_said() {
    let failure =
        operator().args(["migrate", "-"]).write_stdin("tags: [linux]\n").assert().code(1).stdout("");
    let text = String::from_utf8_lossy(&failure.get_output().stderr).into_owned();
    let last = text.lines().last().unwrap_or_default();
    assert_eq!(
        last,
        "error: standard input has a value that cannot be carried over: ConfigMap buildkite-operator-config, key `job_spawner_config`: `tags`: tag `linux` must have the form key=value"
    );
}

#[test]
fn what_is_no_file_of_settings_is_refused() {
    let failure = operator().args(["migrate", "-"]).write_stdin("[1]").assert().code(1).stdout("");
    failure.stderr("error: standard input holds neither Helm values nor a configuration\n");
}

#[test]
fn a_file_without_any_setting_of_theirs_is_refused() {
    let failure =
        operator().args(["migrate", "-"]).write_stdin("steps: [wait]\n").assert().code(1).stdout("");
    let text = String::from_utf8_lossy(&failure.get_output().stderr).into_owned();
    let last = text.lines().last().unwrap_or_default();
    assert_eq!(last, "error: standard input has no setting of agent-stack-k8s: is it the right file?");
}
