//! What waits for sinks: files that all sinks share, with a position for each.
//!
//! Records are added at the end. A part that every sink has passed is removed. If there is too much, the oldest part makes
//! room, and what a sink had not taken of it is lost to that sink. Nobody ever waits for room.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::Notify;

use crate::record::Batch;

/// What is kept of the spool's parts, smaller ones with a small bound.
const PARTS: u64 = 16;
/// No part is larger.
const LARGEST_PART: u64 = 4 << 20;
/// So much is read at once.
const READ: usize = 256 << 10;

/// The spool.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    most: u64,
    part: u64,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    parts: VecDeque<Part>,
    cursors: Vec<Cursor>,
    records: u64,
    closed: bool,
}

/// A file of the spool.
#[derive(Debug)]
struct Part {
    number: u64,
    file: Arc<File>,
    bytes: u64,
    records: u64,
}

/// Up to where a sink has taken records.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    part: u64,
    offset: u64,
    /// Records of the part that it has taken.
    records: u64,
    lost: u64,
    /// Whether the sink cannot be used.
    gone: bool,
}

/// What is there for a sink to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// More may come.
    Open,
    /// Everything is taken, and no more comes.
    Ended,
}

impl Spool {
    /// A spool in `directory` for so many sinks, of at most so many bytes.
    pub fn new(directory: &Path, sinks: usize, most: u64) -> io::Result<Arc<Self>> {
        fs::create_dir_all(directory)?;
        let state = State {
            parts: VecDeque::new(),
            cursors: vec![Cursor::default(); sinks],
            records: 0,
            closed: false,
        };
        let spool = Self {
            directory: directory.to_owned(),
            most,
            part: (most / PARTS).clamp(1, LARGEST_PART),
            state: Mutex::new(state),
            changed: Notify::new(),
        };
        spool.begin_part(&mut spool.lock(), 0)?;
        Ok(Arc::new(spool))
    }

    /// Adds `count` encoded records. If that fails, they are lost to every sink.
    pub fn append(&self, bytes: &[u8], count: u64) -> io::Result<()> {
        let mut state = self.lock();
        state.records += count;
        let added = self.add(&mut state, bytes, count);
        if added.is_err() {
            state.cursors.iter_mut().for_each(|cursor| cursor.lost += count);
        }
        while state.parts.len() > 1 && state.bytes() > self.most {
            self.drop_oldest(&mut state);
        }
        self.changed.notify_waiters();
        added
    }

    fn add(&self, state: &mut State, bytes: &[u8], count: u64) -> io::Result<()> {
        let last = state.parts.back().expect("there is always a part");
        let next = last.number + 1;
        if last.bytes > 0 && last.bytes + bytes.len() as u64 > self.part {
            self.begin_part(state, next)?;
        }
        let part = state.parts.back_mut().expect("there is always a part");
        part.file.write_all_at(bytes, part.bytes)?;
        part.bytes += bytes.len() as u64;
        part.records += count;
        Ok(())
    }

