//! Traces of jobs, sent by OTLP when a job has ended.
//!
//! A trace is made of times on record, in one piece at the end: nothing has to be kept while the job runs, and a restart in between
//! does not matter. Traces are no part of the work: what cannot be sent is counted, and dropped.

mod otlp;
mod span;

use std::time::Duration;

use bk_api::{BuildJob, BuildJobStatus};
use bk_ops::jitter;
use bk_plan::{intake::pace, timeline::Step, timeline::Timeline, trace::Trace};
use clap::Args;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::{sync::mpsc, time};
use tokio_util::sync::CancellationToken;

use self::span::Span;
use super::Metrics;
use crate::{USER_AGENT, error::Error};

/// How many spans wait to be sent at most.
const CAPACITY: usize = 20_000;

/// How many spans are sent at once.
const BATCH: usize = 500;

/// How long spans are gathered.
const GATHERING: Duration = Duration::from_secs(1);

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How often a batch is tried.
const TRIES: u32 = 4;

/// Where traces of jobs go. The variables are those of OpenTelemetry.
#[derive(Clone, Debug, Default, Args)]
pub struct TraceArgs {
    /// Where to send traces of jobs by OTLP over HTTP, such as http://collector:4318 [default: nowhere]
    #[allow(clippy::doc_markdown, rustdoc::bare_urls, reason = "users read this, not rustdoc")]
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", hide_env_values = true, value_name = "URL")]
    pub otlp_endpoint: Option<String>,

    /// Headers to send along, as in NAME=VALUE,NAME=VALUE
    #[arg(long, env = "OTEL_EXPORTER_OTLP_HEADERS", hide_env_values = true, value_name = "HEADERS")]
    pub otlp_headers: Option<String>,
}

/// Takes traces. Cheap to clone.
#[derive(Clone)]
pub struct Traces {
    spans: Option<mpsc::Sender<Span>>,
    metrics: Metrics,
}

/// Sends them.
pub struct Sender {
    spans: mpsc::Receiver<Span>,
    http: reqwest::Client,
    url: String,
    headers: HeaderMap,
    metrics: Metrics,
}

/// Where traces are handed in, and what sends them, if they go anywhere.
pub fn channel(args: &TraceArgs, metrics: &Metrics) -> Result<(Traces, Option<Sender>), Error> {
    let Some(endpoint) = args.otlp_endpoint.as_deref().filter(|endpoint| !endpoint.trim().is_empty()) else {
        return Ok((Traces { spans: None, metrics: metrics.clone() }, None));
    };
    let unusable = |why: String| Error::Setup(format!("--otlp-endpoint {endpoint}: {why}"));
    let url = otlp::url(endpoint);
    if !reqwest::Url::parse(&url).is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
        return Err(unusable("not an HTTP URL; expected something like http://collector:4318".to_owned()));
    }
    let http = bk_ops::http::client(USER_AGENT, TIMEOUT)
        .map_err(|error| unusable(bk_ops::report::one_line(&error)))?;
    let headers = headers(args.otlp_headers.as_deref().unwrap_or_default())?;
    let (sender, spans) = mpsc::channel(CAPACITY);
    let sending = Sender { spans, http, url, headers, metrics: metrics.clone() };
    Ok((Traces { spans: Some(sender), metrics: metrics.clone() }, Some(sending)))
}

/// Headers as OpenTelemetry writes them. Values may be secret, so none is in the error.
fn headers(text: &str) -> Result<HeaderMap, Error> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    let header = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let name: HeaderName = name.trim().parse().ok()?;
        Some((name, HeaderValue::from_bytes(&decoded(value.trim())?).ok()?))
    };
    pairs
        .enumerate()
        .map(|(index, pair)| {
            let wrong = || {
                Error::Setup(format!(
                    "--otlp-headers: number {} is not NAME=VALUE, with a name and a value that HTTP allows",
                    index + 1
                ))
            };
            header(pair).ok_or_else(wrong)
        })
        .collect()
}

/// `text` with the bytes that `%` and two digits stand for.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let (first, rest) = text.split_once('%').map_or((text, None), |(first, rest)| (first, Some(rest)));
    let mut bytes = first.as_bytes().to_vec();
    if let Some(rest) = rest {
        bytes.push(u8::from_str_radix(rest.get(..2)?, 16).ok()?);
        bytes.extend(decoded(&rest[2..])?);
    }
    Some(bytes)
}

impl Traces {
    /// A job has ended like this.
    pub(crate) fn ended(&self, job: &BuildJob, status: &BuildJobStatus, timeline: &Timeline) {
        if self.spans.is_some() {
            self.hand_in(span::of_job(job, status, timeline));
        }
    }

    /// The pod of a job is gone.
    pub(crate) fn reaped(&self, trace: Trace, step: &Step) {
        if self.spans.is_some() {
            self.hand_in([span::of_step(trace, step)]);
        }
    }

    fn hand_in(&self, spans: impl IntoIterator<Item = Span>) {
        for span in spans {
            if self.spans.as_ref().is_some_and(|sender| sender.try_send(span).is_err()) {
                self.metrics.jobs.spans(false, 1);
            }
        }
    }
}

