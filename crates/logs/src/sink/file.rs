//! Sinks that are lines of JSON: a file on a volume, and standard output.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::{Answer, document::Documents};
use crate::record::Batch;

/// Writes lines of JSON.
#[derive(Debug)]
pub struct Output {
    documents: Documents,
    /// Absent while it is writing.
    writer: Option<Writer>,
}

#[derive(Debug)]
enum Writer {
    File(FileWriter),
    Stdout,
}

impl Output {
    pub(super) fn file(writer: FileWriter, documents: Documents) -> Self {
        Self { documents, writer: Some(Writer::File(writer)) }
    }

    pub(super) fn stdout(documents: Documents) -> Self {
        Self { documents, writer: Some(Writer::Stdout) }
    }

    pub(super) async fn send(&mut self, batch: &Batch, items: &[usize]) -> Answer {
        let mut lines = Vec::new();
        for item in items {
            self.documents.write(batch.get(*item), &mut lines);
            lines.push(b'\n');
        }
        let Some(mut writer) = self.writer.take() else {
            return Answer::again(items, "the writer has failed".to_owned());
        };
        // A volume that hangs must not hold up the other sinks.
        let written = tokio::task::spawn_blocking(move || {
            let result = match &mut writer {
                Writer::File(file) => file.append(&lines),
                Writer::Stdout => {
                    let mut out = io::stdout().lock();
                    out.write_all(&lines).and_then(|()| out.flush())
                }
            };
            (writer, result)
        });
        match written.await {
            Ok((writer, Ok(()))) => {
                self.writer = Some(writer);
                Answer::delivered(items)
            }
            Ok((writer, Err(error))) => {
                self.writer = Some(writer);
                Answer::again(items, format!("cannot write: {error}"))
            }
            Err(error) => Answer::again(items, format!("the writer has failed: {error}")),
        }
    }
}

/// A file that is put aside when it is large: `NAME` becomes `NAME.1`, that `NAME.2`, and so on.
#[derive(Debug)]
pub(super) struct FileWriter {
    path: PathBuf,
    most: u64,
    keep: u32,
    open: Option<(File, u64)>,
}

impl FileWriter {
    pub(super) fn new(path: PathBuf, most: u64, keep: u32) -> Self {
        Self { path, most, keep, open: None }
    }

    /// Adds lines. If that fails, none of them are there.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self
            .open
            .as_ref()
            .is_some_and(|(_, length)| *length > 0 && *length + lines.len() as u64 > self.most)
        {
            self.open = None;
            rotate(&self.path, self.keep)?;
        }
        let (mut file, length) = if let Some(open) = self.open.take() {
            open
        } else {
            let file = File::options().create(true).append(true).open(&self.path)?;
            let length = file.metadata()?.len();
            (file, length)
        };
        if let Err(error) = file.write_all(lines) {
            return Err(match file.set_len(length) {
                Ok(()) => error,
                Err(other) => io::Error::new(
                    error.kind(),
                    format!("{error}; nor can what there is of it be removed: {other}"),
                ),
            });
        }
        self.open = Some((file, length + lines.len() as u64));
        Ok(())
    }
}

fn rotate(path: &Path, keep: u32) -> io::Result<()> {
    let aside = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    if keep == 0 {
        return fs::remove_file(path);
    }
    for number in (1..keep).rev() {
        match fs::rename(aside(number), aside(number + 1)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
    }
    fs::rename(path, aside(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_are_put_aside_and_few_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pod.ndjson");
        let mut writer = FileWriter::new(path.clone(), 10, 2);
        for line in ["one111\n", "two222\n", "3\n", "four44\n", "five55\n"] {
            writer.append(line.as_bytes()).unwrap();
        }
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).ok();
        assert_eq!(read("pod.ndjson").as_deref(), Some("five55\n"));
        assert_eq!(read("pod.ndjson.1").as_deref(), Some("four44\n"));
        assert_eq!(read("pod.ndjson.2").as_deref(), Some("two222\n3\n"));
        assert_eq!(read("pod.ndjson.3"), None);
    }

    #[test]
    fn what_cannot_be_written_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = FileWriter::new(directory.path().join("missing/file"), 10, 2);
        assert_eq!(writer.append(b"x\n").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