    /// No more records come.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_waiters();
    }

    /// Whether no more records come.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Waits until something has been added, or the spool was closed, after this was called.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// How many records there were in all.
    pub fn records(&self) -> u64 {
        self.lock().records
    }

    /// How many records a sink lost because it did not take them in time.
    pub fn lost(&self, sink: usize) -> u64 {
        self.lock().cursors[sink].lost
    }

    /// The bytes that wait for the sink that is furthest.
    pub fn least_waiting(&self) -> u64 {
        let state = self.lock();
        let usable = (0..state.cursors.len()).filter(|sink| !state.cursors[*sink].gone);
        usable.map(|sink| state.waiting(sink)).min().unwrap_or_default()
    }

    /// Says that a sink cannot be used: nobody waits for it.
    pub fn give_up(&self, sink: usize) {
        self.lock().cursors[sink].gone = true;
    }

    /// Waits until no more records come.
    pub async fn closed(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed());
            changed.as_mut().enable();
            if self.is_closed() {
                return;
            }
            changed.await;
        }
    }

    /// Takes what is there for a sink into `batch`, until it is full.
    pub fn take(&self, sink: usize, batch: &mut Batch, lines: usize, most: usize) -> io::Result<Supply> {
        let (mut buffer, mut size) = (Vec::new(), READ);
        while !batch.is_full(lines, most) {
            let (file, number, offset, bytes) = {
                let mut state = self.lock();
                state.skip_finished(sink);
                let cursor = state.cursors[sink];
                let part = state.part(cursor.part).expect("cursors are in parts that are there");
                if cursor.offset >= part.bytes {
                    return Ok(if state.closed { Supply::Ended } else { Supply::Open });
                }
                (part.file.clone(), part.number, cursor.offset, part.bytes)
            };
            let there = usize::try_from(bytes - offset).unwrap_or(usize::MAX);
            buffer.resize(there.min(size), 0);
            file.read_exact_at(&mut buffer, offset)?;
            let (count, taken) = batch.take(&buffer, lines, most);
            if count == 0 {
                if size >= there {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the spool holds no record where one begins",
                    ));
                }
                // A record that is larger than what is read at once.
                size *= 2;
            }
            self.advance(sink, (number, offset), count, taken as u64);
        }
        Ok(Supply::Open)
    }

    fn advance(&self, sink: usize, from: (u64, u64), records: u64, bytes: u64) {
        let mut state = self.lock();
        let cursor = &mut state.cursors[sink];
        // The part may have made room meanwhile. What was taken of it was counted as lost then, and is not.
        if (cursor.part, cursor.offset) == from {
            cursor.offset += bytes;
            cursor.records += records;
        } else {
            cursor.lost = cursor.lost.saturating_sub(records);
        }
        state.skip_finished(sink);
        self.remove_passed(&mut state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with the lock")
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(number.to_string())
    }

    fn begin_part(&self, state: &mut State, number: u64) -> io::Result<()> {
        let path = self.path(number);
        let file = File::options().create(true).truncate(true).read(true).write(true).open(path)?;
        state.parts.push_back(Part { number, file: Arc::new(file), bytes: 0, records: 0 });
        Ok(())
    }

    fn remove_passed(&self, state: &mut State) {
        let first = state.cursors.iter().map(|cursor| cursor.part).min().unwrap_or(u64::MAX);
        while state.parts.len() > 1 && state.parts.front().is_some_and(|part| part.number < first) {
            self.remove_first(state);
        }
    }

    fn drop_oldest(&self, state: &mut State) {
        let Some((number, records)) = state.parts.front().map(|part| (part.number, part.records)) else {
            return;
        };
        for cursor in state.cursors.iter_mut().filter(|cursor| cursor.part == number) {
            let lost = cursor.lost + records - cursor.records;
            *cursor = Cursor { part: number + 1, offset: 0, records: 0, lost, ..*cursor };
        }
        self.remove_first(state);
    }

    fn remove_first(&self, state: &mut State) {
        if let Some(part) = state.parts.pop_front() {
            // Without its name it goes when the last reader lets go of it.
            if let Err(error) = fs::remove_file(self.path(part.number)) {
                tracing::warn!(%error, part = part.number, "a part of the spool stays on disk");
            }
        }
    }
}

impl State {
    /// Moves a sink on from a part that it has taken whole.
    fn skip_finished(&mut self, sink: usize) {
        let cursor = self.cursors[sink];
        let last = self.parts.back().map_or(0, |part| part.number);
        let finished = self.part(cursor.part).is_some_and(|part| cursor.offset >= part.bytes);
        if finished && cursor.part < last {
            self.cursors[sink] = Cursor { part: cursor.part + 1, offset: 0, records: 0, ..cursor };
        }
    }

