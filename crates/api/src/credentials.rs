//! How git proves who it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Secrets with which the checkout authenticates. They are mounted where git runs, and nowhere else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GitCredentials {
    /// A Secret of type `kubernetes.io/ssh-auth`: key `ssh-privatekey`, and `known_hosts` with the servers' keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_secret: Option<String>,
    /// A Secret for HTTPS: key `.git-credentials` with one URL per line as git's credential store has them, or keys
    /// `username` and `password` as type `kubernetes.io/basic-auth` has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub https_secret: Option<String>,
}
