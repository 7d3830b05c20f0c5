use rstest::rstest;
use serde_json::json;

use super::*;

/// The table of the controller's settings, as its documentation has it.
const CONTROLLER: &[&str] = &[
    "config",
    "debug",
    "log-level",
    "log-format",
    "no-color",
    "log-http-payloads",
    "namespace",
    "id",
    "agent-token-secret",
    "image",
    "queue",
    "tags",
    "job-prefix",
    "job-ttl",
    "job-active-deadline-seconds",
    "default-termination-grace-period-seconds",
    "max-in-flight",
    "job-creation-concurrency",
    "work-queue-limit",
    "poll-interval",
    "http-timeout",
    "pagination-page-size",
    "pagination-depth-limit",
    "query-reset-interval",
    "enable-queue-pause",
    "enable-completion-watcher",
    "reservation-expiry-seconds",
    "k8s-client-rate-limiter-qps",
    "k8s-client-rate-limiter-burst",
    "image-pull-backoff-grace-period",
    "job-cancel-checker-poll-interval",
    "empty-job-grace-period",
    "pod-pending-timeout",
    "default-image-pull-policy",
    "default-image-check-pull-policy",
    "skip-image-check-containers",
    "image-check-container-cpu-limit",
    "image-check-container-memory-limit",
    "prohibit-kubernetes-plugin",
    "allow-pod-spec-patch-unsafe-command-modification",
    "prometheus-port",
    "profiler-address",
    "graphql-endpoint",
    "buildkite-token",
    "pod-spec-patch",
    "workspace-volume",
    "workspace-mount-sub-path-expr",
    "agent-config",
    "default-checkout-params",
    "default-command-params",
    "default-sidecar-params",
    "default-metadata",
    "additional-redacted-vars",
    "resource-classes",
    "default-resource-class-name",
];

/// Those of the agent.
const AGENT: &[&str] = &[
    "endpoint",
    "no-http2",
    "experiment",
    "shell",
    "no-color",
    "strict-single-hooks",
    "no-multipart-artifact-upload",
    "trace-context-encoding",
    "tracing-backend",
    "tracing-service-name",
    "tracing-propagate-traceparent",
    "disable-warnings-for",
    "debug-signing",
    "git-skip-fetch-existing-commits",
    "container-start-timeout",
    "no-pty",
    "no-command-eval",
    "no-local-hooks",
    "no-plugins",
    "plugin-validation",
    "hooks-path",
    "hooksVolume",
    "additional-hooks-paths",
    "additional-hooks",
    "plugins-path",
    "pluginsVolume",
    "signing-jwks-file",
    "signing-jwks-key-id",
    "signingJWKSVolume",
    "verification-jwks-file",
    "verification-failure-behavior",
    "verificationJWKSVolume",
];

/// Those of the chart.
const CHART: &[&str] = &[
    "agentToken",
    "agentStackSecret",
    "image",
    "nameOverride",
    "fullnameOverride",
    "controllerEnv",
    "nodeSelector",
    "tolerations",
    "labels",
    "annotations",
    "secretsMetadata",
    "serviceAccountMetadata",
    "resources",
    "config",
    "monitoring",
    "graphqlToken",
];

fn read(yaml: &str) -> Migration {
    migrate(&serde_saphyr::from_str(yaml).expect("YAML"))
}

