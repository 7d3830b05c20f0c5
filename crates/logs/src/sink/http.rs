//! Sinks that are servers.

use std::{io::Write, path::PathBuf, time::Duration};

use bk_ops::credentials::Credentials;
use flate2::{Compression, write::GzEncoder};
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};

use super::{Answer, SinkError, elasticsearch, loki, otlp};
use crate::record::Batch;

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The most of an answer that is read.
const LONGEST_ANSWER: usize = 8 << 20;

/// The most of an answer that becomes part of a reason.
const LONGEST_REASON: usize = 300;

/// A body that is compressed while it is written.
pub(super) struct Body {
    encoder: GzEncoder<Vec<u8>>,
    plain: Vec<u8>,
}

impl Body {
    pub(super) fn new() -> Self {
        Self { encoder: GzEncoder::new(Vec::new(), Compression::fast()), plain: Vec::with_capacity(80 << 10) }
    }

    /// Where to write to.
    pub(super) fn plain(&mut self) -> &mut Vec<u8> {
        if self.plain.len() > 64 << 10 {
            self.compress();
        }
        &mut self.plain
    }

    fn compress(&mut self) {
        self.encoder.write_all(&self.plain).expect("memory can be written to");
        self.plain.clear();
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.compress();
        self.encoder.finish().expect("memory can be written to")
    }
}

/// How a server wants its records.
#[derive(Debug)]
pub(super) enum Dialect {
    Elasticsearch(elasticsearch::Dialect),
    Loki(loki::Dialect),
    Otlp(otlp::Dialect),
}

/// A server that takes records.
#[derive(Debug)]
pub struct HttpSink {
    post: Post,
    dialect: Dialect,
}

impl HttpSink {
    pub(super) fn new(post: Post, dialect: Dialect) -> Self {
        Self { post, dialect }
    }

    pub(super) async fn send(&mut self, batch: &Batch, items: &[usize]) -> Answer {
        let mut body = Body::new();
        let content_type = match &mut self.dialect {
            Dialect::Elasticsearch(dialect) => dialect.render(batch, items, &mut body),
            Dialect::Loki(dialect) => dialect.render(batch, items, &mut body),
            Dialect::Otlp(dialect) => dialect.render(batch, items, &mut body),
        };
        match self.post.send(body.finish(), content_type).await {
            Err(reason) => Answer::again(items, reason),
            Ok(response) => {
                let answer = match self.dialect {
                    _ if !(200..300).contains(&response.status) => general(&response, items),
                    Dialect::Elasticsearch(_) if response.cut => {
                        elasticsearch::endless(LONGEST_ANSWER, items)
                    }
                    Dialect::Elasticsearch(_) => elasticsearch::answer(&response.body, items),
                    Dialect::Loki(_) => Answer::delivered(items),
                    Dialect::Otlp(_) => otlp::answer(&response.body, items),
                };
                Answer { wait: response.wait, ..answer }
            }
        }
    }
}

/// An answer of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) wait: Option<Duration>,
    /// Where the server sends us instead.
    pub(super) destination: Option<String>,
    pub(super) body: Vec<u8>,
    /// Whether there was more than is read.
    pub(super) cut: bool,
}

/// What an answer means that is no success. What may pass, or be put right by somebody, is tried again.
fn general(response: &Response, items: &[usize]) -> Answer {
    let text = String::from_utf8_lossy(&response.body);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = |text: &str| text[..text.floor_char_boundary(LONGEST_REASON)].to_owned();
    let reason = match &response.destination {
        Some(place) => format!(
            "answered {} and points to {}, where nothing is sent: correct the sink's `url`",
            response.status,
            shown(place)
        ),
        None => format!("answered {}: {}", response.status, shown(&text)),
    };
    match response.status {
        400 | 422 => Answer::refused(items, reason),
        413 if items.len() == 1 => Answer::refused(items, reason),
        413 => Answer { too_large: true, ..Answer::again(items, reason) },
        _ => Answer::again(items, reason),
    }
}

/// Sends bodies to one address.
#[derive(Debug)]
pub(super) struct Post {
    url: String,
    client: reqwest::Client,
    credentials: Credentials,
    headers: Vec<(&'static str, String)>,
}

impl Post {
    /// `credentials` is the directory of [`Credentials`].
    pub(super) fn new(
        url: &str,
        credentials: Option<PathBuf>,
        headers: Vec<(&'static str, String)>,
    ) -> Result<Self, SinkError> {
        let user_agent = concat!("buildkite-operator-log-exporter/", env!("CARGO_PKG_VERSION"));
        let credentials = Credentials::new(credentials);
        let client = credentials.client(user_agent, TIMEOUT)?;
        Ok(Self { url: url.to_owned(), client, credentials, headers })
    }

    async fn send(&self, body: Vec<u8>, content_type: &'static str) -> Result<Response, String> {
        let mut request = self.client.post(&self.url).header(CONTENT_TYPE, content_type);
        request = request.header(CONTENT_ENCODING, "gzip").body(body);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let failed = |error: reqwest::Error| bk_ops::report::one_line(&error.without_url());
        let mut response = self.credentials.authorize(request).send().await.map_err(failed)?;
        let wait =
            response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let status = response.status().as_u16();
        let destination = bk_ops::http::destination(&response);
        let (mut body, mut cut) = (Vec::new(), false);
        while !cut && let Some(chunk) = response.chunk().await.map_err(failed)? {
            let room = LONGEST_ANSWER - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            cut = chunk.len() > room;
        }
        Ok(Response { status, wait: wait.map(Duration::from_secs), destination, body, cut })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(400, Answer { lost: 2, ..Answer::default() })]
    #[case(422, Answer { lost: 2, ..Answer::default() })]
    #[case(413, Answer { again: vec![4, 7], too_large: true, ..Answer::default() })]
    #[case(401, Answer { again: vec![4, 7], ..Answer::default() })]
    #[case(404, Answer { again: vec![4, 7], ..Answer::default() })]
    #[case(429, Answer { again: vec![4, 7], ..Answer::default() })]
    #[case(503, Answer { again: vec![4, 7], ..Answer::default() })]
    fn what_may_pass_is_tried_again(#[case] status: u16, #[case] expected: Answer) {
        let response = Response { status, body: b"not\n now".to_vec(), ..Response::default() };
        let reason = Some(format!("answered {status}: not now"));
        assert_eq!(general(&response, &[4, 7]), Answer { reason, ..expected });
    }

    #[test]
    fn a_redirection_names_its_destination() {
        let destination = Some("https://elsewhere/".to_owned());
        let answer = general(&Response { status: 302, destination, ..Response::default() }, &[4, 7]);
        assert_eq!(answer.again, [4, 7]);
        let expected =
            "answered 302 and points to https://elsewhere/, where nothing is sent: correct the sink's `url`";
        assert_eq!(answer.reason.as_deref(), Some(expected));
    }

    #[test]
    fn a_single_record_that_is_too_large_is_refused() {
        let response = Response { status: 413, ..Response::default() };
        assert_eq!(general(&response, &[0]).lost, 1);
    }
}
