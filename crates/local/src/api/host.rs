//! The name by which a client reached the server.
//!
//! A page of another site can make that site's name point at this machine. To a browser, the server is then that
//! site's own, and nothing keeps the page from sending the tokens that everybody knows.

use axum::http::HeaderMap;
use axum::http::header::HOST;

use super::error::{ApiError, ApiResult};

/// Endings of names that nobody can own on the internet.
const PRIVATE: [&str; 7] = ["localhost", "local", "internal", "test", "svc", "lan", "home.arpa"];

/// The `Host` header, empty when there is none.
pub(super) fn of(headers: &HeaderMap) -> &str {
    headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Whether this is the host of the URL at which the server is known.
pub(super) fn is_external(host: &str, external_url: Option<&str>) -> bool {
    let known = external_url.and_then(|url| url.split_once("://")).map(|(_, rest)| rest);
    known.map(|rest| rest.split('/').next().unwrap_or_default()) == Some(host)
}

/// Whether this is one of the machine's names for itself.
pub(super) fn is_loopback(host: &str) -> bool {
    let name = name(host);
    let address = name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    address || name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost")
}

/// Refuses a token that everybody knows when the server was reached by a name that anybody may own.
pub(super) fn check_well_known(headers: &HeaderMap, external_url: Option<&str>) -> ApiResult<()> {
    let host = of(headers);
    if !is_public(host) || is_external(host, external_url) {
        return Ok(());
    }
    Err(ApiError::forbidden(format!(
        "the built-in tokens are not taken under the name {host:?}; set tokens of your own, or --external-url"
    )))
}

/// Whether a stranger may own the name. An address is no name, and a name without a dot is a neighbour's.
fn is_public(host: &str) -> bool {
    let name = name(host).trim_end_matches('.').to_ascii_lowercase();
    let private =
        |ending: &str| name.strip_suffix(ending).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    name.contains('.') && name.parse::<std::net::IpAddr>().is_err() && !PRIVATE.iter().any(|one| private(one))
}

/// The host without its port.
fn name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("evil.example:8384", true)]
    #[case("127.0.0.1.evil.example", true)]
    #[case("localhost.evil.example.", true)]
    #[case("evillocal.com", true)]
    #[case("notlocalhost.io", true)]
    #[case("127.0.0.1:8384", false)]
    #[case("192.168.1.7:8384", false)]
    #[case("[::1]:8384", false)]
    #[case("localhost", false)]
    #[case("laptop:8384", false)]
    #[case("host.docker.internal:8384", false)]
    #[case("ci.default.svc.cluster.local", false)]
    #[case("nas.home.arpa", false)]
    #[case("", false)]
    fn names_that_strangers_may_own(#[case] host: &str, #[case] public: bool) {
        assert_eq!(is_public(host), public);
    }
}
