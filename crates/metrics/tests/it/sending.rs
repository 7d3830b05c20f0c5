//! Metrics to a Pushgateway and by OTLP, with receivers that behave well and badly.

use std::{collections::BTreeMap, fs};

use bk_api::{config::AtEnd, exporters::MetricsDelivery};
use rstest::rstest;

use crate::{
    receiver::{Behaviour, Receiver},
    world::{World, until},
};

fn push(url: &str, at_end: AtEnd) -> MetricsDelivery {
    MetricsDelivery::Push {
        url: format!("{url}/"),
        job: "buildkite".to_owned(),
        grouping: BTreeMap::from([("pipeline".to_owned(), "a/b".to_owned())]),
        at_end,
        credentials: None,
    }
}

fn otlp(url: &str) -> MetricsDelivery {
    MetricsDelivery::Otlp { url: url.to_owned(), credentials: None }
}

fn keep(url: &str) -> MetricsDelivery {
    push(url, AtEnd::Keep)
}

/// How a receiver becomes a delivery.
type Kind = fn(&str) -> MetricsDelivery;

const GROUP: &str = "/metrics/job/buildkite/pipeline@base64/YS9i";

#[tokio::test]
async fn a_pushgateway_gets_each_change_and_keeps_the_last() {
    let (receiver, url) = Receiver::start([]).await;
    let world = World::new(push(&url, AtEnd::Keep));
    // Times are left out, as the gateway refuses them.
    world.write("a.prom", "a 1 1700000000000\n");
    until("the first push", async || receiver.calls().first().cloned()).await;
    world.write("a.prom", "a 2\n");
    world.end();
    let report = world.report().await;
    let calls: Vec<_> = receiver.calls().into_iter().map(|call| (call.what, call.body)).collect();
    let body = |value: u8| format!("# TYPE a untyped\na{{step=\"test\"}} {value}\n");
    assert_eq!(calls, [1, 2].map(|value| (format!("PUT {GROUP}"), body(value))));
    assert_eq!((report.sinks[0].name.as_str(), report.sinks[0].sent), ("push", 1));
}

#[tokio::test]
async fn a_pushgateway_forgets_in_the_end_if_it_is_told_to() {
    let (receiver, url) = Receiver::start([]).await;
    let world = World::new(push(&url, AtEnd::Delete));
    world.write("a.prom", "a 1\n");
    world.end();
    let report = world.report().await;
    let calls: Vec<_> = receiver.calls().into_iter().map(|call| call.what).collect();
    assert_eq!(calls.last(), Some(&format!("DELETE {GROUP}")), "{calls:?}");
    assert_eq!(report.sinks[0].reason, None);
}

#[rstest]
#[tokio::test]
async fn a_receiver_that_fails_is_tried_again(#[values(keep, otlp)] kind: Kind) {
    let failures = [Behaviour::Status(503), Behaviour::Status(429)];
    let (receiver, url) = Receiver::start(failures).await;
    let world = World::patient(kind(&url), 20);
    world.write("a.prom", "a 1\n");
    world.end();
    let report = world.report().await;
    assert_eq!((receiver.calls().len(), report.sinks[0].sent, report.sinks[0].waiting), (1, 1, 0));
}

#[rstest]
#[case(keep, GROUP)]
#[case(otlp, "/v1/metrics")]
#[tokio::test]
async fn a_receiver_that_refuses_is_in_the_report(#[case] kind: Kind, #[case] place: &str) {
    let (receiver, url) = Receiver::start([Behaviour::Status(400); 100]).await;
    let world = World::new(kind(&url));
    world.write("a.prom", "a 1\n");
    world.end();
    let sink = world.report().await.sinks.remove(0);
    assert_eq!((sink.sent, sink.waiting, sink.lost, receiver.calls().len()), (0, 1, 0, 0));
    assert_eq!(sink.reason, Some(format!("{url}{place} answers 400: not like this")));
}

