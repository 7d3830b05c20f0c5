//! Directories at which volumes are mounted, and names of the objects that settings refer to.

use crate::names::is_object_name;

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

/// What is wrong with the name of an object of the cluster, if there is one.
pub(super) fn check_name(name: Option<&str>) -> Result<(), String> {
    match name {
        Some("") => Err("must not be empty".to_owned()),
        Some(name) if !is_object_name(name) => Err(format!(
            "`{name}` is no name that an object can have: lower-case letters, digits, `-` and `.`"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{check_directory, check_name};

    #[test]
    fn names() {
        for good in [None, Some("a"), Some("a-1.b")] {
            assert_eq!(check_name(good), Ok(()), "{good:?}");
        }
        for bad in ["", "A", "a_b", "-a", "a-", "a..b", "a/b", " a", &"a".repeat(254)] {
            assert!(check_name(Some(bad)).is_err(), "{bad}");
        }
    }

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
