//! Following files: those that are there and those that appear, while they are written, rotated, truncated and removed.
//!
//! Files are told apart by device and inode, so a file that is renamed stays the same and is read to its end. One that
//! is shorter than what has been read of it, or has something else there, begins anew. A new file `NAME.…` or `NAME-…` that holds what has been read of
//! the file NAME is a copy, as rotation by copying makes it: only what the original had not shown before it was truncated is
//! read from it.

mod discovery;
mod followed;
mod trouble;

use std::{
    collections::{BTreeSet, HashMap},
    fs::{File, Metadata},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

pub use discovery::Wanted;
use followed::{FileId, Followed, Likeness, Look, Progress, id};
use trouble::Trouble;

/// How often files are looked for, at least if that is quick.
const SCAN_EVERY: Duration = Duration::from_millis(250);

/// Looking for files takes at most this part of the time.
const SCAN_SHARE: u32 = 20;

/// How long a removed file is held: whoever has it open may still write to it.
const HELD: Duration = Duration::from_secs(10);

/// How long a file that may be a copy in the making is left alone.
const UNDECIDED: Duration = Duration::from_secs(5);

/// The most files that are held open.
const MOST_OPEN: usize = 400;

/// The most bytes that are read of a file before the others have their turn.
const MOST_BYTES: usize = 256 << 10;

/// How often files are read before new ones are looked at: whoever writes quicker than we read must not stop that.
const MOST_ROUNDS: usize = 16;

/// What happens to files. A file's lines go under a number, its slot; if it begins anew, under a new one.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A file begins.
    Begun {
        /// Its number.
        slot: usize,
        /// Where it is.
        path: &'a Path,
        /// How many files, or beginnings of one, there were at this path before.
        generation: u32,
    },
    /// More of it.
    Bytes {
        /// Its number.
        slot: usize,
        /// Where the bytes are.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// No more comes.
    Ended {
        /// Its number.
        slot: usize,
    },
}

/// Follows files.
#[derive(Debug)]
pub struct Tail {
    wanted: Wanted,
    files: HashMap<FileId, Followed>,
    generations: HashMap<PathBuf, u32>,
    undecided: HashMap<FileId, Instant>,
    unmatched: BTreeSet<String>,
    slots: usize,
    next_scan: Option<Instant>,
    closed: bool,
    buffer: Vec<u8>,
    trouble: Trouble,
}

impl Tail {
    /// Follows the wanted files, whenever they appear.
    pub fn new(wanted: Wanted) -> Self {
        Self {
            unmatched: wanted.all(),
            wanted,
            files: HashMap::new(),
            generations: HashMap::new(),
            undecided: HashMap::new(),
            slots: 0,
            next_scan: None,
            closed: false,
            buffer: Vec::new(),
            trouble: Trouble::default(),
        }
    }

    /// Looks for files, if it is time to.
    pub fn scan(&mut self, now: Instant, out: &mut impl FnMut(Event<'_>)) {
        if self.closed || self.next_scan.is_some_and(|next| now < next) {
            return;
        }
        let began = Instant::now();
        self.scan_now(now, out);
        self.next_scan = Some(now + SCAN_EVERY.max(began.elapsed() * SCAN_SHARE));
    }

    /// Looks for files once more, and lets none grow any further: the job has ended.
    pub fn close(&mut self, now: Instant, out: &mut impl FnMut(Event<'_>)) {
        self.closed = true;
        self.scan_now(now, out);
        for file in self.files.values_mut() {
            file.limit = file.data().ok().map(|data| data.len());
        }
    }

    /// Reads what is new, a bounded part of each file. How many bytes that were.
    pub fn poll(&mut self, now: Instant, out: &mut impl FnMut(Event<'_>)) -> usize {
        self.buffer.resize(MOST_BYTES, 0);
        let mut total = 0;
        let mut ids: Vec<(usize, FileId)> = self.files.iter().map(|(id, file)| (file.slot, *id)).collect();
        ids.sort_unstable();
        for (_, id) in ids {
            total += self.poll_file(id, now, out);
        }
        self.close_quiet();
        total
    }

    /// Ends every file.
    pub fn end(&mut self, out: &mut impl FnMut(Event<'_>)) {
        let mut slots: Vec<usize> = self.files.drain().map(|(_, file)| file.slot).collect();
        slots.sort_unstable();
        for slot in slots {
            out(Event::Ended { slot });
        }
    }

    /// Bytes that have not been read, but can be.
    pub fn unread(&self) -> u64 {
        let readable = self.files.iter().filter(|(id, _)| !self.trouble.has(**id));
        readable.map(|(_, file)| file.unread()).sum()
    }

    /// Bytes that cannot be read, as far as is known.
    pub fn unreadable(&self) -> u64 {
        self.trouble.bytes()
    }

    /// What was wanted and had no file, as yet.
    pub fn unmatched(&self) -> impl Iterator<Item = &str> {
        self.unmatched.iter().map(String::as_str)
    }

    /// What cannot be read, if there is anything.
    pub fn complaint(&self) -> Option<String> {
        self.trouble.complaint()
    }

    fn poll_file(&mut self, id: FileId, now: Instant, out: &mut impl FnMut(Event<'_>)) -> usize {
        let Some(file) = self.files.get_mut(&id) else { return 0 };
        if file.copy_of.is_some_and(|original| original != id) {
            return 0;
        }
        let look = file.look(&mut self.buffer, now);
        if look.is_ok() {
            self.trouble.is_over(id);
        }
        match look {
            Ok(Look::Quiet) => 0,
            Ok(Look::Bytes(offset, bytes)) => {
                out(Event::Bytes { slot: file.slot, offset, bytes });
                bytes.len()
            }
            Ok(Look::Anew) => {
                self.restart(id, out);
                0
            }
            Ok(Look::Gone) => {
                if now.duration_since(file.active) >= HELD || !file.is_open() {
                    out(Event::Ended { slot: file.slot });
                    self.files.remove(&id);
                }
                0
            }
            Err(error) => {
                self.trouble.file(id, &file.path, file.unread(), &error);
                0
            }
        }
    }

    fn restart(&mut self, id: FileId, out: &mut impl FnMut(Event<'_>)) {
        let slot = self.slots;
        self.slots += 1;
        let Some(file) = self.files.get_mut(&id) else { return };
        out(Event::Ended { slot: file.slot });
        file.restart(slot);
        let (path, read) = (file.path.clone(), file.before.clone().unwrap_or_default());
        self.begin(slot, &path, out);
        for copy in self.files.values_mut().filter(|file| file.copy_of == Some(id)) {
            go_on(copy, &read);
        }
    }

    fn begin(&mut self, slot: usize, path: &Path, out: &mut impl FnMut(Event<'_>)) {
        let generation = self.generations.entry(path.to_owned()).or_default();
        out(Event::Begun { slot, path, generation: *generation });
        *generation += 1;
    }

    fn scan_now(&mut self, now: Instant, out: &mut impl FnMut(Event<'_>)) {
        let found = self.wanted.find(&mut self.unmatched);
        self.trouble.look(&found);
        let (known, new): (Vec<_>, Vec<_>) =
            found.files.into_iter().partition(|(_, data)| self.files.contains_key(&id(data)));
        if !new.is_empty() {
            // Originals are read before their copies are looked at, so that what both have is known.
            for _ in 0..MOST_ROUNDS {
                if self.poll(now, out) == 0 {
                    break;
                }
            }
        }
        for (path, data) in known {
            if let Some(file) = self.files.get_mut(&id(&data)) {
                file.place = path;
            }
        }
        for (path, data) in new {
            self.discover(&path, &data, now, out);
        }
        self.check_copies();
    }

    fn discover(&mut self, path: &Path, data: &Metadata, now: Instant, out: &mut impl FnMut(Event<'_>)) {
        let opened = Followed::open(path).and_then(|file| Ok((self.original(path, &file)?, file)));
        let (original, handle) = match opened {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.trouble.file(id(data), path, data.len(), &error),
        };
        let id = id(data);
        self.trouble.is_over(id);
        if let Some(Original::Perhaps) = original {
            let since = *self.undecided.entry(id).or_insert(now);
            if now.duration_since(since) < UNDECIDED && !self.closed {
                return;
            }
        }
        self.undecided.remove(&id);
        let slot = self.slots;
        self.slots += 1;
        let mut file = Followed::new(slot, path.to_owned(), id, handle, now);
        match original {
            Some(Original::Current(original)) => file.copy_of = Some(original),
            Some(Original::Before(read)) => go_on(&mut file, &read),
            Some(Original::Perhaps) | None => {}
        }
        self.files.insert(id, file);
        self.begin(slot, path, out);
    }

    /// The file that a new one is a copy of.
    fn original(&self, path: &Path, file: &File) -> io::Result<Option<Original>> {
        let mut perhaps = None;
        for (id, known) in self.files.iter().filter(|(_, known)| is_name_of_copy(path, &known.path)) {
            if is_copy(file, known)? {
                return Ok(Some(Original::Current(*id)));
            }
            if let Some(before) = &known.before {
                match before.is_in(file)? {
                    Likeness::Same => return Ok(Some(Original::Before(before.clone()))),
                    Likeness::Beginning => perhaps = Some(Original::Perhaps),
                    Likeness::Different => {}
                }
            }
        }
        Ok(perhaps)
    }

    /// Reads those that only began like a copy.
    fn check_copies(&mut self) {
        let copies = self.files.iter().filter_map(|(id, file)| Some((*id, file.copy_of?, file.handle()?)));
        let is_other = |original: FileId, copy: &File| match self.files.get(&original) {
            Some(original) => !is_copy(copy, original).unwrap_or(true),
            None => false,
        };
        let others: Vec<FileId> =
            copies.filter(|(_, original, copy)| is_other(*original, copy)).map(|(id, ..)| id).collect();
        for id in others {
            if let Some(file) = self.files.get_mut(&id) {
                file.copy_of = None;
            }
        }
    }

    /// Closes files that have been quiet for longest, if too many are open.
    fn close_quiet(&mut self) {
        let open = self.files.values().filter(|file| file.is_open()).count();
        if open <= MOST_OPEN {
            return;
        }
        let mut quiet: Vec<&mut Followed> =
            self.files.values_mut().filter(|file| file.is_open() && file.unread() == 0).collect();
        quiet.sort_unstable_by_key(|file| file.active);
        quiet.into_iter().take(open - MOST_OPEN).for_each(Followed::close);
    }
}

/// What a new file is a copy of.
enum Original {
    /// A file, as it is.
    Current(FileId),
    /// What was read of a file before it was truncated.
    Before(Progress),
    /// Nobody knows yet.
    Perhaps,
}

/// Whether a file is a copy of one that is followed, or of its beginning.
fn is_copy(file: &File, original: &Followed) -> io::Result<bool> {
    match original.progress.is_in(file)? {
        Likeness::Same => Ok(true),
        Likeness::Beginning => original.begins_with(file),
        Likeness::Different => Ok(false),
    }
}

/// Reads of a copy what had not been read of its original.
fn go_on(copy: &mut Followed, read: &Progress) {
    let length = copy.data().map_or(0, |data| data.len());
    copy.continue_from(read);
    if length < read.offset {
        // The original went on for longer than the copy: there is nothing in it that is new.
        copy.progress = Progress::default();
        copy.limit = Some(0);
    }
}

/// Whether `path` is what rotation calls a copy of `original`.
fn is_name_of_copy(path: &Path, original: &Path) -> bool {
    let name =
        |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (name, original_name) = (name(path), name(original));
    path.parent() == original.parent()
        && name.strip_prefix(&original_name).is_some_and(|rest| rest.starts_with(['.', '-']))
}

#[cfg(test)]
mod tests;
