//! A hook of the agent that says what was done: an init container's own log is not the job's.

use std::{fs, io::Write, os::unix::fs::OpenOptionsExt, path::Path};

/// Puts a hook with these lines into a directory. Without it nothing but the lines is missing.
pub(super) fn write(directory: &Path, lines: &[String]) {
    let _silent = fs::create_dir_all(directory).and_then(|()| {
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o755)
            .open(directory.join("pre-checkout"))?;
        file.write_all(script(lines).as_bytes())
    });
}

/// A script that needs nothing but a shell.
fn script(lines: &[String]) -> String {
    let say = |line: &String| format!("printf '%s\\n' '{}'\n", line.replace('\'', r"'\''"));
    std::iter::once("#!/bin/sh\n".to_owned()).chain(lines.iter().map(say)).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_hook_says_the_lines_to_the_letter() {
        let directory = tempfile::tempdir().unwrap();
        let hooks = directory.path().join("hooks");
        let lines = ["it's $HOME and `id`".to_owned(), "50 % \\n".to_owned()];
        write(&hooks, &lines);
        let said = Command::new(hooks.join("pre-checkout")).output().unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap(), format!("{}\n{}\n", lines[0], lines[1]));
    }
}
