//! Taking in whatever the job writes, on a thread of its own.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bk_api::exporters::{ContainerOutput, LogExporterDocument};
use bk_ops::exporting;

use crate::{
    line::Chunk,
    press::{LaneId, Press},
    record::Source,
    segment::{Content, Output, Segments},
    spool::Spool,
    tail::{Event, Tail, Wanted},
};

/// How long nothing is looked at when there was nothing new, if looking is quick.
const IDLE: Duration = Duration::from_millis(50);

/// Looking takes at most this part of the time when there is nothing new.
const IDLE_SHARE: u32 = 10;

/// The most bytes that are read of a container's output before others have their turn.
const MOST_BYTES: usize = 256 << 10;

/// How long output is read that is written after the job's end. What was there before is read however long it takes.
const LATE_OUTPUT: Duration = Duration::from_secs(5);

/// What the intake is told.
#[derive(Debug, Default)]
pub struct Orders {
    finish: AtomicBool,
    abandon: AtomicBool,
}

impl Orders {
    /// Read what is there, and end.
    pub fn finish(&self) {
        self.finish.store(true, Ordering::Relaxed);
    }

    /// End at once.
    pub fn abandon(&self) {
        self.abandon.store(true, Ordering::Relaxed);
    }
}

/// What was taken in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intaken {
    /// Bytes that never became lines.
    pub lost_bytes: u64,
    /// Why, or what else went wrong first.
    pub reason: Option<String>,
    /// Paths of which there was no file until the end.
    pub unmatched: Vec<String>,
}

/// The end of a job.
struct Ending {
    at: Instant,
    /// Bytes of output that were there at the end and are not read.
    owed: u64,
}

impl Ending {
    /// Whether no more output is read.
    fn is_over(&self, now: Instant) -> bool {
        self.owed == 0 && now.duration_since(self.at) > LATE_OUTPUT
    }

    /// So many bytes of output were read; if none, there are no more.
    fn read(&mut self, bytes: usize) {
        self.owed = if bytes == 0 { 0 } else { self.owed.saturating_sub(bytes as u64) };
    }
}

/// Takes in what the job writes.
#[derive(Debug)]
pub struct Intake {
    outputs: Vec<(ContainerOutput, Segments)>,
    tail: Tail,
    press: Press,
    spool: Arc<Spool>,
    /// Files are left alone while more than this waits for every sink: they wait where they are.
    enough: u64,
    job_ended: Vec<String>,
    taken: Intaken,
}

impl Intake {
    /// Takes in what the document says, through `press`, into `spool`.
    pub fn new(document: &LogExporterDocument, mut press: Press, spool: Arc<Spool>) -> Self {
        let now = Instant::now();
        let mut outputs = Vec::new();
        for (number, output) in document.outputs.iter().enumerate() {
            for (wanted, stream, is_error) in
                [(output.stdout, "stdout", false), (output.stderr, "stderr", true)]
            {
                if wanted {
                    let container = Some(output.container.clone());
                    let source = Source { container, stream: Some(stream), ..Source::default() };
                    press.begin(LaneId::Output(number, is_error), source, now);
                }
            }
            outputs.push((output.clone(), Segments::new(Path::new(&output.directory))));
        }
        let wanted = Wanted {
            paths: document.paths.clone(),
            directory: document.directory.as_ref().map(PathBuf::from),
        };
        Self {
            outputs,
            tail: Tail::new(wanted),
            press,
            spool,
            enough: document.handling.spool_bytes / 2,
            job_ended: document.job_ended.clone(),
            taken: Intaken::default(),
        }
    }

    /// Takes in everything until the job has ended and all is read, or as told.
    pub fn run(mut self, orders: &Orders) -> Intaken {
        let mut ended: Option<Ending> = None;
        while !orders.abandon.load(Ordering::Relaxed) {
            let began = Instant::now();
            if ended.is_none()
                && (orders.finish.load(Ordering::Relaxed) || exporting::has_ended(&self.job_ended))
            {
                ended = Some(Ending { at: began, owed: self.unread_output() });
                self.look_for_files(began, true);
            }
            let over = ended.as_ref().is_some_and(|ended| ended.is_over(began));
            let output = if over { 0 } else { self.read_outputs(began) };
            if let Some(ended) = &mut ended {
                ended.read(output);
            }
            self.look_for_files(began, false);
            let paused = self.spool.least_waiting() > self.enough;
            let file = if paused { 0 } else { self.read_files(began) };
            self.press.settle(began);
            self.press.flush();
            if output + file > 0 {
                continue;
            }
            if ended.is_some() && self.tail.unread() == 0 {
                break;
            }
            thread::park_timeout(IDLE.max(began.elapsed() * IDLE_SHARE));
        }
        self.leave()
    }

