//! Mirrors of git repositories in pods: who prepares the checkout, as whom, and who has the mirrors.

use bk_api::{BuildJob, config::MirrorConfig};
use bk_plan::{
    exporters,
    pod::{PodSettings, render},
    surroundings::Surroundings,
};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use rstest::rstest;

use crate::{
    environment::difference,
    fixtures::{job, pod_settings},
};

const BUILDKITE: &str = "buildkite: { jobUUID: 0198f0a0-0000-7000-8000-000000000001, pipeline: rocket }";
const SOURCE: &str = "source: { repo: 'git@github.com:acme/rocket.git', commit: 4b825dc, branch: main }";
const NODE_LOCAL: &str = "{ layout: nodeLocal, hostPath: /var/lib/mirrors }";
const MIRRORS: &str = "/buildkite/repo-mirrors";

fn settings(mirrors: &str) -> PodSettings {
    let mirrors: MirrorConfig = serde_saphyr::from_str(mirrors).expect("the fixture is a configuration");
    let mut settings = PodSettings { mirrors, ..pod_settings() };
    settings.config.operator_image = Some("operator:1".to_owned());
    settings
}

fn pod(job: &BuildJob, settings: &PodSettings) -> Pod {
    render(job, 0, &Surroundings::default(), settings).unwrap_or_else(|error| panic!("{error}"))
}

fn spec(job: &BuildJob, settings: &PodSettings) -> PodSpec {
    pod(job, settings).spec.expect("a pod has a spec")
}

fn init(spec: &PodSpec) -> Option<&Container> {
    spec.init_containers.iter().flatten().find(|container| container.name == "repo-mirror")
}

fn has_mirrors(container: &Container) -> bool {
    container.volume_mounts.iter().flatten().any(|mount| mount.mount_path == MIRRORS)
}

/// What mirrors change in a pod, for both layouts, for a checkout in a container of its own and in the command's, and for a job
/// without Buildkite.
#[rstest]
#[case("shared", &format!("{BUILDKITE}, {SOURCE}, image: 'golang:1'"), "{ layout: shared, claimName: mirrors, path: /mirrors, borrowTimeoutSeconds: 30, staleSeconds: 3600 }")]
#[case("node-local", &format!("{BUILDKITE}, {SOURCE}"), NODE_LOCAL)]
#[case("standalone", SOURCE, NODE_LOCAL)]
#[case(
    "extra-repos",
    &format!("{BUILDKITE}, {SOURCE}, image: 'golang:1', repoMirror: {{ enabled: true, extraRepos: ['https://github.com/acme/data.git'] }}"),
    NODE_LOCAL
)]
fn mirrors_change_pods(#[case] name: &str, #[case] written: &str, #[case] mirrors: &str) {
    let job = job(&format!("spec: {{ {written}, command: make }}"));
    let mut with = settings(mirrors);
    if name == "extra-repos" {
        let secret = "{ sshSecret: key, httpsSecret: password }";
        with.config.git_credentials = Some(serde_saphyr::from_str(secret).unwrap());
    }
    let without = PodSettings { mirrors: MirrorConfig::default(), ..with.clone() };
    let difference = difference::between(&pod(&job, &without), &pod(&job, &with));
    insta::with_settings!({ description => format!("{written}\n{mirrors}"), omit_expression => true,
        prepend_module_to_snapshot => false, snapshot_path => "snapshots" }, {
        insta::assert_snapshot!(format!("mirrors-{name}"), difference);
    });
}

#[rstest]
#[case::as_the_configuration_says("command: make", NODE_LOCAL, true)]
#[case::switched_off_by_default(
    "command: make",
    "{ layout: nodeLocal, hostPath: /m, enabled: false }",
    false
)]
#[case::a_job_that_asks(
    "command: make, repoMirror: { enabled: true }",
    "{ layout: nodeLocal, hostPath: /m, enabled: false }",
    true
)]
#[case::a_job_that_declines("command: make, repoMirror: { enabled: false }", NODE_LOCAL, false)]
#[case::no_mirrors("command: make, repoMirror: { enabled: true }", "{}", false)]
#[case::no_checkout("command: make, kubernetes: { checkout: { skip: true } }", NODE_LOCAL, false)]
#[case::the_agents_own_mirrors(
    "command: make, kubernetes: { checkout: { gitMirrors: { path: /mine } } }",
    NODE_LOCAL,
    false
)]
fn who_borrows(#[case] written: &str, #[case] mirrors: &str, #[case] expected: bool) {
    let job = job(&format!("spec: {{ {BUILDKITE}, {SOURCE}, {written} }}"));
    let spec = spec(&job, &settings(mirrors));
    assert_eq!(init(&spec).is_some(), expected);
    for container in &spec.containers {
        assert_eq!(has_mirrors(container), expected && container.name != "agent", "{}", container.name);
    }
}

