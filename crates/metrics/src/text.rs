//! Reading Prometheus' text format, version 0.0.4. A file is right as a whole or refused with the line that is wrong.

use std::collections::HashSet;

use crate::family::{Families, Family, Kind, Labels, Sample};

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TextError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: String,
}

/// Reads a file.
pub fn read(text: &str) -> Result<Families, TextError> {
    let mut reader = Reader::default();
    for (at, line) in text.lines().enumerate() {
        reader.line(line.trim()).map_err(|problem| TextError { line: at + 1, problem })?;
    }
    Ok(reader.families)
}

#[derive(Default)]
struct Reader {
    families: Families,
    /// Families whose kind a line has given.
    typed: HashSet<String>,
    /// Samples so far, to find those that are there twice.
    seen: HashSet<String>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        match line.strip_prefix('#') {
            _ if line.is_empty() => Ok(()),
            Some(comment) => self.comment(comment.trim_start()),
            None => self.sample(sample(line)?),
        }
    }

    fn comment(&mut self, comment: &str) -> Result<(), String> {
        let (keyword, rest) = split_blank(comment);
        let (name, rest) = split_blank(rest);
        match keyword {
            "HELP" => {
                let family = self.family(name)?;
                if family.help.replace(unescape(rest, false)?).is_some() {
                    return Err(format!("a second HELP line for {name}"));
                }
                Ok(())
            }
            "TYPE" => self.kind(name, rest.trim()),
            _ => Ok(()),
        }
    }

    fn kind(&mut self, name: &str, kind: &str) -> Result<(), String> {
        let known = Kind::named(kind).ok_or_else(|| {
            format!(
                "unknown type `{kind}` of {name}; there are counter, gauge, histogram, summary and untyped"
            )
        })?;
        if !self.typed.insert(name.to_owned()) {
            return Err(format!("a second TYPE line for {name}"));
        }
        let family = self.family(name)?;
        if !family.samples.is_empty() {
            return Err(format!("the TYPE line for {name} must come before its values"));
        }
        family.kind = known;
        Ok(())
    }

    fn family(&mut self, name: &str) -> Result<&mut Family, String> {
        if !is_name(name, true) {
            return Err(format!("`{name}` is no name of a metric"));
        }
        Ok(self.families.entry(name.to_owned()).or_default())
    }

    fn sample(&mut self, sample: Sample) -> Result<(), String> {
        let name = self.family_of(&sample.name);
        let identity = Sample { value: 0.0, timestamp: None, ..sample.clone() };
        if !self.seen.insert(identity.to_string()) {
            return Err(format!("{} is there twice with the same labels", sample.name));
        }
        let family = self.family(&name)?;
        let needs = match family.kind {
            Kind::Histogram if sample.name.ends_with("_bucket") => Some("le"),
            Kind::Summary if sample.name == name => Some("quantile"),
            Kind::Histogram if sample.name == name => {
                return Err(format!(
                    "{name} is a histogram: it has {name}_bucket, {name}_sum and {name}_count"
                ));
            }
            _ => None,
        };
        if let Some(label) =
            needs.filter(|label| sample.labels.get(*label).is_none_or(|value| number(value).is_none()))
        {
            return Err(format!("{} needs the label `{label}` with a number", sample.name));
        }
        family.samples.push(sample);
        Ok(())
    }

    /// The family that a sample belongs to: one whose kind has such an ending, or else the one of its own name.
    fn family_of(&self, name: &str) -> String {
        let base = |suffix: &&str| name.strip_suffix(*suffix);
        let has = |base: &&str, suffix: &str| {
            self.families.get(*base).is_some_and(|family| family.kind.suffixes().contains(&suffix))
        };
        ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| base(suffix).filter(|base| has(base, suffix)))
            .unwrap_or(name)
            .to_owned()
    }
}

/// A line with a value.
fn sample(line: &str) -> Result<Sample, String> {
    let end = line
        .find(|character: char| character == '{' || character.is_ascii_whitespace())
        .unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    if !is_name(name, true) {
        return Err(format!("`{name}` is no name of a metric"));
    }
    let (labels, rest) = match rest.trim_start().strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Labels::new(), rest),
    };
    let mut words = rest.split_ascii_whitespace();
    let value = words.next().ok_or_else(|| format!("{name} has no value"))?;
    let value = number(value).ok_or_else(|| format!("the value of {name} is no number: `{value}`"))?;
    let timestamp = match words.next() {
        None => None,
        Some(word) => Some(
            word.parse().map_err(|_| format!("the time of {name} is no number of milliseconds: `{word}`"))?,
        ),
    };
    match words.next() {
        Some(word) => Err(format!("`{word}` after the time of {name}")),
        None => Ok(Sample { name: name.to_owned(), labels, value, timestamp }),
    }
}

/// The labels after the opening brace, and what follows the closing one.
fn labels(text: &str) -> Result<(Labels, &str), String> {
    let mut labels = Labels::new();
    let mut rest = text.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        let (name, after) = rest.split_once('=').ok_or("labels end without `}`")?;
        let name = name.trim();
        if !is_name(name, false) {
            return Err(format!("`{name}` is no name of a label"));
        }
        let quoted = after
            .trim_start()
            .strip_prefix('"')
            .ok_or_else(|| format!("the value of label `{name}` is not in quotes"))?;
        let end = closing_quote(quoted).ok_or_else(|| format!("the value of label `{name}` does not end"))?;
        if labels.insert(name.to_owned(), unescape(&quoted[..end], true)?).is_some() {
            return Err(format!("label `{name}` is there twice"));
        }
        rest = quoted[end + 1..].trim_start();
        match rest.strip_prefix(',') {
            Some(after) => rest = after.trim_start(),
            None if rest.starts_with('}') => {}
            None => return Err(format!("a comma or `}}` is missing after label `{name}`")),
        }
    }
}

/// Where the first quote is that is not escaped.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

fn unescape(text: &str, quoted: bool) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => match characters.next() {
                Some('\\') => '\\',
                Some('n') => '\n',
                Some('"') if quoted => '"',
                Some(other) => return Err(format!("unknown escape `\\{other}`")),
                None => return Err("a backslash at the end".to_owned()),
            },
            other => other,
        });
    }
    Ok(plain)
}

/// A number of the format.
fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

fn is_name(text: &str, colons: bool) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || (colons && byte == b':');
    text.bytes().next().is_some_and(letter) && text.bytes().all(|byte| letter(byte) || byte.is_ascii_digit())
}

fn split_blank(text: &str) -> (&str, &str) {
    text.split_once([' ', '\t']).map_or((text, ""), |(word, rest)| (word, rest.trim_start()))
}

#[cfg(test)]
mod tests;
