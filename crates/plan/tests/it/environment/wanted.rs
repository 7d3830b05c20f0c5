//! What has to be looked up before a BuildJob can become a pod.

use std::collections::BTreeSet;

use bk_plan::surroundings::{MAX_ENVIRONMENTS, Surroundings, wanted};
use rstest::rstest;

use super::surroundings;
use crate::fixtures::job;

fn environments(job_yaml: &str, found: &Surroundings) -> Vec<String> {
    wanted(&job(job_yaml), found).environments.into_iter().collect()
}

#[rstest]
#[case::nothing("spec: { command: date }", "{}", &[])]
#[case::an_image("spec: { command: date, image: golang:1.13 }", "{}", &[])]
#[case::the_primary("spec: { command: date, environment: go }", "{}", &["go"])]
#[case::each_list(
    "spec: { command: date, initContainers: [{ environment: a }], extraContainers: [{ environment: b }, { container: {} }] }",
    "{}",
    &["a", "b"]
)]
#[case::what_is_found_is_not_wanted("spec: { command: date, environment: go }", "{ go: { image: golang } }", &[])]
#[case::what_the_found_bring(
    "spec: { command: date, environment: go }",
    "{ go: { image: golang, initContainers: [{ environment: a }], extraContainers: [{ environment: b }] } }",
    &["a", "b"]
)]
#[case::through_several(
    "spec: { command: date, environment: go }",
    "{ go: { image: golang, extraContainers: [{ environment: a }] }, a: { image: a, initContainers: [{ environment: b }] } }",
    &["b"]
)]
#[case::in_a_circle(
    "spec: { command: date, environment: go }",
    "{ go: { image: golang, extraContainers: [{ environment: a }] }, a: { image: a, initContainers: [{ environment: go }] } }",
    &[]
)]
fn environments_are_wanted_until_they_are_found(
    #[case] job: &str,
    #[case] found: &str,
    #[case] expected: &[&str],
) {
    assert_eq!(environments(job, &surroundings(found)), expected);
}

#[test]
fn what_does_not_exist_is_looked_for_once() {
    let mut found = Surroundings::default();
    found.environments.insert("go".to_owned(), None);
    assert_eq!(environments("spec: { command: date, environment: go }", &found), [""; 0]);
}

#[test]
fn pod_templates_are_wanted_until_they_are_found() {
    let job = job("spec: { command: date, kubernetes: { podTemplate: large } }");
    let mut found = Surroundings::default();
    assert_eq!(wanted(&job, &found).pod_templates, BTreeSet::from(["large".to_owned()]));
    found.pod_templates.insert("large".to_owned(), None);
    assert!(wanted(&job, &found).is_empty());
}

/// Each environment brings a new one: nothing but the limit ends that.
#[test]
fn there_is_an_end_to_it() {
    let job = job("spec: { command: date, environment: e0 }");
    let mut found = Surroundings::default();
    let mut rounds = 0;
    loop {
        let wanted = wanted(&job, &found);
        if wanted.is_empty() {
            break;
        }
        for name in wanted.environments {
            rounds += 1;
            let spec = format!("{{ x: {{ image: a, extraContainers: [{{ environment: e{rounds} }}] }} }}");
            let spec = surroundings(&spec).environments.remove("x").unwrap();
            found.environments.insert(name, spec);
        }
    }
    assert_eq!(rounds, MAX_ENVIRONMENTS);
}
