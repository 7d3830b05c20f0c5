//! How commands print what they found.

use std::io::Write;

use bk_ops::table;
use clap::ValueEnum;
use serde::Serialize;

/// The format of a command's output.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Output {
    Yaml,
    Json,
}

impl Output {
    /// Writes one document.
    pub(super) fn write(self, out: &mut impl Write, document: &impl Serialize) -> anyhow::Result<()> {
        match self {
            Self::Yaml => write!(out, "{}", yaml(document)?)?,
            Self::Json => writeln!(out, "{}", serde_json::to_string_pretty(document)?)?,
        }
        Ok(())
    }
}

/// A document of whole lines: the last one has no end if it is an empty list.
pub(super) fn yaml(document: &impl Serialize) -> anyhow::Result<String> {
    let mut text = serde_saphyr::to_string(document)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// The format of a report for people or for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Table,
    Yaml,
    Json,
}

impl Format {
    /// Writes a report, as a document or as these lines.
    pub(super) fn write(
        self,
        out: &mut impl Write,
        document: &impl Serialize,
        lines: &[String],
    ) -> anyhow::Result<()> {
        match self {
            Self::Table => lines.iter().try_for_each(|line| writeln!(out, "{line}"))?,
            Self::Yaml => Output::Yaml.write(out, document)?,
            Self::Json => Output::Json.write(out, document)?,
        }
        Ok(())
    }
}

/// Says something to people, who read it beside the command's own output.
pub(super) fn say(text: &str) {
    #[allow(clippy::print_stderr, reason = "what a command line says")]
    {
        eprintln!("{text}");
    }
}

/// A table. A cell that is empty is a dash.
pub(super) fn table(names: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    table::table(names, &rows.iter().map(|row| dashed(row)).collect::<Vec<_>>())
}

/// A row whose empty cells are dashes.
pub(super) fn dashed(row: &[String]) -> Vec<String> {
    row.iter().map(|cell| if cell.is_empty() { "-".to_owned() } else { cell.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::yaml;

    #[test]
    fn every_line_ends() {
        assert_eq!(yaml(&serde_json::json!({ "a": [] })).unwrap(), "a: []\n");
        assert_eq!(yaml(&serde_json::json!({ "a": [1] })).unwrap(), "a:\n- 1\n");
    }
}
