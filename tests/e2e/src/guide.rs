//! Examples of the guides, which tests run as they are printed.

use anyhow::{Context, Result};
use serde_json::Value;

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