/// What became of the settings that have something to say.
fn fate(yaml: &str, setting: &str) -> String {
    let migration = read(yaml);
    migration.check().unwrap_or_else(|error| panic!("{error}: {:#}", migration.values));
    let entries = migration.report.iter().filter(|entry| entry.setting == setting);
    entries.map(|entry| format!("{}: {entry}", title(&entry.fate))).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_setting_is_known() {
    let known: Vec<&str> = settings::SETTINGS.iter().map(|(key, _)| *key).collect();
    assert_eq!(CONTROLLER.iter().find(|key| !known.contains(*key)), None);
    let known: Vec<&str> = agent::SETTINGS.iter().map(|(key, _)| *key).collect();
    assert_eq!(AGENT.iter().find(|key| !known.contains(*key)), None);
    let known: Vec<&str> = chart::VALUES.iter().map(|(key, _)| *key).collect();
    assert_eq!(CHART.iter().find(|key| !known.contains(*key)), None);
}

/// Each setting by itself: whatever it is set to, it is in the report.
#[test]
fn nothing_is_dropped_silently() {
    for key in CONTROLLER {
        for value in
            [json!("a"), json!(1), json!(true), json!(["a=b"]), json!({"a": {}}), json!(null), json!("")]
        {
            if (*key, &value) == ("agent-config", &json!(null)) {
                continue;
            }
            let file = json!({ *key: value });
            let migration = migrate(file.as_object().expect("a map"));
            let said = migration.report.iter().any(|entry| entry.setting.starts_with(key));
            assert!(said, "{file}: {:?}", migration.report);
        }
    }
    for key in AGENT {
        let file = json!({ "agent-config": { *key: "x" } });
        let migration = migrate(file.as_object().expect("a map"));
        let setting = format!("agent-config.{key}");
        assert!(migration.report.iter().any(|entry| entry.setting == setting), "{file}");
    }
}

const VALUES: &str = r#"
agentStackSecret: my-token
controllerEnv: [{name: HTTPS_PROXY, value: "http://proxy:3128"}]
annotations: {team: ci}
serviceAccountMetadata: {annotations: {iam: role}, labels: {a: b}}
resources: {requests: {cpu: 200m}}
monitoring: {namespace: prometheus, deployGrafanaDashboard: true, podMonitor: {deploy: true, scrapeInterval: 15s}}
replicas: 2
config:
  id: production
  image: ghcr.io/buildkite/agent:3.136.2
  tags: [queue=kubernetes, cluster=production]
  debug: true
  log-format: logfmt
  namespace: ci-jobs
  max-in-flight: 0
  job-ttl: 1h30m
  job-active-deadline-seconds: 7200
  pod-pending-timeout: 2h
  image-pull-backoff-grace-period: 90s
  image-check-container-cpu-limit: 100m
  prometheus-port: 9216
  poll-interval: 5s
  profiler-address: localhost:6060
  default-image-pull-policy: IfNotPresent
  default-checkout-params:
    cloneFlags: --depth=1
    gitMirrors: {volume: {name: mirrors, hostPath: {path: /mirrors}}}
    gitCredentialsSecret: {secretName: git}
    envFrom: [{secretRef: {name: git-ssh}}]
  default-command-params: {interposer: vector}
  default-sidecar-params: {extraVolumeMounts: []}
  default-metadata: {labels: {team: ci}}
  additional-redacted-vars: [MY_SECRET]
  workspace-volume: {name: workspace, hostPath: {path: /scratch}}
  pod-spec-patch:
    serviceAccountName: builds
    containers: [{name: agent, resources: {limits: {memory: 256Mi}}}]
  resource-classes:
    large: {resource: {requests: {cpu: "8"}}, nodeSelector: {size: large}}
  default-resource-class-name: large
  agent-config:
    endpoint: https://agent.example/v3
    no-pty: true
    signing-jwks-file: key.json
    signing-jwks-key-id: one
    signingJWKSVolume: {name: jwks, secret: {secretName: jwks}}
    verification-failure-behavior: block
    additional-hooks: [{path: /hooks, volume: {name: hooks, configMap: {name: hooks}}}]
    container-start-timeout: 10m
    no-ptty: true
  reservations: 3
"#;

#[test]
fn a_file_of_values() {
    let migration = read(VALUES);
    migration.check().expect("the operator takes it");
    insta::assert_snapshot!("values", serde_saphyr::to_string(&migration.values).expect("YAML"));
    insta::assert_snapshot!("report", report(&migration.report));
}

#[test]
fn a_configuration_without_a_chart() {
    let migration = read("image: agent:3\nqueue: kubernetes\nmax-in-flight: 50\n");
    migration.check().expect("the operator takes it");
    insta::assert_snapshot!(serde_saphyr::to_string(&migration.values).expect("YAML"), @r"
    config:
      job_spawner_config:
        maxInFlight: 50
        queue: kubernetes
      pod_config:
        agentImage: agent:3
    ");
    insta::assert_snapshot!(report(&migration.report), @r"
    Carried over, with a difference:
      max-in-flight → config.job_spawner_config.maxInFlight: it holds over restarts; there is always a limit, 10000 where there was none

    Not set, with another default here:
      default-image-pull-policy: tags other than latest are pulled if the node does not have them; they were pulled each time, as config.pod_config.imagePullPolicy: Always has it
      job-active-deadline-seconds: jobs may run as long as they like; they had six hours, as config.pod_config.timeouts.runSeconds: 21600 has it

    Carried over:
      image → config.pod_config.agentImage
      queue → config.job_spawner_config.queue
    ");
}

#[rstest]
#[case(
    "max-in-flight: 0",
    "max-in-flight",
    "Carried over, with a difference: max-in-flight → config.job_spawner_config.maxInFlight: it holds"
)]
#[case("queue: ''", "queue", "Not set, with another default here: queue: it was the cluster's default queue")]
#[case("job-ttl: soon", "job-ttl", "Not supported: job-ttl: \"soon\" is not a duration such as 10m")]
#[case(
    "max-inflight: 3",
    "max-inflight",
    "Unknown, and left out: max-inflight: did you mean `max-in-flight`?"
)]
#[case(
    "resource-classes: {a: {cpu: 1}}",
    "resource-classes",
    "Not supported: resource-classes: a.cpu: there is no such field"
)]
#[case("{config: {}, agentToken: secret}", "agentToken", "Carried over: agentToken")]
#[case(
    "{config: {}, agentToken: x, agentStackSecret: mine}",
    "agentToken",
    "Not needed: agentToken: `agentStackSecret` goes before it"
)]
#[case("{config: /etc/config.yaml}", "config", "Not needed: config: a path of the controller's")]
fn what_became_of_it(#[case] file: &str, #[case] setting: &str, #[case] expected: &str) {
    let fate = fate(file, setting);
    assert!(fate.starts_with(expected), "{fate}");
}

#[test]
fn no_secret_is_in_the_report() {
    let migration = read(
        "{config: {buildkite-token: hush, integration-test-buildkite-token: hush}, agentToken: hush, graphqlToken: hush}",
    );
    assert!(!report(&migration.report).contains("hush"));
}
