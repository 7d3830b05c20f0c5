//! Images that cannot be had, and those that only take their time.

use bk_e2e::{
    registry::{Manner, Registry, SLOW},
    scenario,
};
use jiff::SignedDuration;
use kube::ResourceExt;
use rstest::rstest;

/// A step whose command runs in this container.
fn step(container: &str) -> String {
    format!("{{plugins: [{{kubernetes: {{podSpec: {{containers: [{container}]}}}}}}]}}")
}

#[rstest]
#[case::wrong_policy("{image: localhost/there-is-none:7, imagePullPolicy: Never}", "ImageNeverPulled")]
#[case::bad_name("{image: 'UPPER/case:9'}", "ImageNameInvalid")]
#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_no_registry_is_asked_for_is_named_at_once(
    #[case] container: &str,
    #[case] code: &str,
) {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let end = world.submit(&step(container)).await?.end().await?;
        end.assert_refused(code)
            .assert_exit_status(-1)
            .assert_detail("container-0")
            .assert_prompt("the pod's creation", end.created_at());
        Ok(())
    })
    .await;
}

#[rstest]
#[case::not_found(Manner::Missing, "ImageNotFound", "not found")]
#[case::no_credentials(Manner::Private, "ImageForbidden", "401")]
#[case::no_permission(Manner::Forbidden, "ImageForbidden", "403")]
#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_a_registry_refuses_is_named_at_once_with_its_answer(
    #[case] manner: Manner,
    #[case] code: &str,
    #[case] answer: &str,
) {
    scenario(async |world| {
        let registry = Registry::serve(&world.environment).await?;
        let image = registry.image(manner);
        let _operator = world.operator().await?;
        let end = world.submit(&step(&format!("{{image: '{image}'}}"))).await?.end().await?;
        end.assert_refused(code)
            .assert_exit_status(-1)
            .assert_detail(&image)
            .assert_detail(answer)
            .assert_prompt("the pod's creation", end.created_at());
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_pulled_with_the_pods_credentials() {
    scenario(async |world| {
        let registry = Registry::serve(&world.environment).await?;
        world.cluster.kubectl(&["apply", "-f", "-"], Some(&registry.pull_secret("credentials")))?;
        let _operator = world.operator().await?;
        let step = format!(
            "{{plugins: [{{kubernetes: {{podSpec: {{imagePullSecrets: [{{name: credentials}}], \
             containers: [{{image: '{}', command: [cat /pulled-from]}}]}}}}}}]}}",
            registry.image(Manner::Private)
        );
        let run = world.submit(&step).await?;
        let job = world.buildkite.ended(run.id).await?;
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(0)), "{job:?}");
        let log = world.buildkite.log(run.id).await?;
        assert!(log.contains(&registry.host), "it is the registry's own image: {log}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_is_down_is_given_a_while() {
    scenario(async |world| {
        world.cluster.configure("pod_config", "imagePullGraceSeconds: 3").await?;
        let _operator = world.operator().await?;
        let end = world.submit(&step("{image: 'localhost:1/there-is-none:8'}")).await?.end().await?;
        end.assert_refused("RegistryUnreachable")
            .assert_detail("localhost:1/there-is-none:8")
            .assert_detail("connection refused");
        Ok(())
    })
    .await;
}

#[rstest]
#[case::fails(Manner::Broken)]
#[case::has_no_time(Manner::Busy)]
#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_recovers_is_no_reason_to_fail(#[case] manner: Manner) {
    scenario(async |world| {
        let registry = Registry::serve(&world.environment).await?;
        let _operator = world.operator().await?;
        let container = format!("{{image: '{}', command: [cat /pulled-from]}}", registry.image(manner));
        let run = world.submit(&step(&container)).await?;
        run.waiting_for("image").await?;
        registry.release();
        let job = world.buildkite.ended(run.id).await?;
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(0)), "{job:?}");
        assert_eq!(run.pods().len(), 1, "the same pod waited");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_is_slow_is_waited_for() {
    scenario(async |world| {
        // Patience with failures is not what helps here: there is none.
        world.cluster.configure("pod_config", "imagePullGraceSeconds: 0").await?;
        let registry = Registry::serve(&world.environment).await?;
        let _operator = world.operator().await?;
        let container = format!("{{image: '{}', command: [cat /pulled-from]}}", registry.image(Manner::Slow));
        let run = world.submit(&step(&container)).await?;
        let job = world.buildkite.ended(run.id).await?;
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(0)), "{job:?}");
        let pods = run.pods();
        let created = pods[0].creation_timestamp().expect("every pod was created").0;
        assert_eq!(pods.len(), 1, "the same pod waited");
        let waited = job.started_at.expect("the job has run").duration_since(created);
        assert!(waited >= SignedDuration::try_from(SLOW)?, "it waited for {waited:#}");
        Ok(())
    })
    .await;
}
