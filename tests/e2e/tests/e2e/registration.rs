//! The registration with Buildkite: it outlasts a rolling update, goes with the last replica, and is made anew when it was
//! lost.

use anyhow::{Result, ensure};
use bk_e2e::{World, buildkite::QUEUE, eventually, scenario};
use reqwest::{Method, StatusCode};

const STACK: &str = "under-test";
/// The one that the operator's role lets it look at.
const DEPLOYMENT: &str = "buildkite-operator";

async fn ask(world: &World, method: Method, path: &str) -> Result<StatusCode> {
    let url = format!("{}/stacks/{STACK}/{path}", world.buildkite.endpoint());
    let token = format!("Token {}", world.buildkite.agent_token);
    Ok(world.buildkite.http().request(method, url).header("Authorization", token).send().await?.status())
}

/// Whether Buildkite knows the stack.
async fn is_registered(world: &World) -> Result<bool> {
    match ask(world, Method::GET, &format!("scheduled-jobs?queue_key={QUEUE}")).await? {
        StatusCode::OK => Ok(true),
        StatusCode::NOT_FOUND => Ok(false),
        status => anyhow::bail!("Buildkite answers {status}"),
    }
}

/// Waits until operators have registered so many times.
async fn registrations(world: &World, count: usize) -> Result<()> {
    eventually("the operator has registered", async || {
        let found = world.operator_log().matches("\"registered with Buildkite\"").count();
        ensure!(found >= count, "{found} times");
        Ok(Some(()))
    })
    .await
}

async fn configure(world: &World) -> Result<()> {
    world.cluster.configure("job_spawner_config", &format!("stackKey: {STACK}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_update_keeps_the_queue_and_the_last_replica_takes_its_leave() {
    scenario(async |world| {
        configure(world).await?;
        // It stands for the operator's own: paused, it has no pods.
        let manifest = format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {DEPLOYMENT}}}\nspec: {{paused: true, selector: \
             {{matchLabels: {{a: b}}}}, template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: c, image: none}}]}}}}}}"
        );
        world.cluster.kubectl(&["create", "-f", "-"], Some(&manifest))?;
        let mut old = world.operator_of(DEPLOYMENT).await?;
        registrations(world, 1).await?;
        let mut new = world.operator_of(DEPLOYMENT).await?;
        registrations(world, 2).await?;

        assert!(old.stop().await?.success());
        assert!(is_registered(world).await?, "the other one goes on");
        let crowd = world.crowd(3).await?;
        crowd.pods(3).await?;
        crowd.assert_none_twice();
        crowd.cancel().await?;
        assert!(!world.operator_log().contains("deregistered"), "nobody has left");

        world.cluster.kubectl(&["delete", "deployment", DEPLOYMENT], None)?;
        assert!(new.stop().await?.success());
        assert!(!is_registered(world).await?, "nobody goes on");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_that_buildkite_has_forgotten_is_registered_again() {
    scenario(async |world| {
        configure(world).await?;
        let _operator = world.operator().await?;
        registrations(world, 1).await?;
        let before = world.crowd(2).await?;
        before.pods(2).await?;

        assert!(ask(world, Method::POST, "deregister").await?.is_success());
        registrations(world, 2).await?;
        assert!(is_registered(world).await?);
        let after = world.crowd(2).await?;
        after.pods(4).await?;
        after.assert_none_twice();
        before.assert_none_twice();
        for job in &before.jobs {
            world.buildkite.cancel(job.id).await?;
        }
        after.cancel().await
    })
    .await;
}

/// Reservations end while no operator is there to extend them.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_wait_in_the_cluster_are_reserved_again_after_a_restart() {
    scenario(async |world| {
        configure(world).await?;
        let mut operator = world.process().await?;
        let crowd = world.crowd(3).await?;
        crowd.pods(3).await?;
        operator.kill()?;
        world.buildkite.interfere("reservations/expire", serde_json::json!({})).await?;
        let _operator = world.operator().await?;
        eventually("all are reserved again", async || {
            for job in &crowd.jobs {
                let state = world.buildkite.job(job.id).await?.job_state;
                ensure!(state == "reserved", "{} is {state}", job.id);
            }
            Ok(Some(()))
        })
        .await?;
        crowd.assert_none_twice();
        crowd.cancel().await
    })
    .await;
}
