//! Keeping what a command prints: it goes where it would have gone, and into files that another container reads.
//!
//! The files are *segments*, numbered from 0, of records: the time in nanoseconds since 1970 (u64), the length of what
//! follows the header (u32), the stream (u8) and three zero bytes, all little-endian. The reader removes a segment when
//! it has read it. If it falls behind, or the disk is full, output is lost to it and not to anybody else: the command never
//! waits for the reader.

use crate::args::Kept;
use crate::layout::{Layout, Name, Spot};
use crate::marks;
use crate::sys::{self, Fd, Standard};

/// A header's size.
const HEADER: usize = 16;
/// A record's, at most.
const RECORD: usize = 16 * 1024;
/// After so many bytes the next segment begins.
const SEGMENT: usize = 8 * 1024 * 1024;
/// How many segments may wait for the reader.
const WAITING: u32 = 8;
/// The stream of a record that holds how many bytes were lost (u64).
const LOST: u8 = 0;

/// The two streams of a command, read through pipes.
pub struct Output<'a> {
    pipes: [Option<Fd>; 2],
    segments: Segments<'a>,
    buffer: [u8; RECORD],
}

/// Where a command writes to.
#[derive(Debug)]
pub struct Outlets([Option<Fd>; 2]);

const STREAMS: [Standard; 2] = [Standard::Output, Standard::Error];

impl Outlets {
    /// In the child: makes them its standard output and standard error.
    pub fn take(&self) -> sys::Result<()> {
        let ends = STREAMS.into_iter().zip(&self.0);
        ends.filter_map(|(stream, end)| Some((stream, end.as_ref()?)))
            .try_for_each(|(stream, end)| sys::replace(stream, end))
    }
}

impl<'a> Output<'a> {
    /// Prepares to keep streams of the container. What cannot be prepared is not kept; the command has its streams then.
    pub fn of(layout: Layout<'a>, name: Name<'a>, keep: Kept) -> Option<(Self, Outlets)> {
        if keep == Kept::default() || make_room(layout, name).is_err() {
            return None;
        }
        let (mut pipes, mut outlets) = ([None, None], [None, None]);
        for (at, _) in [keep.output, keep.error].into_iter().enumerate().filter(|(_, kept)| *kept) {
            let (read, write) = sys::pipe().ok()?;
            sys::never_wait(&read).ok()?;
            (pipes[at], outlets[at]) = (Some(read), Some(write));
        }
        let segments = Segments { layout, name, number: 0, open: None, lost: 0 };
        Some((Self { pipes, segments, buffer: [0; RECORD] }, Outlets(outlets)))
    }

    /// What there is to wait for.
    pub fn pipes(&self) -> [Option<&Fd>; 2] {
        [self.pipes[0].as_ref(), self.pipes[1].as_ref()]
    }

    /// Passes on what there is to read.
    pub fn pass_on(&mut self) {
        for (pipe, stream) in self.pipes.iter_mut().zip(STREAMS) {
            // One read each: neither stream waits for the other to be silent.
            let Some(open) = pipe else { continue };
            match sys::read(open, &mut self.buffer[HEADER..]).map(|read| read.len()) {
                Ok(0) => *pipe = None,
                Ok(length) => self.segments.keep(stream, &mut self.buffer[..HEADER + length]),
                Err(_) => {}
            }
        }
    }

    /// Passes on what is left once the command has ended. What its orphans may write later is nobody's.
    pub fn finish(mut self) {
        for (pipe, stream) in self.pipes.iter().zip(STREAMS) {
            let Some(open) = pipe else { continue };
            while let Ok(length @ 1..) = sys::read(open, &mut self.buffer[HEADER..]).map(|read| read.len()) {
                self.segments.keep(stream, &mut self.buffer[..HEADER + length]);
            }
        }
        self.segments.confess();
    }
}

fn make_room(layout: Layout<'_>, name: Name<'_>) -> Result<(), ()> {
    marks::make_directories(layout, &[Spot::AllOutput, Spot::Output(name)]).map_err(drop)
}

/// The files of a container's output.
struct Segments<'a> {
    layout: Layout<'a>,
    name: Name<'a>,
    number: u32,
    open: Option<(Fd, usize)>,
    lost: u64,
}

impl Segments<'_> {
    /// Prints what stands in the record after the room for its header, and keeps it.
    fn keep(&mut self, stream: Standard, record: &mut [u8]) {
        let _ = sys::print(stream, &record[HEADER..]);
        self.confess();
        let length = record.len() - HEADER;
        record[..HEADER].copy_from_slice(&header(sys::now(), length, stream as u8));
        if self.lost > 0 || !self.append(record) {
            self.lost = self.lost.saturating_add(length as u64);
        }
    }

    /// Says how much was lost, if anything was and there is room for it.
    fn confess(&mut self) {
        if self.lost == 0 {
            return;
        }
        let mut record = [0; HEADER + 8];
        record[..HEADER].copy_from_slice(&header(sys::now(), 8, LOST));
        record[HEADER..].copy_from_slice(&self.lost.to_le_bytes());
        if self.append(&record) {
            self.lost = 0;
        }
    }

    /// Whether the record is in a segment, whole.
    fn append(&mut self, record: &[u8]) -> bool {
        if self.open.is_none() && !self.begin() {
            return false;
        }
        let Some((segment, size)) = &mut self.open else { return false };
        if sys::write(segment, record).is_err() {
            // A reader must not take what was written of it for a record.
            let _ = sys::truncate(segment, *size);
            return false;
        }
        *size += record.len();
        if *size >= SEGMENT {
            self.open = None;
            self.number += 1;
        }
        true
    }

    /// Whether there is room for another segment, which is open then.
    fn begin(&mut self) -> bool {
        let place = |number| self.layout.at(Spot::Segment(self.name, number));
        if self.number.checked_sub(WAITING).is_some_and(|oldest| marks::exists(place(oldest))) {
            return false;
        }
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
        let path = place(self.number).path();
        self.open = sys::open(path.as_c_str(), flags, 0o666).ok().map(|segment| (segment, 0));
        self.open.is_some()
    }
}

fn header(time: u64, length: usize, stream: u8) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&time.to_le_bytes());
    let length = u32::try_from(length).expect("a record is at most 16 KiB");
    header[8..12].copy_from_slice(&length.to_le_bytes());
    header[12] = stream;
    header
}
