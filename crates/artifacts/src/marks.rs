//! The files by which containers say that they are about to end, and hear that their artifacts are there.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// How often the exporter shows that it is there. Containers wait for 15 s without a sign.
pub const SIGN: Duration = Duration::from_secs(1);
/// What it touches.
const ALIVE: &str = ".alive";

/// Wishes of containers, and which of them are fulfilled.
#[derive(Clone, Debug)]
pub struct Marks {
    wishes: PathBuf,
    fulfilled: PathBuf,
}

impl Marks {
    /// Those in these directories.
    pub fn new(wishes: &Path, fulfilled: &Path) -> Self {
        Self { wishes: wishes.to_owned(), fulfilled: fulfilled.to_owned() }
    }

    /// Containers whose wish is not fulfilled yet.
    pub fn open(&self) -> Vec<OsString> {
        // The directory is made by the first wish.
        let Ok(entries) = fs::read_dir(&self.wishes) else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name());
        names.filter(|name| !self.fulfilled.join(name).exists()).collect()
    }

    /// Tells a container that its wish is fulfilled.
    pub fn fulfil(&self, container: &OsString) -> io::Result<()> {
        fs::create_dir_all(&self.fulfilled)?;
        fs::write(self.fulfilled.join(container), "")
    }

    /// Shows that somebody is there.
    pub fn show(&self) -> io::Result<()> {
        // It is made by the first container that has a wish. Before that nobody looks.
        if !self.fulfilled.is_dir() {
            return Ok(());
        }
        let file = fs::File::create(self.fulfilled.join(ALIVE))?;
        file.set_modified(SystemTime::now())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Marks;

    #[test]
    fn a_wish_is_open_until_it_is_fulfilled() {
        let directory = tempfile::tempdir().unwrap();
        let marks = Marks::new(&directory.path().join("drain"), &directory.path().join("drained"));
        assert!(marks.open().is_empty());
        fs::create_dir(directory.path().join("drain")).unwrap();
        fs::write(directory.path().join("drain/container-0"), "").unwrap();
        assert_eq!(marks.open(), ["container-0"]);
        marks.fulfil(&"container-0".into()).unwrap();
        assert!(marks.open().is_empty());
        marks.show().unwrap();
        assert!(directory.path().join("drained/.alive").exists());
    }
}
