//! Secrets of jobs, and credentials for git hosts: two files of YAML that the server's owner writes.
//!
//! ```yaml
//! # --secrets
//! DEPLOY_KEY: "for every pipeline"
//! SIGNING_KEY: {value: "for some", pipelines: [release]}
//! ```
//! ```yaml
//! # --git-credentials
//! github.com: "a token"
//! ```
//!
//! The files are read again for every request: what they say now holds. Nothing here ever puts a value into an
//! error or a log line.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use subtle::ConstantTimeEq;

/// Why a file of secrets cannot be used. Names the place, never a value.
#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    /// It is not there, or not for us.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Others on the machine can read it.
    #[error("{path} can be read by everybody on this machine; do: chmod 600 {path}")]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// It does not say what it should.
    #[error("{path}: {reason}")]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
}

/// A value that must not be seen.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Hidden(pub(crate) String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Secret {
    value: Hidden,
    /// The slugs of the pipelines that may have it; all when absent.
    pipelines: Option<Vec<String>>,
}

/// The secrets of jobs by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Secrets(BTreeMap<String, Secret>);

/// What a job learns about a secret.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Value(Hidden),
    /// It is there, but not for this pipeline.
    Denied,
    Unknown,
}

impl Secrets {
    /// Reads the file; without one there are no secrets.
    pub(crate) fn read(path: Option<&Path>) -> Result<Self, SecretsError> {
        path.map_or_else(|| Ok(Self::default()), |path| load(path, Self::parse))
    }

    fn parse(text: &str) -> Result<Self, String> {
        map(text)?
            .into_iter()
            .map(|(name, value)| Ok((name.clone(), secret(&name, value)?)))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The secret, when the pipeline may have it.
    pub(crate) fn get(&self, name: &str, pipeline: &str) -> Found {
        match self.0.get(name) {
            None => Found::Unknown,
            Some(Secret { pipelines: Some(allowed), .. }) if !allowed.iter().any(|slug| slug == pipeline) => {
                Found::Denied
            }
            Some(secret) => Found::Value(secret.value.clone()),
        }
    }
}

/// Whether what a caller gives is the secret. How long that takes does not tell how much of it is right.
pub(crate) fn is_same(given: &str, secret: &str) -> bool {
    given.as_bytes().ct_eq(secret.as_bytes()).into()
}

/// Tokens for git hosts by the host's name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct GitCredentials(BTreeMap<String, Hidden>);

impl GitCredentials {
    /// Reads the file; without one there are no tokens.
    pub(crate) fn read(path: Option<&Path>) -> Result<Self, SecretsError> {
        path.map_or_else(|| Ok(Self::default()), |path| load(path, Self::parse))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let tokens = map(text)?.into_iter().map(|(host, value)| match value {
            Value::String(token) => Ok((host.to_lowercase(), Hidden(token))),
            _ => Err(format!("the token of {host} is not a text; put it in quotes")),
        });
        tokens.collect::<Result<_, _>>().map(Self)
    }

