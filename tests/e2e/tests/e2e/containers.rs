//! Containers, init containers and sidecars that cannot be created, have no volume, or fail.

use bk_e2e::{SAY_WHEN, World, scenario};
use rstest::rstest;

/// A step with this pod spec; `IMAGE` stands for a small image that is there.
fn step(world: &World, pod_spec: &str) -> String {
    let pod_spec = pod_spec.replace("IMAGE", &world.environment.toolbox_image);
    format!("{{plugins: [{{kubernetes: {{podSpec: {{{pod_spec}}}}}}}]}}")
}

const WORKLOAD: &str = "containers: [{image: 'IMAGE', command: ['true']}]";

#[rstest]
#[case::missing_secret(
    "containers: [{image: 'IMAGE', env: [{name: X, valueFrom: {secretKeyRef: {name: none-such, key: k}}}]}]",
    "MissingReference",
    "secret \"none-such\" not found"
)]
#[case::missing_key(
    "containers: [{image: 'IMAGE', env: [{name: X, valueFrom: {configMapKeyRef: {name: kube-root-ca.crt, key: none-such}}}]}]",
    "MissingReference",
    "couldn't find key none-such in ConfigMap"
)]
#[case::bad_security_context(
    "containers: [{image: 'IMAGE', securityContext: {runAsNonRoot: true}}]",
    "InvalidSecurityContext",
    "image will run as root"
)]
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_cannot_be_created_is_named_at_once(
    #[case] pod_spec: &str,
    #[case] code: &str,
    #[case] reason: &str,
) {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let end = world.submit(&step(world, pod_spec)).await?.end().await?;
        end.assert_refused(code)
            .assert_exit_status(-1)
            .assert_detail("container-0")
            .assert_detail(reason)
            .assert_prompt("the pod's creation", end.created_at());
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_exist_is_named() {
    scenario(async |world| {
        world.cluster.configure("pod_config", "imagePullGraceSeconds: 3").await?;
        let _operator = world.operator().await?;
        let sidecar = "{name: db, image: 'IMAGE', restartPolicy: Always, command: [/none/such]}";
        let step = step(world, &format!("initContainers: [{sidecar}], {WORKLOAD}"));
        let end = world.submit(&step).await?.end().await?;
        end.assert_refused("SidecarFailed").assert_detail("db").assert_detail("/none/such");
        Ok(())
    })
    .await;
}

/// Nothing was started, so that nobody can have failed.
#[tokio::test(flavor = "multi_thread")]
async fn an_init_container_whose_program_does_not_exist_is_named() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let init = "{name: prepare, image: 'IMAGE', command: [/none/such]}";
        let end =
            world.submit(&step(world, &format!("initContainers: [{init}], {WORKLOAD}"))).await?.end().await?;
        end.assert_refused("ContainerNotStarted").assert_detail("prepare").assert_detail("/none/such");
        Ok(())
    })
    .await;
}

#[rstest]
#[case::config_map("{name: v, configMap: {name: none-such}}", "MissingReference", "none-such")]
#[case::secret("{name: v, secret: {secretName: none-such}}", "MissingReference", "none-such")]
#[case::claim("{name: v, persistentVolumeClaim: {claimName: none-such}}", "Unschedulable", "none-such")]
#[case::mount("{name: v, nfs: {server: 127.0.0.1, path: /none/such}}", "VolumeNotMounted", "v")]
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_cannot_be_mounted_is_named(
    #[case] volume: &str,
    #[case] code: &str,
    #[case] reason: &str,
) {
    scenario(async |world| {
        // Long enough for the kubelet of a busy machine to say why.
        world.cluster.configure("pod_config", "timeouts: {scheduleSeconds: 8, startSeconds: 20}").await?;
        let _operator = world.operator().await?;
        let container = "{image: 'IMAGE', volumeMounts: [{name: v, mountPath: /v}]}";
        let step = step(world, &format!("volumes: [{volume}], containers: [{container}]"));
        let end = world.submit(&step).await?.end().await?;
        end.assert_refused(code).assert_exit_status(-1).assert_detail(reason);
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_init_container_that_fails_is_named_at_once_with_its_exit_status() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let init = format!("{{name: prepare, image: 'IMAGE', command: [sh, -c, {SAY_WHEN}; exit 9]}}");
        let end =
            world.submit(&step(world, &format!("initContainers: [{init}], {WORKLOAD}"))).await?.end().await?;
        end.assert_refused("InitFailed")
            .assert_exit_status(9)
            .assert_detail("init container prepare ended with exit status 9")
            .assert_prompt("the init container's end", end.said_at("prepare"));
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_crashes_again_and_again_before_the_job_starts_is_named() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        // Not ready until the probe succeeds, which it never does, so the job waits for it.
        let sidecar = "{name: db, image: 'IMAGE', restartPolicy: Always, command: [sh, -c, exit 7], \
                       startupProbe: {exec: {command: ['true']}, periodSeconds: 1}}";
        let end = world
            .submit(&step(world, &format!("initContainers: [{sidecar}], {WORKLOAD}")))
            .await?
            .end()
            .await?;
        end.assert_refused("SidecarFailed").assert_exit_status(7).assert_detail("db");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_ends_while_the_job_runs_is_started_again_and_the_job_goes_on() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let pod_spec = "\
            volumes: [{name: shared, emptyDir: {}}], \
            initContainers: [{name: db, image: 'IMAGE', restartPolicy: Always, \
              command: [sh, -c, 'echo x >> /shared/starts; sleep 2; exit 7'], \
              volumeMounts: [{name: shared, mountPath: /shared}]}], \
            containers: [{image: 'IMAGE', volumeMounts: [{name: shared, mountPath: /shared}], \
              command: ['until [ $(wc -l < /shared/starts) -ge 2 ]; do sleep 0.1; done; echo again']}]";
        let run = world.submit(&step(world, pod_spec)).await?;
        let job = world.buildkite.ended(run.id).await?;
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(0)), "{job:?}");
        assert!(world.buildkite.log(run.id).await?.contains("again"));
        world.cluster.no_pods().await
    })
    .await;
}
