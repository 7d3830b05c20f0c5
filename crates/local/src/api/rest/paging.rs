//! Lists in pages, with a `Link` header that names the others.

use axum::Json;
use axum::extract::{FromRequestParts, OriginalUri};
use axum::http::header::LINK;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::super::Shared;
use super::super::error::{ApiError, ApiResult};
use super::super::extract::BaseUrl;
use crate::store::listing::Slice;

const DEFAULT_PER_PAGE: u32 = 30;
const MAX_PER_PAGE: u32 = 100;

/// Which page of a list is asked for.
#[derive(Debug, Clone)]
pub(super) struct Paging {
    page: u32,
    per_page: u32,
    /// Where the list is, without a query.
    address: String,
    /// The rest of the query, as it came.
    others: Vec<String>,
}

impl FromRequestParts<Shared> for Paging {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        let BaseUrl(base) = BaseUrl::from_request_parts(parts, app).await?;
        let uri = parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |OriginalUri(uri)| uri);
        Self::parse(format!("{base}{}", uri.path()), parts.uri.query().unwrap_or_default())
    }
}

impl Paging {
    fn parse(address: String, query: &str) -> ApiResult<Self> {
        let mut paging = Self { page: 1, per_page: DEFAULT_PER_PAGE, address, others: Vec::new() };
        for piece in query.split('&').filter(|piece| !piece.is_empty()) {
            match piece.split_once('=') {
                Some(("page", value)) => paging.page = positive("page", value)?,
                Some(("per_page", value)) => {
                    paging.per_page = positive("per_page", value)?.min(MAX_PER_PAGE);
                }
                _ => paging.others.push(piece.to_owned()),
            }
        }
        Ok(paging)
    }

    /// The rows that are asked for.
    pub(super) fn slice(&self) -> Slice {
        Slice { limit: self.per_page, offset: u64::from(self.page - 1) * u64::from(self.per_page) }
    }

    /// The page of a list that is at hand as a whole.
    pub(super) fn cut(&self, all: Vec<Value>) -> Listed {
        let total = all.len() as u64;
        let Slice { limit, offset } = self.slice();
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        self.listed(all.into_iter().skip(skip).take(limit as usize).collect(), total)
    }

    /// One page of a list of `total`.
    pub(super) fn listed(&self, items: Vec<Value>, total: u64) -> Listed {
        Listed { items, link: self.link(total) }
    }

    fn link(&self, total: u64) -> Option<String> {
        let last = total.div_ceil(u64::from(self.per_page)).max(1);
        let page = u64::from(self.page);
        let mut links = Vec::new();
        if page > 1 {
            links.push(("first", 1));
            links.push(("prev", (page - 1).min(last)));
        }
        if page < last {
            links.push(("next", page + 1));
            links.push(("last", last));
        }
        let shown: Vec<String> =
            links.into_iter().map(|(rel, page)| format!("<{}>; rel=\"{rel}\"", self.url(page))).collect();
        (!shown.is_empty()).then(|| shown.join(", "))
    }

    fn url(&self, page: u64) -> String {
        let mut pieces = self.others.clone();
        pieces.push(format!("page={page}"));
        pieces.push(format!("per_page={}", self.per_page));
        format!("{}?{}", self.address, pieces.join("&"))
    }
}

fn positive(name: &str, value: &str) -> ApiResult<u32> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(ApiError::bad_request(format!("{name} must be a number from 1, not {value:?}"))),
    }
}

/// One page of a list.
#[derive(Debug)]
pub(super) struct Listed {
    items: Vec<Value>,
    link: Option<String>,
}

impl IntoResponse for Listed {
    fn into_response(self) -> Response {
        let link = self.link.map(|link| [(LINK, link)]);
        (link, Json(self.items)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn parse(query: &str) -> ApiResult<Paging> {
        Paging::parse("http://h/x".to_owned(), query)
    }

    #[rstest]
    #[case("", 30, 0)]
    #[case("page=3&per_page=10", 10, 20)]
    #[case("per_page=1000", 100, 0)]
    fn pages_are_slices(#[case] query: &str, #[case] limit: u32, #[case] offset: u64) {
        assert_eq!(parse(query).unwrap().slice(), Slice { limit, offset });
    }

    #[rstest]
    #[case("page=0")]
    #[case("page=-1")]
    #[case("per_page=x")]
    #[case("page=")]
    fn nonsense_is_refused(#[case] query: &str) {
        assert_eq!(parse(query).unwrap_err().status(), 400);
    }

    #[test]
    fn links_keep_the_filters() {
        let paging = parse("state[]=failed&page=2&per_page=2").unwrap();
        insta::assert_snapshot!(paging.link(7).unwrap().replace(", ", "\n"), @r#"
        <http://h/x?state[]=failed&page=1&per_page=2>; rel="first"
        <http://h/x?state[]=failed&page=1&per_page=2>; rel="prev"
        <http://h/x?state[]=failed&page=3&per_page=2>; rel="next"
        <http://h/x?state[]=failed&page=4&per_page=2>; rel="last"
        "#);
        assert_eq!(parse("").unwrap().link(30), None);
        assert_eq!(parse("").unwrap().link(0), None);
    }
}
