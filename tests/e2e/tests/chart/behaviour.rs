//! What each value does.

use std::collections::BTreeMap;

use bk_api::config::Config;
use bk_e2e::helm::{CHART, KUBE_VERSION};
use insta::assert_yaml_snapshot;
use serde_json::{Value, json};

use crate::{helm, named, of_kind, only};

pub(crate) fn render(values: &str) -> Vec<Value> {
    helm().render(values).expect("the values are accepted")
}

/// Kind, namespace and name of each object.
pub(crate) fn names(objects: &[Value]) -> Vec<String> {
    let name = |object: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        format!("{} {} {}", text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
    };
    objects.iter().map(|object| name(object).replace("  ", " ")).collect()
}

pub(crate) fn pod(objects: &[Value]) -> Value {
    only(objects, "Deployment")["spec"]["template"]["spec"].clone()
}

/// What `buildkite-operator migrate` makes of a file of Helm values of agent-stack-k8s.
const MIGRATED: &str =
    include_str!("../../../../crates/migrate/src/snapshots/bk_migrate__tests__values.snap");

#[test]
fn what_migrate_makes_is_accepted() {
    let (_, values) =
        MIGRATED.trim_start_matches("---\n").split_once("\n---\n").expect("a snapshot has a head");
    let objects = render(values);
    assert_eq!(only(&objects, "ServiceAccount")["metadata"]["annotations"], json!({ "iam": "role" }));
}

#[test]
fn a_token_alone_is_enough() {
    let objects = render("agentToken: secret");
    assert_yaml_snapshot!("objects", names(&objects));
    let secret = named(&objects, "Secret", "buildkite-agent-token");
    assert_eq!(secret["stringData"], json!({ "BUILDKITE_AGENT_TOKEN": "secret" }));
    let text = serde_json::to_string(&objects).unwrap();
    assert_eq!(text.matches("\"secret\"").count(), 1, "the token is in its Secret alone");
}

#[test]
fn a_secret_that_exists_is_left_alone() {
    let objects = render(
        "config: {pod_config: {agentTokenSecret: mine}, job_spawner_config: {apiTokenSecret: mine-too}}",
    );
    assert!(of_kind(&objects, "Secret").iter().all(|secret| secret.get("stringData").is_none()));
    let roles = [of_kind(&objects, "Role"), of_kind(&objects, "ClusterRole")].concat();
    let permissions = roles.iter().flat_map(|role| role["rules"].as_array().unwrap());
    let secrets = permissions.filter(|rule| rule["resources"] == json!(["secrets"]));
    let secrets: Vec<_> = secrets.map(|rule| rule["resourceNames"].clone()).collect();
    // Besides, there are those that the broker fills itself.
    let broker = "buildkite-operator-broker";
    let sessions = [0, 1, 2, 3].map(|shard| format!("{broker}-sessions-{shard}"));
    assert_eq!(secrets, [json!([broker]), json!(sessions), json!(["mine", "mine-too"])]);
}

#[test]
fn the_operators_pods() {
    assert_yaml_snapshot!("deployment", only(&render(""), "Deployment")["spec"]);
}

#[test]
fn the_configuration_is_one_that_the_operator_reads() {
    let values = "
config:
  job_namespace: ci
  job_spawner_config: {maxInFlight: 7, queues: [{key: linux, tags: [a=b]}, {key: gpu}]}
  pod_config: {agentImage: 'registry:5000/agent:1', timeouts: {runSeconds: 60}}
  resource_classes: {large: {resources: {requests: {cpu: 4}}, tolerations: [{key: large, operator: Exists}]}}
";
    let objects = render(values);
    let data: BTreeMap<String, String> =
        serde_json::from_value(only(&objects, "ConfigMap")["data"].clone()).unwrap();
    let config = Config::from_data(&data).unwrap();
    assert_eq!((config.spawner.max_in_flight, config.spawner.queues().len()), (7, 2));
    assert_eq!(config.pods.timeouts.run_seconds, Some(60));
    assert_eq!(config.resource_classes["large"].tolerations.len(), 1);

    // It is watched: another configuration does not replace the pods.
    assert_eq!(only(&objects, "Deployment"), only(&render(""), "Deployment"));
}

#[test]
fn jobs_in_another_namespace() {
    let objects =
        render("{agentToken: t, config: {job_namespace: jobs}, networkPolicy: {jobs: {enabled: true}}}");
    let there: Vec<_> =
        objects.iter().filter(|object| object["metadata"]["namespace"] == "jobs").cloned().collect();
    assert_yaml_snapshot!("objects-in-the-job-namespace", names(&there));
    for binding in of_kind(&there, "RoleBinding") {
        assert_eq!(binding["subjects"][0]["namespace"], "ci");
    }
}

