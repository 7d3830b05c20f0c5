//! What holds for any plugin, also for one that makes no sense.

use bk_plan::{
    plugin,
    pod::{AGENT_CONTAINER, managed_containers, render},
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{settings, surroundings, variable};
use crate::fixtures::job;

/// Words that mean something somewhere in a plugin.
fn word() -> impl Strategy<Value = String> {
    let words = "podSpec podTemplate podSpecPatch containers initContainers volumes gitEnvFrom sidecars sidecarParams \
                 commandParams extraVolumeMounts metadata checkout jobActiveDeadlineSeconds name image command args env \
                 value volumeMounts mountPath workspace agent container-0 fast busybox /workspace interposer vector \
                 labels annotations skip restartPolicy Always $patch delete replace $retainKeys resources limits cpu";
    let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
    prop_oneof![9 => prop::sample::select(words), 1 => ".{0,6}"]
}

/// Any JSON, of words that mean something.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        word().prop_map(Value::from)
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(word(), inner, 0..5).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// A container as its author, or a patch, may write it.
fn any_container(name: impl Strategy<Value = String>) -> impl Strategy<Value = Value> {
    let words = || prop::option::of(prop::collection::vec(".{0,6}", 0..3));
    let directive = prop::option::weighted(0.1, Just("delete"));
    (name, prop::option::of("[a-z:]{1,6}"), words(), words(), directive).prop_map(
        |(name, image, command, args, patch)| {
            let mut container = json!({ "name": name, "image": image, "command": command, "args": args });
            if let Some(patch) = patch {
                container["$patch"] = json!(patch);
            }
            container
        },
    )
}

/// A plugin of the right shape, whatever it says.
fn any_plugin() -> impl Strategy<Value = Map<String, Value>> {
    let names = || {
        prop::sample::select(vec![
            "",
            "a",
            "b",
            "container-0",
            "container-1",
            "agent",
            "checkout",
            "sidecar-0",
        ])
    };
    let containers = |keep: bool| {
        prop::collection::vec(
            any_container(names().prop_map(str::to_owned)).prop_map(move |mut container| {
                if keep && let Value::Object(container) = &mut container {
                    container.remove("$patch");
                }
                container
            }),
            0..4,
        )
    };
    (containers(true), containers(true), containers(false), containers(false), any::<bool>(), any_json())
        .prop_map(|(containers, sidecars, patched, patched_init, skip, strange)| {
            let plugin = json!({
                "podSpec": { "containers": containers },
                "sidecars": sidecars,
                "podSpecPatch": { "containers": patched, "initContainers": patched_init },
                "checkout": { "skip": skip },
                "metadata": strange,
            });
            let Value::Object(mut plugin) = plugin else { unreachable!("it is an object") };
            if !plugin["metadata"].is_object() {
                plugin.remove("metadata");
            }
            plugin
        })
}

fn job_with(plugin: Map<String, Value>) -> bk_api::BuildJob {
    let mut job = job(
        "spec: { buildkite: { jobUUID: 0198f0a0-0000-7000-8000-000000000001 }, command: make, image: busybox }",
    );
    job.spec.kubernetes = Some(plugin.into());
    job
}

fn any_object() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map(word(), any_json(), 0..5).prop_map(|map| map.into_iter().collect())
}

proptest! {
    #[test]
    fn no_plugin_is_too_strange(plugin in prop_oneof![any_object(), any_plugin()], config in any_object()) {
        let mut settings = settings("{}");
        let job = job_with(plugin);
        let pod = render(&job, 0, &surroundings(), &settings);
        prop_assert_eq!(&pod, &render(&job, 0, &surroundings(), &settings), "always the same");
        if let Err(error) = pod {
            prop_assert!(!error.path.is_empty() && !error.problem.is_empty());
        }
        settings.config.pod_spec_patch = Some(config);
        settings.config.allow_unsafe_command_patches = true;
        let _ = render(&job, 0, &surroundings(), &settings);
        let _ = plugin::time_limit(&job);
    }

    #[test]
    fn whatever_patches_do_the_agent_knows_who_takes_turns(plugin in any_plugin()) {
        let Ok(pod) = render(&job_with(plugin), 0, &surroundings(), &settings("{}")) else { return Ok(()) };
        let spec = pod.spec.expect("a pod has a spec");
        let managed: Vec<_> = managed_containers(&spec).collect();
        let agent = spec.containers.iter().find(|c| c.name == AGENT_CONTAINER).expect("there is an agent");
        prop_assert_eq!(variable(agent, "BUILDKITE_CONTAINER_COUNT"), Some(managed.len().to_string()));
        for (id, container) in managed.iter().enumerate() {
            prop_assert_eq!(variable(container, "BUILDKITE_CONTAINER_ID"), Some(id.to_string()));
        }
        let names: Vec<_> = managed.iter().map(|container| container.name.as_str()).collect();
        let line = agent.command.clone().unwrap_or_default();
        prop_assert!(line.contains(&names.join(",")), "{:?} in {:?}", names, line);
        prop_assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
    }

    #[test]
    fn any_text_may_be_in_buildkite_plugins(text in prop_oneof![".*", any_json().prop_map(|json| json.to_string())]) {
        let _ = plugin::kubernetes(&text);
    }
}
