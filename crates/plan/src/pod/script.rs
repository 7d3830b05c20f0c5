//! What a container's `command` and `args` mean: the script that the agent runs.

use bk_api::params::Interposer;

/// What a shell treats specially anywhere in a word, and a backslash before it does not.
const SPECIAL: &str = "\\'\"`${[|&;<>()*?!";
/// What a shell treats specially at the beginning of a word.
const SPECIAL_FIRST: &str = "~#";
/// What ends a word, whatever is before it.
const SEPARATORS: &str = " \t\n";

/// A text that cannot be an argument of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NulByte;

/// The script of a container. Without a `command` of its own it runs the step's, and `args` are added to its last line.
pub(super) fn of(
    step: Option<&str>,
    command: &[String],
    args: &[String],
    interposer: Interposer,
) -> Result<Option<String>, NulByte> {
    if command.iter().chain(args).any(|text| text.contains('\0')) {
        return Err(NulByte);
    }
    let words = || command.iter().chain(args);
    Ok(match (command, args, interposer) {
        ([], [], _) => step.map(str::to_owned),
        ([], args, Interposer::Legacy) => Some(with_args(step.unwrap_or_default(), &args.join(" "))),
        ([], args, _) => Some(with_args(step.unwrap_or_default(), &quoted(args.iter()))),
        (command, args, Interposer::Buildkite) => Some(with_args(&command.join("\n"), &quoted(args.iter()))),
        (_, _, Interposer::Vector) => Some(quoted(words())),
        (_, _, Interposer::Legacy) => Some(words().map(String::as_str).collect::<Vec<_>>().join(" ")),
    })
}

fn with_args(script: &str, args: &str) -> String {
    match (script.trim_end_matches('\n'), args) {
        (_, "") => script.to_owned(),
        ("", args) => args.to_owned(),
        (lines, args) => format!("{lines} {args}"),
    }
}

/// Words as a shell has to see them to run them as they are.
pub(super) fn quoted<'a>(words: impl Iterator<Item = &'a String>) -> String {
    words.map(|word| quote(word)).collect::<Vec<_>>().join(" ")
}

/// `word` as a shell has to see it: with backslashes, or within single quotes if it has blanks.
fn quote(word: &str) -> String {
    if word.is_empty() {
        return "''".to_owned();
    }
    if word.contains(|c| SEPARATORS.contains(c)) {
        let parts: Vec<_> = word
            .split('\'')
            .map(|part| if part.is_empty() { String::new() } else { format!("'{part}'") })
            .collect();
        return parts.join("\\'");
    }
    let mut quoted = String::with_capacity(word.len());
    for (at, c) in word.char_indices() {
        if SPECIAL.contains(c) || (at == 0 && SPECIAL_FIRST.contains(c)) {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted
}

#[cfg(test)]
mod tests;
