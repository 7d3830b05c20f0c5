//! Images that cannot be had, and those that only take their time.

use bk_api::VerdictCode;
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
#[case::never_pulled(
    "{image: localhost/there-is-none:7, imagePullPolicy: Never}",
    "localhost/there-is-none:7",
    VerdictCode::ImageNeverPulled
)]
#[case::impossible_name("{image: 'UPPER/case:9'}", "UPPER/case:9", VerdictCode::ImageNameInvalid)]
#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_no_registry_is_asked_for_is_named_at_once(
    #[case] container: &str,
    #[case] image: &str,
    #[case] code: VerdictCode,
) {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let end = world.submit(&step(container)).await?.end().await?;
        end.assert_refused(code)
            .assert_exit_status(-1)
            .assert_detail(&format!("image {image} of container container-0 cannot be had"))
            .assert_prompt("the pod's creation", end.created_at());
        Ok(())
    })
    .await;
}

#[rstest]
#[case::not_found(Manner::Missing, "not found", VerdictCode::ImageNotFound)]
#[case::no_credentials(Manner::Private, "401", VerdictCode::ImageForbidden)]
#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_a_registry_refuses_is_named_at_once_with_its_answer(
    #[case] manner: Manner,
    #[case] answer: &str,
    #[case] code: VerdictCode,
) {
    scenario(async |world| {
        let registry = Registry::serve(&world.environment).await?;
        let image = registry.image(manner);
        let _operator = world.operator().await?;
        let end = world.submit(&step(&format!("{{image: '{image}'}}"))).await?.end().await?;
        end.assert_refused(code)
            .assert_exit_status(-1)
            .assert_detail(&format!("image {image} of container container-0 cannot be had"))
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
        assert!(
            world.buildkite.log(run.id).await?.contains(&registry.host),
            "it is the registry's own image"
        );
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_is_not_there_is_given_a_while() {
    let image = "localhost:1/there-is-none:8";
    scenario(async |world| {
        world.cluster.configure("pod_config", "imagePullGraceSeconds: 3").await?;
        let _operator = world.operator().await?;
        let end = world.submit(&step(&format!("{{image: '{image}'}}"))).await?.end().await?;
        end.assert_refused(VerdictCode::RegistryUnreachable)
            .assert_detail(&format!("image {image} of container container-0 cannot be had"))
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
        run.waiting_for("cannot be had").await?;
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