impl Sender {
    /// Sends what comes until `end`, and then what is left, once.
    pub async fn run(mut self, end: CancellationToken) {
        let mut batch = Vec::new();
        while let Some(1..) = end.run_until_cancelled(self.spans.recv_many(&mut batch, BATCH)).await {
            let gathered = time::Instant::now() + GATHERING;
            while batch.len() < BATCH
                && let Ok(Some(span)) = time::timeout_at(gathered, self.spans.recv()).await
            {
                batch.push(span);
            }
            self.send(&batch, &end).await;
            batch.clear();
        }
        while let Ok(span) = self.spans.try_recv() {
            batch.push(span);
        }
        for batch in batch.chunks(BATCH) {
            self.send(batch, &end).await;
        }
    }

    /// Sends a batch, and tries it again unless the process ends.
    async fn send(&self, batch: &[Span], end: &CancellationToken) {
        let body = otlp::request(batch);
        for failures in 1..=TRIES {
            let Err(error) = self.try_to_send(&body).await else {
                return self.metrics.jobs.spans(true, batch.len());
            };
            tracing::warn!(error, spans = batch.len(), "cannot send traces of jobs");
            let pause = pace::after_failures(failures, None, jitter::fraction());
            if failures == TRIES || end.run_until_cancelled(time::sleep(pause)).await.is_none() {
                break;
            }
        }
        self.metrics.jobs.spans(false, batch.len());
    }

    async fn try_to_send(&self, body: &serde_json::Value) -> Result<(), String> {
        let request = self.http.post(&self.url).headers(self.headers.clone()).json(body);
        let response = request.send().await.map_err(|error| bk_ops::report::one_line(&error))?;
        let status = response.status();
        if status.is_success() { Ok(()) } else { Err(format!("{} answered {status}", self.url)) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use axum::{Json, Router, extract::State, routing::post};
    use jiff::Timestamp;
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn headers_are_read_as_opentelemetry_writes_them() {
        let read = headers("authorization=Bearer%20abc, x-tenant = ci ,").unwrap();
        assert_eq!(
            (&read["authorization"], &read["x-tenant"]),
            (&"Bearer abc".parse().unwrap(), &"ci".parse().unwrap())
        );
        assert!(headers("").unwrap().is_empty());
        let error = headers("a=b,secret").unwrap_err().to_string();
        assert!(error.contains("number 2") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn an_endpoint_is_a_url_or_nothing() {
        let channel = |endpoint: &str| {
            let args = TraceArgs { otlp_endpoint: Some(endpoint.to_owned()), otlp_headers: None };
            channel(&args, &Metrics::default()).map(|(_, sender)| sender.map(|sender| sender.url))
        };
        assert_eq!(channel(" ").unwrap(), None);
        assert_eq!(channel("http://collector:4318/").unwrap().unwrap(), "http://collector:4318/v1/traces");
        let error = channel("collector:4318").unwrap_err().to_string();
        assert!(error.starts_with("--otlp-endpoint collector:4318: not an HTTP URL"), "{error}");
    }

    /// A collector: its address, and how many spans it has got.
    async fn collector() -> (String, Arc<AtomicUsize>) {
        let got = Arc::new(AtomicUsize::new(0));
        let count = async |State(got): State<Arc<AtomicUsize>>, Json(body): Json<Value>| {
            let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().map_or(0, Vec::len);
            got.fetch_add(spans, Ordering::Relaxed);
        };
        let router = Router::new().route("/v1/traces", post(count)).with_state(got.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(axum::serve(listener, router).into_future());
        (url, got)
    }

    fn span(number: u64) -> Span {
        let job = BuildJob::new(
            "a",
            serde_json::from_value(json!({"buildkite": {"jobUUID": Uuid::nil()}})).unwrap(),
        );
        let at = Timestamp::UNIX_EPOCH;
        let step = Step { name: "run", from: at, to: at };
        Span { number, ..span::of_step(Trace::of(&job).unwrap(), &step) }
    }

    /// What was handed in when the process was told to end, whether or not a batch was being gathered then, is not lost.
    #[rstest::rstest]
    #[case::nothing_was_sent_yet(false)]
    #[case::some_were_gathered(true)]
    #[tokio::test]
    async fn what_waits_at_the_end_is_sent(#[case] gathering: bool) {
        bk_ops::http::install_crypto_provider();
        let (url, got) = collector().await;
        let metrics = Metrics::default();
        let args = TraceArgs { otlp_endpoint: Some(url), otlp_headers: None };
        let (traces, sender) = channel(&args, &metrics).unwrap();
        let (sender, end) = (sender.unwrap(), CancellationToken::new());
        let sending = if gathering {
            let sending = tokio::spawn(sender.run(end.clone()));
            traces.hand_in([span(0)]);
            while traces.spans.as_ref().is_some_and(|spans| spans.capacity() < CAPACITY) {
                tokio::task::yield_now().await;
            }
            end.cancel();
            traces.hand_in((1..1200).map(span));
            sending
        } else {
            traces.hand_in((0..1200).map(span));
            end.cancel();
            tokio::spawn(sender.run(end))
        };
        sending.await.unwrap();
        assert_eq!(got.load(Ordering::Relaxed), 1200);
        let page = String::from_utf8(metrics.page(crate::telemetry::Form::Text)).unwrap();
        assert!(page.contains("buildkite_operator_trace_spans_total{outcome=\"sent\"} 1200"), "{page}");
    }
}
