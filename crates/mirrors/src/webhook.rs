//! Who calls, and which repository they mean: our own callers, and webhooks of GitHub and GitLab as those send them. Pure.

use axum::http::{HeaderMap, HeaderValue, header};
use ring::hmac;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The header in which GitHub signs a body, and so do Gitea and Forgejo.
const SIGNATURE: &str = "x-hub-signature-256";
/// The header in which GitLab says the token.
const GITLAB_TOKEN: &str = "x-gitlab-token";

/// What is asked for, in the query or in the body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Request {
    /// The repository, in any spelling.
    pub(crate) url: Option<String>,
    /// How many seconds to wait for the fetch.
    pub(crate) wait: Option<u64>,
}

/// What a body says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Said {
    #[serde(flatten)]
    request: Request,
    repository: Names,
    project: Names,
}

/// How a webhook names a repository: the first two are GitHub's, the others GitLab's.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Names {
    #[serde(rename = "clone_url")]
    clone: Option<String>,
    #[serde(rename = "ssh_url")]
    ssh: Option<String>,
    #[serde(rename = "git_http_url")]
    gitlab_http: Option<String>,
    #[serde(rename = "git_ssh_url")]
    gitlab_ssh: Option<String>,
}

impl Names {
    fn all(self) -> impl Iterator<Item = String> {
        [self.clone, self.ssh, self.gitlab_http, self.gitlab_ssh].into_iter().flatten()
    }
}

/// The spellings of the repository that a call means, the surest first, and how many seconds its caller waits. The body's word goes before the
/// query's, and what a caller says of its own before what a webhook tells.
pub(crate) fn wish(query: Request, body: &[u8]) -> (Vec<String>, Option<u64>) {
    let Said { request, repository, project } = said(body);
    let own = request.url.or(query.url);
    let all = own.into_iter().chain(repository.all()).chain(project.all()).collect();
    (all, request.wait.or(query.wait))
}

/// A body is JSON, or a form whose field `payload` is, as GitHub sends it if it is told to. Anything else says nothing.
fn said(body: &[u8]) -> Said {
    serde_json::from_slice(body).unwrap_or_else(|_| {
        let payload = form_urlencoded::parse(body).find(|(field, _)| field == "payload");
        payload.and_then(|(_, text)| serde_json::from_str(&text).ok()).unwrap_or_default()
    })
}

/// Whether the caller knows the token: it says it, or has signed the body with it. The time that takes tells nothing about it.
pub(crate) fn is_known(headers: &HeaderMap, body: &[u8], token: Option<&SecretString>) -> bool {
    let Some(token) = token.map(|token| token.expose_secret().as_bytes()).filter(|token| !token.is_empty())
    else {
        return false;
    };
    let value = |name: &str| headers.get(name).map(HeaderValue::as_bytes).unwrap_or_default();
    let (scheme, bearer) = value(header::AUTHORIZATION.as_str()).split_at_checked(7).unwrap_or_default();
    let bears = scheme.eq_ignore_ascii_case(b"bearer ") && same(bearer, token);
    bears || same(value(GITLAB_TOKEN), token) || is_signed(value(SIGNATURE), body, token)
}

fn same(given: &[u8], token: &[u8]) -> bool {
    let digest = |bytes: &[u8]| Sha256::digest(bytes);
    digest(given).as_slice().ct_eq(digest(token).as_slice()).into()
}

fn is_signed(signature: &[u8], body: &[u8], token: &[u8]) -> bool {
    let Some(given) = signature.strip_prefix(b"sha256=").and_then(unhex) else { return false };
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, token), body, &given).is_ok()
}

fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.iter().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// GitHub's own example of a signature.
    const BODY: &str = "Hello, World!";
    const SIGNED: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    const SECRET: &str = "It's a Secret to Everybody";

    #[rstest]
    #[case("authorization", "Bearer right", Some("right"), true)]
    #[case("authorization", "bearer right", Some("right"), true)]
    #[case("authorization", "Bearer wrong", Some("right"), false)]
    #[case("authorization", "Bearer right ", Some("right"), false)]
    #[case("authorization", "Basic right", Some("right"), false)]
    #[case("authorization", "Bearer ", Some(""), false)]
    #[case("authorization", "B", Some("right"), false)]
    #[case("other", "", Some("right"), false)]
    #[case("authorization", "Bearer ", None, false)]
    #[case("x-gitlab-token", "right", Some("right"), true)]
    #[case("x-gitlab-token", "wrong", Some("right"), false)]
    #[case("x-gitlab-token", "", Some(""), false)]
    #[case("x-gitlab-token", "", None, false)]
    #[case("x-hub-signature-256", SIGNED, Some(SECRET), true)]
    #[case("x-hub-signature-256", SIGNED, Some("right"), false)]
    #[case("x-hub-signature-256", SIGNED, None, false)]
    #[case("x-hub-signature-256", SECRET, Some(SECRET), false)]
    #[case("x-hub-signature-256", "sha256=", Some(SECRET), false)]
    #[case("x-hub-signature-256", "sha256=75710", Some(SECRET), false)]
    #[case("x-hub-signature-256", "sha1=757107ea0eb2509fc211221cce984b8a37570b6d", Some(SECRET), false)]
    fn only_the_token_opens(
        #[case] name: &'static str,
        #[case] given: &str,
        #[case] token: Option<&str>,
        #[case] expected: bool,
    ) {
        let headers = HeaderMap::from_iter([(name.parse().unwrap(), given.parse().unwrap())]);
        let token = token.map(|token| SecretString::from(token.to_owned()));
        assert_eq!(is_known(&headers, BODY.as_bytes(), token.as_ref()), expected);
    }

    #[test]
    fn a_signature_is_of_its_body() {
        let headers = HeaderMap::from_iter([(SIGNATURE.parse().unwrap(), SIGNED.parse().unwrap())]);
        let token = SecretString::from(SECRET.to_owned());
        assert!(!is_known(&headers, b"Hello, World?", Some(&token)));
    }

    #[rstest]
    #[case::nothing("", &["a:b"], Some(1))]
    #[case::own_words(r#"{"url": "c:d", "wait": 2}"#, &["c:d"], Some(2))]
    #[case::something_else(r#"{"ref": "refs/heads/main"}"#, &["a:b"], Some(1))]
    #[case::no_payload("payload=%7B", &["a:b"], Some(1))]
    #[case::github(
        r#"{"ref": "refs/heads/main", "repository": {"id": 1, "clone_url": "https://h/a.git", "ssh_url": "git@h:a.git"}}"#,
        &["a:b", "https://h/a.git", "git@h:a.git"],
        Some(1)
    )]
    #[case::github_as_a_form(
        "payload=%7B%22repository%22%3A%7B%22ssh_url%22%3A%22git%40h%3Aa%2Bb.git%22%7D%7D",
        &["a:b", "git@h:a+b.git"],
        Some(1)
    )]
    #[case::gitlab(
        r#"{"project": {"git_ssh_url": "git@h:a.git"}, "repository": {"name": "a", "git_http_url": "https://h/a.git"}}"#,
        &["a:b", "https://h/a.git", "git@h:a.git"],
        Some(1)
    )]
    fn bodies_name_repositories(#[case] body: &str, #[case] expected: &[&str], #[case] seconds: Option<u64>) {
        let query = Request { url: Some("a:b".to_owned()), wait: Some(1) };
        let (spellings, wait) = wish(query, body.as_bytes());
        assert_eq!(
            (spellings.iter().map(String::as_str).collect::<Vec<_>>(), wait),
            (expected.to_vec(), seconds)
        );
    }
}
