//! What is said of mirrors of git repositories holds, and `repo-mirror` never fails.

use bk_api::{
    RepoMirror,
    config::{Config, MirrorLayout},
    crds,
};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, StatefulSet},
    core::v1::PodSpec,
};
use serde_json::{Value, json};

use crate::{
    documents::{blocks, quoted, read_config, yaml},
    operator, output,
};

const MIRRORS: &str = include_str!("../../../../docs/mirrors.md");
const SHARED: &str = include_str!("../../../../deploy/repo-syncer/shared.yaml");
const NODE_LOCAL: &str = include_str!("../../../../deploy/repo-syncer/node-local.yaml");

fn printed(kind: &str) -> Vec<Value> {
    let manifests = blocks(MIRRORS, "yaml").into_iter().map(|block| yaml(&block));
    manifests.filter(|manifest| manifest["kind"] == kind).collect()
}

fn configurations() -> Vec<Config> {
    printed("ConfigMap").iter().map(read_config).collect()
}

#[test]
fn both_layouts_are_accepted_as_printed() {
    let layouts: Vec<_> = configurations().into_iter().map(|config| config.mirrors.layout).collect();
    assert_eq!(layouts, [Some(MirrorLayout::Shared), Some(MirrorLayout::NodeLocal)]);
}

#[test]
fn a_repo_mirror_is_understood_as_printed() {
    let [manifest] = printed("RepoMirror").try_into().expect("the page shows one");
    let mirror: RepoMirror = serde_json::from_value(manifest.clone()).expect("a RepoMirror");
    let understood = serde_json::to_value(&mirror.spec).expect("specs serialise");
    for (field, value) in manifest["spec"].as_object().expect("a spec") {
        assert_eq!(understood[field], *value, "{field}");
    }
}

#[test]
fn every_field_is_in_the_page() {
    let all = crds::all();
    let crd = all.iter().find(|crd| crd.spec.names.kind == "RepoMirror").expect("it is installed");
    let crd = serde_json::to_value(crd).expect("definitions serialise");
    let properties =
        &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    for field in properties.as_object().expect("the spec has fields").keys() {
        assert!(quoted(MIRRORS).any(|text| text == field), "{field}");
    }
}

/// The manifests fit to the configurations that are printed beside them.
#[test]
fn the_manifests_mount_what_the_configurations_say() {
    let [shared, node_local] = configurations().try_into().expect("two layouts");
    let stateful_set: StatefulSet = last_document(SHARED);
    let pod = stateful_set.spec.and_then(|spec| spec.template.spec).expect("a pod");
    let claim = pod.volumes.iter().flatten().find_map(|volume| volume.persistent_volume_claim.clone());
    assert_eq!(claim.map(|claim| claim.claim_name), shared.mirrors.claim_name);
    check_mount(&pod, &shared);

    let daemon_set: DaemonSet = last_document(NODE_LOCAL);
    let pod = daemon_set.spec.and_then(|spec| spec.template.spec).expect("a pod");
    let directory = pod.volumes.iter().flatten().find_map(|volume| volume.host_path.clone());
    assert_eq!(directory.map(|directory| directory.path), node_local.mirrors.host_path);
    check_mount(&pod, &node_local);
}

fn last_document<T: serde::de::DeserializeOwned>(manifests: &str) -> T {
    let last = manifests.split("---\n").last().expect("there is a document");
    serde_json::from_value(yaml(last)).expect("it is understood")
}

fn check_mount(pod: &PodSpec, config: &Config) {
    let container = pod.containers.first().expect("a container");
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    assert!(mounts.iter().any(|mount| mount.mount_path == config.mirrors.path), "{mounts:?}");
    let port = container.ports.iter().flatten().next().expect("a port").container_port;
    let listen = config.mirrors.endpoint.listen.expect("it listens");
    assert_eq!(i32::from(listen.port()), port);
    let memory =
        container.resources.as_ref().and_then(|resources| resources.limits.as_ref()?.get("memory").cloned());
    assert!(memory.is_some());
}

#[test]
fn without_mirrors_a_line_is_printed_and_the_job_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let said =
        output(operator().args(["repo-mirror", "--repository", "git@github.com:example/app.git"]).args([
            "--checkout",
            directory.path().join("build").to_str().expect("a path of letters"),
            "--mirrors",
            directory.path().join("missing").to_str().expect("a path of letters"),
        ]));
    assert_eq!(said, "github.com/example/app is cloned from its server: there is no mirror of it\n");
    assert!(!directory.path().join("build").exists());
    let said = output(operator().args([
        "repo-mirror",
        "--repository",
        "nonsense",
        "--checkout",
        "/x",
        "--mirrors",
        "/y",
    ]));
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn the_syncers_configuration_is_refused_with_key_and_reason() {
    let refused = |document: &str| {
        let data = serde_json::from_value(json!({ "repo_syncer_config": document })).expect("data");
        Config::from_data(&data).expect_err("it is refused").to_string()
    };
    insta::assert_snapshot!(refused("layout: shared"), @"ConfigMap buildkite-operator-config, key `repo_syncer_config`: `layout: shared` needs `claimName`");
    insta::assert_snapshot!(refused("intervalseconds: 5"), @"ConfigMap buildkite-operator-config, key `repo_syncer_config`: line 1 column 1: unknown field `intervalseconds`; did you mean `intervalSeconds`?");
}
