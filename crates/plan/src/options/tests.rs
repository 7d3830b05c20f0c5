mod documents;
mod properties;
mod refusals;

use bk_api::crds;
use rstest::rstest;
use serde_json::json;

use super::*;

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A list of plugins with the operator's own in it.
fn plugin(content: &Value) -> String {
    json!([{ "docker#v5": null }, { "github.com/buildkite-plugins/buildkite-operator-buildkite-plugin#v0.0.1": content }])
        .to_string()
}

fn asked(pairs: &[(&str, &str)], content: &Value) -> Value {
    let mut spec = BuildJobSpec::default();
    of(&variables(pairs), &plugin(content)).expect("they are understood").fill(&mut spec);
    serde_json::to_value(spec).expect("a spec can be written")
}

/// The value at the path of a field.
fn at<'a>(spec: &'a Value, field: &str) -> &'a Value {
    field.split('.').fold(spec, |value, key| &value[key])
}

#[test]
fn a_step_without_options_asks_for_nothing() {
    assert_eq!(of(&variables(&[("HOME", "/root"), ("BK_OPERATOR_IMAGE", " ")]), ""), Ok(Asked::default()));
    assert_eq!(asked(&[], &json!({ "image": null })), json!({}));
}

#[test]
fn every_option_sets_its_field_both_ways() {
    for option in ALL {
        let by_variable = asked(&[(&option.variable(), option.example)], &json!({}));
        assert!(!at(&by_variable, option.field).is_null(), "{}: {by_variable}", option.name);
        let by_plugin = asked(&[], &json!({ option.name: option.example }));
        assert_eq!(by_variable, by_plugin, "{}", option.name);
    }
}

