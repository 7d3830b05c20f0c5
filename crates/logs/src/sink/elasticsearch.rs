//! Elasticsearch: the bulk API.

use bk_api::{config::ElasticsearchSink, exporters::LogOrigin};
use serde::Deserialize;

use super::{Answer, document::Documents, http::Body};
use crate::{
    json,
    record::{Batch, Record},
};

/// What of an answer is of use.
const FILTER: &str =
    "filter_path=errors,items.create.status,items.create.error.type,items.create.error.reason";

/// Where batches go.
pub(super) fn url(sink: &ElasticsearchSink) -> String {
    let base = sink.url.trim_end_matches('/');
    match &sink.data_stream {
        Some(name) => format!("{base}/{name}/_bulk?{FILTER}"),
        None => format!("{base}/_bulk?{FILTER}"),
    }
}

/// Writes bulk requests.
#[derive(Debug)]
pub(super) struct Dialect {
    documents: Documents,
    /// The pod, for names of documents that are the same when a batch is sent again.
    pod: String,
    index: Option<Index>,
}

/// An index for each day.
#[derive(Debug)]
struct Index {
    pattern: String,
    day: u64,
    name: Vec<u8>,
}

impl Dialect {
    pub(super) fn new(sink: &ElasticsearchSink, origin: &LogOrigin, documents: Documents) -> Self {
        let pod = if origin.pod_uid.is_empty() { &origin.pod } else { &origin.pod_uid };
        let index = sink.index.as_ref().map(|pattern| Index {
            pattern: pattern.clone(),
            day: u64::MAX,
            name: Vec::new(),
        });
        Self { documents, pod: pod.clone(), index }
    }

