//! The token of every call.

use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret, SecretString};

use crate::error::Error;

/// The token that calls are made with from now on. It can be replaced while calls are under way; clones share it.
#[derive(Clone)]
pub struct Credentials {
    kind: TokenKind,
    header: Arc<RwLock<HeaderValue>>,
    /// How often it was replaced by another.
    changes: Arc<AtomicU64>,
}

/// What a token is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Agents and stacks register with it.
    Agent,
    /// It opens the GraphQL API.
    Api,
}

impl TokenKind {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent token",
            Self::Api => "API token",
        }
    }

    fn scheme(self) -> &'static str {
        match self {
            Self::Agent => "Token",
            Self::Api => "Bearer",
        }
    }
}

impl Credentials {
    /// Calls are made with this token.
    pub fn new(kind: TokenKind, token: &SecretString) -> Result<Self, Error> {
        Ok(Self { kind, header: Arc::new(RwLock::new(authorization(kind, token)?)), changes: Arc::default() })
    }

    /// Calls are made with this token from now on; says whether it is another than before.
    pub fn replace(&self, token: &SecretString) -> Result<bool, Error> {
        let value = authorization(self.kind, token)?;
        let mut current = self.header.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = *current != value;
        *current = value;
        self.changes.fetch_add(is_new.into(), Ordering::Release);
        Ok(is_new)
    }

    /// How often the token was replaced by another.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The header that carries the token.
    pub(crate) fn header(&self) -> HeaderValue {
        self.header.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Credentials(Sensitive)")
    }
}

/// The header that carries a token, or what is wrong with the token.
fn authorization(kind: TokenKind, token: &SecretString) -> Result<HeaderValue, Error> {
    let unusable = |problem: &str| Error::Configuration(format!("the Buildkite {} {problem}", kind.name()));
    let token = token.expose_secret().trim();
    if token.is_empty() {
        return Err(unusable("is empty"));
    }
    let mut value = HeaderValue::try_from(format!("{} {token}", kind.scheme()))
        .map_err(|_| unusable("has characters that no token has; is it cut or encoded?"))?;
    // So that it is never printed.
    value.set_sensitive(true);
    Ok(value)
}
