//! What jobs write cannot take the page over, and the page fits where it is looked at.

use reqwest::Method;
use serde_json::json;

use crate::visit::Visit;

const EVIL: &str = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>\
    [link](javascript:document.title='taken') <b onclick=\"document.title='taken'\">bold</b> \
    <img src=\"https://elsewhere.example/a.png\"> **kept**";

#[tokio::test]
async fn annotations_labels_and_logs_run_nothing_and_ask_nobody() {
    let label = "<img src=x onerror=document.title=1>";
    let visit = Visit::of_build(&format!("steps: [{{label: '{label}', command: x}}]")).await;
    let id = visit.rig.job_id(label).await;
    let (_, token) = visit.rig.start_job(&id).await;
    let note = json!({"body": EVIL, "context": "evil", "style": "error"});
    visit.rig.v3(Method::POST, &format!("jobs/{id}/annotations"), &token, Some(note)).await.ok();
    let log = format!("{EVIL}\r\n\u{1b}]8;;javascript:alert(1)\u{7}click\u{1b}]8;;\u{7}\r\n+++ {EVIL}\r\n");
    visit.rig.chunk(&id, &token, 1, 0, log.as_bytes()).await.ok();
    visit.go("/local/demo/builds/1").await;
    visit.until("document.querySelector('.annotation strong')?.innerText === 'kept'").await;
    visit.page.click(".annotation b").await.unwrap();
    let dangerous = "document.querySelectorAll('#app script, [onerror], [onclick], a[href^=javascript], #app .steps img').length";
    assert_eq!(visit.number(dangerous).await, 0);
    visit.go(&format!("/local/demo/builds/1/jobs/{id}")).await;
    visit.until("document.querySelector('.log')?.innerText.includes('click')").await;
    assert_eq!(visit.number(dangerous).await, 0);
    let title = visit.page.value("document.title").await.unwrap();
    assert!(!title.as_str().unwrap().contains("taken"), "{title}");
    // The picture from elsewhere is the one thing that the policy has to refuse.
    let complaints = visit.page.complaints();
    assert!(complaints.iter().all(|one| one.contains("elsewhere.example")), "{complaints:?}");
    let root = &visit.rig.root;
    assert!(
        visit.page.requests().iter().all(|url| url.starts_with(root) || url.contains("elsewhere.example"))
    );
}

#[tokio::test]
async fn a_phone_shows_every_page_without_scrolling_sideways() {
    let steps = "steps: [{label: 'A label that is long enough to be wider than a phone is when it is written out in full', command: x}]";
    let visit = Visit::of_build(steps).await;
    let build = visit.rig.current().await;
    let id = build["jobs"][0]["id"].as_str().unwrap().to_owned();
    let (_, token) = visit.rig.start_job(&id).await;
    let long = format!("{}\r\n+++ {}\r\n", "wide ".repeat(200), "w".repeat(300));
    visit.rig.chunk(&id, &token, 1, 0, long.as_bytes()).await.ok();
    visit.page.size(375, 700, true).await.unwrap();
    let job = format!("/local/demo/builds/1/jobs/{id}");
    for (path, shown) in [
        ("/", "hello"),
        ("/agents", "Queues"),
        ("/local/demo", "hello"),
        ("/local/demo/builds/1", "A label"),
        (job.as_str(), "wide wide"),
    ] {
        visit.go(path).await;
        visit.says(shown).await;
        let excess = visit.number("document.documentElement.scrollWidth - window.innerWidth").await;
        assert!(excess <= 0, "{path} is {excess} pixels too wide");
    }
    visit.is_clean();
}

#[tokio::test]
async fn the_keyboard_reaches_the_content_and_the_page_says_when_the_server_is_gone() {
    let visit = Visit::of_build("steps: [{label: One, command: x}]").await;
    visit.go("/").await;
    visit.says("hello").await;
    visit.page.key("Tab").await.unwrap();
    visit.until("document.activeElement.innerText === 'To the content'").await;
    visit.page.key("Enter").await.unwrap();
    visit.until("document.activeElement.id === 'main'").await;
    drop(visit.rig);
    visit.page.says("Reconnecting").await.unwrap();
}
