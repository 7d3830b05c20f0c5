//! Which paths artifacts may have.
//!
//! The server names files by ids, so a path cannot harm it. But agents and people recreate the path where they
//! download to: one that leads out of there is refused for them. Agents on Windows send backslashes, so
//! those count as separators too.

const MAX_BYTES: usize = 4096;

/// Why a path cannot be an artifact's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathProblem {
    /// Nothing to search by.
    #[error("an artifact's path is empty")]
    Empty,
    /// No file system takes it.
    #[error("an artifact's path has more than {MAX_BYTES} bytes")]
    TooLong,
    /// NUL, line breaks and their like.
    #[error("the artifact path {0:?} holds control characters")]
    Control(String),
    /// It would land outside of the directory it is downloaded to.
    #[error("the artifact path {0:?} is absolute; paths must be relative to the working directory")]
    Absolute(String),
    /// It would climb out of the directory it is downloaded to.
    #[error("the artifact path {0:?} leads out of its directory by \"..\"; upload from within the directory")]
    Traversal(String),
}

/// Checks the path of an artifact.
pub(crate) fn check(path: &str) -> Result<(), PathProblem> {
    let separator = |c: char| c == '/' || c == '\\';
    let drive = || {
        let mut chars = path.chars();
        chars.next().is_some_and(|c| c.is_ascii_alphabetic()) && chars.next() == Some(':')
    };
    if path.is_empty() {
        Err(PathProblem::Empty)
    } else if path.len() > MAX_BYTES {
        Err(PathProblem::TooLong)
    } else if path.chars().any(char::is_control) {
        Err(PathProblem::Control(path.to_owned()))
    } else if path.starts_with(separator) || drive() {
        Err(PathProblem::Absolute(path.to_owned()))
    } else if path.split(separator).any(|segment| segment == "..") {
        Err(PathProblem::Traversal(path.to_owned()))
    } else {
        Ok(())
    }
}

/// The last segment: what a downloaded file is called.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("a.txt")]
    #[case("dir/sub dir/ü 漢字 🎉.log")]
    #[case("dir\\windows.txt")]
    #[case("..hidden/a..b/c..")]
    #[case("a*b?c[d]{e}%2e%2e")]
    fn names_of_files_pass(#[case] path: &str) {
        assert_eq!(check(path), Ok(()));
    }

    #[rstest]
    #[case("")]
    #[case("/etc/passwd")]
    #[case("\\\\server\\share")]
    #[case("C:\\a")]
    #[case("c:a")]
    #[case("..")]
    #[case("../a")]
    #[case("a/../../b")]
    #[case("a\\..\\b")]
    #[case("a/..")]
    #[case("a\0b")]
    #[case("a\nb")]
    fn what_leads_elsewhere_is_refused(#[case] path: &str) {
        assert!(check(path).is_err());
    }

    #[test]
    fn a_path_has_an_end() {
        assert_eq!(check(&"a".repeat(MAX_BYTES + 1)), Err(PathProblem::TooLong));
    }

    proptest! {
        #[test]
        fn what_passes_stays_below_its_directory(path in "[a./\\\\: ]{0,12}") {
            if check(&path).is_ok() {
                let joined = std::path::Path::new("/base").join(path.replace('\\', "/"));
                let mut depth = 0_i32;
                for component in joined.components().skip(1) {
                    depth += if component == std::path::Component::ParentDir { -1 } else { 1 };
                    prop_assert!(depth >= 1);
                }
                prop_assert!(joined.starts_with("/base"));
            }
        }
    }
}
