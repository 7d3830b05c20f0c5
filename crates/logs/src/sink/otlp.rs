//! OTLP over HTTP, in protobuf or JSON, with the names of OpenTelemetry's semantic conventions where there are some.

mod protobuf;

use bk_api::{
    config::{OtlpEncoding, OtlpSink},
    exporters::LogOrigin,
};
use serde::Deserialize;
use serde_json::Value;

use super::{Answer, http::Body};
use crate::{
    json,
    record::{Batch, Record, Source, Sources},
};

/// Where batches go.
pub(super) fn url(sink: &OtlpSink) -> String {
    let base = sink.url.trim_end_matches('/');
    if base.ends_with("/v1/logs") { base.to_owned() } else { format!("{base}/v1/logs") }
}

/// Numbers of fields of OTLP's messages.
mod field {
    /// Of `KeyValue`s in a `Resource`.
    pub(super) const RESOURCE_ATTRIBUTES: u32 = 1;
    /// Of `KeyValue`s in a `LogRecord`.
    pub(super) const RECORD_ATTRIBUTES: u32 = 6;
}

/// The name of what sends the records.
const SCOPE: &str = "buildkite-operator";

/// Writes export requests.
#[derive(Debug)]
pub(super) struct Dialect {
    encoding: OtlpEncoding,
    sources: Sources,
    resource: Vec<u8>,
    /// The attributes of each source.
    written: Vec<Option<Vec<u8>>>,
}

impl Dialect {
    pub(super) fn new(sink: &OtlpSink, origin: &LogOrigin, sources: Sources) -> Self {
        let LogOrigin { build_job, job, pipeline, build, step, namespace, pod, pod_uid, node } = origin;
        let mut resource = Vec::new();
        for (name, value) in [
            ("service.name", "buildkite"),
            ("k8s.namespace.name", namespace),
            ("k8s.pod.name", pod),
            ("k8s.pod.uid", pod_uid),
            ("k8s.node.name", node),
            ("cicd.pipeline.name", pipeline),
            ("cicd.pipeline.run.id", build),
            ("cicd.pipeline.task.name", step),
            ("cicd.pipeline.task.run.id", job),
            ("buildkite.build_job", build_job),
        ] {
            attribute(sink.encoding, field::RESOURCE_ATTRIBUTES, name, value, &mut resource);
        }
        Self { encoding: sink.encoding, sources, resource, written: Vec::new() }
    }

