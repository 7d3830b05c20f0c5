//! What is not understood, or not permitted, and how that is said.

use super::*;

fn refusal(pairs: &[(&str, &str)], content: &Value) -> String {
    of(&variables(pairs), &plugin(content)).expect_err("it is refused").to_string()
}

#[test]
fn unknown_options_are_named_with_the_nearest_that_is_known() {
    insta::assert_snapshot!(refusal(&[("BK_OPERATOR_LOG_PATH", "/x")], &json!({ "build_enviroment": "go" })), @"BK_OPERATOR_LOG_PATH: there is no such option; did you mean `BK_OPERATOR_LOG_PATHS`?; also buildkite-operator plugin: build_enviroment: there is no such option; did you mean `build_environment`?");
}

#[test]
fn what_is_like_no_option_is_answered_with_all_of_them() {
    let refusal = refusal(&[], &json!({ "xyzzy": 1 }));
    let (start, known) = refusal.split_once("known: ").expect("it lists them");
    assert_eq!(start, "buildkite-operator plugin: xyzzy: there is no such option; ");
    assert_eq!(known, ALL.iter().map(|option| option.name).collect::<Vec<_>>().join(", "));
}

#[rstest]
#[case(
    "BUILD_ENVIRONMENT",
    "Go Lang",
    "`Go Lang` is not the name of a BuildEnvironment: small letters, digits, dashes and dots"
)]
#[case(
    "EXTRA_CONTAINERS",
    "a;B",
    "entry 2: `B` is not the name of a BuildEnvironment: small letters, digits, dashes and dots"
)]
#[case("LOG_STDOUT", "yes", "must be true or false, not `yes`")]
#[case("ARTIFACT_PATH", "out", "`out` must be an absolute path of a directory, such as /artifacts")]
#[case("METRICS_MODE", "pull", "must be scrape or push or otlp, not `pull`")]
#[case(
    "NODE_REQUIREMENTS",
    "a b",
    "entry 1: `a b` is not a requirement such as disk=ssd, zone=a,b, arch!=arm64, gpu, !spot or cores>8"
)]
#[case("NODE_REQUIREMENTS", "zone=a b", "entry 1: `a b` in `zone=a b` cannot be the value of a label")]
#[case(
    "TOLERATIONS",
    "gpu:Never",
    "entry 1: `Never` in `gpu:Never` is none of the effects NoSchedule, PreferNoSchedule, NoExecute"
)]
#[case("TOLERATIONS", "[1]", "entry 1 is `1`")]
#[case("TOLERATIONS", "[", "is not JSON: EOF while parsing a list at line 1 column 1")]
#[case("RESOURCES", "4Gi", "is not JSON: trailing characters at line 1 column 2")]
#[case("RESOURCES", "[]", "must be an object, not a list")]
#[case("TIMEOUT", "-5m", "`-5m` must be a positive duration such as 90m or 1h30m")]
#[case("TIMEOUT", "0s", "`0s` must be a positive duration such as 90m or 1h30m")]
fn malformed_variables_are_named(#[case] name: &str, #[case] value: &str, #[case] expected: &str) {
    let variable = format!("BK_OPERATOR_{name}");
    assert_eq!(refusal(&[(&variable, value)], &json!({})), format!("{variable}: {expected}"));
}

#[rstest]
#[case(json!({"image": 5}), "image: must be text, not `5`")]
#[case(json!({"image": ""}), "image: must not be empty")]
#[case(json!({"image": "x".repeat(513)}), "image: must have 512 characters at most")]
#[case(json!({"log_paths": {"a": 1}}), "log_paths: must be a list, not an object")]
#[case(json!({"log_sinks": vec!["a"; 17]}), "log_sinks: has 17 entries; there may be 16")]
#[case(json!({"timeout": "soon"}), "timeout: `soon` must be a positive duration such as 90m or 1h30m")]
#[case(json!({"timeout": "5 days"}), "timeout: ")]
#[case(json!({"resources": {"request": {"cpu": "1"}}}), "resources.request: there is no such field")]
#[case(json!({"resources": {"requests": {"cpu": []}}}), "resources.requests.cpu: invalid type: sequence")]
#[case(json!({"tolerations": [{"key": "a", "efect": "NoSchedule"}]}), "tolerations[0].efect: there is no such field")]
#[case(json!({"init_containers": [{"environment": "a", "startup": "with"}]}), "init_containers[0]: init containers run before the job")]
#[case(json!({"extra_containers": [{"name": "a"}]}), "extra_containers[0]: give either `environment`")]
#[case(json!({"node_requirements": [{"key": "a"}]}), "node_requirements[0]: In and NotIn need `values`")]
#[case(json!({"node_requirements": ["cores>many"]}), "node_requirements[0]: Gt and Lt need one value, a whole number")]
#[case(json!({"node_preferences": ["500 a=b"]}), "node_preferences[0]: a weight is 1 to 100")]
#[case(json!({"workspace_sub_path_expr": "/etc"}), "workspace_sub_path_expr: is a path below the volume")]
#[case(json!({"workspace_sub_path_expr": "a/../../b"}), "workspace_sub_path_expr: is a path below the volume")]
#[case(json!({"build_environment": "go", "image": "node"}), "build_environment: excludes `image`")]
fn malformed_keys_of_the_plugin_are_named(#[case] content: Value, #[case] expected: &str) {
    let refusal = refusal(&[], &content);
    assert!(refusal.starts_with(&format!("buildkite-operator plugin: {expected}")), "{refusal}");
}

