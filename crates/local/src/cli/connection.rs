//! Which server a command talks to, and with which token.

use std::path::PathBuf;

use anyhow::{Context, bail};

use super::client::Client;

/// Flags of every command that talks to a server.
#[derive(clap::Args)]
pub(super) struct Connection {
    /// The server
    #[arg(
        long,
        env = "BUILDKITE_LOCAL_URL",
        default_value = "http://127.0.0.1:8384",
        value_name = "URL",
        help_heading = "Server",
        global = true
    )]
    server: String,

    /// Slug of the server's organization
    #[arg(
        long,
        env = "BUILDKITE_LOCAL_ORGANIZATION",
        default_value = "local",
        value_name = "SLUG",
        help_heading = "Server",
        global = true
    )]
    organization: String,

    /// Token of the REST API [default: the one of a server on loopback]
    #[arg(
        long,
        env = "BUILDKITE_LOCAL_API_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        help_heading = "Server",
        global = true
    )]
    api_token: Option<String>,

    /// File that holds the token of the REST API
    #[arg(
        long,
        env = "BUILDKITE_LOCAL_API_TOKEN_FILE",
        value_name = "FILE",
        conflicts_with = "api_token",
        help_heading = "Server",
        global = true
    )]
    api_token_file: Option<PathBuf>,
}

impl Connection {
    /// A client for the server.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        let token = match (&self.api_token, &self.api_token_file) {
            (Some(token), _) => token.clone(),
            (None, Some(file)) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("cannot read the API token from {}", file.display()))?;
                match text.trim() {
                    "" => bail!("{} holds no API token: it is empty", file.display()),
                    token => token.to_owned(),
                }
            }
            (None, None) => crate::config::LOOPBACK_API_TOKEN.to_owned(),
        };
        Client::new(&self.server, &self.organization, token)
    }
}