#[rstest]
#[case::nothing_to_check_out("command: make".to_owned(), &[])]
#[case::an_unknown_repository(format!("{BUILDKITE}, command: make"), &[])]
#[case::further_repositories_alone(
    "command: make, repoMirror: { enabled: true, extraRepos: ['https://h/a'] }".to_owned(),
    &["--extra-repo=https://h/a"]
)]
#[case::further_repositories_beside_mirrors_of_the_agent(
    format!("{BUILDKITE}, {SOURCE}, command: make, kubernetes: {{ checkout: {{ gitMirrors: {{ path: /mine }} }} }}, \
             repoMirror: {{ enabled: true, extraRepos: ['https://h/$(a)'] }}"),
    &["--extra-repo=https://h/$$(a)"]
)]
fn jobs_without_a_repository_of_ours(#[case] written: String, #[case] extra: &[&str]) {
    let spec = spec(&job(&format!("spec: {{ {written} }}")), &settings(NODE_LOCAL));
    let Some(container) = init(&spec) else { return assert!(extra.is_empty()) };
    let line = container.command.clone().unwrap_or_default();
    assert!(line.ends_with(&extra.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>()), "{line:?}");
    assert!(!container.env.iter().flatten().any(|var| var.name == "BUILDKITE_REPO"));
}

/// git does not trust what belongs to another user.
#[rstest]
#[case::the_images_own("{}", "baseline", 0, true)]
#[case::one_that_is_said("{ securityContext: { runAsUser: 1234 } }", "baseline", 1234, false)]
#[case::one_of_several(
    "{ containers: [{ image: busybox, securityContext: { runAsUser: 7 } }], securityContext: { runAsUser: 1234 } }",
    "baseline",
    1234,
    true
)]
#[case::not_root("{ securityContext: { runAsNonRoot: true } }", "baseline", 1000, true)]
#[case::restricted("{}", "restricted", 1000, false)]
fn the_checkout_is_prepared_as_whoever_checks_out(
    #[case] pod_spec: &str,
    #[case] security: &str,
    #[case] user: i64,
    #[case] is_shared: bool,
) {
    let job = job(&format!(
        "spec: {{ {BUILDKITE}, {SOURCE}, command: make, kubernetes: {{ podSpec: {pod_spec} }} }}"
    ));
    let mut settings = settings(NODE_LOCAL);
    settings.config.pod_security = serde_saphyr::from_str(security).unwrap();
    let spec = spec(&job, &settings);
    let container = init(&spec).expect("there is one");
    let context = container.security_context.as_ref().expect("it is said who it is");
    assert_eq!(context.run_as_user, Some(user));
    let line = container.command.clone().unwrap_or_default();
    assert_eq!(line.contains(&"--shared".to_owned()), is_shared, "{line:?}");
}

#[rstest]
#[case::as_asked(NODE_LOCAL, Some("operator:1"), &[])]
#[case::no_mirrors("{}", Some("operator:1"), &["keeps no mirrors"])]
#[case::no_image(NODE_LOCAL, None, &["does not know its own image: `pod_config.operatorImage` names it"])]
fn a_job_that_asks_in_vain_is_told(
    #[case] mirrors: &str,
    #[case] image: Option<&str>,
    #[case] expected: &[&str],
) {
    let job =
        job(&format!("spec: {{ {BUILDKITE}, {SOURCE}, command: make, repoMirror: {{ enabled: true }} }}"));
    let mut settings = settings(mirrors);
    settings.config.operator_image = image.map(str::to_owned);
    let told: Vec<_> = exporters::missing(&job.spec, &settings).collect();
    assert_eq!(told.len(), expected.len());
    for (missing, expected) in told.iter().zip(expected) {
        assert_eq!(missing.condition, "RepoMirrored");
        assert!(missing.message.ends_with(expected), "{}", missing.message);
    }
    assert_eq!(init(&spec(&job, &settings)).is_some(), expected.is_empty());
}

#[test]
fn patches_reach_it_and_a_container_of_that_name_stays() {
    let patched = "kubernetes: { podSpecPatch: { initContainers: [{ name: repo-mirror, env: [{ name: A, value: b }] }] } }";
    let patched = spec(
        &job(&format!("spec: {{ {BUILDKITE}, {SOURCE}, command: make, {patched} }}")),
        &settings(NODE_LOCAL),
    );
    let container = init(&patched).expect("there is one");
    assert!(container.env.iter().flatten().any(|var| var.name == "A"));
    let own = "kubernetes: { podSpec: { initContainers: [{ name: repo-mirror, image: mine }] } }";
    let own = spec(
        &job(&format!("spec: {{ {BUILDKITE}, {SOURCE}, command: make, {own} }}")),
        &settings(NODE_LOCAL),
    );
    assert_eq!(own.init_containers.map(|all| all.len()), Some(1));
}