#[test]
fn both_ways_of_the_first_example_are_the_same() {
    let by_variables = asked(
        &[
            ("BK_OPERATOR_BUILD_ENVIRONMENT", "name-of-build-environment"),
            ("BK_OPERATOR_LOG_PATHS", "/path/to/log/file/1.log;/path/to/log/file/2.log"),
        ],
        &json!({}),
    );
    let by_plugin = asked(
        &[],
        &json!({
            "build_environment": "name-of-build-environment",
            "log_paths": ["/path/to/log/file/1.log", "/path/to/log/file/2.log"],
        }),
    );
    assert_eq!(by_variables, by_plugin);
    insta::assert_yaml_snapshot!(by_plugin, @r#"
    environment: name-of-build-environment
    logExporter:
      enabled: true
      paths:
        - /path/to/log/file/1.log
        - /path/to/log/file/2.log
      stderr: false
      stdout: false
    "#);
}

#[test]
fn the_plugin_goes_before_the_variable_option_by_option() {
    let spec = asked(
        &[("BK_OPERATOR_TIMEOUT", "1h"), ("BK_OPERATOR_WORKLOAD", "Job"), ("BK_OPERATOR_LOG_STDOUT", "true")],
        &json!({ "timeout": "2h", "log_stderr": true }),
    );
    insta::assert_yaml_snapshot!(spec, @r#"
    logExporter:
      enabled: true
      stderr: true
      stdout: true
    timeout: 7200s
    workload: Job
    "#);
}

#[rstest]
#[case::image_over_environment(&[("BK_OPERATOR_BUILD_ENVIRONMENT", "go")], json!({"image": "node:24"}), json!({"image": "node:24"}))]
#[case::environment_over_image(&[("BK_OPERATOR_IMAGE", "node:24")], json!({"build_environment": "go"}), json!({"environment": "go"}))]
fn what_a_job_runs_in_is_one_choice(
    #[case] pairs: &[(&str, &str)],
    #[case] content: Value,
    #[case] expected: Value,
) {
    assert_eq!(asked(pairs, &content), expected);
}

#[test]
fn a_build_jobs_own_word_goes_before_options() {
    let own = json!({ "image": "golang:1.25", "timeout": "300s", "tolerations": [{ "key": "own" }] });
    let mut spec: BuildJobSpec = serde_json::from_value(own.clone()).expect("it is a spec");
    let content =
        json!({ "build_environment": "go", "timeout": "2h", "tolerations": ["spot"], "workload": "Job" });
    of(&BTreeMap::new(), &plugin(&content)).expect("they are understood").fill(&mut spec);
    let mut expected = own;
    expected["workload"] = json!("Job");
    assert_eq!(serde_json::to_value(spec).expect("it can be written"), expected);
}

#[test]
fn nodes_and_taints_have_short_forms() {
    let spec = asked(
        &[
            (
                "BK_OPERATOR_NODE_REQUIREMENTS",
                "kubernetes.io/arch=arm64; zone!=a,b; gpu; !spot; cores>8; age<3; disk==ssd",
            ),
            ("BK_OPERATOR_NODE_PREFERENCES", "disk=ssd;50 zone=a"),
            ("BK_OPERATOR_TOLERATIONS", "dedicated=ci:NoSchedule;gpu:NoExecute;spot"),
        ],
        &json!({}),
    );
    insta::assert_yaml_snapshot!(spec);
}

#[test]
fn lists_take_objects_too() {
    let spec = asked(
        &[("BK_OPERATOR_TOLERATIONS", r#"["spot", {"key": "gpu", "operator": "Exists"}]"#)],
        &json!({
            "extra_containers": ["postgres", { "name": "report", "startup": "with", "container": { "image": "junit" } }],
            "node_preferences": [{ "weight": 7, "requirements": [{ "key": "disk", "values": ["ssd"] }] }],
        }),
    );
    insta::assert_yaml_snapshot!(spec);
}

/// What is to be exported says that it is to be exported, unless the step says it itself.
#[rstest]
#[case(json!({"log_stdout": false}), "logExporter", false)]
#[case(json!({"log_sinks": ["search"]}), "logExporter", false)]
#[case(json!({"log_volume": "/logs"}), "logExporter", true)]
#[case(json!({"artifact_path": "/out"}), "artifactExporter", true)]
#[case(json!({"metrics_mode": "push"}), "metricsExporter", true)]
#[case(json!({"log_exporter": true}), "logExporter", true)]
#[case(json!({"log_exporter": true, "log_sinks": ["search"]}), "logExporter", true)]
#[case(json!({"log_exporter": false, "log_stdout": true}), "logExporter", false)]
#[case(json!({"artifact_exporter": true}), "artifactExporter", true)]
#[case(json!({"artifact_exporter": false, "artifact_path": "/out"}), "artifactExporter", false)]
#[case(json!({"metrics_exporter": true}), "metricsExporter", true)]
#[case(json!({"metrics_exporter": false, "metrics_mode": "push"}), "metricsExporter", false)]
#[case(json!({"repo_mirror": false}), "repoMirror", false)]
#[case(json!({"repo_mirror": false, "extra_repos": ["https://example.com/a.git"]}), "repoMirror", false)]
#[case(json!({"extra_repos": ["https://example.com/a.git"]}), "repoMirror", true)]
fn exporters_are_enabled_by_their_options(
    #[case] content: Value,
    #[case] field: &str,
    #[case] enabled: bool,
) {
    assert_eq!(asked(&[], &content)[field]["enabled"], json!(enabled));
}

/// The part of a BuildJob's definition that describes its spec.
fn definition() -> Value {
    let crds = serde_json::to_value(crds::all()).expect("definitions can be written");
    let jobs = crds.as_array().into_iter().flatten().find(|crd| crd["spec"]["names"]["kind"] == "BuildJob");
    let jobs = jobs.expect("there is one of BuildJobs");
    jobs["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].clone()
}

/// Fields that are no options, and what says them instead.
const OTHER_MEANS: &[(&str, &str)] = &[
    ("buildkite", "the job itself, which Buildkite tells"),
    ("source", "the build's own"),
    ("command", "the step's `command`"),
    ("env", "the step's `env`"),
    ("plugins", "the step's `plugins`"),
    ("kubernetes", "the `kubernetes` plugin"),
];

/// The paths of all fields below a schema's properties that have no fields of their own.
fn leaves(properties: &Value, path: &str) -> Vec<String> {
    let fields = properties.as_object().into_iter().flatten();
    let below = |(name, schema): (&String, &Value)| match schema.get("properties") {
        Some(inner) => leaves(inner, &format!("{path}{name}.")),
        None => vec![format!("{path}{name}")],
    };
    fields.flat_map(below).collect()
}

/// Whether `path` is `field`, or a part of it.
fn is_in(path: &str, field: &str) -> bool {
    path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[test]
fn every_field_of_a_build_job_is_an_option_or_said_by_other_means() {
    let leaves = leaves(&definition(), "");
    for path in &leaves {
        let is_option = ALL.iter().any(|option| is_in(path, option.field));
        let other = OTHER_MEANS.iter().any(|(field, _)| is_in(path, field));
        assert!(is_option != other, "{path} is to be an option, or to have a reason for being none");
    }
    for (field, reason) in OTHER_MEANS {
        assert!(leaves.iter().any(|path| is_in(path, field)), "there is no {field}, which is {reason}");
    }
}

#[test]
fn limits_are_those_of_the_definition() {
    let definition = definition();
    for option in ALL {
        let schema = option.field.split('.').fold(&definition, |schema, key| {
            if schema.get("properties").is_some() { &schema["properties"][key] } else { &schema[key] }
        });
        let most = schema.get("maxItems").and_then(Value::as_u64);
        assert_eq!(option.kind.most().map(|most| most as u64), most, "{}", option.name);
        if let Kind::Text { longest } = option.kind {
            assert_eq!(schema["maxLength"], json!(longest), "{}", option.name);
        }
        if let Kind::Choice(words) = option.kind {
            assert_eq!(schema["enum"], json!(words), "{}", option.name);
        }
    }
}
