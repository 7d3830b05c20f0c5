//! `log_exporter_config`: where logs of jobs go, and how.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::directory::check_name;

/// `log_exporter_config`: where logs of jobs go, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LogExporterConfig {
    /// Whether jobs that say nothing about it send the output of their containers to the default sinks.
    pub enabled: bool,
    /// Sinks by name.
    pub sinks: BTreeMap<String, LogSink>,
    /// The sinks of jobs that name none; every sink if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_sinks: Option<Vec<String>>,
    /// When a batch is sent.
    pub batch: LogBatch,
    /// The most bytes on each pod's disk that wait for sinks.
    pub spool_bytes: u64,
    /// Longer lines are cut into several records.
    pub max_line_bytes: usize,
    /// Which lines belong together; each line is a record of its own if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiline: Option<Multiline>,
    /// What is hidden besides values of the variables in `BUILDKITE_REDACTED_VARS`.
    pub redaction: LogRedaction,
    /// How long the exporter tries on after the job's end while no sink takes anything.
    pub drain_seconds: u32,
}

/// How lines are treated between the place where they are written and the sinks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LogHandling {
    /// When a batch is sent.
    pub batch: LogBatch,
    /// The most bytes on disk that wait for sinks.
    pub spool_bytes: u64,
    /// Longer lines are cut into several records.
    pub max_line_bytes: usize,
    /// Which lines belong together; each line is a record of its own if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiline: Option<Multiline>,
    /// What is hidden besides values of the variables in `BUILDKITE_REDACTED_VARS`.
    pub redaction: LogRedaction,
}

/// A batch is sent when the first of these is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LogBatch {
    /// Number of lines.
    pub lines: usize,
    /// Bytes of text.
    pub bytes: usize,
    /// Age of the first line.
    pub milliseconds: u64,
}

/// Which lines belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Multiline {
    /// A line that begins with a space or a tab goes on with the record before it.
    Indented,
    /// A line that matches this regular expression begins a record; others go on with the one before them.
    Start(String),
    /// A line that matches this regular expression goes on with the record before it.
    Continuation(String),
}

/// What is hidden.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LogRedaction {
    /// Further patterns of names of variables whose values are hidden.
    pub variables: Vec<String>,
}

/// A place that takes logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum LogSink {
    /// Elasticsearch, or what speaks its bulk API.
    Elasticsearch(ElasticsearchSink),
    /// Grafana Loki.
    Loki(LokiSink),
    /// An OpenTelemetry receiver.
    Otlp(OtlpSink),
    /// Files on a volume.
    File(FileSink),
    /// The exporter's own standard output, for a collector of the cluster.
    Stdout(StdoutSink),
}

/// Elasticsearch, or what speaks its bulk API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ElasticsearchSink {
    /// The server's address.
    pub url: String,
    /// The data stream to write to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_stream: Option<String>,
    /// The index to write to instead; `%Y`, `%m` and `%d` are those of a line's day, in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// The Secret with credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// Grafana Loki.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LokiSink {
    /// The server's address.
    pub url: String,
    /// The tenant, for servers that have several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Labels of all lines besides the exporter's own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The Secret with credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// An OpenTelemetry receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OtlpSink {
    /// The server's address; `/v1/logs` is added.
    pub url: String,
    /// How records are written.
    pub encoding: OtlpEncoding,
    /// The Secret with credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// How records are written for an OpenTelemetry receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OtlpEncoding {
    /// What every receiver reads.
    #[default]
    Protobuf,
    /// What people can read, too.
    Json,
}

/// Files on a volume, one for each pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FileSink {
    /// The volume, as in a pod's `volumes`; its name may be left out.
    pub volume: Map<String, Value>,
    /// A file that would grow beyond this is put aside.
    pub max_bytes: u64,
    /// How many files put aside are kept for each pod.
    pub keep: u32,
}

