//! The job's secrets, and taking them out of text.
//!
//! As with the agent, a secret is the value of a variable whose name matches a pattern of `BUILDKITE_REDACTED_VARS`, if
//! it is not too short to be one. Lines are looked at one by one, so a secret of several lines is hidden line by line.

use aho_corasick::AhoCorasick;

/// What stands where a secret was.
pub const REDACTED: &[u8] = b"[REDACTED]";

/// Shorter values are no secrets: hiding them would hide words of the log.
const SHORTEST: usize = 6;

/// The variable with the patterns of names whose values are secrets.
const PATTERNS: &[u8] = b"BUILDKITE_REDACTED_VARS";

/// The patterns if that variable is not there: those that the agent has by itself.
const USUAL_PATTERNS: &str = "*_PASSWORD,*_SECRET,*_TOKEN,*_PRIVATE_KEY,*_SSH_KEY,*_ACCESS_KEY,*_SECRET_KEY,\
     *_CONNECTION_STRING,*_API_KEY";

/// Takes secrets out of text.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    search: Option<AhoCorasick>,
    longest: usize,
}

/// Where secrets are in a text; those that touch the same bytes are one.
type Span = (usize, usize);

impl Redactor {
    /// Hides what each of these environments, `NAME=value` and a NUL for each variable, has under names that match its own
    /// patterns or `more` of them.
    pub fn of_environments(environments: &[Vec<u8>], more: &[String]) -> Self {
        Self::new(environments.iter().flat_map(|environment| values(environment, more)))
    }

    /// Hides these values, also as they are printed between quotes.
    pub fn new<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut needles: Vec<Vec<u8>> = Vec::new();
        for value in values.filter(|value| value.len() >= SHORTEST) {
            needles.extend(value.split(|byte| *byte == b'\n').map(|line| line.trim_ascii().to_vec()));
            needles.push(quoted(value.trim_ascii()));
        }
        needles.retain(|needle| needle.len() >= SHORTEST);
        needles.sort();
        needles.dedup();
        let longest = needles.iter().map(Vec::len).max().unwrap_or_default();
        // There is no limit that any environment reaches: its size is bounded by the kernel.
        let search = (longest > 0).then(|| AhoCorasick::new(needles).ok()).flatten();
        Self { search, longest }
    }

    /// The length of the longest secret.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Whether there is any secret in `text`. Quicker than to look where.
    pub fn finds(&self, text: &[u8]) -> bool {
        self.search.as_ref().is_some_and(|search| search.is_match(text))
    }

    /// Adds `text` to `out` without its secrets. The first `covered` bytes belong to a secret that has been hidden already.
    pub fn hide(&self, text: &[u8], covered: usize, out: &mut Vec<u8>) {
        let mut from = 0;
        for (start, end) in self.spans(text, covered) {
            out.extend_from_slice(&text[from..start]);
            if start > 0 || covered == 0 {
                out.extend_from_slice(REDACTED);
            }
            from = end;
        }
        out.extend_from_slice(&text[from..]);
    }

    /// Where a line that is too long may be cut, not after `most`, so that no secret is in two parts.
    pub fn cut(&self, text: &[u8], covered: usize, most: usize) -> Cut {
        let across = self.spans(text, covered).into_iter().find(|(start, end)| *start < most && most < *end);
        match across {
            Some((0, end)) => {
                let kept = end.min(self.longest.saturating_sub(1));
                Cut { end, dropped: end - kept, covered: kept }
            }
            Some((start, _)) => Cut { end: start, dropped: start, covered: 0 },
            None => {
                let end = character_border(text, most);
                Cut { end, dropped: end, covered: covered.saturating_sub(end) }
            }
        }
    }

    fn spans(&self, text: &[u8], covered: usize) -> Vec<Span> {
        let mut spans: Vec<Span> = (covered > 0).then_some((0, covered)).into_iter().collect();
        if let Some(search) = &self.search {
            let found = search.try_find_overlapping_iter(text).into_iter().flatten();
            spans.extend(found.map(|found| (found.start(), found.end())));
        }
        spans.sort_unstable();
        let mut merged: Vec<Span> = Vec::with_capacity(spans.len());
        for (start, end) in spans {
            match merged.last_mut() {
                Some(last) if start < last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        merged
    }
}

/// The secrets of an environment.
fn values<'a>(environment: &'a [u8], more: &[String]) -> Vec<&'a [u8]> {
    let variables: Vec<(&[u8], &[u8])> = environment
        .split(|byte| *byte == 0)
        .filter_map(|entry| {
            let equals = memchr::memchr(b'=', entry)?;
            Some((&entry[..equals], &entry[equals + 1..]))
        })
        .collect();
    let said = variables.iter().find(|(name, _)| *name == PATTERNS);
    let said = said.map_or(USUAL_PATTERNS.into(), |(_, value)| String::from_utf8_lossy(value));
    let patterns: Vec<glob::Pattern> = said
        .split(',')
        .chain(more.iter().map(String::as_str))
        .filter_map(|pattern| glob::Pattern::new(pattern.trim()).ok())
        .collect();
    let is_secret = |name: &[u8]| {
        let name = String::from_utf8_lossy(name);
        patterns.iter().any(|pattern| pattern.matches(&name))
    };
    variables.into_iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value).collect()
}

/// How to cut a line: what comes out, and what stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The part that comes out ends here.
    pub end: usize,
    /// So many bytes are done with.
    pub dropped: usize,
    /// So many of the first bytes that stay belong to a secret that the part has hidden.
    pub covered: usize,
}

/// The last border between characters that is not after `most`.
fn character_border(text: &[u8], most: usize) -> usize {
    let begins = |index: &usize| text.get(*index).is_none_or(|byte| byte & 0xC0 != 0x80);
    (most.saturating_sub(3).max(1)..=most).rev().find(begins).unwrap_or(most)
}

/// A value as programs print it between quotes.
fn quoted(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for byte in value {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            _ => out.push(*byte),
        }
    }
    out
}

#[cfg(test)]
mod tests;
