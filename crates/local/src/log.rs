//! Job logs: chunks that came in any order become one text.

use std::io::Read;

use bk_buildkite::session::LAST_WORDS;
use flate2::read::MultiGzDecoder;

/// The most that one chunk may hold, ten times what agents are told to send. It also bounds how far before
/// a byte of the log the chunk that holds it may begin.
pub(crate) const MAX_CHUNK: i64 = 1024 * 1024;

/// A piece of a log as an agent sent it; offset and size count uncompressed bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) offset: i64,
    pub(crate) size: i64,
    pub(crate) gzip: Vec<u8>,
}

/// A chunk that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadChunk {
    /// Not a gzip stream.
    #[error("the chunk is not valid gzip")]
    Gzip(#[from] std::io::Error),
    /// Size and content disagree.
    #[error("the chunk holds {actual} bytes, but {announced} were announced")]
    Size { announced: i64, actual: usize },
    /// It holds more than announced. How much more is not looked at: it may be made to explode.
    #[error("the chunk holds more than the {announced} bytes that were announced")]
    Larger { announced: i64 },
    /// No agent sends so much at once.
    #[error("a chunk of {announced} bytes is too large: at most {MAX_CHUNK} are taken")]
    TooLarge { announced: i64 },
}

/// Unpacks a chunk. At most the announced size is read, whatever the stream claims to hold.
pub(crate) fn unpack(chunk: &Chunk) -> Result<Vec<u8>, BadChunk> {
    let announced = chunk.size;
    if announced > MAX_CHUNK {
        return Err(BadChunk::TooLarge { announced });
    }
    let size = usize::try_from(announced).unwrap_or_default();
    let mut bytes = Vec::with_capacity(size + 1);
    MultiGzDecoder::new(&chunk.gzip[..]).take(size as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() {
        actual if actual > size => Err(BadChunk::Larger { announced }),
        actual if actual < size => Err(BadChunk::Size { announced, actual }),
        _ => Ok(bytes),
    }
}

/// What is needed to read a part of a log: cheap to fetch, to be unpacked elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct Excerpt {
    /// The byte at which reading begins.
    pub(crate) from: i64,
    /// The most bytes to read.
    pub(crate) max: usize,
    /// Where the whole log ends, as far as it was announced; what is beyond the last chunk was discarded.
    pub(crate) length: i64,
    /// The chunks that reach beyond `from`, by offset, up to `max` bytes.
    pub(crate) chunks: Vec<Chunk>,
}

/// A part of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) bytes: Vec<u8>,
    /// The byte at which reading goes on.
    pub(crate) end: i64,
    /// Whether more is there already: reading stopped because it was enough.
    pub(crate) more: bool,
}

/// Unpacks an excerpt and puts it together. Unless the log has come to its end, the text ends with a whole
/// line, so that whoever reads it in parts or as it grows never sees half a character or time stamp.
///
/// While a job runs, a gap is a chunk still on its way: the text ends there. Once it has ended, the gap
/// will not close, and a line says how much is missing.
pub(crate) fn read(excerpt: &Excerpt, ended: bool) -> Result<Log, BadChunk> {
    let mut log = Log { bytes: Vec::new(), end: excerpt.from, more: false };
    let mut room = excerpt.max;
    for chunk in &excerpt.chunks {
        if chunk.offset.saturating_add(chunk.size) <= log.end {
            continue;
        }
        if chunk.offset > log.end && !ended {
            break;
        }
        if room == 0 {
            log.more = true;
            break;
        }
        let piece = unpack(chunk)?;
        if chunk.offset > log.end {
            let missing = chunk.offset - log.end;
            // Whoever speaks for an agent that is gone does not know how much it has sent.
            let unknown = log.end < LAST_WORDS && chunk.offset >= LAST_WORDS;
            let text = format!("{missing} bytes of the log are missing");
            note(&mut log, if unknown { "what the agent has sent ends here" } else { &text });
            log.end = chunk.offset;
        }
        let skip = usize::try_from(log.end - chunk.offset).unwrap_or_default();
        let fits = &piece[skip..][..room.min(piece.len() - skip)];
        log.bytes.extend(fits);
        log.end += i64::try_from(fits.len()).unwrap_or(i64::MAX);
        log.more = fits.len() < piece.len() - skip;
        room -= fits.len();
    }
    if log.more || !ended {
        let cut = log.bytes.len() - whole_lines(&log.bytes, log.more);
        log.bytes.truncate(log.bytes.len() - cut);
        log.end -= i64::try_from(cut).unwrap_or_default();
    } else if log.end < excerpt.length {
        let rest = excerpt.length - log.end;
        note(&mut log, &format!("the log is too long: its last {rest} bytes were discarded"));
        log.end = excerpt.length;
    }
    Ok(log)
}

fn note(log: &mut Log, text: &str) {
    log.bytes.extend(format!("\n[{text}]\n").into_bytes());
}

/// How many bytes make whole lines. When there is no line end in a full part, reading must go on all the
/// same: then whole characters do.
fn whole_lines(bytes: &[u8], full: bool) -> usize {
    match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(last) => last + 1,
        None if full => match std::str::from_utf8(bytes) {
            Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
            _ => bytes.len(),
        },
        None => 0,
    }
}

/// The log as plain text: without the agent's time stamps, with plain line ends.
pub(crate) fn plain(raw: &[u8]) -> String {
    const START: &str = "\u{1b}_bk;t=";
    let text = String::from_utf8_lossy(raw).replace("\r\n", "\n");
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(start) = rest.find(START) {
        plain.push_str(&rest[..start]);
        let after = &rest[start + START.len()..];
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if let Some(next) = after[digits..].strip_prefix('\u{7}') {
            rest = next;
        } else {
            // Not a time stamp after all, or cut off: shown as it is.
            plain.push_str(START);
            rest = after;
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests;
