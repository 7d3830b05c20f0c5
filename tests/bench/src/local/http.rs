//! A client that costs next to nothing, so that what is measured is the server: one connection, one call at a
//! time, whole answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// A connection to the server that stays open between calls.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    authorization: String,
    /// How long each call took, since somebody last asked.
    times: Vec<Duration>,
}

impl Client {
    /// Connects, to call with `authorization` from then on.
    pub(crate) fn connect(address: SocketAddr, authorization: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_mins(1)))?;
        let stream = BufReader::with_capacity(256 * 1024, stream);
        Ok(Self { stream, authorization: authorization.to_owned(), times: Vec::new() })
    }

    /// Calls with another token from now on.
    pub(crate) fn authorize(&mut self, authorization: String) {
        self.authorization = authorization;
    }

    /// How long the calls took since this was last asked.
    pub(crate) fn times(&mut self) -> Vec<Duration> {
        std::mem::take(&mut self.times)
    }

    /// A call with a JSON body, or none if it is null. Anything but success is an error.
    pub(crate) fn call(&mut self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
        let answer = self.send(method, path, "Content-Type: application/json", &body)?;
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer).with_context(|| format!("reading the answer of {method} {path}"))
    }

    /// A call with any body. When the server asks for patience, it gets it; that is not timed.
    pub(crate) fn send(&mut self, method: &str, path: &str, header: &str, body: &[u8]) -> Result<Vec<u8>> {
        loop {
            let started = Instant::now();
            let (status, wait, answer) =
                self.exchange(method, path, header, body).with_context(|| format!("{method} {path}"))?;
            match status {
                200..300 => {
                    self.times.push(started.elapsed());
                    return Ok(answer);
                }
                429 => thread::sleep(wait.unwrap_or(Duration::from_secs(1))),
                _ => {
                    bail!("{method} {path} was answered with {status}: {}", String::from_utf8_lossy(&answer))
                }
            }
        }
    }

    fn exchange(
        &mut self,
        method: &str,
        path: &str,
        header: &str,
        body: &[u8],
    ) -> Result<(u16, Option<Duration>, Vec<u8>)> {
        let (authorization, length) = (&self.authorization, body.len());
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: {authorization}\r\n{header}\r\n\
             Content-Length: {length}\r\n\r\n"
        )
        .into_bytes();
        request.extend(body);
        self.stream.get_mut().write_all(&request)?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.with_context(|| format!("the server answered {line:?}"))?;
        let (mut length, mut wait) = (0, None);
        loop {
            line.clear();
            ensure!(self.stream.read_line(&mut line)? > 0, "the server hung up");
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            match name {
                "content-length" => length = value.parse()?,
                "retry-after" => wait = value.parse().ok().map(Duration::from_secs_f64),
                _ => {}
            }
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer)?;
        Ok((status, wait, answer))
    }
}
