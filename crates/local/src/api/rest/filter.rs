//! The filters of lists: `state=failed`, `state[]=failed&state[]=passed`, `meta_data[key]=value`.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use jiff::Timestamp;

use super::super::error::{ApiError, ApiResult};
use crate::build::BuildState;
use crate::store::listing::BuildFilter;

/// What `state=finished` stands for.
const FINISHED: [BuildState; 4] =
    [BuildState::Passed, BuildState::Failed, BuildState::Blocked, BuildState::Canceled];

/// The query as pairs; names may repeat and may end with `[]`.
#[derive(Debug, Clone, Default)]
pub(super) struct Pairs(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Pairs {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> ApiResult<Self> {
        Query::try_from_uri(&parts.uri)
            .map(|Query(pairs)| Self(pairs))
            .map_err(|error| ApiError::bad_request(format!("the query cannot be read: {error}")))
    }
}

impl Pairs {
    /// Every value of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(given, _)| given.strip_suffix("[]").unwrap_or(given) == name)
            .map(|(_, value)| value.as_str())
    }

    /// The last value of a name.
    pub(super) fn one<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.all(name).last()
    }

    /// Whether a switch is on.
    pub(super) fn is_true(&self, name: &str) -> bool {
        matches!(self.one(name), Some("true" | "1"))
    }

    fn time(&self, name: &str) -> ApiResult<Option<Timestamp>> {
        let Some(text) = self.one(name) else { return Ok(None) };
        // A plus sign in a query is a space, and people do not escape the one in a zone.
        let read = text.parse().or_else(|_| text.replace(' ', "+").parse());
        read.map(Some).map_err(|_| {
            ApiError::bad_request(format!("{name} must be a time such as 2026-01-31T09:00:00Z, not {text:?}"))
        })
    }

    /// The filter of a list of builds.
    pub(super) fn builds(&self) -> ApiResult<BuildFilter> {
        let mut states = Vec::new();
        for state in self.all("state") {
            if state == "finished" {
                states.extend(FINISHED);
                continue;
            }
            let known = state.parse();
            states.push(
                known.map_err(|_| ApiError::bad_request(format!("there is no build state {state:?}")))?,
            );
        }
        let number = match self.one("number") {
            Some(text) => Some(text.parse().map_err(|_| ApiError::bad_request("number must be a number"))?),
            None => None,
        };
        let meta_data = self.0.iter().filter_map(|(name, value)| {
            let key = name.strip_prefix("meta_data[")?.strip_suffix(']')?;
            Some((key.to_owned(), value.clone()))
        });
        Ok(BuildFilter {
            pipeline: None,
            number,
            states,
            branches: self.all("branch").map(str::to_owned).collect(),
            commits: self.all("commit").map(str::to_owned).collect(),
            meta_data: meta_data.collect(),
            created_from: self.time("created_from")?,
            created_to: self.time("created_to")?,
            finished_from: self.time("finished_from")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(query: &[(&str, &str)]) -> Pairs {
        Pairs(query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn builds_are_filtered_by_what_is_asked() {
        let query = [
            ("state[]", "failed"),
            ("state[]", "running"),
            ("branch", "main"),
            ("meta_data[release]", "1"),
            ("created_from", "2026-01-01T00:00:00 01:00"),
            ("page", "2"),
        ];
        let filter = pairs(&query).builds().unwrap();
        assert_eq!(filter.states, [BuildState::Failed, BuildState::Running]);
        assert_eq!(filter.branches, ["main"]);
        assert_eq!(filter.meta_data, [("release".to_owned(), "1".to_owned())]);
        assert_eq!(filter.created_from.unwrap().to_string(), "2025-12-31T23:00:00Z");
        assert_eq!(pairs(&[("state", "finished")]).builds().unwrap().states, FINISHED);
    }

    #[test]
    fn nonsense_is_refused() {
        for (name, value) in [("state", "tired"), ("created_to", "soon"), ("number", "x")] {
            let error = pairs(&[(name, value)]).builds().unwrap_err();
            assert_eq!(error.status(), 400, "{name}");
        }
    }
}
