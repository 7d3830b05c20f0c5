//! What can never run, what may not, and what environments get by default.

use std::sync::Arc;

use bk_api::{
    BuildEnvironment, BuildJob,
    config::{LogExporterConfig, ValidationConfig},
};
use bk_plan::{
    admission::{self, Certainty, Demands, Existence, Finding, Known, defaults, references, rules},
    surroundings::Surroundings,
};
use k8s_openapi::api::core::v1::Node;
use rstest::rstest;

use crate::{environment::surroundings, fixtures};

const ENVIRONMENTS: &str = "
go: {image: 'golang:1.26'}
one: {image: a, extraContainers: [{environment: two}]}
two: {image: b, extraContainers: [{environment: one}]}
";

const NODES: &str = "
- metadata: {name: small, labels: {kubernetes.io/arch: amd64, pool: small}}
  status: {allocatable: {cpu: '4', memory: 16Gi, pods: '110'}}
- metadata: {name: gpu, labels: {kubernetes.io/arch: amd64, pool: gpu}}
  spec: {taints: [{key: gpu, effect: NoSchedule}, {key: node.kubernetes.io/unreachable, effect: NoExecute}]}
  status: {allocatable: {cpu: '32', memory: 128Gi, pods: '110', nvidia.com/gpu: '4'}}
";

const RULES: &str = "
rules:
- {expression: '!has(self.spec.image) || self.spec.image.contains(\":\")', message: images need a tag}
- {expression: 'pod.spec.containers.all(c, !c.image.startsWith(\"evil/\"))', message: no images of evil}
- {expression: 'has(self.spec.timeout)', message: say how long it may take, action: warn, queues: ['slow-*']}
- {expression: 'false', message: nothing of this pipeline, pipelines: [forbidden], namespaces: [ci]}
- {expression: 'self.spec.timeout == \"5m\"', message: five minutes, pipelines: [timed]}
- {expression: 'self.spec.image != \"scratch\"', message: scratch has no shell, kind: BuildEnvironment}
";

fn demands(validation: &str) -> Demands {
    let validation: ValidationConfig = serde_saphyr::from_str(validation).expect("a configuration");
    let logs = "sinks: {main: {elasticsearch: {url: 'http://es:9200'}}}";
    let mut pod = fixtures::pod_settings();
    pod.logs = serde_saphyr::from_str::<LogExporterConfig>(logs).expect("a configuration");
    Demands { pod, validation }
}

/// A cluster in which exists what is called so.
fn known(references: &[references::Reference]) -> Known {
    let existence = |name: &str| match name {
        name if name.starts_with("no-") => Existence::Missing,
        name if name.starts_with("hidden-") => Existence::Untold("the operator may not look".to_owned()),
        _ => Existence::Found,
    };
    let nodes: Vec<Node> = serde_saphyr::from_str(NODES).expect("nodes");
    Known {
        objects: references
            .iter()
            .map(|reference| (reference.object.clone(), existence(&reference.object.name)))
            .collect(),
        nodes: Some(nodes.into_iter().map(Arc::new).collect()),
    }
}

fn findings_of(job: &BuildJob, demands: &Demands) -> Vec<Finding> {
    let mut surroundings = surroundings(ENVIRONMENTS);
    surroundings.environments.insert("nowhere".to_owned(), None);
    let pod = admission::pod_of(job, &surroundings, demands);
    let references = pod.as_ref().map(|pod| references::of(pod, &demands.pod)).unwrap_or_default();
    admission::build_job(job, pod.as_ref().map_err(Clone::clone), &surroundings, &known(&references), demands)
}

fn told(findings: &[Finding]) -> Vec<String> {
    let word = |finding: &Finding| match finding.certainty {
        Certainty::Refusal => "refused",
        Certainty::Warning => "warning",
    };
    findings.iter().map(|finding| format!("{}: {finding}", word(finding))).collect()
}

