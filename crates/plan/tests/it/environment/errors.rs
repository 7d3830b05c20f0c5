//! What is refused, with the path that leads there.

use bk_plan::environment::resolve;
use rstest::rstest;

use super::surroundings;
use crate::fixtures::job;

const GO_AND_POSTGRES: &str = "
go: { image: golang, extraContainers: [{ environment: postgres }] }
postgres: { image: postgres }
";

#[rstest]
#[case::an_unknown_primary(
    "{ environment: rust }",
    "{}",
    r#"spec.environment: there is no BuildEnvironment "rust" in namespace "ci""#
)]
#[case::an_unknown_extra_container(
    "{ extraContainers: [{ environment: postgres }, { environment: x }] }",
    GO_AND_POSTGRES,
    r#"spec.extraContainers[1]: there is no BuildEnvironment "x" in namespace "ci""#
)]
#[case::an_unknown_one_further_on(
    "{ environment: go }",
    "{ go: { image: golang, initContainers: [{ environment: x }] } }",
    r#"spec.environment: go → initContainers[0]: there is no BuildEnvironment "x" in namespace "ci""#
)]
#[case::a_cycle_of_one(
    "{ environment: go }",
    "{ go: { image: golang, extraContainers: [{ environment: go }] } }",
    r#"spec.environment: go → extraContainers[0]: go: "go" would bring itself: a cycle"#
)]
#[case::a_cycle_of_two(
    "{ environment: go }",
    "
go: { image: golang, extraContainers: [{ environment: postgres }] }
postgres: { image: postgres, extraContainers: [{ name: x, container: { image: a } }, { environment: go }] }
",
    r#"spec.environment: go → extraContainers[0]: postgres → extraContainers[1]: go: "go" would bring itself: a cycle"#
)]
#[case::a_cycle_of_init_containers(
    "{ initContainers: [{ environment: a }] }",
    "{ a: { image: a, initContainers: [{ environment: b }] }, b: { image: b, extraContainers: [{ environment: a }] } }",
    r#"spec.initContainers[0]: a → initContainers[0]: b → extraContainers[0]: a: "a" would bring itself: a cycle"#
)]
#[case::neither_environment_nor_container(
    "{ extraContainers: [{ name: a }] }",
    "{}",
    "spec.extraContainers[0]: give either `environment`, the name of a BuildEnvironment, or `container`"
)]
#[case::a_name_that_is_none(
    "{ extraContainers: [{ name: Postgres, environment: postgres }] }",
    GO_AND_POSTGRES,
    "spec.extraContainers[0]: postgres: `Postgres` cannot be a container's name: give a `name` of 1 to 63 small letters, digits and dashes"
)]
#[case::an_inline_container_without_a_name(
    "{ extraContainers: [{ container: { image: a } }] }",
    "{}",
    "spec.extraContainers[0]: the container needs a `name`"
)]
#[case::an_inline_container_without_an_image(
    "{ initContainers: [{ name: a, container: {} }] }",
    "{}",
    "spec.initContainers[0].container: the container needs an `image`"
)]
#[case::a_restart_policy(
    "{ initContainers: [{ name: a, container: { image: a, restartPolicy: Always } }] }",
    "{}",
    "spec.initContainers[0].container.restartPolicy: this follows from how the container is used: `extraContainers` with `startup: before` are started again"
)]
#[case::an_environments_own_field_among_the_further_ones(
    "{ environment: go }",
    "{ go: { image: golang, container: { env: [] } } }",
    "spec.environment: go → container.env: write it as `spec.env` of the BuildEnvironment"
)]
#[case::an_environment_that_names_its_container(
    "{ environment: go }",
    "{ go: { image: golang, container: { name: x } } }",
    "spec.environment: go → container.name: whoever uses the environment names the container"
)]
#[case::a_field_of_the_wrong_type(
    "{ environment: go }",
    "{ go: { image: golang, container: { ports: 80 } } }",
    "spec.environment: go → container.ports: invalid type: integer `80`, expected a sequence"
)]
#[case::a_volume_without_a_name(
    "{ environment: go }",
    "{ go: { image: golang, volumes: [{ emptyDir: {} }] } }",
    "spec.environment: go → volumes[0]: the volume needs a `name`"
)]
#[case::different_volumes_by_the_same_name(
    "{ environment: go, extraContainers: [{ environment: postgres }] }",
    "
