//! What the programs say about themselves.

use crate::{operator, output, program};

#[test]
fn the_commands() {
    insta::assert_snapshot!(output(operator().arg("--help")), @"
    Runs Buildkite jobs on Kubernetes

    Usage: buildkite-operator <COMMAND>

    Commands:
      run   Take jobs from Buildkite and run them, until told to stop
      plan  Print the pod that a job becomes, without a cluster
      crds  Print the custom resource definitions, for `kubectl apply -f -`
      help  Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help
      -V, --version  Print version
    ");
}

#[test]
fn without_a_command_the_help_is_shown_and_it_is_a_failure() {
    let failure = operator().assert().code(2).stdout("");
    let shown = String::from_utf8_lossy(&failure.get_output().stderr).into_owned();
    assert_eq!(shown, output(operator().arg("--help")));
}

#[test]
fn options_of_plan() {
    insta::assert_snapshot!(output(operator().args(["plan", "-h"])), @"
    Print the pod that a job becomes, without a cluster

    Usage: buildkite-operator plan [OPTIONS] --job <FILE>

    Options:
          --job <FILE>       The job: JSON as Buildkite gives it (`{id, command, env, agent_query_rules,
                             priority}`), or a BuildJob; `-` for standard input
          --config <FILE>    The ConfigMap `buildkite-operator-config` [default: the operator's
                             defaults]
          --with <FILE>      BuildEnvironments and PodTemplates that the job refers to
      -o, --output <OUTPUT>  How to print the pod [default: yaml] [possible values: yaml, json]
      -h, --help             Print help
    ");
}

#[test]
fn options_of_run() {
    insta::assert_snapshot!(output(operator().args(["run", "-h"])), @"
    Take jobs from Buildkite and run them, until told to stop

    Usage: buildkite-operator run [OPTIONS]

    Options:
          --token <TOKEN>        Buildkite agent token [default: the one in the job namespace's agent
                                 token Secret] [env: BUILDKITE_AGENT_TOKEN]
      -n, --namespace <NAME>     Namespace for BuildJobs and their pods [default: the operator's own]
                                 [env: BUILDKITE_JOB_NAMESPACE]
          --kubeconfig <FILE>    Kubeconfig to use [default: $KUBECONFIG, ~/.kube/config or the pod's
                                 service account]
          --agent-image <IMAGE>  Image with the Buildkite agent, git and ssh [default:
                                 buildkite/agent:3.137.2] [env: BUILDKITE_AGENT_IMAGE]
          --endpoint <URL>       Buildkite's Agent API, as seen from the operator and from pods
                                 [default: https://agent.buildkite.com/v3] [env:
                                 BUILDKITE_AGENT_ENDPOINT]
          --queue <KEY>          Queue to take jobs from [default: bk-operator] [env: BUILDKITE_QUEUE]
          --max-in-flight <N>    The most jobs to have under way at once [default: 25] [env:
                                 BUILDKITE_MAX_IN_FLIGHT]
          --shim <FILE>          The shim to run in job containers [default: buildkite-shim beside this
                                 program] [env: BUILDKITE_SHIM]
          --log-format <FORMAT>  Format of log lines [env: LOG_FORMAT] [default: human] [possible
                                 values: human, json]
          --log-level <FILTER>   What to log: a level (error, warn, info, debug, trace) or filters such
                                 as `info,kube=debug` [env: LOG_LEVEL] [default: info]
      -h, --help                 Print help (see more with '--help')
    ");
}

#[test]
fn options_of_crds() {
    insta::assert_snapshot!(output(operator().args(["crds", "--help"])), @"
    Print the custom resource definitions, for `kubectl apply -f -`

    Usage: buildkite-operator crds [OPTIONS]

    Options:
      -o, --output <OUTPUT>  Format of the output [default: yaml] [possible values: yaml, json]
      -h, --help             Print help
    ");
}

#[test]
fn the_controller_takes_the_options_of_run() {
    let help = output(program("buildkite-controller").arg("--help"));
    let (summary, options) = help.split_once("Options:\n").expect("there are options");
    insta::assert_snapshot!(summary, @"
    Runs Buildkite jobs on Kubernetes: the same as `buildkite-operator run`

    Usage: buildkite-controller [OPTIONS]
    ");
    let run = output(operator().args(["run", "--help"]));
    let (_, of_run) = run.split_once("Options:\n").expect("there are options");
    assert_eq!(options.trim_end(), format!("{of_run}\n  -V, --version\n          Print version"));
}

#[test]
fn the_default_agent_image_and_queue_are_the_ones_in_the_help() {
    let help = output(operator().args(["run", "--help"]));
    let config = bk_api::config::Config::default();
    for value in [
        config.pods.agent_image.as_str(),
        config.spawner.queue.as_str(),
        &config.spawner.max_in_flight.to_string(),
        bk_buildkite::client::DEFAULT_ENDPOINT,
    ] {
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&format!("[default: {value}]")), "{value}: {help}");
    }
}

#[test]
fn versions() {
    let expected = |name: &str| format!("{name} {}\n", env!("CARGO_PKG_VERSION"));
    for name in ["buildkite-operator", "buildkite-controller"] {
        assert_eq!(output(program(name).arg("--version")), expected(name));
    }
}
