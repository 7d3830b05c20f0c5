//! Examples of the guides, which tests run as they are printed.

use anyhow::{Context, Result};
use serde_json::Value;

/// A fenced block of a document.
pub struct Block {
    /// The number of the line before its first.
    pub line: usize,
    /// What it is written in.
    pub language: String,
    /// Its text, without the indentation of the list that it is in.
    pub body: String,
}

/// The fenced blocks of a document, in their order.
pub fn blocks(document: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = document.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let Some((indent, language)) = line.split_once("```").filter(|(indent, _)| indent.trim().is_empty())
        else {
            continue;
        };
        let body: Vec<_> = lines
            .by_ref()
            .map(|(line, _)| line)
            .take_while(|line| line.trim() != "```")
            .map(|line| line.strip_prefix(indent).unwrap_or(line))
            .collect();
        blocks.push(Block { line: number, language: language.to_owned(), body: body.join("\n") + "\n" });
    }
    blocks
}

/// The first example of a guide in this language with this text in it.
pub fn example<'a>(guide: &'a str, language: &str, text: &str) -> Result<&'a str> {
    let start = format!("```{language}\n");
    let mut blocks = guide.split(&start).skip(1).filter_map(|block| block.split("```").next());
    blocks.find(|block| block.contains(text)).with_context(|| format!("the guide shows no {text}"))
}

/// What a guide prints as the value of a key of the operator's ConfigMap.
pub fn setting(guide: &str, key: &str) -> Result<String> {
    let printed: Value = serde_saphyr::from_str(example(guide, "yaml", &format!("{key}: |\n"))?)?;
    Ok(printed[key].as_str().with_context(|| format!("{key} has no text"))?.to_owned())
}
