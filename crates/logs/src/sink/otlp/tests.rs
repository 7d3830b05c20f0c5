use std::io::Read;

use opentelemetry_proto::tonic::{
    collector::logs::v1::{ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse},
    common::v1::{KeyValue, any_value::Value as Any},
};
use prost::Message;
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::sink::document::tests::example;

fn rendered(encoding: OtlpEncoding) -> Vec<u8> {
    let (origin, sources, batch) = example();
    let sink = OtlpSink { encoding, ..OtlpSink::default() };
    let mut body = Body::new();
    Dialect::new(&sink, &origin, sources).render(&batch, &[0, 1], &mut body);
    let mut read = Vec::new();
    flate2::read::GzDecoder::new(&body.finish()[..]).read_to_end(&mut read).unwrap();
    read
}

fn text(value: &str) -> Value {
    json!({ "stringValue": value })
}

#[test]
fn records_share_a_resource_in_json() {
    let logs: Value = serde_json::from_slice(&rendered(OtlpEncoding::Json)).unwrap();
    let resource = &logs["resourceLogs"][0]["resource"]["attributes"];
    assert_eq!(resource[0], json!({ "key": "service.name", "value": text("buildkite") }));
    let build = json!({ "key": "cicd.pipeline.run.id", "value": text("42") });
    assert!(resource.as_array().unwrap().contains(&build));
    let records = &logs["resourceLogs"][0]["scopeLogs"][0]["logRecords"];
    assert_eq!(
        records[0],
        json!({
            "timeUnixNano": "1794823200123456789", "observedTimeUnixNano": "1794823200123456789", "body": text("tab\tü"),
            "attributes": [
                { "key": "log.sequence", "value": { "intValue": "7" } },
                { "key": "k8s.container.name", "value": text("container-0") },
                { "key": "log.iostream", "value": text("stderr") },
            ],
        })
    );
    let attributes = json!([
        { "key": "log.sequence", "value": { "intValue": "8" } },
        { "key": "log.flags", "value": text("partial") },
        { "key": "log.file.path", "value": text("/logs/a \"b\".log") },
    ]);
    assert_eq!(records[1]["attributes"], attributes);
}

/// Attributes as OpenTelemetry's own types have them.
fn pairs(attributes: &[KeyValue]) -> Vec<(String, Any)> {
    let value = |pair: &KeyValue| pair.value.clone().unwrap().value.unwrap();
    attributes.iter().map(|pair| (pair.key.clone(), value(pair))).collect()
}

#[test]
fn protobuf_is_what_opentelemetry_reads() {
    let request = ExportLogsServiceRequest::decode(&rendered(OtlpEncoding::Protobuf)[..]).unwrap();
    let [logs] = &request.resource_logs[..] else { panic!("one resource") };
    let resource = pairs(&logs.resource.as_ref().unwrap().attributes);
    let string = |value: &str| Any::StringValue(value.to_owned());
    assert_eq!(resource[0], ("service.name".to_owned(), string("buildkite")));
    assert!(resource.contains(&("k8s.pod.uid".to_owned(), string("uid-1"))));
    let [scope] = &logs.scope_logs[..] else { panic!("one scope") };
    assert_eq!(scope.scope.as_ref().unwrap().name, SCOPE);
    let [first, second] = &scope.log_records[..] else { panic!("two records") };
    let time = 1_794_823_200_123_456_789;
    assert_eq!((first.time_unix_nano, first.observed_time_unix_nano), (time, time));
    assert_eq!(first.body.clone().unwrap().value, Some(string("tab\tü")));
    let named = |name: &str, value: Any| (name.to_owned(), value);
    assert_eq!(
        pairs(&first.attributes),
        [
            named("log.sequence", Any::IntValue(7)),
            named("k8s.container.name", string("container-0")),
            named("log.iostream", string("stderr")),
        ]
    );
    assert_eq!(
        pairs(&second.attributes),
        [
            named("log.sequence", Any::IntValue(8)),
            named("log.flags", string("partial")),
            named("log.file.path", string("/logs/a \"b\".log")),
        ]
    );
}

#[rstest]
#[case("", 3, 0, None)]
#[case("{}", 3, 0, None)]
#[case(r#"{"partialSuccess":{}}"#, 3, 0, None)]
#[case(
    r#"{"partialSuccess":{"rejectedLogRecords":"2","errorMessage":"too old"}}"#,
    1,
    2,
    Some("refused some lines: too old")
)]
#[case(r#"{"partialSuccess":{"rejectedLogRecords":9}}"#, 0, 3, Some("refused some lines: "))]
fn refused_records_are_counted(
    #[case] body: &str,
    #[case] delivered: u64,
    #[case] lost: u64,
    #[case] reason: Option<&str>,
) {
    let expected = Answer { delivered, lost, reason: reason.map(str::to_owned), ..Answer::default() };
    assert_eq!(answer(body.as_bytes(), &[0, 1, 2]), expected);
}

#[test]
fn refused_records_are_counted_in_protobuf_too() {
    let partial_success =
        Some(ExportLogsPartialSuccess { rejected_log_records: 2, error_message: "too old".to_owned() });
    let body = ExportLogsServiceResponse { partial_success }.encode_to_vec();
    let answer = answer(&body, &[0, 1, 2]);
    assert_eq!(
        (answer.delivered, answer.lost, answer.reason.as_deref()),
        (1, 2, Some("refused some lines: too old"))
    );
}

#[rstest]
#[case("http://otel:4318", "http://otel:4318/v1/logs")]
#[case("http://otel:4318/v1/logs/", "http://otel:4318/v1/logs")]
fn addresses(#[case] given: &str, #[case] expected: &str) {
    assert_eq!(url(&OtlpSink { url: given.to_owned(), ..OtlpSink::default() }), expected);
}
