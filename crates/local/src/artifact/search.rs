//! Which artifacts of a build a search means.

use std::collections::HashMap;

use uuid::Uuid;

/// What a search asks for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Search {
    /// `*` stands for any characters, `/` among them; the others for themselves. Empty: everything.
    pub(crate) query: String,
    /// A step by key, label or id, or a job by id. Empty: the whole build.
    pub(crate) scope: String,
    pub(crate) include_retried_jobs: bool,
    pub(crate) include_duplicates: bool,
}

/// What a search looks at.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origin {
    pub(crate) path: String,
    pub(crate) job: Uuid,
    /// The job was replaced by a retry.
    pub(crate) retried: bool,
    pub(crate) step: Uuid,
    pub(crate) step_key: Option<String>,
    pub(crate) step_label: Option<String>,
}

impl Search {
    /// The artifacts that are meant, in the order they came, which is oldest first.
    pub(crate) fn select<T>(&self, artifacts: Vec<T>, origin: impl Fn(&T) -> &Origin) -> Vec<T> {
        let mut found: Vec<T> =
            artifacts.into_iter().filter(|artifact| self.matches(origin(artifact))).collect();
        if !self.include_duplicates {
            let newest: HashMap<String, usize> =
                found.iter().enumerate().map(|(at, one)| (origin(one).path.clone(), at)).collect();
            let mut at = 0;
            found.retain(|one| {
                at += 1;
                newest.get(&origin(one).path) == Some(&(at - 1))
            });
        }
        found
    }

    fn matches(&self, origin: &Origin) -> bool {
        (self.include_retried_jobs || !origin.retried)
            && (self.scope.is_empty() || self.in_scope(origin))
            && (self.query.is_empty() || glob(&self.query, &origin.path))
    }

    fn in_scope(&self, origin: &Origin) -> bool {
        let named = |name: &Option<String>| name.as_deref() == Some(&*self.scope);
        let id = Uuid::parse_str(&self.scope).ok();
        named(&origin.step_key)
            || named(&origin.step_label)
            || id.is_some_and(|id| id == origin.step || id == origin.job)
    }
}

/// Whether `text` fits a pattern in which `*` stands for any characters.
fn glob(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(text) = text.strip_prefix(start).and_then(|text| text.strip_suffix(end)) else {
        return false;
    };
    // The first place of each piece is the best: it leaves most to the others.
    let mut remaining = text;
    middle.split('*').all(|piece| {
        remaining.find(piece).is_some_and(|at| {
            remaining = &remaining[at + piece.len()..];
            true
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("a/b.txt", "a/b.txt", true)]
    #[case("a/b.txt", "a/bxtxt", false)]
    #[case("*.txt", "a/b.txt", true)]
    #[case("*", "anything/at all", true)]
    #[case("a/**/c", "a/b/b/c", true)]
    #[case("a*c", "ac", true)]
    #[case("a*a", "a", false)]
    #[case("ab*ba", "aba", false)]
    #[case("*b*d*", "abcde", true)]
    #[case("*d*b*", "abcde", false)]
    #[case("*[a]?", "x[a]?", true)]
    #[case("*é", "é", true)]
    fn stars_match_anything(#[case] pattern: &str, #[case] text: &str, #[case] expected: bool) {
        assert_eq!(glob(pattern, text), expected);
    }

    proptest! {
        #[test]
        fn globs_agree_with_trying_everything(pattern in "[ab*/]{0,8}", text in "[ab/]{0,8}") {
            fn slow(pattern: &[u8], text: &[u8]) -> bool {
                match pattern.split_first() {
                    None => text.is_empty(),
                    Some((b'*', rest)) => (0..=text.len()).any(|at| slow(rest, &text[at..])),
                    Some((c, rest)) => text.first() == Some(c) && slow(rest, &text[1..]),
                }
            }
            prop_assert_eq!(glob(&pattern, &text), slow(pattern.as_bytes(), text.as_bytes()));
        }
    }

    fn origin(path: &str, job: u128, retried: bool) -> Origin {
        Origin {
            path: path.to_owned(),
            job: Uuid::from_u128(job),
            retried,
            step: Uuid::from_u128(100 + job / 10),
            step_key: Some(format!("key-{}", job / 10)),
            step_label: Some("Same :label:".to_owned()),
        }
    }

    #[rstest]
    #[case("", false, false, &["b 11", "a 21"])]
    #[case("", false, true, &["a 11", "b 11", "a 21"])]
    #[case("", true, true, &["a 10", "a 11", "b 11", "a 21"])]
    #[case("key-1", false, false, &["a 11", "b 11"])]
    #[case("Same :label:", false, false, &["b 11", "a 21"])]
    #[case("00000000-0000-0000-0000-000000000065", false, false, &["a 11", "b 11"])]
    #[case("00000000-0000-0000-0000-00000000000a", true, false, &["a 10"])]
    #[case("key-3", true, true, &[])]
    fn scope_retries_and_duplicates(
        #[case] scope: &str,
        #[case] include_retried_jobs: bool,
        #[case] include_duplicates: bool,
        #[case] expected: &[&str],
    ) {
        let all = vec![
            origin("a", 10, true),
            origin("a", 11, false),
            origin("b", 11, false),
            origin("a", 21, false),
        ];
        let search =
            Search { query: "*".into(), scope: scope.into(), include_retried_jobs, include_duplicates };
        let found: Vec<String> = search
            .select(all, |one| one)
            .iter()
            .map(|one| format!("{} {}", one.path, one.job.as_u128()))
            .collect();
        assert_eq!(found, expected);
    }
}
