//! Old builds go by themselves.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::harness::Rig;

#[tokio::test]
async fn finished_builds_beyond_the_setting_are_removed() {
    let rig = Rig::with(|config| {
        config.keep_builds = Some(1);
        config.prune_every = Duration::from_millis(20);
    })
    .await;
    rig.build("steps: [{label: one, command: x}]").await;
    let first = rig.job_id("one").await;
    let (_, token) = rig.start_job(&first).await;
    rig.chunk(&first, &token, 1, 0, b"hello\n").await.ok();
    rig.finish_job(&first, &token, "0").await.ok();
    let build =
        || async { rig.v2(Method::POST, "pipelines/demo/builds", Some(json!({"message": "m"}))).await.ok() };
    let second = build().await;
    // One that has not finished does not count.
    build().await;
    let id = second["jobs"][0]["id"].as_str().unwrap();
    let (_, token) = rig.start_job(id).await;
    rig.finish_job(id, &token, "0").await.ok();
    for attempt in 0.. {
        let answer = rig.v2(Method::GET, "pipelines/demo/builds/1", None).await;
        if answer.status == 404 {
            break;
        }
        assert!(attempt < 500, "the build never goes");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let kept = rig.v2(Method::GET, "pipelines/demo/builds/2", None).await.ok();
    assert_eq!(kept["state"], "passed", "the newest finished build stays");
    assert_eq!(build().await["number"], 4, "numbers are not used again");
}
