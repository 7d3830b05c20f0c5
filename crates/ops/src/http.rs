//! The factory of HTTP clients.

use std::time::Duration;

use reqwest::{header::LOCATION, redirect::Policy};

/// Installs *ring* as the process's crypto provider. Calling it again does nothing.
///
/// Without a provider the first TLS client panics, and which client is first depends on the order of
/// start-up, so every binary calls this first and [`client`] calls it again.
pub fn install_crypto_provider() {
    // An error only says that a provider is installed already, which is what we want.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
}

/// An HTTP client with the project's timeouts: `timeout` bounds a whole request.
///
/// # Errors
/// When the system's trust store cannot be read.
pub fn client(user_agent: &str, timeout: Duration) -> Result<reqwest::Client, reqwest::Error> {
    builder(user_agent, timeout).build()
}

/// A client for those who hand over what must not get lost. It follows no redirection: a POST that is redirected becomes a GET without a
/// body, whose success would say nothing, and credentials are for the server that was named. If there are `authorities`, in PEM, the server's
/// certificate is signed by one of them and no other.
///
/// # Errors
/// When there is no certificate in `authorities`, or one that cannot be read; when the system's trust store cannot be read.
pub fn direct_client(
    user_agent: &str,
    timeout: Duration,
    authorities: Option<&[u8]>,
) -> Result<reqwest::Client, reqwest::Error> {
    let mut builder = builder(user_agent, timeout).redirect(Policy::none());
    if let Some(pem) = authorities {
        builder = builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(pem)?);
    }
    builder.build()
}

/// Where an answer sends whoever asked, if it does.
pub fn destination(response: &reqwest::Response) -> Option<String> {
    let named = response.headers().get(LOCATION).filter(|_| response.status().is_redirection())?;
    Some(String::from_utf8_lossy(named.as_bytes()).into_owned())
}

#[allow(clippy::disallowed_methods, reason = "this is the one place that may build a client")]
fn builder(user_agent: &str, timeout: Duration) -> reqwest::ClientBuilder {
    install_crypto_provider();
    reqwest::Client::builder()
        .user_agent(user_agent)
        .timeout(timeout)
        .connect_timeout(Duration::from_secs(10))
        .pool_idle_timeout(Duration::from_secs(30))
}
