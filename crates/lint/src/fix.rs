//! Misspelt words, and those that were meant.

use bk_api::spelling;
use serde::Serialize;

use crate::{Context, Finding, Strangers, lint};

/// What a message says before the word that it proposes.
const HINT: &str = "did you mean ";

/// A word that would be right in the place of another, which stands where the finding is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Fix {
    /// The word that is wrong.
    pub replace: String,
    /// The one that was meant.
    pub with: String,
}

/// What a message proposes, if the word that it is about stands at its place: a message may also be about a part of a text, or
/// about another file.
pub(crate) fn of(text: &str, finding: &Finding) -> Option<Fix> {
    let (_, proposed) = finding.message.split_once(HINT)?;
    let with = proposed.trim_matches(['`', '?']);
    let line = text.lines().nth(usize::try_from(finding.line - 1).ok()?)?;
    let word: String = line
        .chars()
        .skip(usize::try_from(finding.column - 1).ok()?)
        .take_while(|letter| is_part(*letter))
        .collect();
    let meant = finding.message.contains(&word) && spelling::nearest(&word, std::iter::once(with)).is_some();
    (meant && with.chars().all(is_part)).then(|| Fix { replace: word, with: with.to_owned() })
}

/// Whether a character is a part of a word that needs no quotes in YAML.
fn is_part(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-_./".contains(letter)
}

/// How often a text is looked at again: what is misspelt may hide what else is.
const ROUNDS: usize = 20;

/// A text with every word replaced for which there is a better one.
pub fn mend(text: &str, context: &Context, strangers: Strangers) -> String {
    let mut text = text.to_owned();
    for _ in 0..ROUNDS {
        let mended = replaced(&text, &lint(&text, context, strangers));
        if mended == text {
            break;
        }
        text = mended;
    }
    text
}

/// A text with what findings propose.
fn replaced(text: &str, findings: &[Finding]) -> String {
    let mut lines: Vec<String> = text.split_inclusive('\n').map(ToOwned::to_owned).collect();
    let mut before = None;
    // From the end of each line to its beginning, as the words after another move with it.
    for finding in findings.iter().rev() {
        let (Some(fix), Ok(line), Ok(column)) =
            (&finding.fix, usize::try_from(finding.line - 1), usize::try_from(finding.column - 1))
        else {
            continue;
        };
        // Two findings may be about the same word.
        let is_new = before.replace((line, column)) != Some((line, column));
        let Some(line) = lines.get_mut(line).filter(|_| is_new) else { continue };
        if let Some((start, _)) = line.char_indices().nth(column) {
            line.replace_range(start..start + fix.replace.len(), &fix.with);
        }
    }
    lines.concat()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use crate::{Context, Strangers, lint, mend};

    #[rstest]
    #[case::attribute("steps:\n- comand: make\n  lable: x\n", "steps:\n- command: make\n  label: x\n")]
    #[case::option(
        "env: {BK_OPERATOR_LOG_PATH: /a}\nsteps: [{command: make}]\n",
        "env: {BK_OPERATOR_LOG_PATHS: /a}\nsteps: [{command: make}]\n"
    )]
    #[case::two_on_a_line("steps: [{comand: ä, lable: x}, wait]", "steps: [{command: ä, label: x}, wait]")]
    #[case::dependency(
        "steps: [{command: a, key: build}, {command: b, depends_on: biuld}]\n",
        "steps: [{command: a, key: build}, {command: b, depends_on: build}]\n"
    )]
    #[case::field(
        "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildJob\nmetadata: {name: a}\nspec: {comand: make}\n",
        "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildJob\nmetadata: {name: a}\nspec: {command: make}\n"
    )]
    #[case::kind(
        "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildJobs\nmetadata: {name: a}\nspec: {command: make}\n",
        "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildJob\nmetadata: {name: a}\nspec: {command: make}\n"
    )]
    fn what_is_misspelt_is_mended(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(mend(text, &Context::default(), Strangers::Refuse), expected);
        assert_eq!(lint(expected, &Context::default(), Strangers::Refuse), []);
    }

    #[rstest]
    #[case::unknown("steps: [wiat]\n")]
    #[case::quoted("steps: [{\"comand\": make}]\n")]
    fn what_is_not_certain_is_let_be(#[case] text: &str) {
        assert_ne!(lint(text, &Context::default(), Strangers::Refuse), []);
        assert_eq!(mend(text, &Context::default(), Strangers::Refuse), text);
    }
}
