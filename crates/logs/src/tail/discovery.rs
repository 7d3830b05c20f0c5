//! Which files there are to follow.

use std::{
    collections::BTreeSet,
    fs::{self, Metadata},
    path::{Path, PathBuf},
};

/// Directories are looked into no deeper than this.
const DEEPEST: usize = 32;

/// No more files are followed than this.
const MOST_FILES: usize = 20_000;

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
    pub fn find(&self, unmatched: &mut BTreeSet<String>) -> Vec<(PathBuf, Metadata)> {
        let mut paths: Vec<PathBuf> = Vec::new();
        let mut add = |wanted: &str, found: Vec<PathBuf>| {
            if unmatched.contains(wanted) && found.iter().any(|path| path.is_file()) {
                unmatched.remove(wanted);
            }
            paths.extend(found);
        };
        for path in &self.paths {
            let is_glob = path.contains(['*', '?', '[']);
            add(path, if is_glob { globbed(path) } else { vec![PathBuf::from(path)] });
        }
        if let Some(directory) = &self.directory {
            let mut found = Vec::new();
            walk(directory, DEEPEST, &mut found);
            add(&directory.to_string_lossy(), found);
        }
        paths.sort_unstable();
        paths.dedup();
        paths.truncate(MOST_FILES);
        let regular = |path: PathBuf| {
            let data = fs::metadata(&path).ok().filter(Metadata::is_file)?;
            Some((path, data))
        };
        paths.into_iter().filter_map(regular).collect()
    }
}

/// The files that a glob matches. They are looked for from the first directory on that is named as it is, and no deeper than
/// the glob reaches.
fn globbed(text: &str) -> Vec<PathBuf> {
    let Ok(pattern) = glob::Pattern::new(text) else { return Vec::new() };
    let parts: Vec<&str> = text.split('/').collect();
    let fixed = parts.iter().take_while(|part| !part.contains(['*', '?', '['])).count();
    let root = parts[..fixed].join("/") + "/";
    let depth = if parts.contains(&"**") { DEEPEST } else { parts.len() - fixed - 1 };
    let options = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::default() };
    let mut paths = Vec::new();
    walk(Path::new(&root), depth, &mut paths);
    paths.retain(|path| pattern.matches_path_with(path, options));
    paths
}

fn walk(directory: &Path, depth: usize, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        match entry.file_type() {
            // Links to directories are not followed, so that there are no circles.
            Ok(kind) if kind.is_dir() && depth > 0 => walk(&path, depth - 1, paths),
            Ok(kind) if !kind.is_dir() && !is_compressed(&path) && paths.len() < MOST_FILES => {
                paths.push(path);
            }
            _ => {}
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
            let found = wanted.find(&mut BTreeSet::new()).into_iter();
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
}
