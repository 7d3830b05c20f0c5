//! Nobody who writes a step, a BuildEnvironment or a PodTemplate gets at the operator's tokens.

use bk_plan::{
    pod::{PodSettings, render},
    surroundings::Surroundings,
};
use rstest::rstest;

use crate::fixtures::{broker, job, pod_settings};

/// The Secret with the agent token, in the words of what is refused.
const HOLDS: &str =
    "the Secret `buildkite-agent-token` holds a token of the operator's, which is not for jobs; name another";

/// A namespace whose environments and templates try it.
fn surroundings() -> Surroundings {
    let environment = |yaml: &str| Some(serde_saphyr::from_str(yaml).expect("the fixture is an environment"));
    let template =
        "{ spec: { containers: [{ image: a, envFrom: [{ secretRef: { name: buildkite-agent-token } }] }] } }";
    Surroundings {
        environments: [
            (
                "env".to_owned(),
                environment("{ image: a, envFrom: [{ secretRef: { name: buildkite-agent-token } }] }"),
            ),
            (
                "git".to_owned(),
                environment("{ image: a, gitCredentials: { sshSecret: buildkite-agent-token } }"),
            ),
            (
                "volume".to_owned(),
                environment(
                    "{ image: a, volumes: [{ name: t, secret: { secretName: buildkite-agent-token } }] }",
                ),
            ),
        ]
        .into(),
        metadata: [].into(),
        pod_templates: [(
            "thief".to_owned(),
            Some(serde_saphyr::from_str(template).expect("the fixture is a template")),
        )]
        .into(),
    }
}

/// What is wrong with a job of Buildkite's that has this in its spec, if anything.
fn refusal(spec: &str, settings: &PodSettings) -> Option<String> {
    let job = job(&format!(
        "spec:\n  buildkite: {{ jobUUID: 0198f0a0-0000-7000-8000-000000000001 }}\n  command: make\n  {spec}\n"
    ));
    render(&job, 0, &surroundings(), settings).err().map(|error| error.to_string())
}

#[test]
fn a_record_of_helms_is_refused() {
    let spec = "kubernetes: { podSpec: { volumes: [{ name: t, secret: { secretName: sh.helm.release.v1.ci.v3 } }] } }";
    let expected = "pod.spec.volumes[t].secret.secretName: the Secret `sh.helm.release.v1.ci.v3` is Helm's record of an installation, \
                    with its tokens, which is not for jobs; name another";
    assert_eq!(refusal(spec, &pod_settings()).as_deref(), Some(expected));
}

#[rstest]
#[case::volume(
    "kubernetes: { podSpec: { volumes: [{ name: t, secret: { secretName: buildkite-agent-token } }] } }",
    "pod.spec.volumes[t].secret.secretName"
)]
#[case::projected_volume(
    "kubernetes: { podSpec: { volumes: [{ name: t, projected: { sources: [{ secret: { name: buildkite-agent-token } }] } }] } }",
    "pod.spec.volumes[t].projected.sources[0].secret.name"
)]
#[case::volume_of_a_driver(
    "kubernetes: { podSpec: { volumes: [{ name: t, csi: { driver: mine, nodePublishSecretRef: { name: buildkite-agent-token } } }] } }",
    "pod.spec.volumes[t].csi.nodePublishSecretRef.name"
)]
#[case::variable(
    "kubernetes: { podSpec: { containers: [{ image: a, env: [{ name: T, valueFrom: { secretKeyRef: { name: buildkite-agent-token, key: k } } }] }] } }",
    "pod.spec.containers[container-0].env[T].valueFrom.secretKeyRef.name"
)]
#[case::variables(
    "kubernetes: { podSpec: { containers: [{ image: a, envFrom: [{ secretRef: { name: buildkite-agent-token } }] }] } }",
    "pod.spec.containers[container-0].envFrom[0].secretRef.name"
)]
#[case::init_container(
    "kubernetes: { podSpec: { initContainers: [{ name: i, image: a, envFrom: [{ secretRef: { name: buildkite-agent-token } }] }] } }",
    "pod.spec.initContainers[i].envFrom[0].secretRef.name"
)]
#[case::sidecar(
    "kubernetes: { sidecars: [{ image: a, envFrom: [{ secretRef: { name: buildkite-agent-token } }] }] }",
    "pod.spec.initContainers[sidecar-0].envFrom[0].secretRef.name"
)]
#[case::params_of_commands(
    "kubernetes: { commandParams: { envFrom: [{ secretRef: { name: buildkite-agent-token } }] } }",
    "pod.spec.containers[container-0].envFrom[0].secretRef.name"
)]
#[case::variables_for_git(
    "kubernetes: { gitEnvFrom: [{ secretRef: { name: buildkite-agent-token } }] }",
    "pod.spec.containers[container-0].envFrom[0].secretRef.name"
)]
#[case::credentials_for_git(
    "kubernetes: { checkout: { gitCredentialsSecret: { secretName: buildkite-agent-token } } }",
    "pod.spec.volumes[git-credentials-ro].secret.secretName"
)]
#[case::patch(
    "kubernetes: { podSpecPatch: { containers: [{ name: container-0, envFrom: [{ secretRef: { name: buildkite-agent-token } }] }] } }",
    "pod.spec.containers[container-0].envFrom[0].secretRef.name"
)]
#[case::patch_of_a_container_of_the_operators(
    "kubernetes: { podSpecPatch: { containers: [{ name: checkout, envFrom: [{ secretRef: { name: buildkite-agent-token } }] }] } }",
    "pod.spec.containers[checkout].envFrom[0].secretRef.name"
)]
#[case::template(
    "kubernetes: { podTemplate: thief }",
    "pod.spec.containers[container-0].envFrom[0].secretRef.name"
)]
#[case::environment("environment: env", "pod.spec.containers[container-0].envFrom[0].secretRef.name")]
#[case::environments_credentials("environment: git", "pod.spec.volumes[git-ssh].secret.secretName")]
#[case::environments_volume("environment: volume", "pod.spec.volumes[t].secret.secretName")]
#[case::environment_beside(
    "extraContainers: [{ name: db, environment: env }]",
    "pod.spec.initContainers[db].envFrom[0].secretRef.name"
)]
#[case::environment_before(
    "initContainers: [{ name: i, environment: env }]",
    "pod.spec.initContainers[i].envFrom[0].secretRef.name"
)]
#[case::workspace(
    "kubernetes: { podSpecPatch: { volumes: [{ name: workspace, emptyDir: null, secret: { secretName: buildkite-agent-token } }] } }",
    "pod.spec.volumes[workspace].secret.secretName"
)]
fn a_reference_to_the_token_is_refused(#[case] spec: &str, #[case] path: &str) {
    assert_eq!(refusal(spec, &pod_settings()), Some(format!("{path}: {HOLDS}")));
    let another = spec.replace("buildkite-agent-token", "another");
    let elsewhere = PodSettings {
        config: bk_api::config::PodConfig {
            agent_token_secret: "elsewhere".to_owned(),
            ..pod_settings().config
        },
        ..pod_settings()
    };
    if another != spec {
        assert_eq!(refusal(&another, &pod_settings()), None, "other Secrets may be used");
    }
    assert_eq!(refusal(spec, &elsewhere), None, "it is the Secret that matters, not its usual name");
    assert_eq!(refusal(spec, &with_broker()), Some(format!("{path}: {HOLDS}")), "with a broker as well");
}

