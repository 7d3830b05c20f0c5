//! From bytes of any source to records in the spool: lines are put together, joined, cleared of secrets and numbered.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use bk_api::config::LogHandling;

use crate::{
    joining::{First, Joined, Joint, Rule},
    line::{Assembler, Chunk, Line, readable},
    record::{Source, Sources, Stamp, encode},
    secrets::Redactor,
    spool::Spool,
};

/// How long lines that could go on wait for the next one.
const JOINED_AFTER: Duration = Duration::from_secs(1);

/// So many bytes go to the spool at once.
const FLUSHED: usize = 256 << 10;

/// The most bytes of lines that have not ended, of all sources together. Thousands of files may have one each.
const MOST_HELD: usize = 8 << 20;

/// What the lines of one source go through.
#[derive(Debug)]
struct Lane {
    source: u32,
    assembler: Assembler,
    joint: Joint,
    touched: Instant,
    /// The last record's time.
    time: u64,
}

impl Lane {
    /// The memory that what has not ended takes.
    fn held(&self) -> usize {
        self.assembler.held() + self.joint.held()
    }
}

/// Names a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaneId {
    /// A file's slot.
    File(usize),
    /// An output, by its number, and whether it is standard error.
    Output(usize, bool),
}

/// Makes records.
#[derive(Debug)]
pub struct Press {
    sources: Sources,
    lanes: HashMap<LaneId, Lane>,
    rule: Option<Rule>,
    most: usize,
    secrets: Secrets,
    ink: Ink,
    /// The memory that what has not ended takes, of all lanes.
    held: usize,
}

/// Where records are written.
#[derive(Debug)]
struct Ink {
    spool: Arc<Spool>,
    pending: Vec<u8>,
    count: u64,
    sequence: u64,
    /// The last record's time of any file: files share labels.
    file_time: u64,
    scratch: Vec<u8>,
    complaint: Option<String>,
}

/// The job's secrets, as the environments of its containers have them now.
#[derive(Debug)]
struct Secrets {
    directory: PathBuf,
    more: Vec<String>,
    seen: Vec<Environment>,
    redactor: Redactor,
}

/// An environment that was written down: each is a file of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Environment {
    path: PathBuf,
    number: u64,
    written: SystemTime,
    length: u64,
}

impl Secrets {
    /// Reads the environments if one has changed. Whoever prints a secret has had it before, so this comes after the bytes
    /// are read and before they are looked at.
    fn refresh(&mut self) {
        let there = environments(&self.directory);
        if there == self.seen {
            return;
        }
        let mut read = Vec::new();
        for environment in &there {
            match fs::read(&environment.path) {
                Ok(content) => read.push(content),
                Err(error) => {
                    let path = environment.path.display();
                    tracing::warn!(%error, %path, "an environment of the job cannot be read");
                }
            }
        }
        self.redactor = Redactor::of_environments(&read, &self.more);
        self.seen = there;
    }
}

/// The environments that are there, in order. Those whose names begin with a dot are not whole yet.
fn environments(directory: &Path) -> Vec<Environment> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let whole = files.filter(|file| !file.file_name().as_encoded_bytes().starts_with(b"."));
    let mut there: Vec<Environment> = whole
        .filter_map(|file| {
            let data = file.metadata().ok().filter(fs::Metadata::is_file)?;
            let written = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            Some(Environment { path: file.path(), number: data.ino(), written, length: data.len() })
        })
        .collect();
    there.sort();
    there
}

impl Press {
    /// Fills `spool` with the lines of `sources`; secrets are those of the environments in a directory.
    pub fn new(
        handling: &LogHandling,
        environments: &Path,
        sources: Sources,
        spool: Arc<Spool>,
    ) -> Result<Self, regex::Error> {
        let secrets = Secrets {
            directory: environments.to_owned(),
            more: handling.redaction.variables.clone(),
            seen: Vec::new(),
            redactor: Redactor::new(std::iter::empty()),
        };
        let ink = Ink {
            spool,
            pending: Vec::new(),
            count: 0,
            sequence: 0,
            file_time: 0,
            scratch: Vec::new(),
            complaint: None,
        };
        let rule = handling.multiline.as_ref().map(Rule::of).transpose()?;
        let most = handling.max_line_bytes;
        Ok(Self { sources, lanes: HashMap::new(), rule, most, secrets, ink, held: 0 })
    }

    /// A source begins.
    pub fn begin(&mut self, id: LaneId, source: Source, now: Instant) {
        let source = self.sources.add(source);
        let lane =
            Lane { source, assembler: Assembler::default(), joint: Joint::default(), touched: now, time: 0 };
        self.lanes.insert(id, lane);
    }

    /// More of a source.
    pub fn push(&mut self, id: LaneId, chunk: Chunk<'_>, now: Instant) {
        self.secrets.refresh();
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        lane.touched = now;
        let before = lane.held();
        let Lane { source, assembler, joint, time, .. } = lane;
        let way = Way {
            id,
            source: *source,
            rule: self.rule.as_ref(),
            redactor: &self.secrets.redactor,
            most: self.most,
        };
        let ink = &mut self.ink;
        assembler
            .push(chunk, self.most, &self.secrets.redactor, &mut |line| ink.line(way, joint, time, line));
        self.held = self.held + lane.held() - before;
        if self.held > MOST_HELD {
            self.release();
        }
    }