#[test]
fn what_is_given_to_the_pods() {
    let objects = render(
        "
image: {repository: registry.example.com/operator, digest: 'sha256:0000000000000000000000000000000000000000000000000000000000000000', pullPolicy: Always}
imagePullSecrets: [{name: registry}]
priorityClassName: high
nodeSelector: {kubernetes.io/arch: amd64}
tolerations: [{key: infra, operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: infra, operator: Exists}]}]}}}
topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]
extraArgs: [--max-in-flight=3]
extraEnv: [{name: HTTPS_PROXY, value: 'http://proxy:3128'}]
extraEnvFrom: [{configMapRef: {name: more}}]
extraVolumes: [{name: ca, configMap: {name: ca}}]
extraVolumeMounts: [{name: ca, mountPath: /etc/ssl/certs}]
log: {format: human, level: debug}
livenessProbe: null
",
    );
    assert_yaml_snapshot!("pod-with-everything", pod(&objects));
}

/// The root of the operator's container cannot be written to, and a profile is kept in a file.
#[test]
fn profiles_have_a_place() {
    let pod = pod(&render("{profiling: {listen: '127.0.0.1:6060'}}"));
    assert_eq!(pod["volumes"], json!([{ "name": "tmp", "emptyDir": { "sizeLimit": "64Mi" } }]));
    let container = &pod["containers"][0];
    assert_eq!(container["volumeMounts"], json!([{ "name": "tmp", "mountPath": "/tmp" }]));
    assert!(container["args"].as_array().unwrap().contains(&json!("--profile-listen=127.0.0.1:6060")));
}

