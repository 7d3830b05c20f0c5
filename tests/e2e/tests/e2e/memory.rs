//! Containers that use more memory than their limit, and a kernel that really kills them.

use anyhow::ensure;
use bk_e2e::{SAY_WHEN, World, eventually, scenario};

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
/// others, and the shim offers itself. Nobody tells the agent, which misses the container after half a minute; the operator
/// ends the job for it long before.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_killed_with_its_shim_ends_the_job_before_the_agent_misses_it() {
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
        // The agent would end it half a minute later, and with a status that says nothing.
        end.assert_exit_status(137);
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

/// The kubelet starts it again; the job goes on, and Buildkite hears of it meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_runs_out_of_memory_while_the_job_runs_is_reported_and_the_job_passes() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let mount = "volumeMounts: [{name: shared, mountPath: /shared}]";
        let sidecar = format!(
            "{{name: db, image: 'IMAGE', restartPolicy: Always, resources: {{limits: {{memory: 32Mi}}}}, {mount}, \
             command: [sh, -c, 'until [ -e /shared/grow ]; do sleep 0.1; done; rm /shared/grow; exec {GROW}']}}"
        );
        let command = "echo on its way; touch /shared/grow; until [ -e /shared/go ]; do sleep 0.1; done; echo again";
        let spec = format!(
            "volumes: [{{name: shared, emptyDir: {{}}}}], initContainers: [{sidecar}], \
             containers: [{{image: 'IMAGE', command: ['{command}'], {mount}}}]"
        );
        let run = world.submit(&step(world, &spec)).await?;
        run.output("on its way\r\n").await?;
        eventually("Buildkite hears of the sidecar while the job runs", async || {
            let job = world.buildkite.job(run.id).await?;
            let mut details = job.events.iter().filter_map(|event| event.detail.as_deref());
            let is_told = details.any(|detail| detail.contains("OutOfMemory") && detail.contains("sidecar db"));
            ensure!(is_told && job.job_state == "running", "{job:?}");
            Ok(Some(()))
        })
        .await?;
        let go = ["exec", &run.name, "-c", "container-0", "--", "touch", "/shared/go"];
        world.cluster.kubectl(&go, None)?;
        let job = world.buildkite.ended(run.id).await?;
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(0)), "{job:?}");
        world.cluster.no_pods().await
    })
    .await;
}

/// Its memory is filled with a file, which makes no process larger, and it is the one that is offered to the kernel.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_runs_out_of_memory_while_the_job_runs_is_lost_for_that_reason() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let memory = "{name: agent, resources: {requests: {memory: 64Mi}, limits: {memory: 64Mi}}}";
        let step = format!(
            "{{plugins: [{{kubernetes: {{podSpec: {{containers: [{{image: '{}', command: ['echo on its way; sleep 600']}}]}}, \
             podSpecPatch: {{containers: [{memory}]}}}}}}]}}",
            world.environment.toolbox_image
        );
        let run = world.submit(&step).await?;
        run.output("on its way\r\n").await?;
        let grow = "for dir in /proc/[0-9]*; do \
                    [ \"$(cat $dir/comm)\" != buildkite-agent ] || echo 1000 > $dir/oom_score_adj; \
                    done; dd if=/dev/zero of=/dev/shm/x bs=64k";
        // It is killed with the container.
        drop(world.cluster.try_kubectl(&["exec", &run.name, "-c", "agent", "--", "sh", "-c", grow], None)?);
        let end = run.end().await?;
        end.assert_failed("AgentOutOfMemory").assert_told("AgentOutOfMemory").assert_detail("agent");
        assert_eq!(end.pods.len(), 1, "nothing is run twice: {end:?}");
        Ok(())
    })
    .await;
}
