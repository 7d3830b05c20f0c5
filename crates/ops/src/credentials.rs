//! How exporters authenticate to servers outside: with the files of a mounted Secret.

use std::{fs, io, path::PathBuf, time::Duration};

use reqwest::RequestBuilder;

/// What is wrong with credentials.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The authorities that sign the server's certificate cannot be read.
    #[error("cannot read {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The authorities that sign the server's certificate are none.
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

    /// A client that trusts the authorities in `ca.crt`, or those of the system if there is no such file. It follows no redirection.
    pub fn client(&self, user_agent: &str, timeout: Duration) -> Result<reqwest::Client, CredentialsError> {
        let client = |authorities| crate::http::direct_client(user_agent, timeout, authorities);
        let Some(path) = self.directory.as_ref().map(|directory| directory.join("ca.crt")) else {
            return Ok(client(None)?);
        };
        match fs::read(&path) {
            Ok(pem) => client(Some(&pem)).map_err(|source| CredentialsError::Authorities { path, source }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(client(None)?),
            // Whoever names authorities does not mean all others.
            Err(source) => Err(CredentialsError::Unreadable { path, source }),
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
