//! Several queues in one operator, each on its own terms, and what goes wrong with them.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, Result};
use bk_api::{BuildJob, config::TOKEN_KEY};
use bk_e2e::{World, eventually, scenario};
use buildkite_local::{Action, Answer, Fault};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;

/// An address that nobody listens on yet.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

pub(crate) async fn page(world: &World, address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let answer = world.buildkite.http().get(format!("http://{address}{path}")).send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

pub(crate) async fn ready(world: &World, address: SocketAddr) -> Result<()> {
    eventually("the operator is ready", async || {
        Ok((page(world, address, "/readyz").await?.0 == 200).then_some(()))
    })
    .await
}

async fn build_jobs(world: &World) -> Result<Vec<BuildJob>> {
    let api = Api::<BuildJob>::namespaced(world.cluster.client.clone(), &world.cluster.namespace);
    Ok(api.list(&ListParams::default()).await?.items)
}

/// Jobs that never start: there is no such node.
fn waiting(queue: &str, count: usize) -> String {
    format!(
        "steps: [{{command: 'true', parallelism: {count}, agents: {{queue: {queue}}}, plugins: [{{kubernetes: {{podSpec: {{nodeSelector: {{nowhere: there}}}}}}}}]}}]"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn each_queue_is_served_on_its_own_terms() {
    scenario(async |world| {
        let config = format!(
            "maxInFlight: 5
queues:
- {{key: _default, defaults: {{image: '{image}'}}}}
- {{key: small, maxInFlight: 2}}
- {{key: strict, forbid: [image]}}",
            image = world.environment.toolbox_image
        );
        world.cluster.configure("job_spawner_config", &config).await?;
        let address = free_address()?;
        let _operator = world.operator_as_configured(address).await?;

        // The cluster's default queue, with its own image.
        let plain = world.buildkite.build(&world.repository.url, "steps: [{command: sleep 3}]").await?;
        eventually("the job runs in the queue's image", async || {
            let pods = world.cluster.pods().await?;
            let mut containers =
                pods.iter().flat_map(|pod| pod.spec.iter().flat_map(|spec| &spec.containers));
            let image = Some(&world.environment.toolbox_image);
            Ok(containers.any(|one| one.name == "container-0" && one.image.as_ref() == image).then_some(()))
        })
        .await?;
        let refused = world
            .buildkite
            .build(
                &world.repository.url,
                "steps: [{command: 'true', agents: {queue: strict}, env: {BK_OPERATOR_IMAGE: busybox}}]",
            )
            .await?;
        let ended = world.buildkite.ended(plain.jobs[0].id).await?;
        assert_eq!(ended.exit_status, Some(0), "{}", world.buildkite.log(plain.jobs[0].id).await?);
        let ended = world.buildkite.ended(refused.jobs[0].id).await?;
        let told: String = ended.events.iter().filter_map(|event| event.detail.clone()).collect();
        assert!(told.contains("BK_OPERATOR_IMAGE"), "{ended:?}");

        // No more than the queue may have, however many wait.
        let crowd = world.buildkite.build(&world.repository.url, &waiting("small", 4)).await?;
        eventually("the queue's places are taken and the rest is counted", async || {
            let (_, metrics) = page(world, address, "/metrics").await?;
            let line = "buildkite_operator_jobs_skipped_total{queue=\"small\",reason=\"queue_limit\"} 2";
            Ok(metrics.lines().any(|found| found == line).then_some(()))
        })
        .await?;
        let of_crowd =
            |job: &BuildJob| crowd.jobs.iter().any(|one| job.name_any().ends_with(&one.id.to_string()));
        eventually("they have BuildJobs", async || {
            let taken = build_jobs(world).await?.iter().filter(|job| of_crowd(job)).count();
            anyhow::ensure!(taken <= 2, "{taken} were taken");
            Ok((taken == 2).then_some(()))
        })
        .await?;
        assert_eq!(page(world, address, "/readyz").await?, (200, "ok\n".to_owned()));

        // What is cancelled makes room.
        for job in &crowd.jobs {
            world.buildkite.cancel(job.id).await?;
        }
        world.cluster.no_pods().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_token_is_used_without_a_restart() {
    scenario(async |world| {
        let address = free_address()?;
        world.cluster.configure("job_spawner_config", "queue: bk-operator").await?;
        let _operator = world.operator_as_configured(address).await?;
        ready(world, address).await?;
        world.buildkite.interfere("token/rotate", json!({ "token": "bkct_another" })).await?;
        eventually("the trouble is told", async || {
            Ok(world.operator_log().contains("cannot take jobs").then_some(()))
        })
        .await?;
        eventually("an event says what is wrong", async || {
            let events = world.cluster.kubectl(&["get", "events", "--output=json"], None)?;
            Ok((events.contains("CannotTakeJobs") && events.contains("401")).then_some(()))
        })
        .await?;
        let patch = json!({ "stringData": { TOKEN_KEY: "bkct_another" } }).to_string();
        world.cluster.kubectl(&["patch", "secret", "buildkite-agent-token", "--patch", &patch], None)?;
        let build = world
            .buildkite
            .build(&world.repository.url, "steps: [{command: echo rotated, agents: {queue: bk-operator}}]")
            .await?;
        let ended = world.buildkite.ended(build.jobs[0].id).await?;
        assert_eq!(ended.exit_status, Some(0));
        let log = world.operator_log();
        assert!(log.contains("the agent token has changed") && !log.contains("bkct_another"), "{log}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_queue_is_left_alone_and_an_outage_is_outlasted() {
    scenario(async |world| {
        let address = free_address()?;
        world.cluster.configure("job_spawner_config", "queue: bk-operator").await?;
        let _operator = world.operator_as_configured(address).await?;
        ready(world, address).await?;
        world.buildkite.interfere("queues/bk-operator/pause", json!({})).await?;
        let build = world
            .buildkite
            .build(&world.repository.url, "steps: [{command: echo hello, agents: {queue: bk-operator}}]")
            .await?;
        eventually("the pause is noticed", async || {
            let (_, metrics) = page(world, address, "/metrics").await?;
            let line = "buildkite_operator_listings_total{queue=\"bk-operator\"} ";
            let listings = metrics.lines().find_map(|found| found.strip_prefix(line)?.parse::<u32>().ok());
            Ok(listings.filter(|listings| *listings > 10))
        })
        .await?;
        assert_eq!(build_jobs(world).await?, []);

        // Everything fails while the queue is opened again.
        let down =
            Answer { status: 503, body: None, headers: [("retry-after".to_owned(), "1".to_owned())].into() };
        let id =
            world.buildkite.faults.add(Fault::always("/v3/**", Action::Answer(down))).context("a fault")?;
        world.buildkite.interfere("queues/bk-operator/resume", json!({})).await?;
        eventually("the outage is told", async || {
            Ok(world.operator_log().contains("503 Service Unavailable").then_some(()))
        })
        .await?;
        world.buildkite.faults.remove(id);
        assert_eq!(world.buildkite.ended(build.jobs[0].id).await?.exit_status, Some(0));
        assert!(world.operator_log().contains("jobs can be taken again"));
        Ok(())
    })
    .await;
}
