//! A log of 100,000 lines.

use std::fmt::Write;

use crate::visit::Visit;

const LINES: usize = 100_000;
/// Far fewer elements than there are lines, however the window is scrolled.
const MOST_ROWS: i64 = 120;

#[tokio::test]
async fn a_log_of_100_000_lines_stays_small_in_the_document() {
    let visit = Visit::of_build("steps: [{label: One, command: x}]").await;
    let id = visit.rig.job_id("One").await;
    let (_, token) = visit.rig.start_job(&id).await;
    let (mut offset, mut sequence) = (0, 0);
    let mut text = String::from("+++ Everything\r\n");
    for line in 2..=LINES {
        write!(text, "\u{1b}[32mok\u{1b}[0m line number {line} of a log that is rather long\r\n").unwrap();
        if text.len() > 900_000 || line == LINES {
            sequence += 1;
            visit.rig.chunk(&id, &token, sequence, offset, text.as_bytes()).await.ok();
            offset += text.len();
            text.clear();
        }
    }
    visit.rig.finish_job(&id, &token, "0").await.ok();
    visit.go(&format!("/local/demo/builds/1/jobs/{id}")).await;
    visit.says("line number 2 of").await;
    let rows = || visit.number("document.querySelectorAll('.row').length");
    assert!(rows().await <= MOST_ROWS, "{}", rows().await);
    // All of it has been taken in once the bar says so.
    visit
        .until("[...document.querySelectorAll('.log-bar .tool')].some((one) => one.innerText === 'End')")
        .await;
    visit.press("End").await;
    visit.says(&format!("line number {LINES} of")).await;
    assert!(rows().await <= MOST_ROWS, "{}", rows().await);
    let height = visit.number("Math.round(document.querySelector('.log').scrollHeight)").await;
    assert!(height >= 20 * i64::try_from(LINES).unwrap(), "{height}");

    visit.page.key("/").await.unwrap();
    visit.page.fill(".search input", "number 54321 of").await.unwrap();
    visit.says("1/1").await;
    visit.until("document.querySelector('.row.current mark')").await;
    visit.page.click(".row.current a.n").await.unwrap();
    visit.until("location.hash === '#L54321'").await;
    visit.go("/agents").await;
    visit.says("Queues").await;
    visit.go(&format!("/local/demo/builds/1/jobs/{id}#L77777")).await;
    visit.until("document.querySelector('.row.target')?.innerText.includes('number 77777')").await;
    assert!(rows().await <= MOST_ROWS, "{}", rows().await);
    visit.is_clean();
}
