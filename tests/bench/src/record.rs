//! Figures in the document that people read: each benchmark has a place there, which its name marks.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const FENCE: &str = "```";

/// Puts a benchmark's figures into a document, in place of those of an earlier run.
pub(crate) fn write(document: &Path, benchmark: &str, figures: &str) -> Result<()> {
    let text = fs::read_to_string(document).with_context(|| format!("reading {}", document.display()))?;
    let text = replace(&text, benchmark, figures).with_context(|| {
        format!("{} has no `{}` with a block after it", document.display(), mark(benchmark))
    })?;
    fs::write(document, text).with_context(|| format!("writing {}", document.display()))
}

fn mark(benchmark: &str) -> String {
    format!("<!-- figures of {benchmark} -->")
}

/// The document with other figures in the block after a benchmark's mark.
fn replace(document: &str, benchmark: &str, figures: &str) -> Option<String> {
    let (before, rest) = document.split_once(&mark(benchmark))?;
    let (gap, rest) = rest.split_once(FENCE)?;
    if !gap.trim().is_empty() {
        return None;
    }
    let (_, after) = rest.split_once(FENCE)?;
    Some(format!("{before}{}{gap}{FENCE}\n{figures}\n{FENCE}{after}", mark(benchmark)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_benchmark_replaces_its_own_figures_and_nothing_else() {
        let document = "# T\n<!-- figures of a -->\n```\nold\n```\n\n<!-- figures of b -->\n```\n```\nend\n";
        let expected = "# T\n<!-- figures of a -->\n```\nold\n```\n\n<!-- figures of b -->\n```\nnew 1\nnew 2\n```\nend\n";
        assert_eq!(replace(document, "b", "new 1\nnew 2").as_deref(), Some(expected));
        assert_eq!(replace(expected, "b", "new 1\nnew 2").as_deref(), Some(expected));
    }

    #[test]
    fn without_a_place_nothing_is_written() {
        assert_eq!(replace("# T\n```\n```\n", "a", "new"), None);
        assert_eq!(replace("<!-- figures of a -->\ntext\n```\n```\n", "a", "new"), None);
    }
}
