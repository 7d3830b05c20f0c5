//! Directories at which volumes are mounted.

/// What is wrong with a directory of the pod that containers share by a volume of its own.
pub fn check_directory(path: &str) -> Result<(), String> {
    let parts = || path.split('/').skip(1);
    let is_plain = path.starts_with('/') && parts().all(|part| !matches!(part, "" | "." | ".."));
    if !is_plain || path.len() > 200 || path.contains([':', '\0']) {
        return Err(format!("`{path}` must be an absolute path without `.`, `..`, `:` and empty parts"));
    }
    let taken = ["workspace", "buildkite", "dev", "proc", "sys", "etc", "bin", "lib", "usr"];
    match parts().next().filter(|first| taken.contains(first)) {
        Some(first) => Err(format!("`{path}` must not be in /{first}, which is used for something else")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::check_directory;

    #[test]
    fn directories() {
        for good in ["/artifacts", "/var/lib/out"] {
            assert_eq!(check_directory(good), Ok(()), "{good}");
        }
        for bad in ["", "/", "artifacts", "/a/../b", "/a//b", "/a/", "/a:b", "/workspace/out", "/etc"] {
            assert!(check_directory(bad).is_err(), "{bad}");
        }
    }
}