#[rstest]
#[case::fine("{command: make, environment: go}", &[])]
#[case::no_environment(
    "{command: make, environment: nowhere}",
    &["refused: spec.environment: there is no BuildEnvironment \"nowhere\" in namespace \"ci\""]
)]
#[case::cycle(
    "{command: make, environment: one}",
    &["refused: spec.environment: one → extraContainers[0]: two → extraContainers[0]: one: \"one\" would bring itself: a cycle"]
)]
#[case::image(
    "{command: make, image: Golang}",
    &["refused: pod.spec.containers[container-0].image: `Golang` is not the name of an image: images are named in lower case"]
)]
#[case::clash(
    "{command: make, extraContainers: [{name: db, container: {image: a}}, {name: db, container: {image: b}}]}",
    &["refused: spec.extraContainers[1]: the container's name `db` is taken by spec.extraContainers[0]; give it a `name` of its own"]
)]
#[case::sink(
    "{command: make, logExporter: {enabled: true, sinks: [main]}}",
    &["refused: spec.logExporter: its logs are not exported, as the operator does not know its own image; set `operatorImage` in `pod_config`"]
)]
#[case::references(
    "{command: make, kubernetes: {podSpec: {
        serviceAccountName: no-account, priorityClassName: no-class, runtimeClassName: no-runtime,
        imagePullSecrets: [{name: no-pull}],
        containers: [{image: a, envFrom: [{secretRef: {name: no-secret}}, {configMapRef: {name: no-map}},
            {secretRef: {name: no-optional, optional: true}}, {secretRef: {name: hidden-one}}]}],
        volumes: [{name: data, persistentVolumeClaim: {claimName: no-claim}}]}}}",
    &[
        "refused: pod.spec.containers[container-0].envFrom[0]: there is no Secret \"no-secret\"",
        "refused: pod.spec.containers[container-0].envFrom[1]: there is no ConfigMap \"no-map\"",
        "warning: pod.spec.containers[container-0].envFrom[3]: cannot tell whether there is a Secret \"hidden-one\": the operator may not look",
        "refused: pod.spec.volumes[data]: there is no PersistentVolumeClaim \"no-claim\"",
        "refused: pod.spec.serviceAccountName: there is no ServiceAccount \"no-account\"",
        "refused: pod.spec.priorityClassName: there is no PriorityClass \"no-class\"",
        "refused: pod.spec.runtimeClassName: there is no RuntimeClass \"no-runtime\"",
        "warning: pod.spec.imagePullSecrets[no-pull]: there is no Secret \"no-pull\"",
    ]
)]
fn jobs_that_can_never_run(#[case] spec: &str, #[case] expected: &[&str]) {
    let job = fixtures::job(&format!("spec: {spec}"));
    assert_eq!(told(&findings_of(&job, &demands("{}"))), expected);
}

#[test]
fn a_job_of_a_queue_runs_without_what_it_does_not_get() {
    let job = fixtures::job(
        "metadata: {name: a, namespace: ci, labels: {buildkite-operator.dev/spawned-from: q}}\nspec: {command: make, logExporter: {enabled: true}}",
    );
    let told = told(&findings_of(&job, &demands("{}")));
    assert!(told.len() == 1 && told[0].starts_with("warning: spec.logExporter: "), "{told:?}");
}

const CLASSES: &str = "nodeClasses: {huge: {labels: {pool: huge}, taints: [{key: huge, value: 'yes', effect: NoSchedule}], allocatable: {cpu: 96}}}";

#[rstest]
#[case::too_large(
    "newNodes: none",
    "{resources: {requests: {cpu: 64}}, tolerations: [{operator: Exists}]}",
    &["refused: pod.spec.containers[container-0].resources.requests.cpu: no node can run it (2 nodes): 2 have less cpu than the 64010m that it requests (the most is 32)"]
)]
#[case::nobody_knows(
    "{}",
    "{resources: {requests: {memory: 1Ti}}, tolerations: [{operator: Exists}]}",
    &["warning: pod.spec.containers[container-0].resources.requests.memory: no node can run it (2 nodes): 2 have less memory than the 1Ti that it requests (the most is 128Gi); it waits for one that can"]
)]
#[case::not_tolerated(
    "newNodes: none",
    "{nodeRequirements: [{key: pool, values: [gpu]}]}",
    &["refused: pod.spec: no node can run it (2 nodes): 1 is not what it requires of nodes, 1 has the taint gpu:NoSchedule, which it does not tolerate"]
)]
#[case::tolerated(
    "newNodes: none",
    "{nodeRequirements: [{key: pool, values: [gpu]}], tolerations: [{key: gpu, operator: Exists}], resources: {limits: {nvidia.com/gpu: 4}}}",
    &[]
)]
#[case::no_such_label(
    "newNodes: none",
    "{nodeRequirements: [{key: pool, operator: In, values: [arm]}]}",
    &["refused: pod.spec.affinity.nodeAffinity: no node can run it (2 nodes): 2 are not what it requires of nodes"]
)]
#[case::of_a_class(
    CLASSES,
    "{resources: {requests: {cpu: 64, memory: 1Ti}}, nodeRequirements: [{key: kubernetes.io/arch, values: [arm64]}], tolerations: [{key: huge, value: 'yes'}]}",
    &[]
)]
#[case::of_no_class(
    CLASSES,
    "{resources: {requests: {cpu: 64, example.com/tpu: 1}}, tolerations: [{operator: Exists}]}",
    &["refused: pod.spec: no node can run it (2 nodes, 1 node class): 2 have less cpu than the 64010m that it requests (the most is 96), 1 has less example.com/tpu than the 1 that it requests (the most is 0)"]
)]
fn jobs_that_fit_no_node(#[case] validation: &str, #[case] spec: &str, #[case] expected: &[&str]) {
    let spec = spec.strip_prefix('{').expect("a mapping");
    let job = fixtures::job(&format!("spec: {{command: make, {spec}"));
    let findings = findings_of(&job, &demands(validation));
    assert_eq!(told(&findings), expected);
}

