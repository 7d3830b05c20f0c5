//! Rules and webhooks, and jobs of a queue.

use anyhow::{Result, ensure};
use bk_e2e::{World, eventually, operator::Operator, scenario};
use jiff::Timestamp;
use serde_json::json;

use super::{CONFIG, stage::Stage};

/// An operator that answers nobody.
async fn silent(world: &World) -> Result<Operator> {
    world.operator_given(None, ["--queue=bk-operator".to_owned()]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_is_told_to_the_author_in_buildkite() {
    scenario(async |world| {
        world.cluster.configure("validation_config", CONFIG).await?;
        let _operator = silent(world).await?;
        let job = world.submit("{command: make, image: evil/image}").await?.id;
        let job = world.buildkite.ended(job).await?;
        let told: Vec<&str> = job.events.iter().filter_map(|event| event.detail.as_deref()).collect();
        let expected = "rules[0] of validation_config: no images of evil. ValidationRefused: ";
        ensure!(told.iter().any(|detail| detail.contains(expected)), "{job:?}");
        ensure!(
            (job.exit_status, job.signal_reason.as_deref()) == (Some(-1), Some("stack_error")),
            "{job:?}"
        );
        let created = world.api_calls(Timestamp::UNIX_EPOCH)?;
        let created = created.iter().filter(|call| call.verb == "create" && call.resource == "buildjobs");
        ensure!(created.count() == 0, "it was refused before it was a BuildJob");

        // Nobody gives environments what they should get by default, and that is said, too.
        eventually("an Event tells of it", async || {
            let events = ["get", "events", "--field-selector=reason=DefaultsUnused", "-o", "name"];
            Ok((!world.cluster.kubectl(&events, None)?.is_empty()).then_some(()))
        })
        .await
    })
    .await;
}

/// An environment that broke a rule before there was one, or while nobody looked.
#[tokio::test(flavor = "multi_thread")]
async fn an_environment_does_not_get_around_a_rule() {
    scenario(async |world| {
        let rule = "rules: [{expression: \"self.spec.image != 'scratch'\", message: scratch has no shell, kind: BuildEnvironment}]";
        world.cluster.configure("validation_config", rule).await?;
        let objects = "
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildEnvironment
metadata: {name: bare}
spec: {image: scratch}
---
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildJob
metadata: {name: inside}
spec: {environment: bare, command: make}
";
        world.cluster.kubectl(&["apply", "-f", "-"], Some(objects))?;
        let _operator = silent(world).await?;
        let job = world.cluster.build_job_with("inside", "over", bk_api::BuildJob::is_terminal).await?;
        let verdict = job.status.and_then(|status| status.verdict);
        let told = verdict.map(|verdict| verdict.sentence()).unwrap_or_default();
        let expected =
            "BuildEnvironment \"bare\": rules[0] of validation_config: scratch has no shell. ValidationRefused: ";
        ensure!(told.contains(expected), "{told}");
        Ok(())
    })
    .await;
}

/// While nobody answers, jobs wait or go on, as the policy says, and none is lost or runs twice.
#[tokio::test(flavor = "multi_thread")]
async fn intake_waits_for_the_webhook_or_goes_on_without() {
    scenario(async |world| {
        let stage =
            Stage::set(world, CONFIG, "failurePolicy: Fail, timeoutSeconds: 2, lookUpSecrets: true").await?;
        let mut operator = silent(world).await?;
        let waits = world.submit("{command: ./hello.sh}").await?.id;
        eventually("the job cannot be taken yet", async || {
            let log = world.operator_log();
            Ok((log.contains("cannot take the job yet") && log.contains("failed calling webhook"))
                .then_some(()))
        })
        .await?;
        let job = world.buildkite.job(waits).await?;
        ensure!(job.job_state == "reserved" && job.agent.is_none(), "it is kept: {job:?}");
        ensure!(world.cluster.build_job(&format!("buildkite-{waits}")).await?.is_none(), "it is not stored");
        operator.kill()?;

        let mut operator = stage.operator().await?;
        let job = world.buildkite.ended(waits).await?;
        ensure!(job.exit_status == Some(0), "{job:?}");
        world.cluster.no_pods().await?;
        operator.kill()?;

        let mark = Timestamp::now();
        stage.change("validating", &json!({"failurePolicy": "Ignore"}))?;
        let _operator = silent(world).await?;
        let goes_on = world.submit("{command: ./hello.sh}").await?.id;
        let job = world.buildkite.ended(goes_on).await?;
        ensure!(job.exit_status == Some(0), "{job:?}");
        for (since, count) in [(Timestamp::UNIX_EPOCH, 2), (mark, 1)] {
            let calls = world.api_calls(since)?;
            let is_made = |resource: &str| {
                calls
                    .iter()
                    .filter(|call| call.verb == "create" && call.resource == resource && call.code == 201)
                    .count()
            };
            ensure!([is_made("buildjobs"), is_made("pods")] == [count; 2], "each once: {calls:#?}");
        }
        stage.remove()
    })
    .await;
}