fn with_broker() -> PodSettings {
    PodSettings { broker: Some(broker()), ..pod_settings() }
}

/// The agent has a one-time token then, and nothing in its pod the agent token.
#[test]
fn with_a_broker_not_even_the_agent_has_the_token() {
    let with = |settings: PodSettings| {
        let token = "{ name: BUILDKITE_AGENT_TOKEN, value: null, valueFrom: { secretKeyRef: { name: buildkite-agent-token, key: BUILDKITE_AGENT_TOKEN } } }";
        let patch = format!("{{ containers: [{{ name: agent, env: [{token}] }}] }}");
        let mut settings = settings;
        settings.config.pod_spec_patch =
            Some(serde_saphyr::from_str(&patch).expect("the fixture is a patch"));
        refusal("", &settings)
    };
    assert_eq!(with(pod_settings()), None, "it has the same without the patch");
    let path = "pod.spec.containers[agent].env[BUILDKITE_AGENT_TOKEN].valueFrom.secretKeyRef.name";
    assert_eq!(with(with_broker()), Some(format!("{path}: {HOLDS}")));
}

#[rstest]
#[case::its_keys("broker")]
#[case::its_sessions("broker-sessions-0")]
#[case::the_last_of_them("broker-sessions-3")]
fn the_brokers_secrets_are_not_for_jobs(#[case] secret: &str) {
    let spec = format!(
        "kubernetes: {{ podSpec: {{ volumes: [{{ name: t, secret: {{ secretName: {secret} }} }}] }} }}"
    );
    let broker_secrets = bk_plan::broker::secrets(&broker().name).collect();
    // Also if agents do not register there: what is in them may be from before.
    let settings = PodSettings { broker_secrets, ..pod_settings() };
    let refused = refusal(&spec, &settings).expect("it is refused");
    assert!(
        refused.starts_with(&format!("pod.spec.volumes[t].secret.secretName: the Secret `{secret}`")),
        "{refused}"
    );
    assert_eq!(refusal(&spec, &pod_settings()), None, "there is no such Secret without a broker");
}

#[test]
fn the_configurations_patches_are_held_to_it_too() {
    let mut settings = pod_settings();
    let patch =
        "{ containers: [{ name: container-0, envFrom: [{ secretRef: { name: buildkite-agent-token } }] }] }";
    settings.config.pod_spec_patch = Some(serde_saphyr::from_str(patch).expect("the fixture is a patch"));
    let refused = refusal("", &settings).expect("it is refused");
    assert!(refused.ends_with(HOLDS), "{refused}");
}