    pub(super) fn render(&mut self, batch: &Batch, items: &[usize], body: &mut Body) -> &'static str {
        match self.encoding {
            OtlpEncoding::Json => {
                self.render_json(batch, items, body);
                "application/json"
            }
            OtlpEncoding::Protobuf => {
                self.render_protobuf(batch, items, body);
                "application/x-protobuf"
            }
        }
    }

    fn render_json(&mut self, batch: &Batch, items: &[usize], body: &mut Body) {
        let out = body.plain();
        out.extend_from_slice(br#"{"resourceLogs":[{"resource":{"attributes":["#);
        out.extend_from_slice(&self.resource);
        out.extend_from_slice(br#"]},"scopeLogs":[{"scope":{"name":"#);
        json::string(SCOPE.as_bytes(), out);
        out.extend_from_slice(br#"},"logRecords":["#);
        for (index, item) in items.iter().enumerate() {
            let record = batch.get(*item);
            let out = body.plain();
            if index > 0 {
                out.push(b',');
            }
            json_record(record, self.attributes(record.stamp.source), out);
        }
        body.plain().extend_from_slice(b"]}]}]}");
    }

    fn render_protobuf(&mut self, batch: &Batch, items: &[usize], body: &mut Body) {
        // Lengths come before what they are of, so the records are written first.
        let mut records = Vec::new();
        for item in items {
            let record = batch.get(*item);
            protobuf_record(record, self.attributes(record.stamp.source), &mut records);
        }
        let scope = protobuf::length(SCOPE.len());
        let scope_logs = protobuf::length(scope) + records.len();
        let resource_logs = protobuf::length(self.resource.len()) + protobuf::length(scope_logs);
        let out = body.plain();
        protobuf::head(1, resource_logs, out);
        protobuf::bytes(1, &self.resource, out);
        protobuf::head(2, scope_logs, out);
        protobuf::head(1, scope, out);
        protobuf::bytes(1, SCOPE.as_bytes(), out);
        for chunk in records.chunks(64 << 10) {
            body.plain().extend_from_slice(chunk);
        }
    }

    fn attributes(&mut self, number: u32) -> &[u8] {
        let index = number as usize;
        if self.written.len() <= index {
            self.written.resize(index + 1, None);
        }
        self.written[index].get_or_insert_with(|| written(self.encoding, &self.sources.get(number)))
    }
}

fn written(encoding: OtlpEncoding, source: &Source) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in [
        ("k8s.container.name", source.container.as_deref()),
        ("log.iostream", source.stream),
        ("log.file.path", source.file.as_deref()),
    ] {
        attribute(encoding, field::RECORD_ATTRIBUTES, name, value.unwrap_or_default(), &mut out);
    }
    out
}

fn json_record(record: Record<'_>, source: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"timeUnixNano":""#);
    json::number(record.stamp.time, out);
    out.extend_from_slice(br#"","observedTimeUnixNano":""#);
    json::number(record.stamp.time, out);
    out.extend_from_slice(br#"","body":{"stringValue":"#);
    json::string(record.text, out);
    out.extend_from_slice(br#"},"attributes":["#);
    out.extend_from_slice(br#"{"key":"log.sequence","value":{"intValue":""#);
    json::number(record.stamp.sequence, out);
    out.extend_from_slice(br#""}}"#);
    if record.stamp.partial {
        attribute(OtlpEncoding::Json, field::RECORD_ATTRIBUTES, "log.flags", "partial", out);
    }
    if !source.is_empty() {
        out.push(b',');
        out.extend_from_slice(source);
    }
    out.extend_from_slice(b"]}");
}

/// Adds a `LogRecord` as a field of its `ScopeLogs`.
fn protobuf_record(record: Record<'_>, source: &[u8], out: &mut Vec<u8>) {
    let mut own = Vec::with_capacity(64);
    protobuf::number_attribute(field::RECORD_ATTRIBUTES, "log.sequence", record.stamp.sequence, &mut own);
    if record.stamp.partial {
        protobuf::attribute(field::RECORD_ATTRIBUTES, "log.flags", "partial", &mut own);
    }
    let text = protobuf::length(record.text.len());
    protobuf::head(2, 9 + protobuf::length(text) + own.len() + source.len() + 9, out);
    protobuf::fixed64(1, record.stamp.time, out);
    protobuf::head(5, text, out);
    protobuf::bytes(1, record.text, out);
    out.extend_from_slice(&own);
    out.extend_from_slice(source);
    protobuf::fixed64(11, record.stamp.time, out);
}

/// Adds an attribute, unless its value is empty; in JSON with a comma if there is something before it.
fn attribute(encoding: OtlpEncoding, field: u32, name: &str, value: &str, out: &mut Vec<u8>) {
    if value.is_empty() {
        return;
    }
    match encoding {
        OtlpEncoding::Protobuf => protobuf::attribute(field, name, value, out),
        OtlpEncoding::Json => {
            if out.last().is_some_and(|last| *last != b'[') {
                out.push(b',');
            }
            out.extend_from_slice(br#"{"key":"#);
            json::string(name.as_bytes(), out);
            out.extend_from_slice(br#","value":{"stringValue":"#);
            json::string(value.as_bytes(), out);
            out.extend_from_slice(b"}}");
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Exported {
    partial_success: PartialSuccess,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialSuccess {
    /// A number, or in the JSON of protobuf a string.
    rejected_log_records: Value,
    error_message: String,
}

impl Exported {
    /// From whatever encoding the server chose. An empty answer is a success.
    fn read(body: &[u8]) -> Self {
        if body.first() == Some(&b'{') {
            return serde_json::from_slice(body).unwrap_or_default();
        }
        let mut partial_success = PartialSuccess::default();
        for field in protobuf::fields(body) {
            let protobuf::Field::Bytes(1, message) = field else { continue };
            for field in protobuf::fields(message) {
                match field {
                    protobuf::Field::Number(1, number) => {
                        partial_success.rejected_log_records = number.into();
                    }
                    protobuf::Field::Bytes(2, text) => {
                        partial_success.error_message = String::from_utf8_lossy(text).into_owned();
                    }
                    _ => {}
                }
            }
        }
        Self { partial_success }
    }
}

/// What an answer means that is a success. Which records were refused it does not say.
pub(super) fn answer(body: &[u8], items: &[usize]) -> Answer {
    let Exported { partial_success } = Exported::read(body);
    let rejected = match &partial_success.rejected_log_records {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let all = items.len() as u64;
    let lost = rejected.unwrap_or_default().min(all);
    let reason = (lost > 0).then(|| format!("refused some lines: {}", partial_success.error_message));
    Answer { delivered: all - lost, lost, reason, ..Answer::default() }
}

#[cfg(test)]
mod tests;
