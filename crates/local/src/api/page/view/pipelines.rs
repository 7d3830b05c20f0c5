//! The list of pipelines, and one pipeline with its builds.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use rusqlite::Transaction;
use serde::{Deserialize, Serialize};

use super::super::super::Shared;
use super::super::super::error::ApiResult;
use super::super::super::extract::{Params, Path};
use super::{Millis, answer};
use crate::problem::Problem;
use crate::store::builds::{self, BuildRow};
use crate::store::overview;
use crate::store::pipelines::{self, PipelineRow};

/// How many builds stand beside a pipeline in the list.
const GLANCE: u32 = 12;
/// How many builds one page of a pipeline has.
const PAGE: u32 = 30;

#[derive(Serialize)]
struct PipelineLine {
    slug: String,
    name: String,
    repository: String,
    default_branch: String,
    unfinished: i64,
    /// Newest first.
    builds: Vec<BuildLine>,
}

/// A build in a list.
#[derive(Serialize)]
pub(super) struct BuildLine {
    number: i64,
    state: &'static str,
    message: String,
    branch: String,
    commit: String,
    author: Option<String>,
    source: String,
    created_at: Millis,
    started_at: Option<Millis>,
    finished_at: Option<Millis>,
}

#[derive(Serialize)]
struct PipelinePage {
    #[serde(flatten)]
    pipeline: PipelineLine,
    configuration: String,
    /// Whether there are builds before the last one shown.
    more: bool,
}

/// A build in a list.
pub(super) fn build_line(row: &BuildRow) -> BuildLine {
    BuildLine {
        number: row.number,
        state: row.state.as_str(),
        message: row.message.clone(),
        branch: row.branch.clone(),
        commit: row.commit.clone(),
        author: row.author.as_ref().map(|(name, _)| name.clone()).filter(|name| !name.is_empty()),
        source: row.source.clone(),
        created_at: Millis(row.created_at),
        started_at: row.started_at.map(Millis),
        finished_at: row.finished_at.map(Millis),
    }
}

fn line(
    transaction: &Transaction<'_>,
    row: &PipelineRow,
    recent: &[BuildRow],
) -> Result<PipelineLine, Problem> {
    Ok(PipelineLine {
        slug: row.slug.clone(),
        name: row.name.clone(),
        repository: row.repository.clone(),
        default_branch: row.default_branch.clone(),
        unfinished: overview::unfinished(transaction, row.id)?,
        builds: recent.iter().map(build_line).collect(),
    })
}

pub(in super::super) async fn list(State(app): State<Shared>, headers: HeaderMap) -> ApiResult<Response> {
    answer(&app, &headers, |transaction| {
        pipelines::all(transaction)?
            .iter()
            .map(|row| line(transaction, row, &builds::recent(transaction, row.id, GLANCE)?))
            .collect::<Result<Vec<_>, _>>()
    })
    .await
}

#[derive(Deserialize)]
pub(in super::super) struct Shown {
    /// How many builds to show.
    builds: Option<u32>,
}

/// The most builds that one view holds.
const MOST: u32 = 1000;

pub(in super::super) async fn show(
    State(app): State<Shared>,
    headers: HeaderMap,
    Path(slug): Path<String>,
    Params(Shown { builds: wanted }): Params<Shown>,
) -> ApiResult<Response> {
    let wanted = wanted.unwrap_or(PAGE).min(MOST);
    answer(&app, &headers, move |transaction| {
        let row = pipelines::get(transaction, &slug)?;
        // One more than shown tells whether there are more.
        let mut recent = builds::recent(transaction, row.id, wanted + 1)?;
        let more = recent.len() > wanted as usize;
        recent.truncate(wanted as usize);
        let pipeline = line(transaction, &row, &recent)?;
        Ok(PipelinePage { pipeline, configuration: row.configuration, more })
    })
    .await
}