go: { image: golang, volumes: [{ name: data, emptyDir: {} }] }
postgres: { image: postgres, volumes: [{ name: data, emptyDir: { medium: Memory } }] }
",
    "spec.extraContainers[0]: postgres → volumes[0]: `data` is another volume in spec.environment: go → volumes[0]; choose another name"
)]
#[case::two_service_accounts(
    "{ environment: go, initContainers: [{ environment: login }] }",
    "{ go: { image: golang, serviceAccountName: builder }, login: { image: vault, serviceAccountName: vault } }",
    "spec.initContainers[0]: login → serviceAccountName: the pod cannot be both `vault` and `builder`, which is in spec.environment: go → serviceAccountName"
)]
#[case::two_mounts_at_one_place(
    "{ environment: go }",
    "{ go: { image: golang, volumeMounts: [{ name: a, mountPath: /cache }, { name: b, mountPath: /cache/ }] } }",
    "spec.environment: go → volumeMounts: both `a` and `b` are mounted at /cache"
)]
fn what_is_wrong_is_said_with_the_path_that_leads_there(
    #[case] spec: &str,
    #[case] environments: &str,
    #[case] expected: &str,
) {
    let job = job(&format!("spec: {spec}"));
    let refused = resolve(&job, &surroundings(environments)).unwrap_err();
    assert_eq!(refused.to_string(), expected);
}

/// Fields that Kubernetes does not have are named; what else the message says is the reader's business.
#[rstest]
#[case::in_an_environment(
    "{ environment: go }",
    "{ go: { image: golang, container: { livenessProb: { periodSeconds: 1 } } } }",
    "spec.environment: go → container.livenessProb: "
)]
#[case::in_a_volume(
    "{ environment: go }",
    "{ go: { image: golang, volumes: [{ name: a, emptydir: { medium: Memory } }] } }",
    "spec.environment: go → volumes[0].emptydir: "
)]
#[case::in_an_inline_container(
    "{ extraContainers: [{ name: a, container: { image: a, resources: { request: { cpu: 1 } } } }] }",
    "{}",
    "spec.extraContainers[0].container.resources.request: "
)]
fn unknown_fields_are_named(#[case] spec: &str, #[case] environments: &str, #[case] expected: &str) {
    let job = job(&format!("spec: {spec}"));
    let refused = resolve(&job, &surroundings(environments)).unwrap_err().to_string();
    assert!(refused.starts_with(expected), "{refused}");
}

fn chain(length: usize) -> String {
    let link = |at: usize| {
        let next = at + 1;
        if next == length {
            format!("e{at}: {{ image: a }}")
        } else {
            format!("e{at}: {{ image: a, extraContainers: [{{ environment: e{next} }}] }}")
        }
    };
    (0..length).map(link).collect::<Vec<_>>().join("\n")
}

#[test]
fn environments_may_bring_one_another_eight_deep() {
    let job = job("spec: { environment: e0 }");
    let found = resolve(&job, &surroundings(&chain(8))).unwrap();
    assert_eq!(found.parts.len(), 7);
    let refused = resolve(&job, &surroundings(&chain(9))).unwrap_err().to_string();
    assert!(refused.ends_with("e8: more than 8 environments bring one another in a row"), "{refused}");
}

/// Each environment brings the next one twice: two to the seventh containers.
#[test]
fn the_number_of_containers_is_limited() {
    let job = job("spec: { environment: e0 }");
    let doubled = chain(8).replace("[{", "[{ name: twin, environment: NEXT }, {");
    let doubled: Vec<_> =
        doubled.lines().enumerate().map(|(at, line)| line.replace("NEXT", &format!("e{}", at + 1))).collect();
    let refused = resolve(&job, &surroundings(&doubled.join("\n"))).unwrap_err().to_string();
    assert!(refused.contains("one container too many: a job and its environments may add 64"), "{refused}");
}