#[test]
fn names_follow_the_release() {
    let helm = helm();
    let name = |release: &str, values: &[&str]| {
        let chart =
            [&["template", release, CHART, KUBE_VERSION, "--show-only=templates/deployment.yaml"], values]
                .concat();
        let deployment: Value = serde_saphyr::from_str(&helm.succeed(&chart).unwrap()).unwrap();
        let environment = &deployment["spec"]["template"]["spec"]["containers"][0]["env"][0];
        assert_eq!(environment["value"], deployment["metadata"]["name"], "the operator knows its Deployment");
        deployment["metadata"]["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(name("buildkite-operator", &[]), "buildkite-operator");
    assert_eq!(name("ci", &[]), "ci-buildkite-operator");
    assert_eq!(name("ci", &["--set=nameOverride=bk"]), "ci-bk");
    assert_eq!(name("ci", &["--set=fullnameOverride=bk"]), "bk");
}

#[test]
fn an_account_of_your_own() {
    let objects = render("{serviceAccount: {create: false, name: mine}, rbac: {create: false}}");
    let left = ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]
        .map(|kind| of_kind(&objects, kind).len());
    assert_eq!(left, [0; 5]);
    assert_eq!(pod(&objects)["serviceAccountName"], "mine");
}

#[test]
fn definitions_are_upgraded_and_kept() {
    let definitions = of_kind(&render(""), "CustomResourceDefinition");
    assert_eq!(definitions.len(), 3);
    for definition in definitions {
        assert_eq!(definition["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    }
    assert_eq!(of_kind(&render("crds: {install: false}"), "CustomResourceDefinition").len(), 0);
}

#[test]
fn a_disruption_budget_for_several_replicas() {
    assert_yaml_snapshot!("disruption-budget", only(&render("replicas: 3"), "PodDisruptionBudget")["spec"]);
    for values in ["replicas: 1", "{replicas: 3, podDisruptionBudget: {enabled: false}}"] {
        assert_eq!(of_kind(&render(values), "PodDisruptionBudget").len(), 0, "{values}");
    }
}

#[test]
fn monitors_only_when_asked_for() {
    let objects = render(
        "{serviceMonitor: {enabled: true, labels: {release: prometheus}}, podMonitor: {enabled: true}}",
    );
    let specs = ["Service", "ServiceMonitor", "PodMonitor"]
        .map(|kind| named(&objects, kind, "buildkite-operator")["spec"].clone());
    assert_yaml_snapshot!("monitors", specs);
    assert_eq!(only(&objects, "ServiceMonitor")["metadata"]["labels"]["release"], "prometheus");
}

#[test]
fn network_policies() {
    let objects = render(
        "networkPolicy: {enabled: true, metricsFrom: [{namespaceSelector: {matchLabels: {team: monitoring}}}], jobs: {enabled: true}}",
    );
    let specs: Vec<_> =
        of_kind(&objects, "NetworkPolicy").iter().map(|policy| policy["spec"].clone()).collect();
    assert_yaml_snapshot!("network-policies", specs);
}

#[test]
fn mirrors_on_a_shared_volume() {
    let objects = render(
        "{repoSyncer: {enabled: true, claim: {size: 1Gi}}, config: {repo_syncer_config: {layout: shared, claimName: mirrors, endpoint: {listen: '0.0.0.0:8081'}}}}",
    );
    assert_eq!(only(&objects, "PersistentVolumeClaim")["metadata"]["name"], "mirrors");
    let set = only(&objects, "StatefulSet");
    assert_eq!(set["spec"]["replicas"], 1);
    assert_yaml_snapshot!("repo-syncer-shared", set["spec"]["template"]["spec"]);
}

#[test]
fn mirrors_on_each_node() {
    let objects = render(
        "{repoSyncer: {enabled: true}, config: {repo_syncer_config: {layout: nodeLocal, hostPath: /mirrors}}}",
    );
    let spec = &only(&objects, "DaemonSet")["spec"]["template"]["spec"];
    assert_yaml_snapshot!(
        "repo-syncer-node-local",
        json!({ "init": spec["initContainers"], "volumes": spec["volumes"] })
    );
}

#[test]
fn a_syncer_that_listens_is_watched() {
    let mirrors = "repoSyncer: {enabled: true}, serviceMonitor: {enabled: true}, podMonitor: {enabled: true}";
    let config = "{job_namespace: jobs, repo_syncer_config: {layout: nodeLocal, hostPath: /mirrors, endpoint: {listen: '0.0.0.0:8081'}}}";
    let objects = render(&format!("{{{mirrors}, config: {config}}}"));
    for kind in ["ServiceMonitor", "PodMonitor"] {
        let monitors = of_kind(&objects, kind);
        let own = monitors
            .iter()
            .find(|monitor| monitor["metadata"]["name"].as_str().unwrap().ends_with("-repo-syncer"));
        let spec = &own.unwrap()["spec"];
        assert_eq!(spec["namespaceSelector"]["matchNames"], json!(["jobs"]));
        let service = of_kind(&objects, "Service")
            .into_iter()
            .find(|service| service["metadata"]["namespace"] == "jobs")
            .unwrap();
        for (label, value) in spec["selector"]["matchLabels"].as_object().unwrap() {
            assert_eq!(&service["metadata"]["labels"][label], value, "{label} is on what is scraped");
        }
    }
    let silent = render(&format!(
        "{{{mirrors}, config: {{repo_syncer_config: {{layout: nodeLocal, hostPath: /mirrors}}}}}}"
    ));
    assert_eq!(of_kind(&silent, "PodMonitor").len(), 1, "nothing answers there");
}

/// cert-manager makes the certificate, puts it where the operator looks, and has the configurations trust it.
#[test]
fn certificates_of_cert_manager() {
    let objects = render(
        "{webhook: {enabled: true, certManager: {enabled: true, issuerRef: {name: ours, kind: ClusterIssuer}}}}",
    );
    let certificate = only(&objects, "Certificate");
    let pod = &only(&objects, "Deployment")["spec"]["template"]["spec"];
    let configurations = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];
    assert_yaml_snapshot!(
        "cert-manager",
        json!({
            "certificate": certificate["spec"],
            "args": pod["containers"][0]["args"],
            "mounts": pod["containers"][0]["volumeMounts"],
            "volumes": pod["volumes"],
            "annotations": configurations.map(|kind| only(&objects, kind)["metadata"]["annotations"].clone()),
            "clusterRole": named(&objects, "ClusterRole", "ci-buildkite-operator")["rules"],
        })
    );
    assert!(of_kind(&objects, "Issuer").is_empty(), "there is one");
    let objects = render("{webhook: {enabled: true, certManager: {enabled: true}}}");
    let issuer = only(&objects, "Issuer");
    assert_eq!(issuer["spec"], json!({"selfSigned": {}}));
    assert_eq!(only(&objects, "Certificate")["spec"]["issuerRef"]["name"], issuer["metadata"]["name"]);
    assert!(
        of_kind(&objects, "Secret")
            .iter()
            .all(|secret| secret["metadata"]["name"] != "ci-buildkite-operator")
    );
}
