//! A build from its start to its end, as somebody who watches and presses buttons sees it.

use reqwest::Method;

use crate::visit::Visit;

const STEPS: &str = "
steps:
  - {label: Compile, key: compile, command: make}
  - {block: Release, key: release, fields: [{text: Version, key: version}]}
  - {label: Publish, key: publish, command: publish}
";

#[tokio::test]
async fn a_build_is_started_watched_unblocked_and_passes() {
    let visit = Visit::of(STEPS).await;
    visit.go("/").await;
    visit.says("Never built").await;
    visit.page.click("a.cover").await.unwrap();
    visit.press("New build").await;
    visit.page.fill("dialog input[name=message]", "From the page").await.unwrap();
    visit.page.fill("dialog textarea", "no equals sign").await.unwrap();
    visit.press("Create build").await;
    visit.says("not of the form NAME=value").await;
    visit.page.fill("dialog textarea", "COLOUR=green").await.unwrap();
    visit.press("Create build").await;
    visit.until("location.pathname === '/local/demo/builds/1'").await;
    visit.says("From the page").await;
    assert_eq!(visit.rig.current().await["env"]["COLOUR"], "green");

    let compile = visit.rig.job_id("Compile").await;
    let (_, token) = visit.rig.start_job(&compile).await;
    visit.until("document.querySelector('.steps svg[aria-label=Running]')").await;
    visit.page.click(".steps a.step").await.unwrap();
    visit.says("Nothing has been written yet").await;
    let stamp = |second: u32| format!("\u{1b}_bk;t=17000000{second:02}000\u{7}");
    let text = format!(
        "{}~~~ Preparing\r\n{}quiet line\r\n{}+++ Building\r\n\u{1b}[31mred\u{1b}[0m and plain\r\n",
        stamp(0),
        stamp(1),
        stamp(5)
    );
    visit.rig.chunk(&compile, &token, 1, 0, text.as_bytes()).await.ok();
    visit.until("document.querySelector('.row .f1')?.textContent === 'red'").await;
    let text = || visit.page.value("document.querySelector('.log').innerText");
    assert!(!text().await.unwrap().as_str().unwrap().contains("quiet line"), "the first group is folded");
    assert!(text().await.unwrap().as_str().unwrap().contains("5s"), "and says how long it took");
    visit.page.click(".row.head button[aria-expanded=false]").await.unwrap();
    visit.says("quiet line").await;

    visit.rig.finish_job(&compile, &token, "0").await.ok();
    visit.press("Answer…").await;
    visit.press("Unblock").await;
    visit.until("document.querySelector('dialog input:invalid')").await;
    visit.page.fill("dialog input[name=version]", "1.2.3").await.unwrap();
    visit.press("Unblock").await;
    visit.until("!document.querySelector('dialog')").await;
    let publish = visit.rig.until("Publish", |job| job["job_state"] == "scheduled").await;
    let publish = publish["id"].as_str().unwrap();
    let (_, token) = visit.rig.start_job(publish).await;
    visit.rig.finish_job(publish, &token, "0").await.ok();
    visit.until("document.querySelector('.build-head svg[aria-label=Passed]')").await;
    visit.page.click(".build-head h1 a").await.unwrap();
    visit.says("1.2.3").await;
    visit.is_clean();
}

#[tokio::test]
async fn a_job_is_cancelled_and_retried() {
    let visit = Visit::of_build("steps: [{label: One, command: x}]").await;
    let first = visit.rig.job_id("One").await;
    let (_, token) = visit.rig.start_job(&first).await;
    visit.go(&format!("/local/demo/builds/1/jobs/{first}")).await;
    visit.page.click(".job-head .actions button").await.unwrap();
    visit.rig.until("One", |job| job["job_state"] == "canceling").await;
    visit.says("Cancelling").await;
    visit.rig.finish_job(&first, &token, "-1").await.ok();
    visit.press("Retry").await;
    visit.until(&format!("!location.pathname.endsWith('{first}')")).await;
    let second = visit.rig.job_id("One").await;
    assert_ne!(first, second);
    visit.until("document.querySelectorAll('.attempts a').length === 2").await;
    // What is refused is said at the button.
    visit.rig.v2(Method::PUT, &format!("jobs/{second}/cancel"), None).await.ok();
    visit.press("Timeline").await;
    visit.says("Created as retry 1").await;
    visit.is_clean();
}

#[tokio::test]
async fn a_refusal_is_said_where_it_happened_and_a_build_is_cancelled() {
    let visit = Visit::of_build("steps: [{block: Gate, key: gate}, {label: One, command: x}]").await;
    visit.go("/local/demo/builds/1").await;
    visit.press("Unblock…").await;
    visit.until("document.querySelector('dialog[open]')").await;
    // Somebody else is quicker.
    let build = visit.rig.current().await;
    let gate = build["jobs"][0]["id"].as_str().unwrap();
    visit.rig.v2(Method::PUT, &format!("jobs/{gate}/unblock"), None).await.ok();
    visit.press("Unblock").await;
    visit.until("document.querySelector('dialog .problem')?.innerText.includes('unblocked')").await;
    visit.press("Close").await;
    visit.press("Cancel").await;
    visit.press("Really cancel?").await;
    visit.until("document.querySelector('.build-head svg[aria-label=Cancelled]')").await;
}

#[tokio::test]
async fn queues_are_paused_and_agents_stopped() {
    let visit = Visit::of_build("steps: [{label: One, command: x}]").await;
    visit.rig.agent().await;
    visit.go("/agents").await;
    visit.press("Pause").await;
    visit.until("document.querySelector('.queue.paused')").await;
    visit.press("Resume").await;
    visit.until("!document.querySelector('.queue.paused')").await;
    visit.press("Stop").await;
    visit.press("Really stop?").await;
    visit.says("Stopping").await;
    visit.is_clean();
}