    /// The token for a host.
    pub(crate) fn get(&self, host: &str) -> Option<&Hidden> {
        self.0.get(&host.to_lowercase())
    }
}

/// The host in the URL of a repository, in any of the forms that git takes.
pub(crate) fn host(url: &str) -> Option<&str> {
    let authority = match url.split_once("://") {
        Some((_, rest)) => rest.split(['/', '?', '#']).next()?,
        // git@host:path
        None => url
            .split_once(':')
            .map(|(authority, _)| authority)
            .filter(|authority| !authority.contains('/'))?,
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = host.split(':').next()?;
    Some(host).filter(|host| !host.is_empty())
}

fn load<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, SecretsError> {
    let read = |source| SecretsError::Read { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(read)?;
    if is_open(&std::fs::metadata(path).map_err(read)?) {
        return Err(SecretsError::Open { path: path.to_owned() });
    }
    parse(&text).map_err(|reason| SecretsError::Form { path: path.to_owned(), reason })
}

#[cfg(unix)]
fn is_open(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o004 != 0
}

#[cfg(not(unix))]
fn is_open(_: &std::fs::Metadata) -> bool {
    false
}

/// The document as a map. What the parser complains about may quote values, so only the place is told.
fn map(text: &str) -> Result<BTreeMap<String, Value>, String> {
    if text.trim().is_empty() {
        return Ok(BTreeMap::new());
    }
    let value: Value = serde_saphyr::from_str(text).map_err(|error| {
        let place = error.location().map_or(String::new(), |place| format!(" at line {}", place.line()));
        format!("this is not YAML that can be read{place}")
    })?;
    match value {
        Value::Object(map) => Ok(map.into_iter().collect()),
        Value::Null => Ok(BTreeMap::new()),
        _ => Err("this is not a map of names to values".to_owned()),
    }
}

fn secret(name: &str, value: Value) -> Result<Secret, String> {
    let usable = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !usable {
        return Err(format!("{name:?} is no name of a secret: letters, digits and _ are"));
    }
    let no_text = || format!("the value of {name} is not a text; put it in quotes");
    let mut map = match value {
        Value::String(text) => return Ok(Secret { value: Hidden(text), pipelines: None }),
        Value::Object(map) => map,
        _ => return Err(no_text()),
    };
    let Some(Value::String(text)) = map.remove("value") else { return Err(no_text()) };
    let pipelines = map.remove("pipelines").map(serde_json::from_value);
    let pipelines =
        pipelines.transpose().map_err(|_| format!("the pipelines of {name} are not a list of slugs"))?;
    if let Some(other) = map.keys().next() {
        return Err(format!("{name} has {other:?}; only value and pipelines are known"));
    }
    Ok(Secret { value: Hidden(text), pipelines })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn secrets_are_for_all_pipelines_or_for_some() {
        let secrets =
            Secrets::parse("A: one\nB: {value: two, pipelines: [demo]}\nC: {value: three}").unwrap();
        let value = |text: &str| Found::Value(Hidden(text.into()));
        assert_eq!(secrets.get("A", "any"), value("one"));
        assert_eq!(secrets.get("B", "demo"), value("two"));
        assert_eq!(secrets.get("B", "other"), Found::Denied);
        assert_eq!(secrets.get("C", "other"), value("three"));
        assert_eq!(secrets.get("D", "demo"), Found::Unknown);
        assert_eq!(Secrets::parse("").unwrap(), Secrets::default());
        assert_eq!(Secrets::parse("# nothing yet\n").unwrap(), Secrets::default());
    }

    #[rstest]
    #[case("hunter2")]
    #[case("A: [hunter2]")]
    #[case("A: {value: hunter2, pipeline: [demo]}")]
    #[case("A: {value: hunter2, pipelines: demo}")]
    #[case("A: {wert: hunter2}")]
    #[case("A-B: hunter2")]
    #[case("A: hunter2\n  B: 'hunter2")]
    #[case("A: *hunter2")]
    #[case("A: !hunter2 x: y: hunter2")]
    fn what_is_wrong_is_told_without_the_value(#[case] text: &str) {
        let error = Secrets::parse(text).unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn numbers_must_be_quoted() {
        let error = Secrets::parse("PIN: 0123").unwrap_err();
        assert_eq!(error, "the value of PIN is not a text; put it in quotes");
    }

    #[test]
    fn values_are_not_printed() {
        let secrets = Secrets::parse("A: hunter2").unwrap();
        assert!(!format!("{secrets:?}").contains("hunter2"));
    }

    #[rstest]
    #[case("https://github.com/acme/demo.git", Some("github.com"))]
    #[case("https://user:pass@Git.local:8443/demo", Some("Git.local"))]
    #[case("git@github.com:acme/demo.git", Some("github.com"))]
    #[case("ssh://git@host:22/demo", Some("host"))]
    #[case("/srv/git/demo.git", None)]
    #[case("./a:b", None)]
    #[case("https:///demo", None)]
    #[case("", None)]
    fn hosts_are_found_in_urls(#[case] url: &str, #[case] expected: Option<&str>) {
        assert_eq!(host(url), expected);
    }

    #[test]
    fn hosts_have_tokens() {
        let credentials = GitCredentials::parse("GitHub.com: token").unwrap();
        assert_eq!(credentials.get("github.COM"), Some(&Hidden("token".into())));
        assert_eq!(credentials.get("gitlab.com"), None);
        assert!(GitCredentials::parse("github.com: [token]").is_err());
    }
}
