use rstest::rstest;

use super::*;

fn config(yaml: &str) -> PodConfig {
    serde_saphyr::from_str(&format!("agentConfig: {yaml}")).expect("the fixture is a configuration")
}

fn lines(vars: Vec<EnvVar>) -> Vec<String> {
    vars.into_iter().map(|var| format!("{}={}", var.name, var.value.unwrap_or_default())).collect()
}

#[rstest]
#[case("{}", &[], &[])]
#[case("{noHttp2: true}", &["BUILDKITE_NO_HTTP2=true"], &[])]
#[case(
    "{experiment: [a, b]}",
    &["BUILDKITE_AGENT_EXPERIMENT=a,b"],
    &["BUILDKITE_AGENT_EXPERIMENT=a,b"]
)]
#[case("{shell: /bin/bash -c}", &["BUILDKITE_SHELL=/bin/bash -c"], &["BUILDKITE_SHELL=/bin/bash -c"])]
#[case("{noColor: false}", &["BUILDKITE_AGENT_NO_COLOR=false"], &[])]
#[case(
    "{strictSingleHooks: true}",
    &["BUILDKITE_STRICT_SINGLE_HOOKS=true"],
    &["BUILDKITE_STRICT_SINGLE_HOOKS=true"]
)]
#[case("{noMultipartArtifactUpload: true}", &["BUILDKITE_NO_MULTIPART_ARTIFACT_UPLOAD=true"], &[])]
#[case(
    "{traceContextEncoding: json}",
    &["BUILDKITE_TRACE_CONTEXT_ENCODING=json"],
    &["BUILDKITE_TRACE_CONTEXT_ENCODING=json"]
)]
#[case(
    "{tracingBackend: opentelemetry, tracingServiceName: ci}",
    &["BUILDKITE_TRACING_BACKEND=opentelemetry", "BUILDKITE_TRACING_SERVICE_NAME=ci"],
    &["BUILDKITE_TRACING_BACKEND=opentelemetry", "BUILDKITE_TRACING_SERVICE_NAME=ci"]
)]
#[case(
    "{tracingPropagateTraceparent: true}",
    &["BUILDKITE_TRACING_PROPAGATE_TRACEPARENT=true"],
    &["BUILDKITE_TRACING_PROPAGATE_TRACEPARENT=true"]
)]
#[case(
    "{disableWarningsFor: [submodules-disabled]}",
    &["BUILDKITE_AGENT_DISABLE_WARNINGS_FOR=submodules-disabled"],
    &["BUILDKITE_AGENT_DISABLE_WARNINGS_FOR=submodules-disabled"]
)]
#[case("{debugSigning: true}", &["BUILDKITE_AGENT_DEBUG_SIGNING=true"], &[])]
#[case(
    "{gitSkipFetchExistingCommits: true}",
    &["BUILDKITE_GIT_SKIP_FETCH_EXISTING_COMMITS=true"],
    &["BUILDKITE_GIT_SKIP_FETCH_EXISTING_COMMITS=true"]
)]
#[case("{containerStartTimeout: 10m}", &["BUILDKITE_KUBERNETES_CONTAINER_START_TIMEOUT=10m"], &[])]
#[case("{noPty: true}", &["BUILDKITE_NO_PTY=true"], &["BUILDKITE_PTY=false"])]
#[case("{noCommandEval: true}", &["BUILDKITE_NO_COMMAND_EVAL=true"], &["BUILDKITE_COMMAND_EVAL=false"])]
#[case("{noLocalHooks: true}", &["BUILDKITE_NO_LOCAL_HOOKS=true"], &["BUILDKITE_LOCAL_HOOKS_ENABLED=false"])]
#[case("{noPlugins: true}", &["BUILDKITE_NO_PLUGINS=true"], &["BUILDKITE_PLUGINS_ENABLED=false"])]
#[case(
    "{pluginValidation: true}",
    &["BUILDKITE_NO_PLUGIN_VALIDATION=false"],
    &["BUILDKITE_PLUGIN_VALIDATION=true"]
)]
#[case("{hooksPath: /h}", &["BUILDKITE_HOOKS_PATH=/h"], &["BUILDKITE_HOOKS_PATH=/h"])]
#[case(
    "{additionalHooks: [{path: /v, volume: {emptyDir: {}}}], additionalHooksPaths: [/a, /b]}",
    &["BUILDKITE_ADDITIONAL_HOOKS_PATHS=/a,/b,/v"],
    &["BUILDKITE_ADDITIONAL_HOOKS_PATHS=/a,/b,/v"]
)]
#[case("{pluginsPath: /p}", &["BUILDKITE_PLUGINS_PATH=/p"], &["BUILDKITE_PLUGINS_PATH=/p"])]
#[case("{signingJWKSKeyID: k}", &["BUILDKITE_AGENT_SIGNING_JWKS_KEY_ID=k"], &[])]
#[case(
    "{verificationFailureBehavior: warn}",
    &["BUILDKITE_AGENT_JOB_VERIFICATION_NO_SIGNATURE_BEHAVIOR=warn"],
    &[]
)]
fn each_key_is_a_variable(#[case] yaml: &str, #[case] start: &[&str], #[case] bootstrap: &[&str]) {
    let config = config(yaml);
    assert_eq!(lines(start_env(&config)), start);
    assert_eq!(lines(bootstrap_env(&config)), bootstrap);
}