    fn part(&self, number: u64) -> Option<&Part> {
        let first = self.parts.front()?.number;
        self.parts.get(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    fn waiting(&self, sink: usize) -> u64 {
        let cursor = self.cursors[sink];
        let ahead = self.parts.iter().filter(|part| part.number >= cursor.part);
        ahead.map(|part| part.bytes).sum::<u64>().saturating_sub(cursor.offset)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::{Stamp, encode};

    fn encoded(sequence: u64, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(Stamp { sequence, ..Stamp::default() }, &mut bytes, |out| {
            out.resize(out.len() + length, b'x');
        });
        bytes
    }

    fn taken(spool: &Spool, sink: usize, lines: usize) -> (Vec<u64>, Supply) {
        let mut batch = Batch::default();
        let supply = spool.take(sink, &mut batch, lines, usize::MAX).unwrap();
        ((0..batch.len()).map(|index| batch.get(index).stamp.sequence).collect(), supply)
    }

    #[test]
    fn each_sink_has_its_own_place_and_what_all_have_goes() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::new(directory.path(), 2, 16_000).unwrap();
        for sequence in 0..20 {
            spool.append(&encoded(sequence, 500), 1).unwrap();
        }
        assert_eq!(taken(&spool, 0, 5), ((0..5).collect(), Supply::Open));
        assert_eq!(taken(&spool, 1, 100), ((0..20).collect(), Supply::Open));
        assert_eq!(taken(&spool, 0, 100), ((5..20).collect(), Supply::Open));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the last part is left");
        spool.close();
        assert_eq!(taken(&spool, 0, 1), (vec![], Supply::Ended));
        assert_eq!((spool.lost(0), spool.lost(1), spool.records()), (0, 0, 20));
    }

    #[test]
    fn a_record_may_be_larger_than_a_part() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::new(directory.path(), 1, 1 << 20).unwrap();
        for sequence in 0..3 {
            spool.append(&encoded(sequence, 600_000), 1).unwrap();
        }
        assert_eq!((taken(&spool, 0, 9).0, spool.lost(0)), (vec![2], 2), "the newest is always there");
    }

    #[test]
    fn the_oldest_makes_room_and_is_lost_only_to_those_who_lack_it() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::new(directory.path(), 2, 16_000).unwrap();
        for sequence in 0..100 {
            spool.append(&encoded(sequence, 467), 1).unwrap();
            taken(&spool, 1, 10);
        }
        let on_disk: u64 = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        assert!(on_disk <= 16_000, "{on_disk}");
        let (rest, _) = taken(&spool, 0, 1000);
        assert_eq!(rest, (spool.lost(0)..100).collect::<Vec<_>>(), "the newest are there");
        assert!(rest.len() >= 28, "the bound is used: {}", rest.len());
        assert_eq!(spool.lost(1), 0);
    }

    proptest! {
        /// For each sink what it took and what it lost is all there was, once, and in order.
        #[test]
        fn everything_is_taken_or_lost(
            deeds in prop::collection::vec((0_usize..3, 1_usize..8), 0..120),
            most in 2_000_u64..10_000,
        ) {
            let directory = tempfile::tempdir().unwrap();
            let spool = Spool::new(directory.path(), 2, most).unwrap();
            let (mut next, mut seen) = (0, [Vec::new(), Vec::new()]);
            for (deed, number) in deeds {
                if deed < 2 {
                    seen[deed].extend(taken(&spool, deed, number).0);
                } else {
                    spool.append(&encoded(next, number * 100), 1).unwrap();
                    next += 1;
                }
            }
            spool.close();
            for (sink, mut seen) in seen.into_iter().enumerate() {
                let (rest, _) = taken(&spool, sink, usize::MAX);
                seen.extend(rest);
                prop_assert!(seen.is_sorted_by(|a, b| a < b), "{:?}", seen);
                prop_assert_eq!(seen.len() as u64 + spool.lost(sink), next);
                prop_assert_eq!(taken(&spool, sink, 1).1, Supply::Ended);
            }
        }
    }
}
