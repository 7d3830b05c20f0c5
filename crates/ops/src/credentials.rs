//! How exporters authenticate to servers outside: with the files of a mounted Secret.

use std::{fs, path::PathBuf, time::Duration};

use reqwest::RequestBuilder;

/// What is wrong with credentials.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The authorities that sign the server's certificate are not readable.
    #[error("cannot use the certificates in {path}")]
    Authorities {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: reqwest::Error,
    },
    /// There is no client.
    #[error("cannot make an HTTP client")]
    Client(#[from] reqwest::Error),
}

/// A directory with files `api-key`, `token`, or `username` and `password`; `headers`; and `ca.crt`. Each may be missing, and so may the
/// directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    directory: Option<PathBuf>,
}

impl Credentials {
    /// Those in this directory.
    pub fn new(directory: Option<PathBuf>) -> Self {
        Self { directory }
    }

    /// A client that trusts the authorities in `ca.crt`, or those of the system if there is no such file.
    pub fn client(&self, user_agent: &str, timeout: Duration) -> Result<reqwest::Client, CredentialsError> {
        let authorities = self.directory.as_ref().map(|directory| directory.join("ca.crt"));
        match authorities.and_then(|path| Some((fs::read(&path).ok()?, path))) {
            None => Ok(crate::http::client(user_agent, timeout)?),
            Some((pem, path)) => crate::http::client_of_authorities(user_agent, timeout, &pem)
                .map_err(|source| CredentialsError::Authorities { path, source }),
        }
    }

    /// Adds the credentials as they are now: Secrets change.
    pub fn authorize(&self, mut request: RequestBuilder) -> RequestBuilder {
        if let Some(key) = self.read("api-key") {
            request = request.header("Authorization", format!("ApiKey {key}"));
        } else if let Some(token) = self.read("token") {
            request = request.bearer_auth(token);
        } else if let Some(username) = self.read("username") {
            request = request.basic_auth(username, self.read("password"));
        }
        for line in self.read("headers").unwrap_or_default().lines() {
            if let Some((name, value)) = line.split_once(':') {
                request = request.header(name.trim(), value.trim());
            }
        }
        request
    }

    fn read(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.directory.as_ref()?.join(name)).ok()?;
        Some(text.trim().to_owned())
    }
}
