//! Which files there are to follow.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, Metadata},
    io,
    path::{Path, PathBuf},
};

/// Directories are looked into no deeper than this.
const DEEPEST: usize = 32;

/// No more files are followed than this.
pub(super) const MOST_FILES: usize = 20_000;

/// Names of files that rotation has compressed. What they hold was followed when it was written.
const COMPRESSED: [&str; 6] = ["gz", "bz2", "xz", "zst", "lz4", "zip"];

/// Which files to follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Files and globs.
    pub paths: Vec<String>,
    /// A directory of which every file is followed.
    pub directory: Option<PathBuf>,
}

impl Wanted {
    /// Everything that is wanted, by name.
    pub fn all(&self) -> BTreeSet<String> {
        let directory = self.directory.iter().map(|directory| directory.to_string_lossy().into_owned());
        self.paths.iter().cloned().chain(directory).collect()
    }

    /// The files that are there now, each path once. Only regular ones: reading others could wait for ever. What of
    /// [`Self::all`] has a file is removed from `unmatched`.
    pub(super) fn find(&self, unmatched: &mut BTreeSet<String>) -> Found {
        let mut found = Found::default();
        let mut paths: Vec<PathBuf> = Vec::new();
        let mut add = |wanted: &str, matched: Vec<PathBuf>| {
            if unmatched.contains(wanted) && matched.iter().any(|path| path.is_file()) {
                unmatched.remove(wanted);
            }
            paths.extend(matched);
        };
        for path in &self.paths {
            let is_glob = path.contains(['*', '?', '[']);
            add(path, if is_glob { globbed(path, &mut found) } else { vec![PathBuf::from(path)] });
        }
        if let Some(directory) = &self.directory {
            let matched = Walk::new(&|_| true, &|_| true, &mut found).through(directory, DEEPEST);
            add(&directory.to_string_lossy(), matched);
        }
        paths.sort_unstable();
        paths.dedup();
        found.too_many |= paths.len() > MOST_FILES;
        paths.truncate(MOST_FILES);
        for path in paths {
            match fs::metadata(&path) {
                Ok(data) if data.is_file() => found.files.push((path, data)),
                Ok(_) => {}
                Err(error) => found.cannot(path, error),
            }
        }
        found
    }
}

/// What came of looking for files.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The files that are there.
    pub(super) files: Vec<(PathBuf, Metadata)>,
    /// Directories that cannot be looked into, and files that cannot be looked at.
    pub(super) unreadable: BTreeMap<PathBuf, io::Error>,
    /// Whether there are more files than are followed.
    pub(super) too_many: bool,
}

impl Found {
    /// What is not there is no trouble.
    fn cannot(&mut self, path: PathBuf, error: io::Error) {
        if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            self.unreadable.insert(path, error);
        }
    }
}

/// The files that a glob matches. They are looked for from the first directory on that is named as it is, and no deeper than
/// the glob reaches.
fn globbed(text: &str, found: &mut Found) -> Vec<PathBuf> {
    let Ok(pattern) = glob::Pattern::new(text) else { return Vec::new() };
    let parts: Vec<&str> = text.split('/').collect();
    let fixed = parts.iter().take_while(|part| !part.contains(['*', '?', '['])).count();
    let root = parts[..fixed].join("/") + "/";
    let depth = if parts.contains(&"**") { DEEPEST } else { parts.len() - fixed - 1 };
    let options = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::default() };
    let leads = |directory: &Path| leads(&parts[fixed..], directory.strip_prefix(&root).unwrap_or(directory));
    let takes = |path: &Path| pattern.matches_path_with(path, options);
    Walk::new(&leads, &takes, found).through(Path::new(&root), depth)
}

/// Whether there could be something below a directory that these parts of a glob match.
fn leads(parts: &[&str], directory: &Path) -> bool {
    for (part, name) in parts.iter().zip(directory.iter()) {
        if *part == "**" {
            return true;
        }
        if !glob::Pattern::new(part).is_ok_and(|part| part.matches(&name.to_string_lossy())) {
            return false;
        }
    }
    true
}

/// Looks for files in directories.
struct Walk<'a> {
    paths: Vec<PathBuf>,
    /// Whether a directory could hold something that is wanted.
    leads: &'a dyn Fn(&Path) -> bool,
    /// Whether a file is wanted.
    takes: &'a dyn Fn(&Path) -> bool,
    found: &'a mut Found,
}

