//! What the programs say about themselves.

use crate::{operator, output, program};

#[test]
fn the_commands() {
    insta::assert_snapshot!(output(operator().arg("--help")), @"
    Runs Buildkite jobs on Kubernetes

    Usage: buildkite-operator <COMMAND>

    Commands:
      run                Take jobs from Buildkite and run them, until told to stop
      run-job            Run one command as a BuildJob, print its log, and exit with its status
      get                List BuildJobs, BuildEnvironments or RepoMirrors
      describe           Tell all that is known about a job
      logs               Print what the containers of a job print
      cancel             End jobs before their time
      top                Show queues, phases and why jobs wait, as they are now
      doctor             Check whether an installation can work, and say what to do
      plan               Print the pod that a job becomes, without a cluster or as one would have it
      lint               Find what is wrong with pipelines and manifests, without a cluster
      migrate            Turn settings of agent-stack-k8s into values of the operator's chart
      crds               Print the custom resource definitions, for `kubectl apply -f -`
      completion         Print what a shell needs to complete command lines
      log-exporter       Send what a job writes to the sinks of its pod, as the environment tells
      artifact-exporter  Upload the files of a job's directory as artifacts, as the environment tells
      metrics-exporter   Serve or send the metrics in a job's directory, as the environment tells
      repo-syncer        Keep the mirrors that RepoMirrors ask for, until told to stop
      repo-mirror        Prepare a job's checkout from mirrors, and succeed in any case
      help               Print this message or the help of the given subcommand(s)

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

/// kubectl runs programs that are called `kubectl-NAME`.
#[test]
fn as_a_plugin_of_kubectl_it_calls_itself_so() {
    let directory = tempfile::TempDir::new().expect("a directory of our own");
    let link = directory.path().join("kubectl-buildkite");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_buildkite-operator"), &link).expect("a link");
    let help = output(assert_cmd::Command::new(&link).args(["lint", "-h"]).env_clear());
    assert!(help.contains("\nUsage: kubectl buildkite lint [OPTIONS] <FILE>...\n"), "{help}");
}

#[test]
fn shells_can_complete_its_command_lines() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = output(operator().args(["completion", shell]));
        assert!(script.contains("buildkite-operator") && script.contains("run-job"), "{shell}");
    }
}

