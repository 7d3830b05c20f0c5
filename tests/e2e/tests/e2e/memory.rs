//! Containers that use more memory than their limit, and a kernel that really kills them.

use bk_e2e::{SAY_WHEN, World, run::PROMPT, scenario};

/// Grows until it is killed.
const GROW: &str = "tail /dev/zero";

fn step(world: &World, pod_spec: &str) -> String {
    let pod_spec = pod_spec.replace("IMAGE", &world.environment.toolbox_image);
    format!("{{plugins: [{{kubernetes: {{podSpec: {{{pod_spec}}}}}}}]}}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_runs_out_of_memory_says_so_at_once() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        // The shell is the one that is killed, and not only its child.
        let container = format!(
            "{{image: 'IMAGE', command: ['{SAY_WHEN}; exec {GROW}'], resources: {{limits: {{memory: 64Mi}}}}}}"
        );
        let run = world.submit(&step(world, &format!("containers: [{container}]"))).await?;
        let end = run.end().await?;
        end.assert_failed("OutOfMemory")
            .assert_told("OutOfMemory")
            .assert_detail("container-0")
            .assert_prompt("it began to grow", end.said_at("container-0"));
        assert_eq!(end.container("container-0").reason.as_deref(), Some("OOMKilled"), "{end:?}");
        Ok(())
    })
    .await;
}

/// The kernel takes the shim first, and the container with it: the memory is in files, so that no process is larger than
/// others, and the shim offers itself. Nobody tells the agent, which misses the container after half a minute; Buildkite
/// hears of it long before.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_killed_with_its_shim_is_reported_before_the_agent_misses_it() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let command =
            format!("echo 1000 > /proc/1/oom_score_adj; {SAY_WHEN}; dd if=/dev/zero of=/files/x bs=64k");
        let spec = format!(
            "volumes: [{{name: files, emptyDir: {{medium: Memory}}}}], \
             containers: [{{image: 'IMAGE', command: ['{command}'], resources: {{limits: {{memory: 1Gi}}}}, \
             volumeMounts: [{{name: files, mountPath: /files}}]}}]"
        );
        let run = world.submit(&step(world, &spec)).await?;
        let end = run.end().await?;
        end.assert_failed("OutOfMemory")
            .assert_told("OutOfMemory")
            .assert_detail("container-0")
            .assert_prompt("it began to grow", end.said_at("container-0"));
        let told = end.job.events.iter().filter(|event| event.detail.is_some()).count();
        assert_eq!(told, 1, "Buildkite is told once: {end:?}");
        let ended = end.status.finished_at.as_ref().expect("every end has a time").0;
        let took = ended.duration_since(end.said_at("container-0"));
        assert!(took > PROMPT, "the agent has noticed by itself after {took:#}: {end:?}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_runs_out_of_memory_before_the_job_starts_says_so() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let sidecar = "{name: db, image: 'IMAGE', restartPolicy: Always, command: [tail, /dev/zero], \
                       resources: {limits: {memory: 32Mi}}, \
                       startupProbe: {exec: {command: ['false']}, periodSeconds: 1, failureThreshold: 600}}";
        let pod_spec =
            format!("initContainers: [{sidecar}], containers: [{{image: 'IMAGE', command: ['true']}}]");
        let end = world.submit(&step(world, &pod_spec)).await?.end().await?;
        end.assert_refused("OutOfMemory")
            .assert_detail("db")
            .assert_prompt("the pod's creation", end.created_at());
        assert_eq!(end.container("db").reason.as_deref(), Some("OOMKilled"), "{end:?}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_runs_out_of_memory_is_the_operators_own_affair() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let step = "{command: x, plugins: [{kubernetes: {podSpecPatch: {containers: [\
                    {name: agent, resources: {requests: {memory: 6Mi}, limits: {memory: 6Mi}}}]}}}]}";
        let end = world.submit(step).await?.end().await?;
        end.assert_refused("AgentOutOfMemory").assert_detail("agent");
        assert!(end.pods.len() > 1, "it was placed again: {end:?}");
        Ok(())
    })
    .await;
}
