//! What the API server itself accepts, refuses and explains: no operator runs here.

use anyhow::Result;
use bk_e2e::{World, scenario};

const BUILD_JOBS: &str = include_str!("../../../../docs/build-jobs.md");
const CLUSTERS: &str = include_str!("../../../../docs/heterogeneous-clusters.md");

fn manifest(kind: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: buildkite-operator.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"
    )
}

/// What kubectl says to a manifest that is not kept; an empty text if it is accepted.
fn refusal(world: &World, manifest: &str) -> Result<String> {
    let output = world.cluster.try_kubectl(&["apply", "--dry-run=server", "-f", "-"], Some(manifest))?;
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(if output.status.success() { String::new() } else { message })
}

/// BuildJobs that make no sense, and what is said about them.
const BAD_JOBS: [(&str, &str); 25] = [
    (
        "{buildkite: {jobUUID: not-a-uuid}}",
        "spec.buildkite.jobUUID: Invalid value: \"string\": jobUUID must be a UUID in lower case",
    ),
    (
        "{image: busybox}",
        "a standalone job (one without `buildkite`) needs a `command`, or an environment that has one",
    ),
    (
        "{command: ''}",
        "a standalone job (one without `buildkite`) needs a `command`, or an environment that has one",
    ),
    ("{command: make, comand: make}", "unknown field \"spec.comand\""),
    ("{command: make, plugins: [{a: 1, b: 2}]}", "spec.plugins[0]"),
    ("{command: make, image: ''}", "spec.image"),
    ("{command: make, image: a, environment: b}", "`environment` and `image` exclude one another"),
    (
        "{command: make, environment: Go_1}",
        "spec.environment: Invalid value: \"string\": an object's name consists of small letters",
    ),
    ("{command: make, env: [{name: A}, {name: A}]}", "spec.env[1]: Duplicate value"),
    (
        "{command: make, extraContainers: [{name: a}]}",
        "spec.extraContainers[0]: Invalid value: \"object\": give either `environment`",
    ),
    (
        "{command: make, extraContainers: [{environment: a, container: {image: b}}]}",
        "spec.extraContainers[0]: Invalid value: \"object\": give either `environment`",
    ),
    (
        "{command: make, extraContainers: [{name: My_DB, environment: a}]}",
        "spec.extraContainers[0].name: Invalid value: \"string\": a container's name consists of small letters",
    ),
    (
        "{command: make, extraContainers: [{environment: a, startup: later}]}",
        "spec.extraContainers[0].startup: Unsupported value: \"later\": supported values: \"before\", \"with\"",
    ),
    (
        "{command: make, initContainers: [{environment: a, startup: with}]}",
        "init containers run before the job; `startup` is for extraContainers",
    ),
    (
        "{command: make, nodeRequirements: [{key: a}]}",
        "spec.nodeRequirements[0]: Invalid value: \"object\": In, NotIn, Gt and Lt need `values`",
    ),
    (
        "{command: make, nodeRequirements: [{key: a, operator: Exists, values: [b]}]}",
        "Exists and DoesNotExist take none",
    ),
    (
        "{command: make, nodeRequirements: [{key: a, operator: Gt, values: [many]}]}",
        "Gt and Lt need one value, a whole number",
    ),
    (
        "{command: make, nodePreferences: [{weight: 101, requirements: [{key: a, operator: Exists}]}]}",
        "spec.nodePreferences[0].weight",
    ),
    ("{command: make, nodePreferences: [{requirements: []}]}", "spec.nodePreferences[0].requirements"),
    ("{command: make, timeout: 0s}", "timeout must be a positive duration such as 90m or 1h30m"),
    ("{command: make, timeout: soon}", "timeout must be a positive duration such as 90m or 1h30m"),
    (
        "{command: make, workload: Deployment}",
        "spec.workload: Unsupported value: \"Deployment\": supported values: \"Pod\", \"Job\"",
    ),
    (
        "{command: make, workspaceSubPathExpr: /etc}",
        "spec.workspaceSubPathExpr: Invalid value: \"string\": workspaceSubPathExpr is a path below the volume",
    ),
    ("{command: make, workspaceSubPathExpr: a/../..}", "workspaceSubPathExpr is a path below the volume"),
    ("{command: make, source: {branch: main}}", "spec.source.repo: Required value"),
];

/// BuildEnvironments that make no sense, and what is said about them.
const BAD_ENVIRONMENTS: [(&str, &str); 8] = [
    ("{}", "spec.image: Required value"),
    ("{image: ''}", "spec.image"),
    ("{image: a, imagePullPolicy: Sometimes}", "spec.imagePullPolicy: Unsupported value: \"Sometimes\""),
    (
        "{image: a, volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /a}]}",
        "spec.volumeMounts[1]: Duplicate value",
    ),
    (
        "{image: a, serviceAccountName: Builder}",
        "spec.serviceAccountName: Invalid value: \"string\": an object's name",
    ),
    ("{image: a, initContainers: [{environment: b, startup: with}]}", "init containers run before the job"),
    ("{image: a, nodeRequirements: [{key: ''}]}", "spec.nodeRequirements[0].key"),
    ("{image: a, gitCredentials: {token: b}}", "unknown field \"spec.gitCredentials.token\""),
];

