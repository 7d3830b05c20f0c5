//! Variables of containers.

use k8s_openapi::api::core::v1::EnvVar;

/// A variable with a value of its own.
pub(super) fn env(name: &str, value: impl Into<String>) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.into()), value_from: None }
}

/// `text` as a variable's value that Kubernetes leaves as it is: `$(NAME)` would be replaced, and `$$` become `$`.
pub(crate) fn literal(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(char) = rest.next() {
        value.push(char);
        if char == '$' && matches!(rest.peek(), Some('$' | '(')) {
            value.push('$');
        }
    }
    value
}

/// Whether Kubernetes would look for another variable in `text`, unlike in what [`literal`] makes of it.
pub(super) fn refers(text: &str) -> bool {
    text.replace("$$", "").contains("$(")
}

/// What Kubernetes makes of a variable's value; none if it puts it together of others.
pub(crate) fn plain(value: &str) -> Option<String> {
    (!refers(value)).then(|| value.replace("$$", "$"))
}

/// Gives each variable its value: in place, if it is there already.
pub(super) fn set_all(vars: &mut Vec<EnvVar>, new: impl IntoIterator<Item = EnvVar>) {
    for var in new {
        match vars.iter_mut().find(|old| old.name == var.name) {
            Some(old) => *old = var,
            None => vars.push(var),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    /// What Kubernetes makes of a value if the variable `A` is `b`.
    fn expand(value: &str) -> String {
        let mut expanded = String::new();
        let mut rest = value;
        while let Some(at) = rest.find('$') {
            expanded.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                expanded.push('$');
                rest = after;
            } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')'))
            {
                let value = if name == "A" { "b".to_owned() } else { format!("$({name})") };
                expanded.push_str(&value);
                rest = after;
            } else {
                expanded.push('$');
            }
        }
        expanded + rest
    }

    #[rstest]
    #[case("echo $HOME", "echo $HOME")]
    #[case("kill $$", "kill $$$")]
    #[case("echo $(date)", "echo $$(date)")]
    #[case("echo $$(A)", "echo $$$$(A)")]
    fn only_what_would_change_is_doubled(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(literal(text), expected);
    }

    proptest! {
        #[test]
        fn kubernetes_leaves_it_as_it_is(text in "[$()A a]{0,12}") {
            prop_assert_eq!(expand(&literal(&text)), text.as_str());
            prop_assert!(!refers(&literal(&text)));
            prop_assert_eq!(plain(&literal(&text)), Some(text.clone()));
            prop_assert!(refers(&text) || !text.contains("$(A)") || text.contains("$$"));
        }
    }
}
