//! Copies of files that only this user can read. ssh refuses a key that others can read, and the files of a Secret belong to root and
//! to everyone.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Makes a copy as `FROM=TO` says. A file that does not exist is none that anybody needs.
pub(super) fn copy(line: &str) -> io::Result<()> {
    let (from, to) = line.split_once('=').ok_or_else(|| io::Error::other("it has no `=`"))?;
    let mut text = match fs::read(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read?,
    };
    // All of them are texts of whole lines, and ssh refuses a key without the last line's end.
    if text.last().is_some_and(|last| *last != b'\n') {
        text.push(b'\n');
    }
    if let Some(directory) = Path::new(to).parent() {
        fs::create_dir_all(directory)?;
    }
    match fs::remove_file(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?.write_all(&text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_for_one_user_and_ends_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("key"), directory.path().join("copies/key"));
        let line = format!("{}={}", from.display(), to.display());
        copy(&line).expect("what is not there is not needed");
        assert!(!to.exists());
        fs::write(&from, "secret").unwrap();
        for _again in 0..2 {
            copy(&line).unwrap();
            assert_eq!(fs::read_to_string(&to).unwrap(), "secret\n");
            assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
