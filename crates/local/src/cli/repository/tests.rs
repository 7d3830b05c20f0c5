use rstest::rstest;

use super::*;

#[rstest]
#[case("https://github.com/a/b.git", true)]
#[case("ssh://git@host/b", true)]
#[case("git@github.com:a/b.git", true)]
#[case("file:///srv/b.git", true)]
#[case("no-such-directory", false)]
#[case("./missing", false)]
#[case("../a:b/c", false)]
#[case("host:", false)]
fn urls_are_told_from_directories(#[case] text: &str, #[case] url: bool) {
    match Source::of(text) {
        Ok(source) => assert_eq!((source, url), (Source::Url(text.to_owned()), true)),
        Err(error) => assert!(!url && error.to_string().contains(text), "{error}"),
    }
}

/// A repository with one commit on `main`.
fn repository() -> (tempfile::TempDir, Directory) {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    git(at, &["init", "--quiet", "--initial-branch", "main"]).unwrap();
    git(at, &["config", "user.name", "Ada"]).unwrap();
    git(at, &["config", "user.email", "ada@example.com"]).unwrap();
    std::fs::write(at.join("tracked"), "1").unwrap();
    git(at, &["add", "."]).unwrap();
    git(at, &["commit", "--quiet", "-m", "First\n\nWith a body."]).unwrap();
    let opened = Directory::open(at).unwrap();
    (directory, opened)
}

#[test]
fn a_clean_head_is_taken_as_it_is() {
    let (_keep, directory) = repository();
    let head = directory.head(&Wanted::default()).unwrap();
    assert_eq!(head.commit, directory.git(&["rev-parse", "HEAD"]).unwrap());
    assert_eq!((head.branch.as_str(), head.message.as_str()), ("main", "First\n\nWith a body."));
    assert_eq!(head.author, ("Ada".to_owned(), "ada@example.com".to_owned()));
    assert_eq!(head.left_out, 0);
    let dirty = directory.head(&Wanted { dirty: true, ..Wanted::default() }).unwrap();
    assert_eq!(dirty.commit, head.commit, "nothing to add");
}

#[test]
fn a_dirty_work_tree_becomes_a_commit_and_nothing_else_changes() {
    let (_keep, directory) = repository();
    let at = &directory.path;
    std::fs::write(at.join(".gitignore"), "secret\n").unwrap();
    std::fs::write(at.join("tracked"), "2").unwrap();
    std::fs::write(at.join("new"), "n").unwrap();
    std::fs::write(at.join("secret"), "s").unwrap();
    let before = directory.git(&["status", "--porcelain=v2", "--branch"]).unwrap();
    let plain = directory.head(&Wanted::default()).unwrap();
    assert_eq!(plain.left_out, 3);
    let head = directory.head(&Wanted { dirty: true, ..Wanted::default() }).unwrap();
    assert_ne!(head.commit, plain.commit);
    assert_eq!(head.message, "First (with uncommitted changes)");
    let show = |file: &str| directory.git(&["show", &format!("{}:{file}", head.commit)]);
    assert_eq!((show("tracked").unwrap(), show("new").unwrap()), ("2".to_owned(), "n".to_owned()));
    assert!(show("secret").is_err());
    assert_eq!(directory.git(&["status", "--porcelain=v2", "--branch"]).unwrap(), before);
    assert_eq!(directory.git(&["for-each-ref"]).unwrap().lines().count(), 1);
}

#[test]
fn branches_and_commits_are_resolved() {
    let (_keep, directory) = repository();
    directory.git(&["branch", "other"]).unwrap();
    let other = directory.head(&Wanted { branch: Some("other"), ..Wanted::default() }).unwrap();
    assert_eq!(other.branch, "other");
    let short = &other.commit[..8];
    let found = directory.head(&Wanted { commit: Some(short), ..Wanted::default() }).unwrap();
    assert_eq!((found.commit, found.branch.as_str()), (other.commit, "main"));
    let error = directory.head(&Wanted { branch: Some("none"), ..Wanted::default() }).unwrap_err();
    assert!(error.to_string().ends_with("has no commit or branch none"), "{error}");
}

#[test]
fn an_empty_repository_can_only_be_built_dirty() {
    let directory = tempfile::tempdir().unwrap();
    git(directory.path(), &["init", "--quiet"]).unwrap();
    std::fs::write(directory.path().join("new"), "n").unwrap();
    let opened = Directory::open(directory.path()).unwrap();
    let error = opened.head(&Wanted::default()).unwrap_err();
    assert!(error.to_string().contains("no commit yet"), "{error}");
    let head = opened.head(&Wanted { dirty: true, ..Wanted::default() }).unwrap();
    assert_eq!(head.message, "uncommitted changes");
}

#[test]
fn a_plain_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let error = Directory::open(directory.path()).err().unwrap();
    assert!(format!("{error:#}").contains("is not a git repository"), "{error:#}");
}
