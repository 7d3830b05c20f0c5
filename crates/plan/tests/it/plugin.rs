//! The `kubernetes` plugin → the pod, and what is wrong with it.

mod errors;
mod fields;
mod patches;
mod properties;

use bk_plan::{
    pod::{PodSettings, RenderError, render},
    surroundings::Surroundings,
};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodTemplateSpec};

use crate::{
    environment::difference,
    fixtures::{job, pod_settings},
};

/// The settings that `pod_config` gives.
fn settings(pod_config: &str) -> PodSettings {
    let mut settings = pod_settings();
    let agent_image = settings.config.agent_image;
    settings.config = serde_saphyr::from_str(pod_config).expect("the fixture is a pod_config");
    settings.config.agent_image = agent_image;
    settings
}

/// A namespace with one PodTemplate, `fast`.
fn surroundings() -> Surroundings {
    let template: PodTemplateSpec = serde_saphyr::from_str(
        "spec: { nodeSelector: { disk: fast }, containers: [{ image: golang:1, command: [go test] }] }",
    )
    .expect("the fixture is a template");
    let pod_templates = [("fast".to_owned(), Some(template)), ("gone".to_owned(), None)].into();
    Surroundings { pod_templates, ..Surroundings::default() }
}

/// The pod of a Buildkite job whose step runs `make` in busybox, with more fields of its spec.
fn try_pod(spec: &str, settings: &PodSettings) -> Result<Pod, RenderError> {
    let image =
        if spec.starts_with("image:") || spec.contains("podTemplate: fast") { "" } else { "image: busybox" };
    let job = job(&format!(
        "metadata: {{ name: nightly, namespace: ci, uid: 8f2c }}\nspec:\n  buildkite: {{ jobUUID: 0198f0a0-0000-7000-8000-000000000001 }}\n  command: make\n  {image}\n  {spec}\n"
    ));
    render(&job, 0, &surroundings(), settings)
}

fn pod(spec: &str, settings: &PodSettings) -> Pod {
    try_pod(spec, settings).unwrap_or_else(|error| panic!("{error}"))
}

fn spec_of(spec: &str) -> PodSpec {
    pod(spec, &pod_settings()).spec.expect("a pod has a spec")
}

fn container<'a>(spec: &'a PodSpec, name: &str) -> &'a Container {
    let all = spec.init_containers.iter().flatten().chain(&spec.containers);
    all.into_iter().find(|container| container.name == name).expect("there is such a container")
}

/// The value of a container's variable.
fn variable(container: &Container, name: &str) -> Option<String> {
    let given: Vec<_> = container.env.iter().flatten().filter(|var| var.name == name).collect();
    assert!(given.len() < 2, "{name} is given twice");
    given.first()?.value.clone()
}

/// What a step and a configuration change, by the snapshot of that name, which also shows what was written.
fn check(name: &str, spec: &str, pod_config: &str) {
    let before = pod("", &pod_settings());
    let after = pod(spec, &settings(pod_config));
    let written =
        if pod_config == "{}" { spec.to_owned() } else { format!("{spec}\npod_config: {pod_config}") };
    insta::with_settings!({ description => written, omit_expression => true, prepend_module_to_snapshot => false,
        snapshot_path => "plugin/snapshots" }, {
        insta::assert_snapshot!(name, difference::between(&before, &after));
    });
}
