//! A record as a JSON document, with the field names of the Elastic Common Schema where it has one.

use bk_api::exporters::LogOrigin;

use crate::{
    json::{self, Clock},
    record::{Record, Source, Sources},
};

/// Writes records as JSON documents.
#[derive(Debug)]
pub(super) struct Documents {
    sources: Sources,
    /// What is said of each source: its file, and the rest.
    written: Vec<Option<Written>>,
    origin: Vec<u8>,
    clock: Clock,
}

#[derive(Clone, Debug)]
struct Written {
    file: Vec<u8>,
    rest: Vec<u8>,
    key: u64,
}

impl Documents {
    pub(super) fn new(origin: &LogOrigin, sources: Sources) -> Self {
        Self { sources, written: Vec::new(), origin: written_origin(origin), clock: Clock::default() }
    }

    /// Adds a record's document.
    pub(super) fn write(&mut self, record: Record<'_>, out: &mut Vec<u8>) {
        let stamp = record.stamp;
        out.extend_from_slice(br#"{"@timestamp":"#);
        self.clock.time(stamp.time, out);
        out.extend_from_slice(br#","message":"#);
        json::string(record.text, out);
        out.extend_from_slice(br#","event":{"sequence":"#);
        json::number(stamp.sequence, out);
        out.extend_from_slice(br#"},"log":{"offset":"#);
        json::number(stamp.offset, out);
        let written = written(&mut self.written, &self.sources, stamp.source);
        out.extend_from_slice(&written.file);
        if stamp.partial {
            out.extend_from_slice(br#","flags":["partial"]"#);
        }
        out.push(b'}');
        out.extend_from_slice(&written.rest);
        out.extend_from_slice(&self.origin);
        out.push(b'}');
    }

    /// What tells a record's source from every other source of the pod.
    pub(super) fn key(&mut self, record: Record<'_>) -> u64 {
        written(&mut self.written, &self.sources, record.stamp.source).key
    }
}

/// What is said of a source, written once.
fn written<'a>(all: &'a mut Vec<Option<Written>>, sources: &Sources, number: u32) -> &'a Written {
    let index = number as usize;
    if all.len() <= index {
        all.resize(index + 1, None);
    }
    all[index].get_or_insert_with(|| written_source(&sources.get(number)))
}

fn written_source(source: &Source) -> Written {
    let mut file = Vec::new();
    if let Some(path) = &source.file {
        file.extend_from_slice(br#","file":{"#);
        json::member("path", path, &mut file);
        file.push(b'}');
    }
    let mut rest = Vec::new();
    if let Some(container) = &source.container {
        rest.extend_from_slice(br#","container":{"#);
        json::member("name", container, &mut rest);
        rest.push(b'}');
    }
    if let Some(stream) = source.stream {
        rest.push(b',');
        let mut member = Vec::new();
        json::member("stream", stream, &mut member);
        rest.extend_from_slice(&member);
    }
    Written { file, rest, key: source.key() }
}

fn written_origin(origin: &LogOrigin) -> Vec<u8> {
    let mut out = Vec::new();
    let object = |name: &str, members: &[(&str, &str)], out: &mut Vec<u8>| {
        let mut inner = Vec::new();
        for (name, value) in members {
            json::member(name, value, &mut inner);
        }
        if !inner.is_empty() {
            out.extend_from_slice(format!(",\"{name}\":{{").as_bytes());
            out.extend_from_slice(&inner);
            out.push(b'}');
        }
    };
    let LogOrigin { build_job, job, pipeline, build, step, namespace, pod, pod_uid, node } = origin;
    let buildkite =
        [("job", job), ("pipeline", pipeline), ("build", build), ("step", step), ("build_job", build_job)];
    object("buildkite", &buildkite.map(|(name, value)| (name, value.as_str())), &mut out);
    let kubernetes = [("namespace", namespace), ("pod", pod), ("pod_uid", pod_uid), ("node", node)];
    object("kubernetes", &kubernetes.map(|(name, value)| (name, value.as_str())), &mut out);
    out
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::record::{Batch, Stamp, encode};

    /// An origin, two sources, and a batch with a line of each.
    pub(in crate::sink) fn example() -> (LogOrigin, Sources, Batch) {
        let origin = LogOrigin {
            job: "0190-uuid".to_owned(),
            pipeline: "deploy".to_owned(),
            build: "42".to_owned(),
            namespace: "ci".to_owned(),
            pod: "buildkite-0190".to_owned(),
            pod_uid: "uid-1".to_owned(),
            node: "n1".to_owned(),
            ..LogOrigin::default()
        };
        let sources = Sources::default();
        let output =
            Source { container: Some("container-0".to_owned()), stream: Some("stderr"), ..Source::default() };
        let file = Source { file: Some("/logs/a \"b\".log".to_owned()), generation: 1, ..Source::default() };
        let mut bytes = Vec::new();
        let time = 1_794_823_200_123_456_789;
        for (source, text, partial) in
            [(sources.add(output), "tab\tü", false), (sources.add(file), "long", true)]
        {
            let number = u64::from(source);
            let stamp = Stamp { source, partial, time: time + number, sequence: 7 + number, offset: 255 };
            encode(stamp, &mut bytes, |out| out.extend_from_slice(text.as_bytes()));
        }
        let mut batch = Batch::default();
        batch.take(&bytes, 10, 1 << 20);
        (origin, sources, batch)
    }

    #[test]
    fn documents_say_where_a_line_comes_from() {
        let (origin, sources, batch) = example();
        let mut documents = Documents::new(&origin, sources);
        let mut read = |index| -> Value {
            let mut out = Vec::new();
            documents.write(batch.get(index), &mut out);
            serde_json::from_slice(&out)
                .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&out)))
        };
        let buildkite = json!({ "job": "0190-uuid", "pipeline": "deploy", "build": "42" });
        let kubernetes =
            json!({ "namespace": "ci", "pod": "buildkite-0190", "pod_uid": "uid-1", "node": "n1" });
        assert_eq!(
            read(0),
            json!({
                "@timestamp": "2026-11-16T10:00:00.123456789Z", "message": "tab\tü", "event": { "sequence": 7 },
                "log": { "offset": 255 }, "container": { "name": "container-0" }, "stream": "stderr",
                "buildkite": buildkite, "kubernetes": kubernetes,
            })
        );
        assert_eq!(
            read(1),
            json!({
                "@timestamp": "2026-11-16T10:00:00.123456790Z", "message": "long", "event": { "sequence": 8 },
                "log": { "offset": 255, "file": { "path": "/logs/a \"b\".log" }, "flags": ["partial"] },
                "buildkite": buildkite, "kubernetes": kubernetes,
            })
        );
    }
}
