//! What holds for the pod of every job.

use std::collections::BTreeSet;

use bk_api::{BuildJob, config::TOKEN_KEY};
use bk_plan::{
    pod::{AGENT_CONTAINER, CHECKOUT_CONTAINER, managed_containers, render},
    surroundings::Surroundings,
};
use k8s_openapi::api::core::v1::{Container, PodSpec};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::values;
use crate::fixtures::{AGENT_IMAGE, job, pod_settings};

/// A container as its author may write it: all of it may be missing.
fn container() -> impl Strategy<Value = Value> {
    let image = prop::option::of(prop::sample::select(vec![AGENT_IMAGE, "busybox", "alpine:3"]));
    let command = prop::option::of(prop::collection::vec("[a-z ]{1,8}", 1..3));
    let env = prop::option::of("[a-z]{1,5}");
    (any::<bool>(), image, command, env).prop_map(|(named, image, command, env)| {
        let mut container = json!({});
        if named {
            container["name"] = json!("to-be-numbered");
        }
        if let Some(image) = image {
            container["image"] = json!(image);
        }
        if let Some(command) = command {
            container["command"] = json!(command);
        }
        if let Some(value) = env {
            container["env"] = json!([{ "name": "MINE", "value": value }]);
        }
        container
    })
}

fn any_job() -> impl Strategy<Value = BuildJob> {
    let containers = prop::collection::vec(container(), 1..5);
    let image = prop::option::of(prop::sample::select(vec![AGENT_IMAGE, "rust:1"]));
    (containers, image, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(mut containers, image, buildkite, source, workspace)| {
            for (index, container) in containers.iter_mut().enumerate() {
                if container.get("name").is_some() {
                    container["name"] = json!(format!("named-{index}"));
                }
            }
            let mut job = job("spec: { command: make test }");
            if buildkite {
                let uuid = "0198f0a0-0000-7000-8000-000000000001";
                job.spec.buildkite = Some(bk_api::build_job::BuildkiteJob {
                    job_uuid: uuid.to_owned(),
                    ..bk_api::build_job::BuildkiteJob::default()
                });
            }
            if source {
                let repo = "https://example.com/rocket.git".to_owned();
                job.spec.source = Some(bk_api::build_job::Source {
                    repo,
                    commit: "HEAD".to_owned(),
                    branch: "main".to_owned(),
                });
            }
            job.spec.image = image.map(str::to_owned);
            let mut pod_spec = json!({ "containers": containers });
            if workspace {
                pod_spec["volumes"] = json!([{ "name": "workspace", "emptyDir": { "medium": "Memory" } }]);
            }
            job.spec.kubernetes = json!({ "podSpec": pod_spec }).as_object().cloned().map(Into::into);
            job
        },
    )
}

fn spec_of(job: &BuildJob) -> PodSpec {
    render(job, 0, &Surroundings::default(), &pod_settings())
        .expect("the job can be rendered")
        .spec
        .expect("it has a spec")
}

fn line(container: &Container) -> Vec<String> {
    container.command.clone().unwrap_or_default()
}

/// The argument behind a flag of the shim.
fn flag(container: &Container, flag: &str) -> Option<String> {
    let line = line(container);
    let own = line.iter().take_while(|word| *word != "--").collect::<Vec<_>>();
    own.iter().position(|word| *word == flag).and_then(|at| own.get(at + 1)).map(|word| (*word).clone())
}

proptest! {
    #[test]
    fn managed_containers_are_counted_numbered_and_chained(job in any_job()) {
        let spec = spec_of(&job);
        let managed: Vec<_> = managed_containers(&spec).collect();
        let names: Vec<_> = managed.iter().map(|container| container.name.clone()).collect();
        let agent = spec.containers.iter().find(|c| c.name == AGENT_CONTAINER).expect("there is an agent");

        prop_assert_eq!(managed.len() + 1, spec.containers.len());
        prop_assert_eq!(flag(agent, "--jobs"), Some(names.join(",")));
        if job.spec.buildkite.is_some() {
            prop_assert_eq!(values(agent, "BUILDKITE_CONTAINER_COUNT"), [managed.len().to_string()]);
        }
        for (id, container) in managed.iter().enumerate() {
            prop_assert_eq!(values(container, "BUILDKITE_CONTAINER_ID"), [id.to_string()]);
            prop_assert_eq!(flag(container, "--name"), Some(names[id].clone()));
            let before = id.checked_sub(1).map(|before| names[before].clone());
            prop_assert_eq!(flag(container, "--after"), before);
        }
        prop_assert!(names.iter().skip(1).all(|name| name != CHECKOUT_CONTAINER));
    }

    #[test]
    fn something_checks_out_exactly_once_and_before_every_command(job in any_job()) {
        let spec = spec_of(&job);
        let phases: Vec<_> = managed_containers(&spec)
            .flat_map(|container| values(container, "BUILDKITE_BOOTSTRAP_PHASES"))
            .collect();
        let checkouts: Vec<_> = phases.iter().map(|phases| phases.contains("checkout")).collect();
        prop_assert!(checkouts[0] && !checkouts[1..].contains(&true), "{:?}", phases);
    }

    #[test]
    fn names_are_unique(job in any_job()) {
        let spec = spec_of(&job);
        let names: BTreeSet<_> = spec.containers.iter().map(|container| &container.name).collect();
        prop_assert_eq!(names.len(), spec.containers.len());
        let volumes = spec.volumes.unwrap_or_default();
        let names: BTreeSet<_> = volumes.iter().map(|volume| &volume.name).collect();
        prop_assert_eq!(names.len(), volumes.len());
    }

    #[test]
    fn the_token_is_a_reference_in_the_agents_container_alone(job in any_job()) {
        let spec = spec_of(&job);
        let holders: Vec<_> = spec
            .containers
            .iter()
            .filter(|container| !values(container, TOKEN_KEY).is_empty())
            .map(|container| container.name.as_str())
            .collect();
        let expected: &[&str] = if job.spec.buildkite.is_some() { &[AGENT_CONTAINER] } else { &[] };
        prop_assert_eq!(holders, expected);
        let secrets = spec.containers.iter().flat_map(|c| c.env.iter().flatten()).filter(|var| {
            // The list of what to hide names patterns, not secrets.
            var.name.to_ascii_uppercase().contains("TOKEN") && var.name != "BUILDKITE_REDACTED_VARS"
        });
        for var in secrets {
            prop_assert_eq!(&var.value, &None, "{} is in plain text", var.name);
            let source = var.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref());
            prop_assert_eq!(source.map(|key| key.name.as_str()), Some("buildkite-agent-token"));
        }
    }

    #[test]
    fn containers_under_the_shim_share_workspace_and_shim(job in any_job()) {
        let spec = spec_of(&job);
        for container in &spec.containers {
            let mounts: Vec<_> = container
                .volume_mounts
                .iter()
                .flatten()
                .map(|mount| (mount.name.as_str(), mount.mount_path.as_str()))
                .collect();
            prop_assert!(mounts.contains(&("workspace", "/workspace")), "{:?}", mounts);
            prop_assert!(mounts.contains(&("buildkite-shim", "/buildkite/shim")), "{:?}", mounts);
            prop_assert_eq!(&line(container)[0], "/buildkite/shim/buildkite-shim");
            prop_assert_eq!(&container.args, &None);
        }
        let volumes: BTreeSet<_> = spec.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
        prop_assert_eq!(volumes, BTreeSet::from(["buildkite-shim", "workspace"]));
        prop_assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
    }
}
