//! Sinks: how each wants its records, and what its answers mean.

mod document;
mod elasticsearch;
mod file;
mod http;
mod loki;
mod otlp;

use std::{path::PathBuf, time::Duration};

use bk_api::{
    config::LogSink,
    exporters::{ChosenSink, LogOrigin},
};
use bk_ops::credentials::CredentialsError;

use crate::record::{Batch, Sources};
use document::Documents;
use file::{FileWriter, Output};
use http::HttpSink;

/// What became of records that were sent together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// So many are there.
    pub delivered: u64,
    /// So many are refused for good.
    pub lost: u64,
    /// These have to be sent again.
    pub again: Vec<usize>,
    /// Whether they are too many at once.
    pub too_large: bool,
    /// Why some are lost, or have to be sent again.
    pub reason: Option<String>,
    /// How long the sink wants to be left alone.
    pub wait: Option<Duration>,
}

impl Answer {
    /// All are there.
    fn delivered(items: &[usize]) -> Self {
        Self { delivered: items.len() as u64, ..Self::default() }
    }

    /// All have to be sent again.
    fn again(items: &[usize], reason: String) -> Self {
        Self { again: items.to_vec(), reason: Some(reason), ..Self::default() }
    }

    /// All are refused.
    fn refused(items: &[usize], reason: String) -> Self {
        Self { lost: items.len() as u64, reason: Some(reason), ..Self::default() }
    }
}

/// A sink that cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// Its Secret cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// It has no directory to write to.
    #[error("a file sink needs a directory")]
    Directory,
}

/// A place that takes records.
#[derive(Debug)]
pub enum Sink {
    /// A server.
    Http(Box<HttpSink>),
    /// A file, or standard output.
    Lines(Box<Output>),
}

impl Sink {
    /// The sink as it was chosen.
    pub fn new(chosen: &ChosenSink, origin: &LogOrigin, sources: &Sources) -> Result<Self, SinkError> {
        let documents = || Documents::new(origin, sources.clone());
        let directory = chosen.directory.as_ref().map(PathBuf::from);
        let http = |url: String, headers, dialect| {
            let post = http::Post::new(&url, directory.clone(), headers)?;
            Ok(Self::Http(Box::new(HttpSink::new(post, dialect))))
        };
        match &chosen.sink {
            LogSink::Elasticsearch(sink) => {
                let dialect = elasticsearch::Dialect::new(sink, origin, documents());
                http(elasticsearch::url(sink), vec![], http::Dialect::Elasticsearch(dialect))
            }
            LogSink::Loki(sink) => {
                let tenant = sink.tenant.iter().map(|tenant| ("X-Scope-OrgID", tenant.clone())).collect();
                let dialect = loki::Dialect::new(sink, origin, sources.clone());
                http(loki::url(sink), tenant, http::Dialect::Loki(dialect))
            }
            LogSink::Otlp(sink) => {
                let dialect = otlp::Dialect::new(sink, origin, sources.clone());
                http(otlp::url(sink), vec![], http::Dialect::Otlp(dialect))
            }
            LogSink::File(sink) => {
                let directory = directory.ok_or(SinkError::Directory)?;
                let path = directory.join(format!("{}.ndjson", origin.pod));
                let writer = FileWriter::new(path, sink.max_bytes, sink.keep);
                Ok(Self::Lines(Box::new(Output::file(writer, documents()))))
            }
            LogSink::Stdout(_) => Ok(Self::Lines(Box::new(Output::stdout(documents())))),
        }
    }

    /// Sends some of the batch's records.
    pub async fn send(&mut self, batch: &Batch, items: &[usize]) -> Answer {
        match self {
            Self::Http(sink) => sink.send(batch, items).await,
            Self::Lines(output) => output.send(batch, items).await,
        }
    }
}
