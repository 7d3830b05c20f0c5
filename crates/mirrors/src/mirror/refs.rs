//! References: which are fetched, and what borrowers get of them.

use std::{collections::BTreeMap, fmt::Write};

use bk_api::repo_mirror::MirrorHead;

/// How `git for-each-ref` is to print them.
pub(super) const FORMAT: &str = "--format=%(objectname) %(refname) %(*objectname)";

/// A reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) name: String,
    object: String,
    /// What an annotated tag is of.
    peeled: Option<String>,
}

/// What `git fetch` is told of a pattern.
pub(super) fn refspec(pattern: &str) -> String {
    if pattern.starts_with('^') { pattern.to_owned() } else { format!("+{pattern}:{pattern}") }
}

/// Reads what `git for-each-ref` printed.
pub(super) fn parse(text: &str) -> Vec<Reference> {
    let words = text.lines().map(|line| line.split(' '));
    words
        .filter_map(|mut words| {
            let (object, name) = (words.next()?.to_owned(), words.next()?.to_owned());
            Some(Reference {
                name,
                object,
                peeled: words.next().filter(|word| !word.is_empty()).map(str::to_owned),
            })
        })
        .collect()
}

/// References that no pattern asks for any more.
pub(super) fn uncovered(all: &[Reference], patterns: &[String]) -> Vec<String> {
    let is_covered = |name: &str| {
        let (out, into): (Vec<&str>, Vec<&str>) =
            patterns.iter().map(String::as_str).partition(|p| p.starts_with('^'));
        into.iter().any(|pattern| matches(pattern, name))
            && !out.iter().any(|pattern| matches(pattern.trim_start_matches('^'), name))
    };
    all.iter()
        .filter(|reference| !is_covered(&reference.name))
        .map(|reference| reference.name.clone())
        .collect()
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
    }
}

/// What `git update-ref --stdin` deletes.
pub(super) fn deletions(names: &[String]) -> String {
    names.iter().fold(String::new(), |mut text, name| {
        // Writing to a string does not fail.
        let _written = writeln!(text, "delete {name}");
        text
    })
}

/// The references of a clone, as a file `packed-refs`: branches are the remote's, tags are tags, and others are not there.
pub(super) fn borrowed(all: &[Reference]) -> String {
    let mut sorted: BTreeMap<String, &Reference> = BTreeMap::new();
    for reference in all {
        if let Some(branch) = reference.name.strip_prefix("refs/heads/") {
            sorted.insert(format!("refs/remotes/origin/{branch}"), reference);
        } else if reference.name.starts_with("refs/tags/") {
            sorted.insert(reference.name.clone(), reference);
        }
    }
    let mut text = "# pack-refs with: peeled fully-peeled sorted \n".to_owned();
    for (name, Reference { object, peeled, .. }) in sorted {
        let _written = writeln!(text, "{object} {name}");
        if let Some(peeled) = peeled {
            let _written = writeln!(text, "^{peeled}");
        }
    }
    text
}

/// The default branch with its commit, if there is one.
pub(super) fn head(all: &[Reference], branch: String) -> Option<MirrorHead> {
    let name = format!("refs/heads/{branch}");
    let commit = all.iter().find(|reference| reference.name == name)?.object.clone();
    Some(MirrorHead { branch, commit })
}

/// The branch that the remote's HEAD is, in what `git ls-remote --symref` printed.
pub(super) fn symbolic_head(answer: &str) -> Option<String> {
    let line = answer.lines().find_map(|line| line.strip_prefix("ref: refs/heads/"))?;
    Some(line.split('\t').next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn patterns(patterns: &[&str]) -> Vec<String> {
        patterns.iter().map(|pattern| (*pattern).to_owned()).collect()
    }

    const PRINTED: &str =
        "1111 refs/heads/main \n2222 refs/heads/a/b \n3333 refs/pull/7/head \n4444 refs/tags/v1 5555\n";

    #[test]
    fn a_clone_has_branches_and_tags() {
        let expected = "# pack-refs with: peeled fully-peeled sorted \n\
            2222 refs/remotes/origin/a/b\n1111 refs/remotes/origin/main\n4444 refs/tags/v1\n^5555\n";
        assert_eq!(borrowed(&parse(PRINTED)), expected);
    }

    #[rstest]
    #[case(&["refs/heads/*", "refs/tags/*", "refs/pull/*/head"], &[])]
    #[case(&["refs/heads/main"], &["refs/heads/a/b", "refs/pull/7/head", "refs/tags/v1"])]
    #[case(&["refs/*", "^refs/heads/a/*"], &["refs/heads/a/b"])]
    #[case(&["refs/pull/*/head"], &["refs/heads/main", "refs/heads/a/b", "refs/tags/v1"])]
    fn what_no_pattern_asks_for_goes(#[case] asked: &[&str], #[case] expected: &[&str]) {
        assert_eq!(uncovered(&parse(PRINTED), &patterns(asked)), expected);
    }

    #[test]
    fn the_default_branch() {
        let branch = symbolic_head("ref: refs/heads/a/b\tHEAD\n2222\tHEAD\n").unwrap();
        assert_eq!(head(&parse(PRINTED), branch).unwrap().commit, "2222");
        assert_eq!(symbolic_head("2222\tHEAD\n"), None);
        assert_eq!(head(&parse(PRINTED), "gone".to_owned()), None);
    }

    #[test]
    fn refspecs() {
        assert_eq!(refspec("refs/heads/*"), "+refs/heads/*:refs/heads/*");
        assert_eq!(refspec("^refs/heads/x"), "^refs/heads/x");
    }
}
