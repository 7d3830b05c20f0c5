//! One file that is followed.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Instant,
};

/// How a file is told from others, whatever it is called.
pub(super) type FileId = (u64, u64);

/// So many of a file's first bytes tell whether another is a copy of it.
const HEAD: usize = 256;

/// So many of the bytes read last tell whether the file is still the same.
const WAKE: usize = 64;

/// `O_NONBLOCK`: a pipe that has taken a file's place must not make us wait.
const NON_BLOCKING: i32 = 0o4000;

pub(super) fn id(data: &Metadata) -> FileId {
    (data.dev(), data.ino())
}

/// What has been read of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    head: Vec<u8>,
    wake: Vec<u8>,
    /// The next byte to read.
    pub(super) offset: u64,
}

impl Progress {
    fn advance(&mut self, bytes: &[u8]) {
        if self.offset == self.head.len() as u64 {
            self.head.extend_from_slice(&bytes[..bytes.len().min(HEAD - self.head.len())]);
        }
        let fresh = &bytes[bytes.len().saturating_sub(WAKE)..];
        let stale = self.wake.len().saturating_sub(WAKE - fresh.len());
        self.wake.drain(..stale);
        self.wake.extend_from_slice(fresh);
        self.offset += bytes.len() as u64;
    }

    /// Whether a file holds what has been read here.
    pub(super) fn is_in(&self, file: &File) -> io::Result<Likeness> {
        if self.offset == 0 {
            return Ok(Likeness::Different);
        }
        let length = file.metadata()?.len();
        let compared = self.head.len().min(usize::try_from(length).unwrap_or(HEAD));
        let mut head = vec![0; compared];
        file.read_exact_at(&mut head, 0)?;
        if head != self.head[..compared] {
            return Ok(Likeness::Different);
        }
        if length < self.offset {
            return Ok(Likeness::Beginning);
        }
        let mut wake = vec![0; self.wake.len()];
        file.read_exact_at(&mut wake, self.offset - self.wake.len() as u64)?;
        Ok(if wake == self.wake { Likeness::Same } else { Likeness::Different })
    }
}

/// How a file is like what has been read of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Likeness {
    /// It holds all of it.
    Same,
    /// It is shorter, and begins like it: a copy that is being made, or of less than has been read since.
    Beginning,
    /// It does not.
    Different,
}

/// What a look at a file brought.
pub(super) enum Look<'a> {
    /// Nothing new.
    Quiet,
    /// More bytes, from this offset on.
    Bytes(u64, &'a [u8]),
    /// It was truncated or written anew.
    Anew,
    /// Its name is gone, and everything is read.
    Gone,
}

/// A file that is followed.
#[derive(Debug)]
pub(super) struct Followed {
    /// The number that its lines go under.
    pub(super) slot: usize,
    /// Where it was found first.
    pub(super) path: PathBuf,
    /// Where it is now.
    pub(super) place: PathBuf,
    pub(super) progress: Progress,
    /// What had been read when it was truncated last.
    pub(super) before: Option<Progress>,
    /// Another file whose copy it is until that is truncated.
    pub(super) copy_of: Option<FileId>,
    /// Nothing is read from here on: the job has ended.
    pub(super) limit: Option<u64>,
    /// When it last had something new.
    pub(super) active: Instant,
    handle: Option<File>,
    id: FileId,
    /// When it was written to before the last look, in seconds and nanoseconds.
    modified: (i64, i64),
}

impl Followed {
    pub(super) fn new(slot: usize, path: PathBuf, id: FileId, handle: File, now: Instant) -> Self {
        Self {
            slot,
            place: path.clone(),
            path,
            progress: Progress::default(),
            before: None,
            copy_of: None,
            limit: None,
            active: now,
            handle: Some(handle),
            id,
            modified: (0, 0),
        }
    }

    pub(super) fn open(path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(NON_BLOCKING).open(path)
    }

    pub(super) fn is_open(&self) -> bool {
        self.handle.is_some()
    }

    /// Lets go of a file that is read and quiet; it is opened again when it grows.
    pub(super) fn close(&mut self) {
        self.handle = None;
    }

    /// How many bytes have not been read.
    pub(super) fn unread(&self) -> u64 {
        let size = self.data().map_or(0, |data| data.len());
        let size = self.limit.map_or(size, |limit| limit.min(size));
        if self.copy_of.is_some() { 0 } else { size.saturating_sub(self.progress.offset) }
    }

    pub(super) fn data(&self) -> io::Result<Metadata> {
        match &self.handle {
            Some(file) => file.metadata(),
            None => fs::metadata(&self.place),
        }
    }

    /// Whether all of `other`, which begins like this file and is shorter, is in this one.
    pub(super) fn begins_with(&self, other: &File) -> io::Result<bool> {
        let Some(own) = &self.handle else { return Ok(false) };
        let length = other.metadata()?.len();
        let compared = length.min(WAKE as u64);
        let read = |file: &File| -> io::Result<Vec<u8>> {
            let mut bytes = vec![0; usize::try_from(compared).unwrap_or(WAKE)];
            file.read_exact_at(&mut bytes, length - compared)?;
            Ok(bytes)
        };
        if own.metadata()?.len() < length {
            return Ok(false);
        }
        Ok(read(own)? == read(other)?)
    }

    /// The open file.
    pub(super) fn handle(&self) -> Option<&File> {
        self.handle.as_ref()
    }

    /// Looks whether there is more, and reads it into `buffer`.
    pub(super) fn look<'a>(&mut self, buffer: &'a mut [u8], now: Instant) -> io::Result<Look<'a>> {
        let data = match self.data() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Look::Gone),
            data => data?,
        };
        // A file that was let go may have gone, and another be in its place.
        if id(&data) != self.id {
            return Ok(Look::Gone);
        }
        let offset = self.progress.offset;
        let end = self.limit.map_or(data.len(), |limit| limit.min(data.len()));
        if data.len() < offset {
            return Ok(Look::Anew);
        }
        let modified = (data.mtime(), data.mtime_nsec());
        let touched = std::mem::replace(&mut self.modified, modified) != modified;
        // As many bytes may be other bytes.
        let suspect = end == offset && touched && offset > 0;
        if end <= offset && !suspect {
            return Ok(if data.nlink() == 0 { Look::Gone } else { Look::Quiet });
        }
        if self.handle.is_none() {
            self.handle = Some(Self::open(&self.place)?);
        }
        let file = self.handle.as_ref().expect("it was opened above if it was not open");
        let wake = self.progress.wake.len();
        let wanted =
            usize::try_from(end - offset).unwrap_or(usize::MAX).saturating_add(wake).min(buffer.len());
        let length = file.read_at(&mut buffer[..wanted], offset - wake as u64)?;
        if length < wake || buffer[..wake] != self.progress.wake {
            return Ok(Look::Anew);
        }
        let bytes = &buffer[wake..length];
        self.progress.advance(bytes);
        self.active = now;
        Ok(if bytes.is_empty() { Look::Quiet } else { Look::Bytes(offset, bytes) })
    }

    /// Starts again at the beginning, under a new number.
    pub(super) fn restart(&mut self, slot: usize) {
        self.before = Some(std::mem::take(&mut self.progress));
        self.slot = slot;
    }

    /// Goes on where what was read of `original` ends.
    pub(super) fn continue_from(&mut self, original: &Progress) {
        self.copy_of = None;
        self.progress = original.clone();
    }
}