/// The exporter's own standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StdoutSink {}

/// The longest line that may be asked for. It has to be in memory as a whole.
const LONGEST_LINE: usize = 1 << 20;

impl Default for LogExporterConfig {
    fn default() -> Self {
        let LogHandling { batch, spool_bytes, max_line_bytes, multiline, redaction } = LogHandling::default();
        Self {
            enabled: false,
            sinks: BTreeMap::new(),
            default_sinks: None,
            batch,
            spool_bytes,
            max_line_bytes,
            multiline,
            redaction,
            drain_seconds: 30,
        }
    }
}

impl Default for LogHandling {
    fn default() -> Self {
        Self {
            batch: LogBatch::default(),
            spool_bytes: 256 << 20,
            max_line_bytes: 64 << 10,
            multiline: None,
            redaction: LogRedaction::default(),
        }
    }
}

impl Default for LogBatch {
    fn default() -> Self {
        Self { lines: 5000, bytes: 1 << 20, milliseconds: 1000 }
    }
}

impl Default for FileSink {
    fn default() -> Self {
        Self { volume: Map::new(), max_bytes: 100 << 20, keep: 5 }
    }
}

impl LogExporterConfig {
    /// The sinks of jobs that name none.
    pub fn default_sinks(&self) -> Vec<String> {
        self.default_sinks.clone().unwrap_or_else(|| self.sinks.keys().cloned().collect())
    }

    /// How lines are treated on their way.
    pub fn handling(&self) -> LogHandling {
        let Self { batch, spool_bytes, max_line_bytes, multiline, redaction, .. } = self.clone();
        LogHandling { batch, spool_bytes, max_line_bytes, multiline, redaction }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        for (name, sink) in &self.sinks {
            if !is_name(name) {
                return Err(format!(
                    "`sinks.{name}`: a sink's name must be 1 to 40 lower-case letters, digits or `-`, and begin and end with a letter or digit"
                ));
            }
            sink.check()
                .map_err(|(field, reason)| format!("`sinks.{name}.{}{field}` {reason}", sink.kind()))?;
        }
        let unknown = |name: &&String| !self.sinks.contains_key(*name);
        if let Some(name) = self.default_sinks.iter().flatten().find(unknown) {
            return Err(format!("`defaultSinks`: `{name}` is not in `sinks`"));
        }
        let mut named = BTreeSet::new();
        if let Some(name) = self.default_sinks.iter().flatten().find(|name| !named.insert(*name)) {
            return Err(format!("`defaultSinks`: `{name}` is there twice"));
        }
        if self.enabled && self.default_sinks().is_empty() {
            return Err("`enabled` needs at least one sink in `sinks` and `defaultSinks`".to_owned());
        }
        if self.drain_seconds == 0 {
            return Err("`drainSeconds` must be at least 1".to_owned());
        }
        self.handling().check()
    }
}

impl LogHandling {
    fn check(&self) -> Result<(), String> {
        let LogBatch { lines, bytes, milliseconds } = self.batch;
        if !(1..=100_000).contains(&lines) {
            return Err("`batch.lines` must be 1 to 100000".to_owned());
        }
        if !(1024..=8 << 20).contains(&bytes) {
            return Err("`batch.bytes` must be 1024 to 8388608".to_owned());
        }
        if !(1..=60_000).contains(&milliseconds) {
            return Err("`batch.milliseconds` must be 1 to 60000".to_owned());
        }
        if self.spool_bytes < 1 << 20 {
            return Err("`spoolBytes` must be at least 1048576".to_owned());
        }
        if !(256..=LONGEST_LINE).contains(&self.max_line_bytes) {
            return Err(format!("`maxLineBytes` must be 256 to {LONGEST_LINE}"));
        }
        if let Some(Multiline::Start(rule) | Multiline::Continuation(rule)) = &self.multiline {
            regex::bytes::Regex::new(rule).map_err(|error| {
                format!("`multiline`: `{rule}` is no regular expression: {}", last_line(&error))
            })?;
        }
        if self.redaction.variables.iter().any(|pattern| pattern.trim().is_empty()) {
            return Err("`redaction.variables` must not hold empty patterns".to_owned());
        }
        Ok(())
    }
}