#[rstest]
#[case("{command: make, image: 'a:1'}", &[])]
#[case("{command: make, image: a}", &["refused: rules[0] of validation_config: images need a tag"])]
#[case(
    "{command: make, kubernetes: {podSpec: {containers: [{image: 'evil/x:1'}]}}}",
    &["refused: rules[1] of validation_config: no images of evil"]
)]
#[case(
    "{buildkite: {jobUUID: 0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a, queue: slow-linux, pipeline: forbidden}}",
    &["warning: rules[2] of validation_config: say how long it may take", "refused: rules[3] of validation_config: nothing of this pipeline"]
)]
#[case(
    "{buildkite: {jobUUID: 0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a, pipeline: timed}}",
    &["refused: rules[4] of validation_config: five minutes (the rule cannot be applied: there is no `timeout` in the object; ask for it with has() first)"]
)]
fn jobs_that_break_a_rule(#[case] spec: &str, #[case] expected: &[&str]) {
    let job = fixtures::job(&format!("spec: {spec}"));
    let demands = demands(RULES);
    assert_eq!(told(&findings_of(&job, &demands)), expected);
    let verdict = rules::refusal(&job, None, &Surroundings::default(), &demands.validation);
    let refused = expected.iter().any(|text| text.starts_with("refused") && !text.contains("rules[1]"));
    assert_eq!(verdict.is_some(), refused, "what speaks of the pod has to wait for it: {verdict:?}");
}

fn environment(spec: &str) -> BuildEnvironment {
    let text = format!(
        "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildEnvironment\nmetadata: {{name: mine, namespace: ci}}\nspec: {spec}"
    );
    serde_saphyr::from_str(&text).expect("a BuildEnvironment")
}

#[rstest]
#[case::fine("{image: a, serviceAccountName: builder}", &[])]
#[case::cycle(
    "{image: a, extraContainers: [{environment: back}]}",
    &["refused: spec.extraContainers[0]: back → extraContainers[0]: mine: \"mine\" would bring itself: a cycle"]
)]
#[case::not_there_yet(
    "{image: a, extraContainers: [{environment: nowhere}]}",
    &["warning: spec.extraContainers[0]: there is no BuildEnvironment \"nowhere\" in namespace \"ci\""]
)]
#[case::secret("{image: a, envFrom: [{secretRef: {name: no-secret}}]}", &["warning: pod.spec.containers[container-0].envFrom[0]: there is no Secret \"no-secret\""])]
#[case::volume(
    "{image: a, volumes: [{name: x, emptyDirr: {}}]}",
    &["refused: spec.volumes[0].emptyDirr: unknown key `emptyDirr`; did you mean `emptyDir`?"]
)]
#[case::rule("{image: scratch}", &["refused: rules[5] of validation_config: scratch has no shell"])]
fn environments_that_can_never_work(#[case] spec: &str, #[case] expected: &[&str]) {
    let environment = environment(spec);
    let demands = demands(RULES);
    let mut around = admission::surroundings_of("mine", environment.spec.clone());
    let others = surroundings("back: {image: b, extraContainers: [{environment: mine}]}");
    around.environments.extend(others.environments);
    if spec.contains("nowhere") {
        around.environments.insert("nowhere".to_owned(), None);
    }
    let pod = admission::pod_with(&environment, &around, &demands);
    let references = pod.as_ref().map(|pod| references::of(pod, &demands.pod)).unwrap_or_default();
    let findings = admission::build_environment(
        &environment,
        pod.as_ref().map_err(Clone::clone),
        &around,
        &known(&references),
        &demands,
    );
    assert_eq!(told(&findings), expected);
}

