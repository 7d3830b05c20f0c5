//! Who may look, and from where.
//!
//! A server on loopback whose API token nobody has set serves everybody on the machine, as its REST API does.
//! Two things must not get in that way: another site that a visitor has open, and a foreign name that was made
//! to point here. Elsewhere a visitor signs in with the API token and gets a cookie that scripts cannot read.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, ORIGIN, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::super::Shared;
use super::super::error::{ApiError, ApiResult};
use super::super::extract::Body;
use super::super::host;
use crate::secret;

/// Somebody who may see and do everything.
pub(super) struct Visitor;

impl FromRequestParts<Shared> for Visitor {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        own_site(&parts.method, &parts.headers)?;
        if app.config.is_open() {
            known_host(&parts.headers, app.config.external_url.as_deref())?;
            return Ok(Self);
        }
        let signed_in = cookie(&parts.headers, &cookie_name(app))
            .is_some_and(|session| secret::is_same(session, &app.run.session));
        if signed_in || bearer(&parts.headers).is_some_and(|token| app.tokens.is_api(token)) {
            return Ok(Self);
        }
        Err(ApiError::unauthorized("sign in with the API token"))
    }
}

/// Refuses what another site's page asks for. Programs that are no browsers send none of these headers.
fn own_site(method: &Method, headers: &HeaderMap) -> ApiResult<()> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let refused = || Err(ApiError::forbidden("requests from other sites are refused"));
    match text("sec-fetch-site") {
        Some("same-origin" | "none") => {}
        Some(_) => return refused(),
        None => {
            let host = |origin: &str| origin.split_once("://").map(|(_, host)| host.to_owned());
            let own = text(HOST.as_str()).map(str::to_owned);
            if text(ORIGIN.as_str()).is_some_and(|origin| host(origin) != own) {
                return refused();
            }
        }
    }
    // No form of another site can send this type, whatever the browser.
    let json = text(CONTENT_TYPE.as_str()).is_some_and(|kind| kind.starts_with("application/json"));
    if method != Method::GET && method != Method::HEAD && !json {
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send it as application/json"));
    }
    Ok(())
}

/// Refuses a name that is not this machine's own: another site may have made its name point here.
fn known_host(headers: &HeaderMap, external_url: Option<&str>) -> ApiResult<()> {
    let given = host::of(headers);
    if host::is_loopback(given) || host::is_external(given, external_url) {
        return Ok(());
    }
    Err(ApiError::forbidden(format!(
        "this server does not go by the name {given:?}; use http://127.0.0.1 or set --external-url"
    )))
}

/// Cookies are shared between ports, so each server has a name of its own.
fn cookie_name(app: &Shared) -> String {
    format!("buildkite-local-{}", app.config.listen.port())
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|text| text.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

#[derive(Deserialize)]
pub(super) struct SignIn {
    #[serde(default)]
    token: String,
}

/// Gives a cookie for the API token.
pub(super) async fn sign_in(
    State(app): State<Shared>,
    method: Method,
    headers: HeaderMap,
    Body(SignIn { token }): Body<SignIn>,
) -> ApiResult<Response> {
    own_site(&method, &headers)?;
    if !app.tokens.is_api(&token) {
        return Err(ApiError::unauthorized("this is not the API token"));
    }
    Ok(session(&app, &app.run.session, ""))
}

/// Takes the cookie back.
pub(super) async fn sign_out(
    State(app): State<Shared>,
    method: Method,
    headers: HeaderMap,
) -> ApiResult<Response> {
    own_site(&method, &headers)?;
    Ok(session(&app, "", "; Max-Age=0"))
}

fn session(app: &Shared, value: &str, age: &str) -> Response {
    let secure = app.config.external_url.as_deref().is_some_and(|url| url.starts_with("https://"));
    let secure = if secure { "; Secure" } else { "" };
    let name = cookie_name(app);
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{age}");
    ([(SET_COOKIE, cookie)], Json(serde_json::json!({}))).into_response()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[rstest]
    #[case("127.0.0.1:8384", true)]
    #[case("127.9.9.9", true)]
    #[case("localhost:8384", true)]
    #[case("ci.localhost", true)]
    #[case("[::1]:8384", true)]
    #[case("ci.example:8384", true)]
    #[case("ci.example", false)]
    #[case("evil.example", false)]
    #[case("127.0.0.1.evil.example", false)]
    #[case("localhost.evil.example:8384", false)]
    #[case("", false)]
    fn only_own_names_are_answered(#[case] host: &'static str, #[case] known: bool) {
        let given = headers(&[("host", host)]);
        assert_eq!(known_host(&given, Some("https://ci.example:8384/")).is_ok(), known);
    }

    #[rstest]
    #[case::own(&[("sec-fetch-site", "same-origin"), ("content-type", "application/json")], true)]
    #[case::typed_by_hand(&[("sec-fetch-site", "none"), ("content-type", "application/json")], true)]
    #[case::another_port(&[("sec-fetch-site", "same-site"), ("content-type", "application/json")], false)]
    #[case::another_site(&[("sec-fetch-site", "cross-site"), ("content-type", "application/json")], false)]
    #[case::old_browser(&[("host", "a:1"), ("origin", "http://a:1"), ("content-type", "application/json")], true)]
    #[case::old_browser_elsewhere(&[("host", "a:1"), ("origin", "http://b"), ("content-type", "application/json")], false)]
    #[case::opaque_origin(&[("host", "a:1"), ("origin", "null"), ("content-type", "application/json")], false)]
    #[case::a_form(&[("content-type", "text/plain")], false)]
    #[case::nothing_said(&[], false)]
    fn changes_come_from_the_page_itself(
        #[case] given: &[(&'static str, &'static str)],
        #[case] taken: bool,
    ) {
        assert_eq!(own_site(&Method::POST, &headers(given)).is_ok(), taken);
    }

    #[test]
    fn reading_needs_no_type_but_the_own_site() {
        assert!(own_site(&Method::GET, &headers(&[])).is_ok());
        assert!(own_site(&Method::GET, &headers(&[("sec-fetch-site", "cross-site")])).is_err());
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let given = headers(&[("cookie", "a=1; buildkite-local-1=x; b=2")]);
        assert_eq!(cookie(&given, "buildkite-local-1"), Some("x"));
        assert_eq!(cookie(&given, "buildkite-local-2"), None);
    }
}
