//! Mirrors of git repositories. One program, the syncer, writes them; job pods mount them read-only and borrow their objects.
//!
//! - [`address`]: which spellings of an address mean the same repository
//! - [`place`]: where a mirror is, and the record that tells borrowers about it
//! - [`git`]: git as a process with an end
//! - [`access`]: credentials, as files and variables of git
//! - [`pack`]: whether packs are whole, and which of them to join
//! - [`mirror`]: making, fetching, joining, checking and rebuilding one mirror
//! - [`schedule`]: which mirror is fetched when
//! - [`syncer`]: the loop around all of them, with its [`endpoint`] and [`metrics`]
//! - `webhook`: who calls the endpoint, and which repository they mean
//! - [`cluster`]: RepoMirrors and Secrets in, status out
//! - [`borrow`]: a job's checkout out of mirrors

pub mod access;
pub mod address;
pub mod borrow;
pub mod cluster;
pub mod endpoint;
pub mod git;
pub mod metrics;
pub mod mirror;
pub mod pack;
pub mod place;
pub mod schedule;
pub mod syncer;
mod webhook;

/// What this crate can fail with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address that is none.
    #[error(transparent)]
    Address(#[from] address::AddressError),
    /// git ended badly.
    #[error(transparent)]
    Git(#[from] git::GitError),
    /// A file could not be read or written.
    #[error("cannot {what}")]
    File {
        /// What was tried, on what.
        what: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// Somebody else writes this mirror.
    #[error("another syncer writes {0} at this moment")]
    Locked(String),
    /// The mirror has damage that a fetch does not mend.
    #[error("the mirror is damaged: {0}")]
    Corrupt(String),
    /// A Secret is missing or has not what it should have.
    #[error("{0}")]
    Credentials(String),
}

impl Error {
    /// Puts what was tried in front of why it failed.
    pub(crate) fn file(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::File { what, source }
    }
}