#[test]
fn the_api_token_is_guarded_too() {
    let spec =
        "kubernetes: { podSpec: { volumes: [{ name: t, secret: { secretName: buildkite-api-token } }] } }";
    let refused = refusal(spec, &pod_settings()).expect("it is refused");
    assert!(
        refused.starts_with("pod.spec.volumes[t].secret.secretName: the Secret `buildkite-api-token`"),
        "{refused}"
    );
}

/// A standalone job has no agent that registers, so nothing in it has the token.
#[test]
fn standalone_jobs_have_no_exception() {
    let job = |spec: &str| job(&format!("spec:\n  command: make\n  {spec}\n"));
    let render = |spec: &str| render(&job(spec), 0, &surroundings(), &pod_settings());
    let text = serde_json::to_string(&render("").expect("it becomes a pod")).expect("pods can be written");
    assert!(!text.contains("buildkite-agent-token"), "{text}");
    let refused = render("environment: env").expect_err("it is refused").to_string();
    assert!(refused.ends_with(HOLDS), "{refused}");
}

#[rstest]
#[case::image("image: mine", "image")]
#[case::mounts("volumeMounts: [{ name: workspace, mountPath: /usr/local/bin }]", "volumeMounts")]
#[case::hooks("lifecycle: { postStart: { exec: { command: [cat, /proc/1/environ] } } }", "lifecycle")]
#[case::probes("livenessProbe: { exec: { command: [cat, /proc/1/environ] } }", "livenessProbe")]
#[case::address("env: [{ name: BUILDKITE_AGENT_ENDPOINT, value: 'https://mine' }]", "env[0]")]
#[case::program(
    "env: [{ name: BUILDKITE_AGENT_DEBUG, value: '1' }, { name: LD_PRELOAD, value: /workspace/x }]",
    "env[1]"
)]
#[case::certificates("env: [{ name: SSL_CERT_FILE, value: /workspace/mine }]", "env[0]")]
#[case::variables("envFrom: [{ configMapRef: { name: mine } }]", "envFrom")]
fn a_step_cannot_make_the_agent_tell(#[case] patch: &str, #[case] below: &str) {
    let spec = format!("kubernetes: {{ podSpecPatch: {{ containers: [{{ name: agent, {patch} }}] }} }}");
    let refused = refusal(&spec, &pod_settings()).expect("it is refused");
    let path = format!("spec.kubernetes.podSpecPatch.containers[0].{below}: a step may change `resources`");
    assert!(refused.starts_with(&path), "{refused}");

    let mut trusting = pod_settings();
    trusting.config.allow_unsafe_command_patches = true;
    assert_eq!(refusal(&spec, &trusting), None, "unless the administrator lets steps run anything there");
    let patch = format!("{{ containers: [{{ name: agent, {patch} }}] }}");
    let mut by_administrator = pod_settings();
    by_administrator.config.pod_spec_patch =
        Some(serde_saphyr::from_str(&patch).expect("the fixture is a patch"));
    assert_eq!(refusal("", &by_administrator), None);
}

#[test]
fn mounts_of_a_step_do_not_reach_the_agent() {
    let job = job(
        "spec:\n  buildkite: { jobUUID: 0198f0a0-0000-7000-8000-000000000001 }\n  command: make\n  kubernetes: { podSpec: \
         { volumes: [{ name: mine, emptyDir: {} }] }, extraVolumeMounts: [{ name: mine, mountPath: /usr/local/bin }] }\n",
    );
    let pod = render(&job, 0, &surroundings(), &pod_settings()).expect("it becomes a pod");
    let containers = pod.spec.expect("a pod has a spec").containers;
    let has = |name: &str| {
        let container =
            containers.iter().find(|container| container.name == name).expect("there is such a container");
        container.volume_mounts.iter().flatten().any(|mount| mount.name == "mine")
    };
    assert!(has("container-0") && !has("agent"));
}

#[test]
fn processes_are_not_shared_with_the_agent() {
    let spec = "kubernetes: { podSpec: { shareProcessNamespace: true } }";
    assert_eq!(
        refusal(spec, &pod_settings()).as_deref(),
        Some(
            "pod.spec.shareProcessNamespace: must not be true: every container could read the agent's token from its \
             process"
        )
    );
    let standalone = job(&format!("spec:\n  command: make\n  {spec}\n"));
    assert!(render(&standalone, 0, &surroundings(), &pod_settings()).is_ok(), "there is no token in it");
}

#[rstest]
#[case::by_the_step("kubernetes: { podSpec: { serviceAccountName: operator } }")]
#[case::by_its_old_name("kubernetes: { podSpec: { serviceAccount: operator } }")]
#[case::by_a_patch("kubernetes: { podSpecPatch: { serviceAccountName: operator } }")]
fn no_job_is_the_operator(#[case] spec: &str) {
    let settings = PodSettings { own_account: Some("operator".to_owned()), ..pod_settings() };
    assert_eq!(
        refusal(spec, &settings).as_deref(),
        Some(
            "pod.spec.serviceAccountName: `operator` is the operator's own account, which is not for jobs; name another"
        )
    );
    assert_eq!(refusal(spec, &pod_settings()), None, "an account of that name elsewhere is another");
}