impl<'a> Walk<'a> {
    fn new(leads: &'a dyn Fn(&Path) -> bool, takes: &'a dyn Fn(&Path) -> bool, found: &'a mut Found) -> Self {
        Self { paths: Vec::new(), leads, takes, found }
    }

    /// The files in a directory, and so much deeper.
    fn through(mut self, directory: &Path, depth: usize) -> Vec<PathBuf> {
        self.enter(directory, depth);
        self.paths
    }

    fn enter(&mut self, directory: &Path, depth: usize) {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) => return self.found.cannot(directory.to_owned(), error),
        };
        for entry in entries.filter_map(Result::ok) {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            // Links to directories are not followed, so that there are no circles.
            if kind.is_dir() {
                if depth > 0 && (self.leads)(&path) {
                    self.enter(&path, depth - 1);
                }
            } else if !is_compressed(&path) && (self.takes)(&path) {
                if self.paths.len() < MOST_FILES {
                    self.paths.push(path);
                } else {
                    self.found.too_many = true;
                }
            }
        }
    }
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| COMPRESSED.iter().any(|known| extension == *known))
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use super::*;

    #[test]
    fn regular_files_are_found_wherever_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("logs/deep")).unwrap();
        for name in ["a.log", "b.txt", "logs/c.log", "logs/deep/d e ü.log", "logs/c.log.1.gz", "logs/.hidden"]
        {
            fs::write(root.join(name), "x").unwrap();
        }
        symlink(root, root.join("logs/circle")).unwrap();
        symlink(root.join("b.txt"), root.join("logs/link")).unwrap();
        let _socket = UnixListener::bind(root.join("logs/socket.log")).unwrap();

        let find = |paths: &[&str], directory: Option<&str>| {
            let paths = paths.iter().map(|path| format!("{}/{path}", root.display())).collect();
            let wanted = Wanted { paths, directory: directory.map(|path| root.join(path)) };
            let found = wanted.find(&mut BTreeSet::new()).files.into_iter();
            found.map(|(path, _)| path.strip_prefix(root).unwrap().display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(find(&["*.log", "missing", "a.log"], None), ["a.log"]);
        assert_eq!(find(&["**/*.log"], None), ["a.log", "logs/c.log", "logs/deep/d e ü.log"]);
        assert_eq!(find(&["logs/c.log.1.gz"], None), ["logs/c.log.1.gz"], "who names a file means it");
        assert_eq!(
            find(&[], Some("logs")),
            ["logs/.hidden", "logs/c.log", "logs/deep/d e ü.log", "logs/link"]
        );
        assert_eq!(find(&["log?/*.log", "[", "*/*/*/*"], Some("missing")), ["logs/c.log"]);
    }
    /// A directory that nobody can read, root included: its path is too long.
    #[test]
    fn directories_that_cannot_be_read_are_named_if_they_could_hold_something() {
        let root = tempfile::tempdir().unwrap();
        let deep = vec!["d".repeat(200); 12].join("/");
        for half in ["one", "two"] {
            fs::create_dir_all(root.path().join(half).join(&deep)).unwrap();
        }
        fs::rename(root.path().join("one"), root.path().join("two").join(&deep).join("one")).unwrap();
        let look = |paths: &[&str], directory: Option<&str>| {
            let paths = paths.iter().map(|path| format!("{}/{path}", root.path().display())).collect();
            let wanted = Wanted { paths, directory: directory.map(|path| root.path().join(path)) };
            wanted.find(&mut BTreeSet::new()).unreadable.len()
        };
        assert_eq!(look(&["**/*.log"], None), 1);
        assert_eq!(look(&[], Some("two")), 1);
        assert_eq!(look(&["three/**/*.log", "*/*.log", "missing/*.log"], Some("missing")), 0);
    }

    #[test]
    fn more_files_than_are_followed_are_noticed() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..=MOST_FILES {
            fs::write(root.path().join(format!("{number}.log")), "").unwrap();
        }
        let find = |pattern: &str| {
            let paths = vec![format!("{}/{pattern}", root.path().display())];
            let found = Wanted { paths, directory: None }.find(&mut BTreeSet::new());
            (found.files.len(), found.too_many)
        };
        assert_eq!(find("*.log"), (MOST_FILES, true));
        assert_eq!(find("1*.log"), (11_111, false), "what is not wanted does not count");
    }
}