    pub(super) fn render(&mut self, batch: &Batch, items: &[usize], body: &mut Body) -> &'static str {
        for item in items {
            let record = batch.get(*item);
            let out = body.plain();
            self.action(record, out);
            self.documents.write(record, out);
            out.push(b'\n');
        }
        "application/x-ndjson"
    }

    /// A document's name is made of its pod, its source and its place there: sent again it is the same.
    fn action(&mut self, record: Record<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"create":{"#);
        if let Some(index) = &mut self.index {
            out.extend_from_slice(br#""_index":"#);
            out.extend_from_slice(index.name(record.stamp.time));
            out.push(b',');
        }
        out.extend_from_slice(br#""_id":""#);
        out.extend_from_slice(self.pod.as_bytes());
        out.push(b'-');
        json::number(self.documents.key(record), out);
        out.push(b'-');
        json::number(record.stamp.offset, out);
        out.extend_from_slice(b"\"}}\n");
    }
}

impl Index {
    /// The index of a time, as a JSON string.
    fn name(&mut self, time: u64) -> &[u8] {
        let second = time / 1_000_000_000;
        if self.day != second / 86_400 {
            self.day = second / 86_400;
            let name = json::timestamp(second).strftime(&self.pattern).to_string();
            self.name.clear();
            json::string(name.as_bytes(), &mut self.name);
        }
        &self.name
    }
}

#[derive(Deserialize)]
struct Bulk {
    errors: bool,
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    create: Created,
}

#[derive(Deserialize)]
struct Created {
    status: u16,
    error: Option<Problem>,
}

#[derive(Deserialize)]
struct Problem {
    r#type: Option<String>,
    reason: Option<String>,
}

/// What became of each record, from the answer to a request that was understood.
pub(super) fn answer(body: &[u8], items: &[usize]) -> Answer {
    let bulk: Bulk = match serde_json::from_slice(body) {
        Ok(bulk) => bulk,
        Err(error) => {
            return Answer::again(items, format!("answered something else than a bulk response: {error}"));
        }
    };
    if !bulk.errors {
        return Answer::delivered(items);
    }
    if bulk.items.len() != items.len() {
        let reason = format!("answered for {} of {} lines", bulk.items.len(), items.len());
        return Answer::again(items, reason);
    }
    let mut answer = Answer::default();
    for (item, Item { create }) in items.iter().zip(bulk.items) {
        match create.status {
            // A conflict: the document came with an earlier attempt whose answer was lost.
            200..=299 | 409 => {
                answer.delivered += 1;
                continue;
            }
            401 | 403 | 404 | 429 | 500.. => answer.again.push(*item),
            _ => answer.lost += 1,
        }
        if answer.reason.is_none() {
            answer.reason = Some(reason(&create));
        }
    }
    answer
}

/// What an answer means that is longer than anybody reads: with fewer lines it is shorter. Those that are there already are known by name.
pub(super) fn endless(most: usize, items: &[usize]) -> Answer {
    let reason = format!("answered with more than {most} bytes");
    match items {
        [_] => Answer::refused(items, reason),
        _ => Answer { too_large: true, ..Answer::again(items, reason) },
    }
}

fn reason(create: &Created) -> String {
    let problem = create.error.as_ref();
    let text = |part: Option<&String>| part.cloned().unwrap_or_default();
    let (kind, reason) =
        (text(problem.and_then(|p| p.r#type.as_ref())), text(problem.and_then(|p| p.reason.as_ref())));
    let reason = &reason[..reason.floor_char_boundary(300)];
    format!("answered {} for a line: {kind}: {reason}", create.status)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rstest::rstest;

    use super::*;
    use crate::sink::document::tests::example;

    fn rendered(sink: &ElasticsearchSink) -> Vec<String> {
        let (origin, sources, batch) = example();
        let mut dialect = Dialect::new(sink, &origin, Documents::new(&origin, sources));
        let mut body = Body::new();
        dialect.render(&batch, &[0, 1], &mut body);
        let mut text = String::new();
        flate2::read::GzDecoder::new(&body.finish()[..]).read_to_string(&mut text).unwrap();
        assert!(text.ends_with('\n'));
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn actions_name_documents_by_pod_source_and_offset() {
        let stream =
            ElasticsearchSink { data_stream: Some("logs-ci".to_owned()), ..ElasticsearchSink::default() };
        let lines = rendered(&stream);
        assert_eq!(lines.len(), 4);
        assert!(
            lines[0].starts_with(r#"{"create":{"_id":"uid-1-"#) && lines[0].ends_with("-255\"}}"),
            "{}",
            lines[0]
        );
        assert_ne!(lines[0], lines[2], "another source");
        assert_eq!(lines, rendered(&stream), "the same again");

        let daily =
            ElasticsearchSink { index: Some("ci-%Y.%m.%d".to_owned()), ..ElasticsearchSink::default() };
        assert!(rendered(&daily)[0].starts_with(r#"{"create":{"_index":"ci-2026.11.16","_id":"uid-1-"#));
    }

    #[rstest]
    #[case("http://es:9200", Some("logs-ci"), "http://es:9200/logs-ci/_bulk?filter_path=")]
    #[case("http://es:9200/path/", None, "http://es:9200/path/_bulk?filter_path=")]
    fn addresses(#[case] url: &str, #[case] stream: Option<&str>, #[case] expected: &str) {
        let data_stream = stream.map(str::to_owned);
        let sink = ElasticsearchSink { url: url.to_owned(), data_stream, ..ElasticsearchSink::default() };
        assert!(super::url(&sink).starts_with(expected));
    }

    fn item(status: u16) -> String {
        format!(r#"{{"create":{{"status":{status},"error":{{"type":"kind","reason":"because"}}}}}}"#)
    }

    #[rstest]
    #[case(&[201, 409, 200], 3, &[], 0, None)]
    #[case(&[201, 429, 503], 1, &[6, 7], 0, Some("answered 429 for a line: kind: because"))]
    #[case(&[400, 201, 429], 1, &[7], 1, Some("answered 400 for a line: kind: because"))]
    fn items_are_judged_one_by_one(
        #[case] statuses: &[u16],
        #[case] delivered: u64,
        #[case] again: &[usize],
        #[case] lost: u64,
        #[case] reason: Option<&str>,
    ) {
        let items: Vec<_> = statuses.iter().map(|status| item(*status)).collect();
        let body = format!(r#"{{"errors":true,"items":[{}]}}"#, items.join(","));
        let expected = Answer {
            delivered,
            lost,
            again: again.to_vec(),
            reason: reason.map(str::to_owned),
            ..Answer::default()
        };
        assert_eq!(answer(body.as_bytes(), &[5, 6, 7]), expected);
    }

    #[test]
    fn an_answer_that_is_too_long_is_asked_for_in_parts() {
        let answer = endless(8, &[1, 2]);
        assert_eq!((answer.again, answer.too_large), (vec![1, 2], true));
        let last = endless(8, &[1]);
        assert_eq!((last.lost, last.reason.as_deref()), (1, Some("answered with more than 8 bytes")));
    }

    #[test]
    fn answers_that_are_short_or_strange_prove_nothing() {
        assert_eq!(answer(br#"{"errors":false}"#, &[1, 2]).delivered, 2);
        assert_eq!(answer(br#"{"errors":true,"items":[]}"#, &[1, 2]).again, [1, 2]);
        assert_eq!(answer(b"<html>", &[1, 2]).again, [1, 2]);
    }
}
