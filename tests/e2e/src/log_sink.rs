//! A place for logs, served by the test: Loki's push API, and OTLP in JSON.

use std::{
    io::Read,
    net::IpAddr,
    sync::{Arc, Mutex},
};

use anyhow::Result;
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{StatusCode, Uri},
};
use flate2::read::GzDecoder;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A line that has arrived.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// Its number among the lines of its pod.
    pub sequence: u64,
    /// The container that wrote it; empty for those of files.
    pub container: String,
    /// `stdout`, `stderr` or empty.
    pub stream: String,
    /// The file that it stood in; empty for output.
    pub file: String,
    /// The text.
    pub message: String,
}

type Lines = Arc<Mutex<Vec<(String, Line)>>>;

/// A running server. It stops when it is dropped.
pub struct LogSink {
    /// Its address.
    pub url: String,
    lines: Lines,
    _stop: DropGuard,
}

impl LogSink {
    /// Starts a server on `host`.
    pub async fn serve(host: IpAddr) -> Result<Self> {
        let listener = TcpListener::bind((host, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let lines = Lines::default();
        let router = Router::new().fallback(take).with_state(lines.clone());
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(axum::serve(listener, router).into_future()));
        Ok(Self { url, lines, _stop: stop.drop_guard() })
    }

    /// The lines that came by Loki's push API, in the order of their numbers.
    pub fn by_loki(&self) -> Vec<Line> {
        self.by("/loki/api/v1/push")
    }

    /// The lines that came by OTLP, in the order of their numbers.
    pub fn by_otlp(&self) -> Vec<Line> {
        self.by("/v1/logs")
    }

    fn by(&self, path: &str) -> Vec<Line> {
        let lines = self.lines.lock().expect("nobody panics while he holds it");
        let mut lines: Vec<Line> =
            lines.iter().filter(|(way, _)| way == path).map(|(_, line)| line.clone()).collect();
        lines.sort();
        lines
    }
}

/// Takes a batch whole, or not at all.
async fn take(State(lines): State<Lines>, uri: Uri, body: Bytes) -> StatusCode {
    let mut text = String::new();
    if GzDecoder::new(&*body).read_to_string(&mut text).is_err() {
        return StatusCode::BAD_REQUEST;
    }
    let Ok(batch) = serde_json::from_str::<Value>(&text) else { return StatusCode::BAD_REQUEST };
    let read = match uri.path() {
        "/loki/api/v1/push" => loki(&batch),
        "/v1/logs" => otlp(&batch),
        _ => None,
    };
    let Some(read) = read else { return StatusCode::BAD_REQUEST };
    let path = uri.path().to_owned();
    lines
        .lock()
        .expect("nobody panics while he holds it")
        .extend(read.into_iter().map(|line| (path.clone(), line)));
    StatusCode::OK
}

fn loki(batch: &Value) -> Option<Vec<Line>> {
    let mut lines = Vec::new();
    for stream in batch["streams"].as_array()? {
        let labels = &stream["stream"];
        for value in stream["values"].as_array()? {
            let metadata = &value[2];
            lines.push(Line {
                sequence: metadata["sequence"].as_str()?.parse().ok()?,
                container: text(&labels["container"]),
                stream: Some(text(&labels["stream"])).filter(|stream| stream != "file").unwrap_or_default(),
                file: text(&metadata["filename"]),
                message: value[1].as_str()?.to_owned(),
            });
        }
    }
    Some(lines)
}

fn otlp(batch: &Value) -> Option<Vec<Line>> {
    let mut lines = Vec::new();
    for resource in batch["resourceLogs"].as_array()? {
        for scope in resource["scopeLogs"].as_array()? {
            for record in scope["logRecords"].as_array()? {
                let attribute = |key: &str| {
                    let all = record["attributes"].as_array()?;
                    all.iter().find(|attribute| attribute["key"] == key).map(|attribute| &attribute["value"])
                };
                let named =
                    |key: &str| attribute(key).map(|value| text(&value["stringValue"])).unwrap_or_default();
                lines.push(Line {
                    sequence: attribute("log.sequence")?["intValue"].as_str()?.parse().ok()?,
                    container: named("k8s.container.name"),
                    stream: named("log.iostream"),
                    file: named("log.file.path"),
                    message: record["body"]["stringValue"].as_str()?.to_owned(),
                });
            }
        }
    }
    Some(lines)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
