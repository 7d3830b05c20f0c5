//! The output of a container, as its shim leaves it: segments that are read and removed.
//!
//! A segment is a file with a number for its name, and holds records: the time in nanoseconds since 1970 (8 bytes), the
//! length (4), the stream (1) and three zeros, all little endian, and then so many bytes. No segment changes once the next one
//! is there.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

/// Bytes before a record's own.
const HEADER: usize = 16;

/// The most bytes of a record.
const LONGEST: usize = 64 << 10;

/// A segment's bytes are fewer, so that a number and a place in a segment make a place in the container's output.
const SEGMENT_BITS: u32 = 24;

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// Standard output.
    Stdout(&'a [u8]),
    /// Standard error.
    Stderr(&'a [u8]),
    /// The shim had no room for so many bytes.
    Lost(u64),
}

/// A record of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output<'a> {
    /// When it was written.
    pub time: u64,
    /// Where in the container's output its bytes are; it only ever grows.
    pub offset: u64,
    /// What was written.
    pub content: Content<'a>,
}

/// What the beginning of some bytes is.
#[derive(Debug, PartialEq, Eq)]
enum Parsed<'a> {
    /// A record, and its length with the header.
    Record(u64, Content<'a>, usize),
    /// The beginning of a record.
    Incomplete,
    /// No record.
    Nonsense,
}

fn parse(bytes: &[u8]) -> Parsed<'_> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Parsed::Incomplete };
    let time = u64::from_le_bytes(*header.first_chunk().expect("a header has sixteen bytes"));
    let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
    if length > LONGEST || header[13..] != [0; 3] {
        return Parsed::Nonsense;
    }
    let Some(bytes) = rest.get(..length) else { return Parsed::Incomplete };
    let content = match (header[12], <[u8; 8]>::try_from(bytes)) {
        (1, _) => Content::Stdout(bytes),
        (2, _) => Content::Stderr(bytes),
        (0, Ok(number)) => Content::Lost(u64::from_le_bytes(number)),
        _ => return Parsed::Nonsense,
    };
    Parsed::Record(time, content, HEADER + length)
}

/// Reads the segments of one container.
#[derive(Debug)]
pub struct Segments {
    directory: PathBuf,
    number: u64,
    open: Option<File>,
    position: u64,
    buffer: Vec<u8>,
}

/// What a look at the segments brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Bytes read.
    pub bytes: usize,
    /// Bytes that are no records.
    pub nonsense: u64,
}

impl Segments {
    /// Those in `directory`, which may not be there yet.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), number: 0, open: None, position: 0, buffer: Vec::new() }
    }

    /// Hands out what has been written since, at most about `most` bytes, and removes segments that are done with.
    pub fn poll(&mut self, most: usize, out: &mut impl FnMut(Output<'_>)) -> io::Result<Seen> {
        let mut seen = Seen::default();
        while seen.bytes < most {
            if self.open.is_none() && !self.open_next()? {
                break;
            }
            // Looked for before the last bytes are read: once it is there, no more come.
            let last = !self.later()?;
            let read = self.read(most, out, &mut seen)?;
            match (read, last) {
                (0, true) => break,
                (0, false) => self.finish(&mut seen),
                _ => {}
            }
        }
        Ok(seen)
    }

    /// Bytes that have not been read.
    pub fn unread(&self) -> u64 {
        let sizes = self.numbers().into_iter().flatten().filter_map(|number| {
            let length = fs::metadata(self.path(number)).ok()?.len();
            Some(if number == self.number { length.saturating_sub(self.position) } else { length })
        });
        sizes.sum()
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(number.to_string())
    }

    fn numbers(&self) -> io::Result<Vec<u64>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        Ok(numbers.filter(|number| *number >= self.number).collect())
    }

    fn later(&self) -> io::Result<bool> {
        if fs::exists(self.path(self.number + 1))? {
            return Ok(true);
        }
        Ok(self.numbers()?.into_iter().any(|number| number > self.number))
    }

    /// Opens the first segment that is there.
    fn open_next(&mut self) -> io::Result<bool> {
        let Some(number) = self.numbers()?.into_iter().min() else { return Ok(false) };
        let file = File::open(self.path(number))?;
        (self.open, self.number, self.position) = (Some(file), number, 0);
        Ok(true)
    }

    /// Reads once, and hands out the records.
    fn read(&mut self, most: usize, out: &mut impl FnMut(Output<'_>), seen: &mut Seen) -> io::Result<usize> {
        let Some(file) = &self.open else { return Ok(0) };
        self.buffer.resize(most.max(HEADER + LONGEST), 0);
        let length = file.read_at(&mut self.buffer, self.position)?;
        let mut taken = 0;
        loop {
            match parse(&self.buffer[taken..length]) {
                Parsed::Record(time, content, whole) => {
                    let place = self.position + (taken + HEADER) as u64;
                    out(Output { time, offset: (self.number << SEGMENT_BITS) + place, content });
                    taken += whole;
                }
                Parsed::Incomplete => break,
                Parsed::Nonsense => {
                    // Where the next record begins is not known: the rest of the segment is.
                    let rest = file.metadata()?.len().saturating_sub(self.position + taken as u64);
                    seen.nonsense += rest;
                    self.position += rest;
                    break;
                }
            }
        }
        self.position += taken as u64;
        seen.bytes += taken;
        Ok(taken)
    }

    /// Leaves a segment to which nothing is added any more.
    fn finish(&mut self, seen: &mut Seen) {
        if let Some(file) = self.open.take() {
            seen.nonsense += file.metadata().map_or(0, |data| data.len()).saturating_sub(self.position);
        }
        if let Err(error) = fs::remove_file(self.path(self.number)) {
            tracing::warn!(%error, segment = %self.path(self.number).display(), "a segment that has been read stays");
        }
        self.number += 1;
        self.position = 0;
    }
}

#[cfg(test)]
mod tests;
