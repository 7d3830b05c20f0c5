//! Loki: the push API.
//!
//! Labels are few, as each combination is a stream of its own: pipeline, container and stream. Everything else is structured
//! metadata of each line.

use std::collections::BTreeMap;

use bk_api::{config::LokiSink, exporters::LogOrigin};

use super::http::Body;
use crate::{
    json,
    record::{Batch, Record, Source, Sources},
};

/// Where batches go.
pub(super) fn url(sink: &LokiSink) -> String {
    format!("{}/loki/api/v1/push", sink.url.trim_end_matches('/'))
}

/// Writes push requests.
#[derive(Debug)]
pub(super) struct Dialect {
    sources: Sources,
    labels: BTreeMap<String, String>,
    pipeline: String,
    metadata: Vec<u8>,
}

impl Dialect {
    pub(super) fn new(sink: &LokiSink, origin: &LogOrigin, sources: Sources) -> Self {
        let LogOrigin { build_job, job, pipeline, build, step, namespace, pod, pod_uid: _, node } = origin;
        let mut metadata = Vec::new();
        for (name, value) in [
            ("job", job),
            ("build", build),
            ("step", step),
            ("build_job", build_job),
            ("namespace", namespace),
            ("pod", pod),
            ("node", node),
        ] {
            json::member(name, value, &mut metadata);
        }
        Self { sources, labels: sink.labels.clone(), pipeline: pipeline.clone(), metadata }
    }

    pub(super) fn render(&mut self, batch: &Batch, items: &[usize], body: &mut Body) -> &'static str {
        let mut by_source: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for item in items {
            by_source.entry(batch.get(*item).stamp.source).or_default().push(*item);
        }
        body.plain().extend_from_slice(br#"{"streams":["#);
        for (index, (number, items)) in by_source.into_iter().enumerate() {
            let source = self.sources.get(number);
            let out = body.plain();
            if index > 0 {
                out.push(b',');
            }
            self.stream(&source, out);
            for (index, item) in items.into_iter().enumerate() {
                let out = body.plain();
                if index > 0 {
                    out.push(b',');
                }
                self.value(&source, batch.get(item), out);
            }
            body.plain().extend_from_slice(b"]}");
        }
        body.plain().extend_from_slice(b"]}");
        "application/json"
    }

    /// The labels of a source, up to where its values begin.
    fn stream(&self, source: &Source, out: &mut Vec<u8>) {
        let mut labels = Vec::new();
        let own = [
            ("service_name", "buildkite"),
            ("pipeline", &self.pipeline),
            ("container", source.container.as_deref().unwrap_or_default()),
            ("stream", source.stream.unwrap_or("file")),
        ];
        let given = self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let own = own.into_iter().filter(|(name, _)| !self.labels.contains_key(*name));
        own.chain(given).for_each(|(name, value)| json::member(name, value, &mut labels));
        out.extend_from_slice(br#"{"stream":{"#);
        out.extend_from_slice(&labels);
        out.extend_from_slice(br#"},"values":["#);
    }

    fn value(&self, source: &Source, record: Record<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"[\"");
        json::number(record.stamp.time, out);
        out.extend_from_slice(b"\",");
        json::string(record.text, out);
        out.extend_from_slice(br#",{"sequence":""#);
        json::number(record.stamp.sequence, out);
        out.push(b'"');
        if let Some(file) = &source.file {
            json::member("filename", file, out);
        }
        if record.stamp.partial {
            json::member("flags", "partial", out);
        }
        if !self.metadata.is_empty() {
            out.push(b',');
            out.extend_from_slice(&self.metadata);
        }
        out.extend_from_slice(b"}]");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use serde_json::{Value, json};

    use super::*;
    use crate::sink::document::tests::example;

    #[test]
    fn lines_are_in_streams_with_few_labels() {
        let (origin, sources, batch) = example();
        let labels = BTreeMap::from([("cluster".to_owned(), "c1".to_owned())]);
        let sink = LokiSink { labels, ..LokiSink::default() };
        let mut body = Body::new();
        Dialect::new(&sink, &origin, sources).render(&batch, &[0, 1], &mut body);
        let mut text = String::new();
        flate2::read::GzDecoder::new(&body.finish()[..]).read_to_string(&mut text).unwrap();
        let common = json!({ "job": "0190-uuid", "build": "42", "namespace": "ci", "pod": "buildkite-0190", "node": "n1" });
        let with = |more: Value| {
            let mut all = common.clone();
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            all
        };
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            json!({ "streams": [
                {
                    "stream": { "service_name": "buildkite", "pipeline": "deploy", "container": "container-0", "stream": "stderr", "cluster": "c1" },
                    "values": [["1794823200123456789", "tab\tü", with(json!({ "sequence": "7" }))]],
                },
                {
                    "stream": { "service_name": "buildkite", "pipeline": "deploy", "stream": "file", "cluster": "c1" },
                    "values": [["1794823200123456790", "long", with(json!({ "sequence": "8", "filename": "/logs/a \"b\".log", "flags": "partial" }))]],
                },
            ] })
        );
    }

    #[test]
    fn the_address() {
        let sink = LokiSink { url: "http://loki:3100/".to_owned(), ..LokiSink::default() };
        assert_eq!(url(&sink), "http://loki:3100/loki/api/v1/push");
    }
}