const DEFAULTS: &str = "environmentDefaults:
  imagePullPolicy: Always
  serviceAccountName: builds
  env: [{name: HTTP_PROXY, value: 'http://proxy'}, {name: HOME, value: /root}]
  tolerations: [{key: ci, operator: Exists}]
  extraContainers: [{environment: proxy, startup: before}]";

#[test]
fn environments_get_what_they_lack_and_once() {
    let defaults = demands(DEFAULTS).validation.environment_defaults;
    let mut mine = environment("{image: a, serviceAccountName: own, env: [{name: HOME, value: /home}]}");
    let (changes, record) = defaults::changes(&mine, &defaults).expect("it lacks some");
    insta::assert_yaml_snapshot!((&changes, &record));

    let mut spec = serde_json::to_value(&mine.spec).unwrap();
    for (field, value) in changes {
        spec[field] = value;
    }
    mine.spec = serde_json::from_value(spec).unwrap();
    mine.metadata.annotations = Some([("buildkite-operator.dev/defaulted".to_owned(), record)].into());
    assert_eq!(defaults::changes(&mine, &defaults), None, "applied to its outcome it changes nothing");

    mine.spec.image_pull_policy = Some(bk_api::config::PullPolicy::Never);
    let (changes, record) = defaults::changes(&mine, &defaults).expect("the record is not true any more");
    assert!(changes.is_empty() && !record.contains("imagePullPolicy"), "{record}");
}

#[test]
fn an_environment_may_go_without() {
    let defaults = demands(DEFAULTS).validation.environment_defaults;
    let mut mine = environment("{image: a}");
    mine.metadata.annotations =
        Some([("buildkite-operator.dev/defaults".to_owned(), "none".to_owned())].into());
    assert_eq!(defaults::changes(&mine, &defaults), None);
    let mut proxy = environment("{image: a}");
    proxy.metadata.name = Some("proxy".to_owned());
    let (changes, _) = defaults::changes(&proxy, &defaults).expect("it lacks some");
    assert!(!changes.contains_key("extraContainers"), "it would bring itself");
}

#[rstest]
#[case::inside("{command: make, environment: bare}")]
#[case::beside("{command: make, extraContainers: [{environment: bare}]}")]
#[case::by_way_of_another("{command: make, environment: proxied}")]
fn a_job_may_not_use_what_breaks_a_rule(#[case] spec: &str) {
    let job = fixtures::job(&format!("spec: {spec}"));
    let around = surroundings(
        "{bare: {image: scratch}, proxied: {image: a, extraContainers: [{environment: bare}]}, other: {image: scratch}}",
    );
    let verdict = rules::refusal(&job, None, &around, &demands(RULES).validation).expect("it is refused");
    assert_eq!(
        verdict.message,
        "BuildEnvironment \"bare\": rules[5] of validation_config: scratch has no shell"
    );
}

#[test]
fn rules_see_what_environments_are_labelled_with() {
    let job = fixtures::job("spec: {command: make, environment: mine}");
    let rules =
        "rules: [{expression: 'self.metadata.labels.team == \"a\"', message: of a, kind: BuildEnvironment}]";
    let mut mine = environment("{image: a}");
    mine.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
    let refusal = |mine: &BuildEnvironment| {
        let mut around = Surroundings::default();
        around.add("mine".to_owned(), Some(mine.clone()));
        rules::refusal(&job, None, &around, &demands(rules).validation)
    };
    assert_eq!(refusal(&mine), None);
    mine.metadata.labels = None;
    assert!(refusal(&mine).is_some());
}

#[test]
fn a_job_without_a_name_yet_is_looked_at() {
    let mut job = fixtures::job("spec: {command: make}");
    job.metadata.name = None;
    assert!(admission::pod_of(&job, &Surroundings::default(), &demands("{}")).is_ok());
}
