//! Receivers to which metrics are sent: a Pushgateway, or one of OTLP.

use std::{path::PathBuf, time::Duration};

use bk_api::{config::AtEnd, exporters::MetricsDelivery};
use bk_ops::credentials::Credentials;
use reqwest::{Method, header::CONTENT_TYPE};

use crate::{
    family::{self, Families, Labels},
    grouping, otlp,
};

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most of an answer that is read.
const LONGEST_ANSWER: usize = 64 << 10;
/// The most of an answer that becomes part of a reason.
const LONGEST_REASON: usize = 300;

/// What is wrong with a receiver, or with what it was sent.
#[derive(Debug, thiserror::Error)]
pub enum ReceiverError {
    /// There is no client for it.
    #[error("cannot use the credentials of {url}")]
    Client {
        /// The receiver.
        url: String,
        /// What is wrong.
        source: bk_ops::credentials::CredentialsError,
    },
    /// It cannot be reached.
    #[error("cannot reach {url}")]
    Unreachable {
        /// The receiver.
        url: String,
        /// Why not.
        source: reqwest::Error,
    },
    /// It points elsewhere.
    #[error("{url} answers {status} and points to {destination}, where nothing is sent: correct `url`")]
    Redirected {
        /// The receiver.
        url: String,
        /// The answer's status.
        status: u16,
        /// Where it points to.
        destination: String,
    },
    /// It does not take what it is sent.
    #[error("{url} answers {status}: {text}")]
    Refused {
        /// The receiver.
        url: String,
        /// The answer's status.
        status: u16,
        /// The answer.
        text: String,
    },
}

/// What became of metrics that a receiver has taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// So many values are not there although the rest is.
    pub lost: u64,
    /// Why, for the first of them.
    pub reason: Option<String>,
}

/// A receiver.
#[derive(Debug)]
pub struct Receiver {
    url: String,
    client: reqwest::Client,
    credentials: Credentials,
    dialect: Dialect,
}

#[derive(Debug)]
enum Dialect {
    Push { at_end: AtEnd },
    Otlp { begin: u64, resource: Labels },
}

impl Receiver {
    /// The receiver of a delivery; none if metrics are served instead. `begin` is when the job began, in nanoseconds since 1970, and `labels`
    /// are those of the job.
    pub fn of(
        delivery: &MetricsDelivery,
        begin: u64,
        labels: &Labels,
    ) -> Result<Option<Self>, ReceiverError> {
        let (url, credentials, dialect) = match delivery {
            MetricsDelivery::Scrape { .. } => return Ok(None),
            MetricsDelivery::Push { url, job, grouping: labels, at_end, credentials } => {
                let url = format!("{}{}", url.trim_end_matches('/'), grouping::path(job, labels));
                (url, credentials, Dialect::Push { at_end: *at_end })
            }
            MetricsDelivery::Otlp { url, credentials } => {
                let url = format!("{}/v1/metrics", url.trim_end_matches('/'));
                (url, credentials, Dialect::Otlp { begin, resource: labels.clone() })
            }
        };
        let credentials = Credentials::new(credentials.as_ref().map(PathBuf::from));
        let user_agent = concat!("buildkite-operator-metrics-exporter/", env!("CARGO_PKG_VERSION"));
        match credentials.client(user_agent, TIMEOUT) {
            Ok(client) => Ok(Some(Self { url, client, credentials, dialect })),
            Err(source) => Err(ReceiverError::Client { url, source }),
        }
    }

    /// Sends metrics as they are `now`, in nanoseconds since 1970.
    pub async fn send(&self, families: &Families, now: u64) -> Result<Taken, ReceiverError> {
        match &self.dialect {
            Dialect::Push { .. } => {
                self.call(Method::PUT, "text/plain; version=0.0.4", push_body(families)).await?;
                Ok(Taken::default())
            }
            Dialect::Otlp { begin, resource } => {
                let request = otlp::request(families, resource, *begin, now);
                let answer = self.call(Method::POST, "application/json", request.body.to_string()).await?;
                let rejected = otlp::rejected(&answer);
                let (number, why) = rejected.unzip();
                let left_out = request.left_out.len() as u64;
                let refused = || why.map(|why| format!("the receiver refused some values: {}", shown(&why)));
                let reason = request.left_out.into_iter().next().or_else(refused);
                Ok(Taken { lost: left_out + number.unwrap_or_default(), reason })
            }
        }
    }

    /// Deletes what was sent, if that is wanted.
    pub async fn clean_up(&self) -> Result<(), ReceiverError> {
        match self.dialect {
            Dialect::Push { at_end: AtEnd::Delete } => {
                self.call(Method::DELETE, "", String::new()).await.map(drop)
            }
            Dialect::Push { at_end: AtEnd::Keep } | Dialect::Otlp { .. } => Ok(()),
        }
    }

    /// The answer to a call that was taken, or what there is of it.
    async fn call(
        &self,
        method: Method,
        content_type: &'static str,
        body: String,
    ) -> Result<Vec<u8>, ReceiverError> {
        let url = || self.url.clone();
        let failed =
            |error: reqwest::Error| ReceiverError::Unreachable { url: url(), source: error.without_url() };
        let mut request = self.client.request(method, &self.url);
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, content_type).body(body);
        }
        let mut response = self.credentials.authorize(request).send().await.map_err(failed)?;
        let status = response.status();
        let destination = bk_ops::http::destination(&response);
        let mut answer = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            answer.extend_from_slice(&chunk[..chunk.len().min(LONGEST_ANSWER.saturating_sub(answer.len()))]);
        }
        if status.is_success() {
            return Ok(answer);
        }
        let status = status.as_u16();
        if let Some(place) = destination {
            return Err(ReceiverError::Redirected { url: url(), status, destination: shown(&place) });
        }
        let text = shown(&String::from_utf8_lossy(&answer));
        Err(ReceiverError::Refused { url: url(), status, text })
    }
}

/// A text on one line that is not too long.
fn shown(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text[..text.floor_char_boundary(LONGEST_REASON)].to_owned()
}

/// A Pushgateway takes no times: its values are of the last push.
fn push_body(families: &Families) -> String {
    let mut families = families.clone();
    families.values_mut().flat_map(|family| &mut family.samples).for_each(|sample| sample.timestamp = None);
    family::Page(&families).to_string()
}
