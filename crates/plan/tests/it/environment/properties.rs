//! What holds for every graph of environments.

use std::collections::{BTreeMap, BTreeSet};

use bk_api::{BuildEnvironmentSpec, BuildJob, container_use::ContainerUse};
use bk_plan::{
    environment::resolve,
    pod::render,
    surroundings::{Surroundings, wanted},
};
use proptest::prelude::*;

use crate::fixtures::{job, pod_settings};

const NAMES: usize = 6;

fn name(index: usize) -> String {
    format!("e{index}")
}

/// Containers by environment; the last name is one that does not exist.
fn uses() -> impl Strategy<Value = Vec<ContainerUse>> {
    let one = (0..=NAMES, prop::option::of("[a-z]{1,3}")).prop_map(|(index, own)| ContainerUse {
        name: own,
        environment: Some(name(index)),
        ..ContainerUse::default()
    });
    prop::collection::vec(one, 0..3)
}

fn environment() -> impl Strategy<Value = BuildEnvironmentSpec> {
    (uses(), uses()).prop_map(|(init_containers, extra_containers)| BuildEnvironmentSpec {
        image: "a".to_owned(),
        init_containers,
        extra_containers,
        ..BuildEnvironmentSpec::default()
    })
}

fn any_world() -> impl Strategy<Value = (BuildJob, Surroundings)> {
    let environments = prop::collection::vec(environment(), NAMES);
    (environments, prop::option::of(0..=NAMES), uses(), uses()).prop_map(
        |(environments, primary, init, extra)| {
            let mut job = job("spec: { command: make }");
            job.spec.environment = primary.map(name);
            job.spec.init_containers = init;
            job.spec.extra_containers = extra;
            let mut found = Surroundings::default();
            for (index, spec) in environments.into_iter().enumerate() {
                found.environments.insert(name(index), Some(spec));
            }
            found.environments.insert(name(NAMES), None);
            (job, found)
        },
    )
}

/// An independent look at the same graph: for each environment, those that it brings.
fn edges(found: &Surroundings) -> BTreeMap<String, BTreeSet<String>> {
    let brought = |spec: &BuildEnvironmentSpec| -> BTreeSet<String> {
        spec.init_containers
            .iter()
            .chain(&spec.extra_containers)
            .filter_map(|c| c.environment.clone())
            .collect()
    };
    found
        .environments
        .iter()
        .map(|(name, spec)| (name.clone(), spec.as_ref().map(brought).unwrap_or_default()))
        .collect()
}

fn reachable(from: BTreeSet<String>, edges: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut all = from.clone();
    let mut last = from;
    while !last.is_empty() {
        let next: BTreeSet<_> = last.iter().flat_map(|name| edges[name].clone()).collect();
        last = next.difference(&all).cloned().collect();
        all.extend(last.clone());
    }
    all
}

fn roots(job: &BuildJob) -> BTreeSet<String> {
    let spec = &job.spec;
    let lists = spec.init_containers.iter().chain(&spec.extra_containers);
    lists.filter_map(|c| c.environment.clone()).chain(spec.environment.clone()).collect()
}

proptest! {
    #[test]
    fn the_same_world_gives_the_same_result((job, found) in any_world()) {
        prop_assert_eq!(resolve(&job, &found), resolve(&job, &found));
    }

    #[test]
    fn the_same_world_gives_the_same_pod((job, found) in any_world()) {
        let pod = || render(&job, 0, &found, &pod_settings());
        prop_assert_eq!(pod(), pod());
        if let (Ok(resolved), Ok(pod)) = (resolve(&job, &found), pod()) {
            let spec = pod.spec.expect("a pod has a spec");
            let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
            let names: Vec<_> = all.map(|container| container.name.as_str()).collect();
            for part in &resolved.parts {
                let times = names.iter().filter(|name| **name == part.container.name).count();
                prop_assert_eq!(times, 1, "{} in {:?}", part.trail, names);
            }
        }
    }

    #[test]
    fn cycles_and_unknown_names_are_always_found((job, found) in any_world()) {
        let edges = edges(&found);
        let all = reachable(roots(&job), &edges);
        let in_circle = all.iter().any(|name| reachable(edges[name].clone(), &edges).contains(name));
        let unknown = all.contains(&name(NAMES));
        let result = resolve(&job, &found);
        if in_circle || unknown {
            prop_assert!(result.is_err());
        } else if let Err(error) = result {
            prop_assert!(error.problem.contains("too many"), "{}", error);
        }
    }

    #[test]
    fn each_use_is_one_container((job, found) in any_world()) {
        if let Ok(resolved) = resolve(&job, &found) {
            fn count(uses: &[ContainerUse], found: &Surroundings) -> usize {
                uses.iter().filter_map(|c| c.environment.as_ref()).map(|name| 1 + brought(name, found)).sum()
            }
            fn brought(name: &str, found: &Surroundings) -> usize {
                let spec = found.environments[name].as_ref().expect("it was resolved");
                count(&spec.init_containers, found) + count(&spec.extra_containers, found)
            }
            let own = count(&job.spec.init_containers, &found) + count(&job.spec.extra_containers, &found);
            let primary = job.spec.environment.as_ref().map_or(0, |name| brought(name, &found));
            prop_assert_eq!(resolved.parts.len(), own + primary);
        }
    }

    /// What was found bit by bit is everything that resolving asks for.
    #[test]
    fn looking_up_what_is_wanted_is_enough((job, world) in any_world()) {
        let mut found = Surroundings::default();
        for _ in 0..=NAMES + 1 {
            for name in wanted(&job, &found).environments {
                let spec = world.environments[&name].clone();
                prop_assert!(found.environments.insert(name, spec).is_none(), "it is wanted once");
            }
        }
        prop_assert!(wanted(&job, &found).is_empty());
        prop_assert_eq!(resolve(&job, &found), resolve(&job, &world));
    }
}