#[test]
fn options_of_plan() {
    insta::assert_snapshot!(output(operator().args(["plan", "-h"])), @"
    Print the pod that a job becomes, without a cluster or as one would have it

    Usage: buildkite-operator plan [OPTIONS] --job <FILE>

    Options:
          --job <FILE>              The job: JSON as Buildkite gives it (`{id, command, env,
                                    agent_query_rules, priority}`), or a BuildJob; `-` for standard
                                    input
          --config <FILE>           The ConfigMap `buildkite-operator-config` [default: the operator's
                                    defaults]
          --with <FILE>             BuildEnvironments and PodTemplates that the job refers to
          --operator-image <IMAGE>  The operator's own image, for containers beside the job [default:
                                    that of the configuration, else of the operator's Deployment with
                                    --cluster, else this program's release]
      -o, --output <OUTPUT>         How to print the pod [default: yaml] [possible values: yaml, json]
          --cluster                 Take configuration, BuildEnvironments and PodTemplates from the
                                    operator in a cluster, have its API server check the pod, and tell
                                    which nodes it fits
      -n, --namespace <NAME>        Namespace to work in [default: the kubeconfig's] [env:
                                    BUILDKITE_JOB_NAMESPACE]
          --kubeconfig <FILE>       Kubeconfig to use [default: $KUBECONFIG, ~/.kube/config or the pod's
                                    service account]
          --context <NAME>          Context of the kubeconfig [default: its current one]
      -h, --help                    Print help
    ");
}

#[test]
fn options_of_run() {
    insta::assert_snapshot!(output(operator().args(["run", "-h"])), @"
    Take jobs from Buildkite and run them, until told to stop

    Usage: buildkite-operator run [OPTIONS]

    Options:
          --token <TOKEN>           Buildkite token: the agent token, or with `--intake graphql` the API
                                    token [default: the one in its Secret in the job namespace]
          --agent-token <TOKEN>     Buildkite agent token, where --token is none [default: the one in
                                    its Secret in the job namespace] [env: BUILDKITE_AGENT_TOKEN]
          --intake <WAY>            How jobs are found: queues of Buildkite clusters by the Stacks API,
                                    or agents outside clusters by GraphQL [default: stacks] [env:
                                    BUILDKITE_INTAKE] [possible values: stacks, graphql]
          --graphql-endpoint <URL>  Buildkite's GraphQL API, with `--intake graphql` [default:
                                    https://graphql.buildkite.com/v1] [env: BUILDKITE_GRAPHQL_ENDPOINT]
      -n, --namespace <NAME>        Namespace for BuildJobs and their pods [default: the operator's own]
                                    [env: BUILDKITE_JOB_NAMESPACE]
          --kubeconfig <FILE>       Kubeconfig to use [default: $KUBECONFIG, ~/.kube/config or the pod's
                                    service account]
          --agent-image <IMAGE>     Image with the Buildkite agent, git and ssh [default:
                                    buildkite/agent:3.137.2] [env: BUILDKITE_AGENT_IMAGE]
          --operator-image <IMAGE>  This program's own image, for containers beside the job that run it
                                    [default: that of its Deployment] [env: BUILDKITE_OPERATOR_IMAGE]
          --endpoint <URL>          Buildkite's Agent API, as seen from the operator and from pods
                                    [default: https://agent.buildkite.com/v3] [env:
                                    BUILDKITE_AGENT_ENDPOINT]
          --queue <KEY>             Queue to take jobs from [default: bk-operator] [env:
                                    BUILDKITE_QUEUE]
          --max-in-flight <N>       The most jobs to have under way at once [default: 25] [env:
                                    BUILDKITE_MAX_IN_FLIGHT]
          --shim <FILE>             The shim to run in job containers [default: buildkite-shim beside
                                    this program] [env: BUILDKITE_SHIM]
          --listen <ADDRESS>        Where to answer requests for /metrics, /healthz and /readyz, such as
                                    127.0.0.1:8080 [default: nowhere] [env: BUILDKITE_LISTEN]
          --profile-listen <ADDR>   Where to answer requests for profiles of the operator itself, such
                                    as 127.0.0.1:6060 [default: nowhere] [env: BUILDKITE_PROFILE_LISTEN]
          --deployment <NAME>       Deployment that this operator is of, so that only its last replica
                                    deregisters the queues [env: BUILDKITE_OPERATOR_DEPLOYMENT]
          --lease <NAME>            Lease that says which of several replicas works; the others stand by
                                    [default: none, there is one] [env: BUILDKITE_OPERATOR_LEASE]
          --otlp-endpoint <URL>     Where to send traces of jobs by OTLP over HTTP, such as
                                    http://collector:4318 [default: nowhere] [env:
                                    OTEL_EXPORTER_OTLP_ENDPOINT]
          --otlp-headers <HEADERS>  Headers to send along, as in NAME=VALUE,NAME=VALUE [env:
                                    OTEL_EXPORTER_OTLP_HEADERS]
          --webhook-listen <ADDR>   Where to answer the API server's questions about BuildJobs and
                                    BuildEnvironments, such as 0.0.0.0:8443 [default: nowhere] [env:
                                    BUILDKITE_WEBHOOK_LISTEN]
          --webhook-host <HOST>     Names and addresses by which the API server calls the webhooks, for
                                    the certificate that the operator makes [env:
                                    BUILDKITE_WEBHOOK_HOST]
          --webhook-name <NAME>     Secret in the operator's namespace that holds that certificate, and
                                    the webhook configurations that are to trust it, all of one name
                                    [env: BUILDKITE_WEBHOOK_NAME] [default: buildkite-operator-webhook]
          --webhook-certs <DIR>     Directory with a certificate of yours, tls.crt and tls.key, as
                                    cert-manager makes it [default: the operator makes one] [env:
                                    BUILDKITE_WEBHOOK_CERTS]
          --broker-listen <ADDR>    Where agents in job pods register with one-time tokens, such as
                                    0.0.0.0:8444 [default: nowhere, they have the agent token] [env:
                                    BUILDKITE_BROKER_LISTEN]
          --broker-url <URL>        How job pods reach it, such as
                                    `https://buildkite-operator-broker.buildkite.svc:8444/v3`; with
                                    `http` in place of `https` it serves without TLS [env:
                                    BUILDKITE_BROKER_URL]
          --broker-name <NAME>      Secret in the operator's namespace with its certificate and its
                                    keys, and ConfigMap in the job namespace with its authority; Secrets
                                    with the sessions of agents are called after it [env:
                                    BUILDKITE_BROKER_NAME] [default: buildkite-operator-broker]
          --log-format <FORMAT>     Format of log lines [env: LOG_FORMAT] [default: human] [possible
                                    values: human, json]
          --log-level <FILTER>      What to log: a level (error, warn, info, debug, trace) or filters
                                    such as `info,kube=debug` [env: LOG_LEVEL] [default: info]
      -h, --help                    Print help (see more with '--help')
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
        bk_api::config::DEFAULT_QUEUE,
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