#[test]
fn the_plugin_must_hold_options() {
    assert_eq!(
        refusal(&[], &json!(["image"])),
        "the configuration of the buildkite-operator plugin must be an object, not a list"
    );
}

#[test]
fn a_variable_that_the_plugin_replaces_need_not_be_understood() {
    assert_eq!(
        asked(&[("BK_OPERATOR_TIMEOUT", "soon")], &json!({ "timeout": "1h" })),
        json!({ "timeout": "3600s" })
    );
}

#[rstest]
#[case(&["image"], None)]
#[case(&["timeout", "image"], Some("BK_OPERATOR_TIMEOUT"))]
#[case(&["log_stdout", "kubernetes"], Some("kubernetes plugin, buildkite-operator plugin: log_stdout"))]
fn forbidden_options_are_named_as_they_were_written(
    #[case] forbidden: &[&str],
    #[case] expected: Option<&str>,
) {
    let plugins = json!([{ "kubernetes": {} }, { "buildkite-operator": { "log_stdout": true } }]).to_string();
    let asked = of(&variables(&[("BK_OPERATOR_TIMEOUT", "1h")]), &plugins).expect("they are understood");
    let forbidden: Vec<String> = forbidden.iter().map(|name| (*name).to_owned()).collect();
    let refusal = asked.check_permitted(&forbidden).err().map(|error| error.to_string());
    let expected = expected
        .map(|places| format!("the operator's configuration forbids this queue's jobs to set {places}"));
    assert_eq!(refusal, expected);
}

#[rstest]
#[case::it_is_used(&[("BUILDKITE_IMAGE", "node:24")], true)]
#[case::an_environment_replaces_it(
    &[("BUILDKITE_IMAGE", "node:24"), ("BK_OPERATOR_BUILD_ENVIRONMENT", "go")], false
)]
#[case::there_is_none(&[("BUILDKITE_IMAGE", "")], false)]
fn the_steps_own_image_is_forbidden_with_the_option(#[case] env: &[(&str, &str)], #[case] refused: bool) {
    let asked = of(&variables(env), "").expect("it is understood");
    assert_eq!(asked.check_permitted(&["image".to_owned()]).is_err(), refused);
}

#[rstest]
#[case::it_is_chosen(&["queue=gpu", "resource_class=huge"], true)]
#[case::it_is_not(&["queue=gpu"], false)]
fn a_resource_class_among_the_rules_is_forbidden_with_the_option(
    #[case] rules: &[&str],
    #[case] refused: bool,
) {
    let rules: Vec<String> = rules.iter().map(|rule| (*rule).to_owned()).collect();
    let asked = of(&variables(&[]), "").expect("it is understood").with_rules(&rules);
    assert_eq!(asked.check_permitted(&["resource_class".to_owned()]).is_err(), refused);
}

#[test]
fn only_options_can_be_forbidden() {
    let check = |name: &str| check_names(&[name.to_owned()]);
    assert_eq!(check("kubernetes"), Ok(()));
    assert_eq!(check("image"), Ok(()));
    assert_eq!(
        check("kuberntes").unwrap_err(),
        "`kuberntes`: there is no such option; did you mean `kubernetes`?"
    );
}

#[rstest]
#[case::the_nodes_files(json!({"workspace_volume": {"hostPath": {"path": "/"}}}), Some("buildkite-operator plugin: workspace_volume with `hostPath`"))]
#[case::the_secrets_of_others(json!({"workspace_volume": {"secret": {"secretName": "s"}}}), Some("buildkite-operator plugin: workspace_volume with `secret`"))]
#[case::memory(json!({"workspace_volume": {"emptyDir": {"medium": "Memory"}}}), None)]
#[case::directories_of_other_jobs(json!({"workspace_sub_path_expr": "others"}), Some("buildkite-operator plugin: workspace_sub_path_expr without a `workspace_volume`"))]
#[case::a_directory_of_its_own(json!({"workspace_sub_path_expr": "own", "workspace_volume": {"emptyDir": {}}}), None)]
#[case::containers_of_the_steps_own(
    json!({"extra_containers": [{"name": "x", "container": {"image": "x", "securityContext": {"privileged": true}}}]}),
    Some("buildkite-operator plugin: extra_containers with a `container`")
)]
#[case::before_the_job(
    json!({"init_containers": [{"name": "x", "container": {"image": "x"}}]}),
    Some("buildkite-operator plugin: init_containers with a `container`")
)]
#[case::those_of_environments(json!({"extra_containers": ["postgres"]}), None)]
fn where_the_plugin_is_forbidden_there_is_no_way_round(
    #[case] options: serde_json::Value,
    #[case] expected: Option<&str>,
) {
    let plugins = json!([{ "buildkite-operator": options }]).to_string();
    let asked = of(&variables(&[]), &plugins).expect("they are understood");
    let refusal = asked.check_permitted(&["kubernetes".to_owned()]).err().map(|error| error.to_string());
    let words = "the operator's configuration forbids this queue's jobs to set";
    assert_eq!(refusal, expected.map(|place| format!("{words} {place}")));
    assert_eq!(asked.check_permitted(&["image".to_owned()]), Ok(()));
}
