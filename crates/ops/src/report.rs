//! Errors as people read them.

use std::error::Error;

/// An error and its causes on one line: `message: cause: cause of the cause`.
///
/// Libraries put what was tried into the message and why it failed into the source, so the chain reads as
/// one sentence. Causes that only repeat the message before them are left out, and line breaks become
/// spaces: a log line or a status field stays one line.
pub fn one_line(error: &dyn Error) -> String {
    let mut parts: Vec<String> = vec![flatten(&error.to_string())];
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = flatten(&error.to_string());
        if !parts.iter().any(|earlier| earlier.contains(&text)) {
            parts.push(text);
        }
        cause = error.source();
    }
    parts.join(": ")
}

fn flatten(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Self>>);

    impl std::fmt::Display for Layer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn joins_causes_and_drops_repetitions() {
        let root = Layer("connection\n  refused", None);
        let middle = Layer("connection refused", Some(Box::new(root)));
        let top = Layer("cannot list jobs", Some(Box::new(middle)));
        assert_eq!(one_line(&top), "cannot list jobs: connection refused");
    }
}
