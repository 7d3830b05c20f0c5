use std::fs;

use bk_api::config::{LogSink, LokiSink, OtlpEncoding, OtlpSink};

use crate::{
    receiver::{Behaviour, Receiver},
    world::{World, chosen, numbers, search},
};

#[tokio::test]
async fn loki() {
    let receiver = Receiver::start([Behaviour::Status(429, "slow down")]);
    let sink = LokiSink { url: receiver.url(), tenant: Some("ci".to_owned()), ..LokiSink::default() };
    let mut world = World::new(vec![chosen("loki", LogSink::Loki(sink))]);
    let credentials = world.path("credentials");
    fs::create_dir(&credentials).unwrap();
    fs::write(credentials.join("username"), "me\n").unwrap();
    fs::write(credentials.join("password"), "secret\n").unwrap();
    world.document.sinks[0].directory = Some(credentials.display().to_string());
    let lines = world.write_lines("a.log", 0..1000);
    let report = world.finish(world.export()).await;
    assert_eq!(numbers(&report), (1000, 0, 0));
    let there = receiver.received();
    let values = there.bodies.iter().flat_map(|body| body["streams"][0]["values"].as_array().unwrap());
    let values: Vec<_> =
        values.map(|value| (value[0].as_str().unwrap(), value[1].as_str().unwrap())).collect();
    assert_eq!(values.iter().map(|(_, line)| *line).collect::<Vec<_>>(), lines);
    assert!(values.is_sorted_by(|(a, _), (b, _)| a < b), "no two lines have the same time");
    let (path, headers) = &there.requests[0];
    assert_eq!((path.as_str(), &headers["x-scope-orgid"]), ("/loki/api/v1/push", &"ci".parse().unwrap()));
    assert_eq!(headers["authorization"], "Basic bWU6c2VjcmV0");
}

#[tokio::test]
async fn otlp() {
    let receiver = Receiver::start([Behaviour::Status(503, "starting")]);
    let sink = OtlpSink { url: receiver.url(), encoding: OtlpEncoding::Json, ..OtlpSink::default() };
    let mut world = World::new(vec![chosen("otlp", LogSink::Otlp(sink))]);
    let credentials = world.path("credentials");
    fs::create_dir(&credentials).unwrap();
    fs::write(credentials.join("headers"), "X-Key: abc\nX-Other: d:e\n").unwrap();
    world.document.sinks[0].directory = Some(credentials.display().to_string());
    let lines = world.write_lines("a.log", 0..1000);
    let report = world.finish(world.export()).await;
    assert_eq!(numbers(&report), (1000, 0, 0));
    let there = receiver.received();
    let records = there
        .bodies
        .iter()
        .flat_map(|body| body["resourceLogs"][0]["scopeLogs"][0]["logRecords"].as_array().unwrap());
    let bodies: Vec<_> = records.map(|record| record["body"]["stringValue"].as_str().unwrap()).collect();
    assert_eq!(bodies, lines);
    let (path, headers) = &there.requests[0];
    assert_eq!(
        (path.as_str(), &headers["x-key"], &headers["x-other"]),
        ("/v1/logs", &"abc".parse().unwrap(), &"d:e".parse().unwrap())
    );
}

#[tokio::test]
async fn elasticsearch() {
    let receiver = Receiver::start([]);
    let mut world = World::new(vec![search(&receiver)]);
    let credentials = world.path("credentials");
    fs::create_dir(&credentials).unwrap();
    fs::write(credentials.join("api-key"), "a2V5\n").unwrap();
    world.document.sinks[0].directory = Some(credentials.display().to_string());
    world.write_lines("a.log", 0..1);
    let report = world.finish(world.export()).await;
    assert_eq!(numbers(&report), (1, 0, 0));
    let there = receiver.received();
    let (path, headers) = &there.requests[0];
    assert!(path.starts_with("/logs-ci/_bulk?"), "{path}");
    assert_eq!(
        (&headers["authorization"], &headers["content-type"]),
        (&"ApiKey a2V5".parse().unwrap(), &"application/x-ndjson".parse().unwrap())
    );
    let document = there.documents.values().next().unwrap();
    assert_eq!(
        (&document["buildkite"]["pipeline"], &document["kubernetes"]["node"]),
        (&"deploy".into(), &"node-1".into())
    );
    assert!(document["log"]["file"]["path"].as_str().unwrap().ends_with("/a.log"));
}