    fn leave(mut self) -> Intaken {
        let unread = self.tail.unread() + self.unread_output();
        if unread > 0 {
            self.lose(unread, format!("{unread} bytes were not read in time"));
        }
        if let Some(complaint) = self.tail.complaint() {
            self.lose(self.tail.unreadable(), complaint);
        }
        let press = &mut self.press;
        self.tail.end(&mut |event| {
            if let Event::Ended { slot } = event {
                press.end(LaneId::File(slot));
            }
        });
        press.end_all();
        self.spool.close();
        self.taken.unmatched = self.tail.unmatched().map(str::to_owned).collect();
        for path in &self.taken.unmatched {
            tracing::warn!(path, "there was no such file until the end");
        }
        let complaint = self.press.complaint().map(str::to_owned);
        Intaken { reason: self.taken.reason.or(complaint), ..self.taken }
    }

    fn lose(&mut self, bytes: u64, reason: String) {
        self.taken.lost_bytes += bytes;
        self.taken.reason.get_or_insert(reason);
    }

    fn unread_output(&self) -> u64 {
        self.outputs.iter().map(|(_, output)| output.unread()).sum()
    }

    fn read_outputs(&mut self, now: Instant) -> usize {
        let mut total = 0;
        for number in 0..self.outputs.len() {
            let (output, segments) = &mut self.outputs[number];
            let (press, mut lost) = (&mut self.press, 0);
            let seen = segments.poll(MOST_BYTES, &mut |record| match record.content {
                Content::Lost(bytes) => {
                    lost += bytes;
                    let text = format!("[{bytes} bytes of output were lost here: they came quicker than they could be exported]");
                    press.remark(LaneId::Output(number, !output.stdout), &text, chunk(&record, &[]), now);
                }
                Content::Stdout(bytes) if output.stdout => {
                    press.push(LaneId::Output(number, false), chunk(&record, bytes), now);
                }
                Content::Stderr(bytes) if output.stderr => {
                    press.push(LaneId::Output(number, true), chunk(&record, bytes), now);
                }
                Content::Stdout(_) | Content::Stderr(_) => {}
            });
            let container = output.container.clone();
            match seen {
                Ok(seen) => {
                    total += seen.bytes;
                    if seen.nonsense > 0 {
                        self.lose(seen.nonsense, format!("output of {container} was not readable"));
                    }
                }
                Err(error) => {
                    self.taken
                        .reason
                        .get_or_insert(format!("cannot read the output of {container}: {error}"));
                }
            }
            if lost > 0 {
                self.lose(lost, format!("output of {container} came quicker than it could be exported"));
            }
        }
        total
    }

    fn look_for_files(&mut self, now: Instant, last: bool) {
        let press = &mut self.press;
        let time = exporting::nanoseconds();
        let mut out = |event: Event<'_>| take(press, &event, time, now);
        if last {
            self.tail.close(now, &mut out);
        } else {
            self.tail.scan(now, &mut out);
        }
    }

    fn read_files(&mut self, now: Instant) -> usize {
        let press = &mut self.press;
        let time = exporting::nanoseconds();
        self.tail.poll(now, &mut |event| take(press, &event, time, now))
    }
}

fn chunk<'a>(output: &Output<'_>, bytes: &'a [u8]) -> Chunk<'a> {
    Chunk { bytes, offset: output.offset, time: output.time }
}

/// Hands on what happens to a file.
fn take(press: &mut Press, event: &Event<'_>, time: u64, now: Instant) {
    match *event {
        Event::Begun { slot, path, generation } => {
            let file = Some(path.to_string_lossy().into_owned());
            press.begin(LaneId::File(slot), Source { file, generation, ..Source::default() }, now);
        }
        Event::Bytes { slot, offset, bytes } => {
            press.push(LaneId::File(slot), Chunk { bytes, offset, time }, now);
        }
        Event::Ended { slot } => press.end(LaneId::File(slot)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_at_the_end_is_read_however_long_it_takes() {
        let at = Instant::now();
        let mut ending = Ending { at, owed: 100 };
        let (soon, late) = (at + LATE_OUTPUT, at + LATE_OUTPUT * 10);
        ending.read(60);
        assert!(!ending.is_over(late), "some of it is left");
        ending.read(60);
        assert!(!ending.is_over(soon) && ending.is_over(late), "what came later has its time");
        let mut lost = Ending { at, owed: 100 };
        lost.read(0);
        assert!(lost.is_over(late), "what cannot be read is not waited for");
    }
}
