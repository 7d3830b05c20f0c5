//! Why a request is refused, in the server's own terms. The HTTP side maps each to a status.

use crate::build::Refusal;
use crate::build::attributes::AttributeProblem;
use crate::pipeline::PipelineProblem;

/// A refused or failed request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// Something named in the request does not exist, or is not visible.
    #[error("{0}")]
    NotFound(String),
    /// The request is well formed but cannot be carried out.
    #[error("{0}")]
    Refused(String),
    /// A transition that the job's state does not allow.
    #[error(transparent)]
    Job(#[from] Refusal),
    /// An attribute of a step cannot be read or changed as asked.
    #[error(transparent)]
    Attribute(#[from] AttributeProblem),
    /// The pipeline is not valid.
    #[error("the pipeline is invalid: {0}")]
    Pipeline(#[from] PipelineProblem),
    /// The disk has no room for the change. Nothing of it was kept.
    #[error("the disk is full: the server can keep nothing new until there is room")]
    DiskFull(#[source] rusqlite::Error),
    /// The database failed.
    #[error("the database failed")]
    Database(#[source] rusqlite::Error),
    /// What the database holds cannot be read.
    #[error("the database holds a value that cannot be read: {0}")]
    Corrupt(String),
    /// A bug: the request broke off.
    #[error("the server failed at this request; its log says more")]
    Broken,
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
}

impl Problem {
    /// "No pipeline called demo".
    pub(crate) fn not_found(what: &str, name: impl std::fmt::Display) -> Self {
        Self::NotFound(format!("no {what} {name}"))
    }
}

impl From<rusqlite::Error> for Problem {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Self::DiskFull(error),
            _ => Self::Database(error),
        }
    }
}

impl From<serde_json::Error> for Problem {
    fn from(error: serde_json::Error) -> Self {
        Self::Corrupt(error.to_string())
    }
}

impl From<crate::build::state::UnknownState> for Problem {
    fn from(error: crate::build::state::UnknownState) -> Self {
        Self::Corrupt(error.to_string())
    }
}
