use rstest::rstest;
use serde_json::json;

use super::*;

fn order() -> Order {
    Order { namespace: "ci".to_owned(), ..Order::default() }
}

fn hook(env: &[(&str, &str)], given: Option<&[&str]>) -> Hook {
    Hook {
        env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        given: given.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
    }
}

#[test]
fn a_command_line_becomes_a_build_job() {
    let order = Order {
        command: ["make", "test", "FLAGS=-v -x", "$HOME"].map(str::to_owned).into(),
        image: Some("golang:1.25".to_owned()),
        env: vec![("MODE".to_owned(), "$(date) $$".to_owned())],
        repo: Some("https://git.example.com/a.git".to_owned()),
        branch: Some("topic".to_owned()),
        timeout: Some(std::time::Duration::from_secs(90)),
        ..order()
    };
    insta::assert_yaml_snapshot!(of(&order));
}

#[rstest]
#[case::a_script(&["make && make test"], Some("make && make test"))]
#[case::words(&["make", "a b"], Some("make 'a b'"))]
#[case::nothing(&[], None)]
fn commands(#[case] words: &[&str], #[case] expected: Option<&str>) {
    let command = words.iter().map(|word| (*word).to_owned()).collect();
    let job = of(&Order { command, name: Some("mine".to_owned()), ..order() });
    assert_eq!(job.spec.command.as_deref(), expected);
    assert_eq!((job.metadata.name.as_deref(), job.metadata.generate_name), (Some("mine"), None));
}

/// What an agent's hook has around it: Buildkite's, the agent's, and the machine's.
fn an_agents_hook() -> Hook {
    let plugins = json!([
        { "github.com/buildkite-plugins/buildkite-operator-buildkite-plugin#v0.0.1": { "build_environment": "go" } },
        "github.com/example/notify-buildkite-plugin#v1",
    ]);
    hook(
        &[
            ("BUILDKITE", "true"),
            ("BUILDKITE_AGENT_ACCESS_TOKEN", "secret"),
            ("BUILDKITE_AGENT_NAME", "builder-1"),
            ("BUILDKITE_ARTIFACT_PATHS", "dist/*"),
            ("BUILDKITE_BRANCH", "main"),
            ("BUILDKITE_BUILD_CHECKOUT_PATH", "/var/lib/builds/1"),
            ("BUILDKITE_BUILD_NUMBER", "7"),
            ("BUILDKITE_BUILD_URL", "https://buildkite.com/acme/shop/builds/7"),
            ("BUILDKITE_COMMAND", "make\nmake test"),
            ("BUILDKITE_COMMIT", "5a7bbee"),
            ("BUILDKITE_JOB_ID", "0198f0a0-0000-4000-8000-000000000001"),
            ("BUILDKITE_PIPELINE_SLUG", "shop"),
            ("BUILDKITE_PLUGINS", &plugins.to_string()),
            ("BUILDKITE_REPO", "https://git.example.com/shop.git"),
            ("BK_OPERATOR_TIMEOUT", "1h"),
            ("DEPLOY_PASSWORD", "secret"),
            ("FLAVOUR", "lemon"),
            ("HOME", "/home/agent"),
            ("SESSION_COOKIE", "secret"),
            ("BUILDKITE_REDACTED_VARS", "*_COOKIE, X"),
        ],
        Some(&[
            "BUILDKITE",
            "BUILDKITE_AGENT_NAME",
            "BUILDKITE_ARTIFACT_PATHS",
            "BUILDKITE_BRANCH",
            "BUILDKITE_BUILD_NUMBER",
            "BUILDKITE_BUILD_URL",
            "BUILDKITE_COMMAND",
            "BUILDKITE_COMMIT",
            "BUILDKITE_JOB_ID",
            "BUILDKITE_PIPELINE_SLUG",
            "BUILDKITE_PLUGINS",
            "BUILDKITE_REPO",
            "BK_OPERATOR_TIMEOUT",
            "DEPLOY_PASSWORD",
            "FLAVOUR",
            "SESSION_COOKIE",
        ]),
    )
}

#[test]
fn a_job_of_an_agent_elsewhere_becomes_a_build_job() {
    let Ordered { job, withheld } = of_hook(&order(), &an_agents_hook()).expect("its options are understood");
    insta::assert_yaml_snapshot!(job);
    assert_eq!(withheld, ["DEPLOY_PASSWORD", "SESSION_COOKIE"]);
    let text = serde_json::to_string(&job).expect("it can be written");
    assert!(!text.contains("secret"), "no secret is in the object: {text}");
}

#[test]
fn the_command_line_goes_before_the_environment() {
    let order = Order {
        command: vec!["date".to_owned()],
        image: Some("busybox".to_owned()),
        env: vec![("FLAVOUR".to_owned(), "mint".to_owned())],
        commit: Some("HEAD".to_owned()),
        ..order()
    };
    let job = of_hook(&order, &an_agents_hook()).expect("its options are understood").job;
    assert_eq!(job.spec.command.as_deref(), Some("date"));
    assert_eq!((job.spec.image.as_deref(), job.spec.environment.as_deref()), (Some("busybox"), None));
    assert_eq!(job.spec.source.map(|source| source.commit).as_deref(), Some("HEAD"));
    let flavours: Vec<_> = job.spec.env.iter().filter(|var| var.name == "FLAVOUR").collect();
    assert_eq!(flavours.len(), 1);
    assert_eq!(flavours[0].value.as_deref(), Some("mint"));
}

#[test]
fn without_the_agents_file_only_buildkites_own_names_pass() {
    let hook = hook(&[("BUILDKITE_BUILD_NUMBER", "7"), ("FLAVOUR", "lemon"), ("PATH", "/bin")], None);
    let job = of_hook(&order(), &hook).expect("there are no options").job;
    let names: Vec<_> = job.spec.env.iter().map(|var| var.name.as_str()).collect();
    assert_eq!(names, ["BUILDKITE_BUILD_NUMBER"]);
}

#[test]
fn options_that_are_wrong_are_named() {
    let error = of_hook(&order(), &hook(&[("BK_OPERATOR_IMGE", "x")], None)).unwrap_err().to_string();
    assert!(error.starts_with("BK_OPERATOR_IMGE: there is no such option"), "{error}");
}

#[test]
fn an_order_goes_before_its_template() {
    let template: BuildJob = serde_json::from_value(serde_json::json!({
        "apiVersion": "buildkite-operator.dev/v1alpha1",
        "kind": "BuildJob",
        "metadata": { "name": "nightly", "labels": { "team": "ci" } },
        "spec": {
            "command": "make", "environment": "go", "resourceClass": "large",
            "source": { "repo": "https://git.example/a.git", "commit": "HEAD", "branch": "main" },
            "env": [{ "name": "A", "value": "1" }, { "name": "B", "value": "1" }],
        },
    }))
    .unwrap();
    let order = Order {
        image: Some("golang".to_owned()),
        branch: Some("next".to_owned()),
        env: vec![("B".to_owned(), "2".to_owned())],
        ..Order::default()
    };
    let job = of_template(&order, &template);
    assert_eq!(job.metadata.generate_name.as_deref(), Some("nightly-"));
    assert_eq!(job.metadata.labels, template.metadata.labels);
    let spec = serde_json::to_value(&job.spec).unwrap();
    assert_eq!(spec["command"], "make");
    assert_eq!((&spec["image"], spec.get("environment")), (&"golang".into(), None));
    assert_eq!((&spec["source"]["branch"], &spec["resourceClass"]), (&"next".into(), &"large".into()));
    assert_eq!(
        spec["env"],
        serde_json::json!([{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }])
    );
}