/// Objects that are in order, although one might doubt it.
const GOOD: [(&str, &str); 9] = [
    ("BuildJob", "{command: make}"),
    ("BuildJob", "{environment: go}"),
    ("BuildJob", "{kubernetes: {podSpec: {containers: [{image: a, command: [make]}]}}}"),
    ("BuildJob", "{buildkite: {jobUUID: 0198f0a0-0000-4000-8000-00000000000a}}"),
    (
        "BuildJob",
        "{command: make, environment: go-1.13, timeout: 1h30m, resources: {limits: {cpu: 2, memory: 1Gi}}}",
    ),
    (
        "BuildJob",
        "{command: make, kubernetes: {anything: [{goes: here}]}, workspaceVolume: {emptyDir: {medium: Memory}}, workspaceSubPathExpr: a../$(BUILDKITE_JOB_ID)}",
    ),
    ("BuildJob", "{command: make, plugins: [{docker#v5: {image: a}}, {ecr#v2: null}]}"),
    ("BuildEnvironment", "{image: golang:1.25}"),
    (
        "BuildEnvironment",
        "{image: a, container: {ports: [{containerPort: 80}]}, volumes: [{name: a, emptyDir: {}}], startup: with}",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn bad_objects_are_refused_in_words_and_good_ones_accepted() {
    scenario(async |world| {
        let bad = BAD_JOBS.iter().map(|(spec, expected)| ("BuildJob", *spec, *expected));
        let bad =
            bad.chain(BAD_ENVIRONMENTS.iter().map(|(spec, expected)| ("BuildEnvironment", *spec, *expected)));
        for (kind, spec, expected) in bad {
            let message = refusal(world, &manifest(kind, "bad", spec))?;
            assert!(message.contains(expected), "{kind} {spec}: {message:?} has no {expected:?}");
        }
        for (kind, spec) in GOOD {
            assert_eq!(refusal(world, &manifest(kind, "good", spec))?, "", "{kind} {spec}");
        }
        for (name, expected) in [
            (&*"n".repeat(53), "metadata.name may have 52 characters at most"),
            ("nightly-try1", "metadata.name may not end in -try and a number"),
        ] {
            let message = refusal(world, &manifest("BuildJob", name, "{command: make}"))?;
            assert!(message.contains(expected), "{name}: {message}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_spec_of_a_build_job_does_not_change() {
    scenario(async |world| {
        let spec = "{command: make, kubernetes: {podSpec: {nodeName: one}}}";
        world.cluster.kubectl(&["apply", "-f", "-"], Some(&manifest("BuildJob", "fixed", spec)))?;
        for changed in [
            "{command: make all, kubernetes: {podSpec: {nodeName: one}}}",
            "{command: make, kubernetes: {podSpec: {nodeName: two}}}",
            "{command: make, timeout: 1h, kubernetes: {podSpec: {nodeName: one}}}",
            "{command: make}",
        ] {
            let message = refusal(world, &manifest("BuildJob", "fixed", changed))?;
            assert!(message.contains("the spec of a BuildJob cannot change"), "{changed}: {message}");
        }
        assert_eq!(
            refusal(world, &manifest("BuildJob", "fixed", spec))?,
            "",
            "the same once more is no change"
        );
        world.cluster.kubectl(&["label", "buildjob/fixed", "team=rocket"], None)?;
        world.cluster.kubectl(
            &[
                "patch",
                "buildjob/fixed",
                "--subresource=status",
                "--type=merge",
                "--patch",
                r#"{"status":{"phase":"Running"}}"#,
            ],
            None,
        )?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_explains_every_level() {
    scenario(async |world| {
        for (path, expected) in [
            ("buildjob", "A job to run in a pod of its own: a Buildkite job, or a standalone one."),
            ("buildjob.spec", "A resource class of the operator's configuration: resources, nodes and priority under one name."),
            ("buildjob.spec.buildkite", "The rules by which the job chose its agent, as `key=value`."),
            ("buildjob.spec.source.commit", "The commit, or `HEAD` for the branch's newest."),
            ("buildjob.spec.extraContainers", "`with`: together with the job, which does not wait for it; for reporters."),
            ("buildjob.spec.nodePreferences.weight", "How much it matters beside other preferences: 1 to 100."),
            ("buildjob.spec.workload", "a `batch/v1` Job (`Job`), for tools and quotas that know Jobs."),
            ("buildjob.status", "What the job waits for, while it waits."),
            ("buildjob.status.verdict", "FIELDS:"),
            ("buildenvironment", "A container environment with everything it needs"),
            ("buildenvironment.spec", "The image, e.g. `golang:1.25`."),
            ("buildenvironment.spec.gitCredentials", "kubernetes.io/ssh-auth"),
            ("buildenvironment.spec.env.valueFrom.secretKeyRef", "The key of the secret to select from."),
        ] {
            let text = world.cluster.kubectl(&["explain", path], None)?;
            let words: Vec<_> = text.split_whitespace().collect();
            assert!(words.join(" ").contains(expected), "{path}: {text}");
        }
        Ok(())
    })
    .await;
}

/// What the guides show, apart from steps of pipelines.
#[tokio::test(flavor = "multi_thread")]
async fn examples_in_the_guides_are_accepted() {
    scenario(async |world| {
        let mut seen = 0;
        for block in [BUILD_JOBS, CLUSTERS].into_iter().flat_map(|guide| guide.split("```yaml\n").skip(1)) {
            let block = block.split("```").next().unwrap_or_default();
            if block.starts_with("apiVersion:") {
                assert_eq!(refusal(world, block)?, "", "{block}");
                seen += 1;
            }
        }
        assert!(seen > 10, "the guides show {seen} manifests");
        Ok(())
    })
    .await;
}
