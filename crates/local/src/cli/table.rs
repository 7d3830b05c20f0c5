//! The choice between tables and JSON.

pub(super) use bk_ops::table::table;

/// How lists are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// An aligned table, for people
    Table,
    /// What the server answered, for programs
    Json,
}