/// What is wrong with a regular expression; the lines before draw the place.
fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

impl LogSink {
    /// The Secret with the sink's credentials.
    pub fn secret(&self) -> Option<&str> {
        match self {
            Self::Elasticsearch(sink) => sink.secret.as_deref(),
            Self::Loki(sink) => sink.secret.as_deref(),
            Self::Otlp(sink) => sink.secret.as_deref(),
            Self::File(_) | Self::Stdout(_) => None,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Elasticsearch(_) => "elasticsearch",
            Self::Loki(_) => "loki",
            Self::Otlp(_) => "otlp",
            Self::File(_) => "file",
            Self::Stdout(_) => "stdout",
        }
    }

    /// What is wrong, and with which field.
    fn check(&self) -> Result<(), (&'static str, String)> {
        check_name(self.secret()).map_err(|problem| (".secret", problem))?;
        match self {
            Self::Elasticsearch(sink) => {
                check_url(&sink.url)?;
                match (&sink.data_stream, &sink.index) {
                    (Some(name), None) => check_index(name).map_err(|reason| (".dataStream", reason)),
                    (None, Some(pattern)) => {
                        let name = pattern.replace("%Y", "").replace("%m", "").replace("%d", "");
                        check_index(&name).map_err(|reason| (".index", reason))
                    }
                    _ => Err(("", "needs either `dataStream` or `index`".to_owned())),
                }
            }
            Self::Loki(sink) => {
                check_url(&sink.url)?;
                match sink.labels.keys().find(|name| !is_loki_label(name)) {
                    Some(name) => Err((
                        ".labels",
                        format!(
                            "has `{name}`: names of labels are letters, digits and `_`, and begin with no digit"
                        ),
                    )),
                    None => Ok(()),
                }
            }
            Self::Otlp(sink) => check_url(&sink.url),
            Self::File(sink) if sink.volume.keys().all(|key| key == "name") => Err((
                ".volume",
                "must say what kind of volume it is, such as `persistentVolumeClaim`".to_owned(),
            )),
            Self::File(sink) if sink.max_bytes < 1 << 20 => {
                Err((".maxBytes", "must be at least 1048576".to_owned()))
            }
            Self::File(_) | Self::Stdout(_) => Ok(()),
        }
    }
}

/// Names of sinks are names of directories and parts of names of volumes.
fn is_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=40).contains(&name.len())
        && name.bytes().all(known)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// What is wrong with the address of a server, and with which field.
pub(super) fn check_url(url: &str) -> Result<(), (&'static str, String)> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    match host {
        None | Some("") => Err((".url", "must begin with http:// or https://, and name a host".to_owned())),
        Some(host) if host.contains('@') => Err((
            ".url",
            "must not hold credentials: put them into the Secret that `secret` names".to_owned(),
        )),
        Some(_) if url.contains(char::is_whitespace) => Err((".url", "must not hold spaces".to_owned())),
        Some(_) => Ok(()),
    }
}

/// What Elasticsearch refuses in names of indices.
fn check_index(name: &str) -> Result<(), String> {
    let bad =
        |c: char| c.is_uppercase() || c.is_whitespace() || c.is_control() || "\\/*?\"<>|,#:%".contains(c);
    if name.is_empty() || name.len() > 200 || name.starts_with(['-', '_', '+', '.']) || name.contains(bad) {
        return Err(
            "must be 1 to 200 lower-case characters without spaces and \\ / * ? \" < > | , # :, and not begin with - _ + or a dot"
                .to_owned(),
        );
    }
    Ok(())
}

fn is_loki_label(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests;
