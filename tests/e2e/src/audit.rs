//! What the operator has asked of the API server, from the API server's own record.

use std::{fmt, path::Path};

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;

/// A request of the operator that is over. Those for a watch are over when the watch is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiCall {
    /// When it came in.
    pub at: Timestamp,
    /// `create`, `patch`, `watch`, ….
    pub verb: String,
    /// The API group; empty for the first of them.
    pub group: String,
    /// The kind of object, in the plural.
    pub resource: String,
    /// `status`, for instance.
    pub subresource: Option<String>,
    /// The object, unless it was about many.
    pub name: Option<String>,
    /// The status of the answer.
    pub code: u16,
    /// Whether the user has no permission for it. A quota or a policy may answer with the same status.
    pub forbidden: bool,
}

impl ApiCall {
    /// Whether it changed something or was meant to. A review is a question, though it is asked by creating one.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch") && !self.resource.ends_with("reviews")
    }
}

impl fmt::Display for ApiCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.at, self.verb, self.resource)?;
        self.subresource.iter().try_for_each(|subresource| write!(f, "/{subresource}"))?;
        self.name.iter().try_for_each(|name| write!(f, " {name}"))?;
        write!(f, " -> {}", self.code)
    }
}

/// One line of the record, as far as it matters here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    verb: String,
    user: User,
    object_ref: Option<Object>,
    response_status: Option<Answer>,
    request_received_timestamp: Timestamp,
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Default, Deserialize)]
struct Annotations {
    #[serde(default, rename = "authorization.k8s.io/decision")]
    decision: String,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize)]
struct Object {
    #[serde(default, rename = "apiGroup")]
    group: String,
    #[serde(default)]
    resource: String,
    subresource: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    code: u16,
}

/// The requests of one user that came in since `mark`, in the order in which they were over.
pub fn calls(log: &Path, user: &str, mark: Timestamp) -> Result<Vec<ApiCall>> {
    let text = std::fs::read_to_string(log).with_context(|| format!("cannot read {}", log.display()))?;
    parse(&text, user, mark)
}

fn parse(text: &str, user: &str, mark: Timestamp) -> Result<Vec<ApiCall>> {
    // The last line may be half written; the record is read again when it matters.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut calls = Vec::new();
    for line in complete.lines().filter(|line| line.contains(user)) {
        let line: Line = serde_json::from_str(line).with_context(|| format!("cannot parse {line}"))?;
        if line.user.username != user || line.request_received_timestamp < mark {
            continue;
        }
        let object = line.object_ref;
        calls.push(ApiCall {
            at: line.request_received_timestamp,
            verb: line.verb,
            group: object.as_ref().map(|object| object.group.clone()).unwrap_or_default(),
            resource: object.as_ref().map(|object| object.resource.clone()).unwrap_or_default(),
            subresource: object.as_ref().and_then(|object| object.subresource.clone()),
            name: object.and_then(|object| object.name),
            code: line.response_status.map_or(0, |answer| answer.code),
            forbidden: line.annotations.decision == "forbid",
        });
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"stage":"ResponseComplete","verb":"patch","user":{"username":"system:serviceaccount:e2e-1:op"},"objectRef":{"resource":"buildjobs","namespace":"e2e-1","name":"a","subresource":"status"},"responseStatus":{"metadata":{},"code":409},"requestReceivedTimestamp":"2026-01-01T00:00:01.5Z","annotations":{"authorization.k8s.io/decision":"forbid"}}"#;

    #[test]
    fn calls_of_the_user_since_the_mark_are_read_and_a_half_line_is_not() {
        let other = LINE.replace("e2e-1:op", "e2e-12:op");
        let text = format!("{LINE}\n{other}\n{}", &LINE[..50]);
        let user = "system:serviceaccount:e2e-1:op";
        let calls = parse(&text, user, "2026-01-01T00:00:01Z".parse().unwrap()).unwrap();
        let shown: Vec<String> = calls.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["2026-01-01T00:00:01.5Z patch buildjobs/status a -> 409"]);
        assert!(calls[0].is_write() && calls[0].forbidden);
        assert_eq!(parse(&text, user, "2026-01-01T00:00:02Z".parse().unwrap()).unwrap(), []);
    }
}
