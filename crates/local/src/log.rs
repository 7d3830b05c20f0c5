//! Job logs: chunks that came in any order become one text.

use std::io::Read;

use flate2::read::GzDecoder;

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
}

/// Unpacks a chunk. At most the announced size is read, whatever the stream claims to hold.
pub(crate) fn unpack(chunk: &Chunk) -> Result<Vec<u8>, BadChunk> {
    let announced = u64::try_from(chunk.size).unwrap_or_default();
    let mut bytes = Vec::new();
    GzDecoder::new(&chunk.gzip[..]).take(announced + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != announced {
        return Err(BadChunk::Size { announced: chunk.size, actual: bytes.len() });
    }
    Ok(bytes)
}

/// A log from some byte on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) bytes: Vec<u8>,
    /// The byte at which reading goes on.
    pub(crate) end: i64,
}

/// Unpacks chunks, ordered by offset, and puts them together from byte `from` on. While the job runs the text
/// ends with a whole line, so that whoever reads it as it grows never sees half a character or time stamp.
pub(crate) fn read(chunks: &[Chunk], from: i64, ended: bool) -> Result<Log, BadChunk> {
    let pieces = chunks
        .iter()
        .map(|chunk| Ok((chunk.offset, unpack(chunk)?)))
        .collect::<Result<Vec<_>, BadChunk>>()?;
    let mut log = assemble(&pieces, from, ended);
    if !ended {
        let whole = log.bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        log.end -= i64::try_from(log.bytes.len() - whole).unwrap_or_default();
        log.bytes.truncate(whole);
    }
    Ok(log)
}

/// Puts unpacked pieces, ordered by offset, together from byte `from` on.
///
/// While a job runs, a gap is a chunk still on its way: the text ends there. Once it has ended, the gap
/// will not close, and a line says how much is missing.
fn assemble(pieces: &[(i64, Vec<u8>)], from: i64, ended: bool) -> Log {
    let mut bytes = Vec::new();
    let mut at = from;
    for (offset, piece) in pieces {
        let end = offset + i64::try_from(piece.len()).unwrap_or(i64::MAX);
        if end <= at {
            continue;
        }
        if *offset > at {
            if !ended {
                break;
            }
            bytes.extend(format!("\n[{} bytes of the log are missing]\n", offset - at).into_bytes());
            at = *offset;
        }
        let skip = usize::try_from(at - offset).unwrap_or_default();
        bytes.extend(&piece[skip..]);
        at = end;
    }
    Log { bytes, end: at }
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
