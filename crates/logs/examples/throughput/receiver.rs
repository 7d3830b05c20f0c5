//! A server that takes logs and can be killed: what it has taken is in a file before it answers.

use std::{
    collections::HashSet,
    env,
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context;
use flate2::read::GzDecoder;
use serde::Deserialize;

use crate::job::MARK;

/// A line that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Line {
    /// Which of the job's lines it is.
    pub(crate) number: u32,
    /// Which of the exporter's records it was in.
    pub(crate) sequence: u64,
    /// Under what name it came: what has the same is the same document to Elasticsearch.
    name: u64,
}

/// The size of a line in the record.
const LINE: usize = 20;

/// The server's process.
pub(crate) struct Receiver {
    pub(crate) address: String,
    record: PathBuf,
    process: Child,
}

impl Receiver {
    /// Starts one that keeps its record in a directory.
    pub(crate) fn start(directory: &Path) -> anyhow::Result<Self> {
        let record = directory.join("received");
        let (process, address) = spawn("127.0.0.1:0", &record)?;
        Ok(Self { address, record, process })
    }

    /// Ends it in the middle of whatever it does.
    pub(crate) fn kill(&mut self) -> std::io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }

    /// Starts it again, with what it has taken before.
    pub(crate) fn resume(&mut self) -> anyhow::Result<()> {
        (self.process, _) = spawn(&self.address, &self.record)?;
        Ok(())
    }

    /// How many lines it has taken.
    pub(crate) fn count(&self) -> std::io::Result<u64> {
        Ok(fs::metadata(&self.record)?.len() / LINE as u64)
    }

    /// What it has taken.
    pub(crate) fn received(&self) -> std::io::Result<Vec<Line>> {
        recorded(&self.record)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.kill();
    }
}

fn spawn(address: &str, record: &Path) -> anyhow::Result<(Child, String)> {
    let mut process = Command::new(env::current_exe()?)
        .args(["receive", address])
        .arg(record)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut address = String::new();
    BufReader::new(process.stdout.take().context("it is piped")?).read_line(&mut address)?;
    Ok((process, address.trim().to_owned()))
}

fn recorded(record: &Path) -> std::io::Result<Vec<Line>> {
    let bytes = fs::read(record)?;
    let (lines, _) = bytes.as_chunks::<LINE>();
    let line = |bytes: &[u8; LINE]| {
        let (number, rest) = bytes.split_first_chunk().expect("a line is long enough");
        let (sequence, rest) = rest.split_first_chunk().expect("a line is long enough");
        let name = rest.first_chunk().expect("a line is long enough");
        Line {
            number: u32::from_le_bytes(*number),
            sequence: u64::from_le_bytes(*sequence),
            name: u64::from_le_bytes(*name),
        }
    };
    Ok(lines.iter().map(line).collect())
}

struct Store {
    names: HashSet<u64>,
    record: File,
}

/// Takes requests, and answers each with what every kind of sink understands. Lines for Elasticsearch are taken once.
#[allow(clippy::print_stdout, reason = "how the other process learns where")]
pub(crate) fn serve(address: &str, record: &Path) -> anyhow::Result<()> {
    let file = File::options().create(true).append(true).open(record)?;
    let names = recorded(record)?.into_iter().map(|line| line.name).collect();
    let store = Arc::new(Mutex::new(Store { names, record: file }));
    let listener = TcpListener::bind(address)?;
    println!("{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let (stream, store) = (stream?, store.clone());
        std::thread::spawn(move || answer(&stream, &store));
    }
    Ok(())
}

fn answer(stream: &TcpStream, store: &Mutex<Store>) -> std::io::Result<()> {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    loop {
        let (mut length, mut line, mut is_bulk) = (0, String::new(), false);
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            is_bulk |= line.starts_with("POST ") && line.contains("/_bulk");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or_default();
            }
        }
        let mut body = Vec::new();
        Read::take(&mut reader, length).read_to_end(&mut body)?;
        let answer = if is_bulk { take(&body, store)? } else { r#"{"errors":false}"#.to_owned() };
        write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{answer}", answer.len())?;
    }
}

#[derive(Deserialize)]
struct Action<'a> {
    #[serde(borrow)]
    create: Create<'a>,
}

#[derive(Deserialize)]
struct Create<'a> {
    #[serde(rename = "_id")]
    name: &'a str,
}

#[derive(Deserialize)]
struct Document<'a> {
    message: &'a str,
    event: Event,
}

#[derive(Deserialize)]
struct Event {
    sequence: u64,
}

/// Keeps what it does not have yet.
fn take(body: &[u8], store: &Mutex<Store>) -> std::io::Result<String> {
    let mut text = String::new();
    GzDecoder::new(body).read_to_string(&mut text)?;
    let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut items, mut bytes) = (Vec::new(), Vec::new());
    let mut rows = text.lines();
    while let (Some(action), Some(document)) = (rows.next(), rows.next()) {
        let action: Action<'_> = serde_json::from_str(action)?;
        let document: Document<'_> = serde_json::from_str(document)?;
        let number = document.message.split_once(MARK).and_then(|(_, rest)| rest.split(':').next());
        let number: Option<u32> = number.and_then(|number| number.parse().ok());
        let number = number.ok_or_else(|| std::io::Error::other("a line that nobody wrote"))?;
        let mut name = DefaultHasher::new();
        action.create.name.hash(&mut name);
        let is_new = store.names.insert(name.finish());
        items.push(if is_new { r#"{"create":{"status":201}}"# } else { r#"{"create":{"status":409}}"# });
        if is_new {
            bytes.extend(number.to_le_bytes());
            bytes.extend(document.event.sequence.to_le_bytes());
            bytes.extend(name.finish().to_le_bytes());
        }
    }
    store.record.write_all(&bytes)?;
    if bytes.len() == items.len() * LINE {
        return Ok(r#"{"errors":false}"#.to_owned());
    }
    Ok(format!(r#"{{"errors":true,"items":[{}]}}"#, items.join(",")))
}