    /// Hands out parts of the longest lines that have not ended, until the others are half of what there may be.
    fn release(&mut self) {
        let mut longest: Vec<(usize, LaneId)> =
            self.lanes.iter().map(|(id, lane)| (lane.held(), *id)).collect();
        longest.sort_unstable_by_key(|(held, _)| std::cmp::Reverse(*held));
        let redactor = &self.secrets.redactor;
        for (before, id) in longest {
            let Some(lane) = self.lanes.get_mut(&id).filter(|_| self.held > MOST_HELD / 2) else { break };
            let Lane { source, assembler, joint, time, .. } = lane;
            let way = Way { id, source: *source, rule: self.rule.as_ref(), redactor, most: self.most };
            let ink = &mut self.ink;
            assembler.release(redactor, &mut |line| ink.line(way, joint, time, line));
            joint.release(&mut |record| ink.joined(way, time, record));
            self.held = self.held + lane.held() - before;
        }
    }

    /// Says something between the lines of a source, at the place of `at`.
    pub fn remark(&mut self, id: LaneId, text: &str, at: Chunk<'_>, now: Instant) {
        let pending = self.lanes.get(&id).is_some_and(|lane| lane.assembler.is_pending());
        let text = format!("{}{text}\n", if pending { "\n" } else { "" });
        self.push(id, Chunk { bytes: text.as_bytes(), ..at }, now);
    }

    /// No more of a source comes.
    pub fn end(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.remove(&id) else { return };
        self.held -= lane.held();
        let Lane { source, mut assembler, mut joint, mut time, .. } = lane;
        self.secrets.refresh();
        let redactor = &self.secrets.redactor;
        let way = Way { id, source, rule: self.rule.as_ref(), redactor, most: self.most };
        let ink = &mut self.ink;
        if assembler.is_pending() {
            assembler.end(self.most, redactor, &mut |line| ink.line(way, &mut joint, &mut time, line));
        }
        joint.end(&mut |record| ink.joined(way, &mut time, record));
    }

    /// No more of any source comes.
    pub fn end_all(&mut self) {
        let mut ids: Vec<(u32, LaneId)> = self.lanes.iter().map(|(id, lane)| (lane.source, *id)).collect();
        ids.sort_unstable_by_key(|(source, _)| *source);
        for (_, id) in ids {
            self.end(id);
        }
        self.flush();
    }

    /// Hands over what has been made.
    pub fn flush(&mut self) {
        self.ink.flush();
    }

    /// Hands over joined lines that nothing has been added to for a while.
    pub fn settle(&mut self, now: Instant) {
        let Some(rule) = &self.rule else { return };
        let quiet = |lane: &&mut Lane| now.duration_since(lane.touched) >= JOINED_AFTER;
        for (id, lane) in self.lanes.iter_mut().map(|(id, lane)| (*id, lane)).filter(|(_, lane)| quiet(lane))
        {
            let redactor = &self.secrets.redactor;
            let way = Way { id, source: lane.source, rule: Some(rule), redactor, most: self.most };
            lane.joint.end(&mut |record| self.ink.joined(way, &mut lane.time, record));
        }
    }

    /// The first thing that went wrong.
    pub fn complaint(&self) -> Option<&str> {
        self.ink.complaint.as_deref()
    }
}

/// What lines go through on their way.
#[derive(Clone, Copy)]
struct Way<'a> {
    id: LaneId,
    source: u32,
    rule: Option<&'a Rule>,
    redactor: &'a Redactor,
    most: usize,
}

impl Ink {
    fn line(&mut self, way: Way<'_>, joint: &mut Joint, time: &mut u64, line: Line<'_>) {
        let hidden = line.covered > 0 || way.redactor.finds(line.bytes);
        let first = First { offset: line.offset, time: line.time };
        let Some(rule) = way.rule else {
            let stamp = self.stamp(way, time, first, line.partial);
            let Self { pending, scratch, .. } = self;
            encode(stamp, pending, |out| {
                if hidden {
                    scratch.clear();
                    way.redactor.hide(line.bytes, line.covered, scratch);
                    readable(scratch, out);
                } else {
                    readable(line.bytes, out);
                }
            });
            return self.counted();
        };
        let mut text = std::mem::take(&mut self.scratch);
        text.clear();
        way.redactor.hide(line.bytes, line.covered, &mut text);
        joint.push(rule, &text, first, line.partial, way.most, &mut |record| self.joined(way, time, record));
        self.scratch = text;
    }

    fn joined(&mut self, way: Way<'_>, time: &mut u64, record: Joined<'_>) {
        let stamp = self.stamp(way, time, record.first, record.partial);
        encode(stamp, &mut self.pending, |out| readable(record.text, out));
        self.counted();
    }

    /// Times of a source, and of all files, only ever grow: some sinks take two equal lines of one time for the same line.
    fn stamp(&mut self, way: Way<'_>, time: &mut u64, first: First, partial: bool) -> Stamp {
        let last = if let LaneId::File(_) = way.id { &mut self.file_time } else { time };
        *last = first.time.max(*last + 1);
        let sequence = self.sequence;
        self.sequence += 1;
        Stamp { source: way.source, partial, time: *last, sequence, offset: first.offset }
    }

    fn counted(&mut self) {
        self.count += 1;
        if self.pending.len() >= FLUSHED {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.count > 0
            && let Err(error) = self.spool.append(&self.pending, self.count)
            && self.complaint.is_none()
        {
            tracing::warn!(%error, "lines cannot be written to the spool");
            self.complaint = Some(format!("cannot write to the spool: {error}"));
        }
        self.pending.clear();
        self.count = 0;
    }
}
