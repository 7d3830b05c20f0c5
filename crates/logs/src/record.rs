//! Records on their way: where they come from, and how they wait in the spool and in batches.

use std::{
    hash::{Hash, Hasher},
    sync::{Arc, RwLock},
};

/// Where a record comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The container whose output it is.
    pub container: Option<String>,
    /// `stdout` or `stderr`.
    pub stream: Option<&'static str>,
    /// The file that it was in.
    pub file: Option<String>,
    /// Tells apart files that were at the same path one after another.
    pub generation: u32,
}

impl Source {
    /// The same for the same source, whoever asks and when.
    pub fn key(&self) -> u64 {
        let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
        (&self.container, self.stream, &self.file, self.generation).hash(&mut hasher);
        hasher.finish()
    }
}

/// FNV-1a: unlike the standard library's, it stays what it is.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// All sources, by the number that records know them by.
#[derive(Clone, Debug, Default)]
pub struct Sources(Arc<RwLock<Vec<Arc<Source>>>>);

impl Sources {
    /// Adds a source, and says its number.
    pub fn add(&self, source: Source) -> u32 {
        let mut all = self.0.write().expect("nobody panics with the lock");
        all.push(Arc::new(source));
        u32::try_from(all.len() - 1).expect("there is no memory for so many")
    }

    /// The source with a number.
    pub fn get(&self, number: u32) -> Arc<Source> {
        let all = self.0.read().expect("nobody panics with the lock");
        all.get(number as usize).cloned().unwrap_or_default()
    }
}

/// What is known of a record besides its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The number of its source.
    pub source: u32,
    /// Whether its line goes on in the next record.
    pub partial: bool,
    /// When it was written, in nanoseconds since 1970. No two records have the same.
    pub time: u64,
    /// Its number among all records of the pod.
    pub sequence: u64,
    /// Where in its source it begins.
    pub offset: u64,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What is known of it.
    pub stamp: Stamp,
    /// Its text, which is UTF-8.
    pub text: &'a [u8],
}

/// Bytes before a record's text.
pub const HEADER: usize = 33;

/// Adds a record to `out`; `write` adds its text.
pub fn encode(stamp: Stamp, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&stamp.source.to_le_bytes());
    out.push(u8::from(stamp.partial));
    out.extend_from_slice(&stamp.time.to_le_bytes());
    out.extend_from_slice(&stamp.sequence.to_le_bytes());
    out.extend_from_slice(&stamp.offset.to_le_bytes());
    write(out);
    let length = u32::try_from(out.len() - start - HEADER).expect("lines are cut long before");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// The first record in `bytes`, and how long it is; none if it is not whole.
pub fn decode(bytes: &[u8]) -> Option<(Record<'_>, usize)> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
    let four = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let eight = |at: usize| u64::from(four(at)) | u64::from(four(at + 4)) << 32;
    let length = four(0) as usize;
    let text = rest.get(..length)?;
    let stamp = Stamp {
        source: four(4),
        partial: header[8] != 0,
        time: eight(9),
        sequence: eight(17),
        offset: eight(25),
    };
    Some((Record { stamp, text }, HEADER + length))
}

/// Records that are sent together.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Batch {
    /// Takes records from the beginning of `bytes` while there are fewer than `lines` of them and fewer bytes than `most`. The
    /// number of records and of bytes taken.
    pub fn take(&mut self, bytes: &[u8], lines: usize, most: usize) -> (u64, usize) {
        let (mut count, mut taken) = (0, 0);
        while !self.is_full(lines, most) {
            let Some((_, length)) = decode(&bytes[taken..]) else { break };
            self.starts.push(self.bytes.len());
            self.bytes.extend_from_slice(&bytes[taken..taken + length]);
            taken += length;
            count += 1;
        }
        (count, taken)
    }

    /// Whether one of the bounds is reached.
    pub fn is_full(&self, lines: usize, most: usize) -> bool {
        self.starts.len() >= lines || self.bytes.len() >= most
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// A record by its place.
    pub fn get(&self, index: usize) -> Record<'_> {
        let (record, _) = decode(&self.bytes[self.starts[index]..]).expect("only whole records are taken");
        record
    }

    /// Forgets the records, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.starts.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stamp() -> impl Strategy<Value = Stamp> {
        (any::<u32>(), any::<bool>(), any::<u64>(), any::<u64>(), any::<u64>()).prop_map(
            |(source, partial, time, sequence, offset)| Stamp { source, partial, time, sequence, offset },
        )
    }

    proptest! {
        #[test]
        fn records_come_back_in_batches_within_bounds(
            records in prop::collection::vec((stamp(), prop::collection::vec(any::<u8>(), 0..50)), 0..30),
            lines in 1_usize..10,
            most in 1_usize..500,
            cut in 0_usize..40,
        ) {
            let mut bytes = Vec::new();
            for (stamp, text) in &records {
                encode(*stamp, &mut bytes, |out| out.extend_from_slice(text));
            }
            let whole = bytes.len();
            bytes.extend(std::iter::repeat_n(1, cut.min(HEADER - 1)));
            let (mut rest, mut seen, mut batch) = (&bytes[..], Vec::new(), Batch::default());
            loop {
                batch.clear();
                let (count, taken) = batch.take(rest, lines, most);
                prop_assert_eq!((count, batch.is_empty()), (batch.len() as u64, taken == 0));
                if taken == 0 { break }
                let last = HEADER + batch.get(batch.len() - 1).text.len();
                prop_assert!(batch.len() <= lines && taken - last < most, "only the last one may be too much");
                seen.extend((0..batch.len()).map(|index| (batch.get(index).stamp, batch.get(index).text.to_vec())));
                rest = &rest[taken..];
            }
            prop_assert_eq!(seen, records);
            prop_assert_eq!(rest.len(), bytes.len() - whole);
        }
    }

    #[test]
    fn sources_have_keys_of_their_own_that_stay() {
        let file =
            |file: &str, generation| Source { file: Some(file.to_owned()), generation, ..Source::default() };
        let output =
            |stream| Source { container: Some("a".to_owned()), stream: Some(stream), ..Source::default() };
        let all = [file("/a", 0), file("/a", 1), file("/b", 0), output("stdout"), output("stderr")];
        let mut keys: Vec<u64> = all.iter().map(Source::key).collect();
        assert_eq!(keys[0], file("/a", 0).key());
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all.len());
    }
}
