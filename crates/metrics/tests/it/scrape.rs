//! Metrics on a port.

use std::time::{Duration, Instant};

use bk_api::exporters::MetricsDelivery;

use crate::world::{World, until};

/// A port that nobody has.
pub(crate) fn port() -> u16 {
    std::net::TcpListener::bind("[::]:0").unwrap().local_addr().unwrap().port()
}

fn world(port: u16) -> World {
    World::patient(MetricsDelivery::Scrape { port }, 20)
}

async fn get(port: u16, path: &str) -> Option<(u16, String)> {
    let client = bk_ops::http::client("test", Duration::from_secs(5)).unwrap();
    let response = client.get(format!("http://127.0.0.1:{port}{path}")).send().await.ok()?;
    Some((response.status().as_u16(), response.text().await.unwrap()))
}

#[tokio::test]
async fn it_is_ready_once_there_is_something_and_ends_when_the_last_values_are_taken() {
    let port = port();
    let world = world(port);
    let not_ready = until("an answer", async || get(port, "/ready").await).await;
    assert_eq!(not_ready, (503, "no metrics yet\n".to_owned()));
    world.write("a.prom", "# TYPE builds counter\nbuilds 1\n");
    assert_eq!(get(port, "/ready").await, Some((200, "ready\n".to_owned())));
    assert_eq!(
        get(port, "/metrics").await,
        Some((200, "# TYPE builds counter\nbuilds{step=\"test\"} 1\n".to_owned()))
    );
    world.write("a.prom", "# TYPE builds counter\nbuilds 2\n");
    world.end();
    let began = Instant::now();
    // It serves on until somebody has the value that was written last.
    let report = tokio::spawn(world.report());
    until("the last scrape ends it", async || {
        if let Some((_, text)) = get(port, "/metrics").await {
            assert!(text.contains("builds{step=\"test\"} 2"), "{text}");
        }
        report.is_finished().then_some(())
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let report = report.await.unwrap();
    assert_eq!((report.sinks[0].sent, report.sinks[0].waiting, &report.sinks[0].reason), (1, 0, &None));
}

#[tokio::test]
async fn a_bad_file_is_in_the_report_and_the_others_are_served() {
    let port = port();
    let world = world(port);
    world.write("good.prom", "a 1\n");
    world.write("bad.prom", "a{x=\"y\"} 1\nb{ 2\n");
    let text = until("an answer", async || get(port, "/metrics").await).await.1;
    assert!(text.contains("a{step=\"test\"} 1") && !text.contains("x="), "{text}");
    world.write("good.prom", "a 2\n");
    world.stop.cancel();
    let report = world.report().await;
    let sink = &report.sinks[0];
    assert_eq!((sink.sent, sink.waiting, sink.lost), (0, 1, 1), "nobody has scraped since the end: {sink:?}");
}

#[tokio::test]
async fn values_that_were_taken_before_the_end_and_have_not_changed_are_the_last() {
    let port = port();
    let world = world(port);
    world.write("a.prom", "a 1\n");
    until("an answer", async || get(port, "/metrics").await).await;
    world.end();
    let report = world.report().await;
    assert_eq!((report.sinks[0].sent, report.sinks[0].waiting, &report.sinks[0].reason), (1, 0, &None));
}

#[tokio::test]
async fn without_metrics_it_ends_at_once() {
    let world = world(port());
    let began = Instant::now();
    world.end();
    let report = world.report().await;
    assert_eq!((report.sinks[0].sent, &report.sinks[0].reason), (0, &None));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
