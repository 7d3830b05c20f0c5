//! What no verdict may hold. The words of registries, kubelets and commands are passed on to people who may not
//! know the secrets of the job.

/// How tokens of services begin.
const PREFIXES: [&str; 18] = [
    "bkct_",
    "bkua_",
    "bkaj_",
    "bkat_",
    "bkpt_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "ASIA",
    "eyJ",
    "sk-",
    "npm_",
];

/// Names after which a value is secret.
const NAMES: [&str; 5] = ["token", "password", "passwd", "secret", "authorization"];

const MASK: &str = "[hidden]";

/// The text with everything that looks like a secret taken out.
pub(super) fn hidden(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut secret_follows = false;
    for (separator, word) in words(text) {
        result.push_str(separator);
        let scheme = ["bearer", "basic"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme));
        if scheme || word.is_empty() {
            secret_follows |= scheme;
            result.push_str(word);
            continue;
        }
        if std::mem::take(&mut secret_follows) && word.len() >= 8 {
            result.push_str(MASK);
        } else {
            result.push_str(&of_word(word));
        }
    }
    result
}

/// The text as pairs of what separates two words, and a word.
fn words(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_separator =
        |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ',' | ';' | '(' | ')' | '<' | '>');
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let begin = rest.find(|c| !is_separator(c)).unwrap_or(rest.len());
        let (separator, tail) = rest.split_at(begin);
        let end = tail.find(is_separator).unwrap_or(tail.len());
        let (word, tail) = tail.split_at(end);
        rest = tail;
        Some((separator, word))
    })
}

fn of_word(word: &str) -> String {
    if let Some((name, value)) = word.split_once('=')
        && value.len() >= 4
        && NAMES.iter().any(|secret| name.to_ascii_lowercase().contains(secret))
    {
        return format!("{name}={MASK}");
    }
    if let Some((scheme, rest)) = word.split_once("://")
        && let Some((user, host)) = rest.split_once('@')
        && user.contains(':')
        && !user.contains('/')
    {
        return format!("{scheme}://{MASK}@{host}");
    }
    match PREFIXES.iter().filter_map(|prefix| word.find(prefix)).min() {
        Some(begin) if word.len() - begin >= 20 => format!("{}{MASK}", &word[..begin]),
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests;
