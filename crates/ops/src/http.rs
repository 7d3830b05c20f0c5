//! The factory of HTTP clients.

use std::time::Duration;

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

/// The same, for a server whose certificate is signed by one of the authorities in `pem` and no other.
///
/// # Errors
/// When there is no certificate in `pem`, or one that cannot be read.
pub fn client_of_authorities(
    user_agent: &str,
    timeout: Duration,
    pem: &[u8],
) -> Result<reqwest::Client, reqwest::Error> {
    let authorities = reqwest::Certificate::from_pem_bundle(pem)?;
    builder(user_agent, timeout).tls_certs_only(authorities).build()
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