/// Followed, a redirection makes a GET of the request, and of its answer a success that nothing has had.
#[rstest]
#[case(keep, GROUP)]
#[case(otlp, "/v1/metrics")]
#[tokio::test]
async fn a_receiver_that_points_elsewhere_is_in_the_report(
    #[case] kind: Kind,
    #[case] place: &str,
    #[values(301, 303, 307)] status: u16,
) {
    let (receiver, url) = Receiver::start([Behaviour::Elsewhere(status); 100]).await;
    let world = World::new(kind(&url));
    world.write("a.prom", "a 1\n");
    world.end();
    let sink = world.report().await.sinks.remove(0);
    assert_eq!((sink.sent, sink.waiting, receiver.strayed()), (0, 1, false));
    let reason = format!(
        "{url}{place} answers {status} and points to /elsewhere, where nothing is sent: correct `url`"
    );
    assert_eq!(sink.reason, Some(reason));
}

#[rstest]
#[tokio::test]
async fn a_receiver_that_never_answers_keeps_nobody(#[values(keep, otlp)] kind: Kind) {
    let (_receiver, url) = Receiver::start([Behaviour::Never; 10]).await;
    let world = World::new(kind(&url));
    world.write("a.prom", "a 1\n");
    world.end();
    let sink = world.report().await.sinks.remove(0);
    assert_eq!((sink.sent, sink.waiting), (0, 1));
    assert_eq!(sink.reason.as_deref(), Some("there was no time to send the last values"));
}

#[rstest]
#[case(keep, GROUP)]
#[case(otlp, "/v1/metrics")]
#[tokio::test]
async fn a_receiver_that_is_not_there_is_in_the_report(#[case] kind: Kind, #[case] place: &str) {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let world = World::new(kind(&format!("http://{nobody}")));
    world.write("a.prom", "a 1\n");
    world.stop.cancel();
    let sink = world.report().await.sinks.remove(0);
    assert_eq!((sink.sent, sink.waiting), (0, 1));
    let reason = sink.reason.unwrap();
    assert!(reason.starts_with(&format!("cannot reach http://{nobody}{place}: ")), "{reason}");
}

#[tokio::test]
async fn values_that_otlp_refuses_or_cannot_say_are_lost_with_a_reason() {
    let (_receiver, url) = Receiver::start([Behaviour::Rejected(2)]).await;
    let world = World::new(otlp(&url));
    world.write("a.prom", "a 1\na{b=\"c\"} 2\nd 3\n");
    world.end();
    let sink = world.report().await.sinks.remove(0);
    assert_eq!((sink.sent, sink.waiting, sink.lost), (1, 0, 2), "{sink:?}");
    assert_eq!(sink.reason.as_deref(), Some("the receiver refused some values: too old"));

    let (_receiver, url) = Receiver::start([]).await;
    let world = World::new(otlp(&url));
    world.write("a.prom", "# TYPE t histogram\nt_bucket{le=\"1\"} 2\nt_sum 3\n");
    world.end();
    let sink = world.report().await.sinks.remove(0);
    assert_eq!((sink.sent, sink.lost), (1, 1), "{sink:?}");
    assert_eq!(sink.reason.as_deref(), Some("t cannot be sent by OTLP: there is no t_count"));
}

#[tokio::test]
async fn otlp_has_the_jobs_labels_and_credentials() {
    let (receiver, url) = Receiver::start([]).await;
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("token"), "t0p\n").unwrap();
    let credentials = Some(secret.path().display().to_string());
    let world = World::new(MetricsDelivery::Otlp { url, credentials });
    world.write("a.prom", "# TYPE a counter\na{b=\"c\"} 2\n");
    world.end();
    assert_eq!(world.report().await.sinks[0].sent, 1);
    let call = receiver.calls().remove(0);
    assert_eq!((call.what.as_str(), call.authorization.as_deref()), ("POST /v1/metrics", Some("Bearer t0p")));
    let body: serde_json::Value = serde_json::from_str(&call.body).unwrap();
    let resource = &body["resourceMetrics"][0];
    assert_eq!(resource["resource"]["attributes"][0]["key"], "step");
    assert_eq!(resource["scopeMetrics"][0]["metrics"][0]["sum"]["dataPoints"][0]["asDouble"], 2.0);
}
