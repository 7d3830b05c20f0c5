//! What is closed and what is written to below the directory, as the kernel tells it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
};

use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A file was closed, or got its name.
    Closed(PathBuf),
    /// A file was written to.
    Written(PathBuf),
    /// Too much happened at once.
    Lost,
}

/// A watch on directories. Without one, as a node has few to give, files are uploaded when they have been quiet for longer.
#[derive(Default)]
pub struct Watch {
    inotify: Option<Inotify>,
    directories: BTreeMap<PathBuf, WatchDescriptor>,
}

impl Watch {
    /// Begins to watch nothing.
    pub fn new() -> Self {
        let inotify = Inotify::init();
        if let Err(error) = &inotify {
            tracing::warn!(%error, "no watch can be had; files are uploaded later");
        }
        Self { inotify: inotify.ok(), directories: BTreeMap::new() }
    }

    /// Watches these directories below `root`, and no others.
    pub fn follow(&mut self, root: &Path, directories: &BTreeSet<PathBuf>) {
        let Some(inotify) = &self.inotify else { return };
        // The kernel forgets a directory that is gone by itself.
        self.directories.retain(|known, _| directories.contains(known));
        for directory in directories {
            if !self.directories.contains_key(directory) {
                let mask =
                    WatchMask::CLOSE_WRITE | WatchMask::MODIFY | WatchMask::MOVED_TO | WatchMask::ONLYDIR;
                if let Ok(descriptor) = inotify.watches().add(root.join(directory), mask) {
                    self.directories.insert(directory.clone(), descriptor);
                }
            }
        }
    }

    /// What has happened since the last call.
    pub fn events(&mut self) -> Vec<Event> {
        let Some(inotify) = &mut self.inotify else { return Vec::new() };
        let mut events = Vec::new();
        let mut buffer = [0; 16 << 10];
        loop {
            match inotify.read_events(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // There is nothing more.
                Err(_) => return events,
                Ok(some) => {
                    let before = events.len();
                    for event in some {
                        if event.mask.contains(EventMask::Q_OVERFLOW) {
                            events.push(Event::Lost);
                            continue;
                        }
                        let known = self.directories.iter().find(|(_, own)| **own == event.wd);
                        let Some(path) = known.zip(event.name).map(|((at, _), name)| at.join(name)) else {
                            continue;
                        };
                        let written = event.mask.contains(EventMask::MODIFY);
                        let event = if written { Event::Written(path) } else { Event::Closed(path) };
                        if events.last() != Some(&event) {
                            events.push(event);
                        }
                    }
                    if events.len() == before {
                        return events;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, io::Write as _};

    use super::{Event, Watch};

    #[test]
    fn files_are_closed_and_written_to() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("deep")).unwrap();
        let mut watch = Watch::new();
        watch.follow(root.path(), &BTreeSet::from(["".into(), "deep".into()]));
        assert_eq!(watch.events(), []);
        let mut file = fs::File::create(root.path().join("deep/a")).unwrap();
        file.write_all(b"1").unwrap();
        file.write_all(b"2").unwrap();
        assert_eq!(watch.events(), [Event::Written("deep/a".into())]);
        drop(file);
        assert_eq!(watch.events(), [Event::Closed("deep/a".into())]);
        fs::rename(root.path().join("deep/a"), root.path().join("b")).unwrap();
        assert_eq!(watch.events(), [Event::Closed("b".into())]);
    }
}