#[rstest]
#[case("{}", None, None)]
#[case("{signingJWKSFile: keys.json}", Some("/buildkite/signing-jwks/keys.json"), None)]
#[case("{signingJWKSFile: /etc/keys/a.json}", Some("/etc/keys/a.json"), None)]
#[case(
    "{signingJWKSVolume: {secret: {secretName: s}}}",
    Some("/buildkite/signing-jwks/key"),
    Some("/buildkite/signing-jwks")
)]
#[case(
    "{signingJWKSFile: keys.json, signingJWKSVolume: {secret: {secretName: s}}}",
    Some("/buildkite/signing-jwks/keys.json"),
    Some("/buildkite/signing-jwks")
)]
#[case(
    "{signingJWKSFile: /etc/keys/a.json, signingJWKSVolume: {secret: {secretName: s}}}",
    Some("/etc/keys/a.json"),
    Some("/etc/keys")
)]
fn keys_are_files_where_their_volume_is(
    #[case] yaml: &str,
    #[case] file: Option<&str>,
    #[case] at: Option<&str>,
) {
    for (yaml, variable, directory, roles) in [
        (yaml.to_owned(), "SIGNING", "/buildkite/signing-jwks", [true, false, true]),
        (
            yaml.replace("signing", "verification"),
            "VERIFICATION",
            "/buildkite/verification-jwks",
            [true, false, false],
        ),
    ] {
        let config = config(&yaml);
        let with = |text: &str| text.replace("/buildkite/signing-jwks", directory);
        let expected = file.map(|file| format!("BUILDKITE_AGENT_{variable}_JWKS_FILE={}", with(file)));
        assert_eq!(lines(start_env(&config)), Vec::from_iter(expected));
        for (role, has) in [Role::Agent, Role::Checkout, Role::Command].into_iter().zip(roles) {
            let paths: Vec<_> = mounts(&config, role).into_iter().map(|mount| mount.mount_path).collect();
            assert_eq!(paths, Vec::from_iter(at.filter(|_| has).map(with)), "{role:?}");
        }
        assert_eq!(volumes(&config).len(), usize::from(at.is_some()));
    }
}

#[test]
fn hooks_and_plugins_are_mounted_where_anything_of_the_agent_runs() {
    let config = config(
        "{hooksVolume: {name: h, configMap: {name: hooks}}, pluginsVolume: {emptyDir: {}}, pluginsPath: /p, \
         additionalHooks: [{path: /more, volume: {name: m, emptyDir: {}}}]}",
    );
    for role in [Role::Agent, Role::Checkout, Role::Command] {
        let mounts: Vec<_> = mounts(&config, role)
            .into_iter()
            .map(|mount| format!("{}:{}", mount.name, mount.mount_path))
            .collect();
        assert_eq!(mounts, ["h:/workspace/hooks", "m:/more", "buildkite-plugins:/p"]);
    }
    let names: Vec<_> = volumes(&config).into_iter().map(|volume| volume.name).collect();
    assert_eq!(names, ["h", "m", "buildkite-plugins"]);
}
