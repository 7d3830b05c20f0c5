//! Artifacts as agents announce, report and look for them. The bytes go through `files`.

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use bk_buildkite::artifacts::{
    Artifact, ArtifactBatch, ArtifactBatchCreated, ArtifactSearch, ArtifactUpdate, PartEtag, UploadAction,
    UploadInstructions, UploadedArtifact,
};
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::super::Shared;
use super::super::auth::{BuildReader, JobAccess};
use super::super::error::{ApiError, ApiResult};
use super::super::extract::{self, BaseUrl, Body, Params};
use super::super::files;
use crate::artifact::search::Search;
use crate::artifact::{self, parts};
use crate::problem::Problem;
use crate::store::artifacts::{self, ArtifactRow, ArtifactState};
use crate::store::jobs;

/// The routes of artifacts.
pub(super) fn router() -> Router<Shared> {
    Router::new()
        .route("/jobs/{job}/artifacts", post(create).put(update))
        .route("/builds/{build}/artifacts/search", get(search))
}

async fn create(
    access: JobAccess,
    State(app): State<Shared>,
    BaseUrl(base): BaseUrl,
    Body(batch): Body<ArtifactBatch>,
) -> ApiResult<Json<ArtifactBatchCreated>> {
    artifact::check(&batch, app.config.max_artifact_bytes)
        .map_err(|problem| ApiError::unprocessable(problem.to_string()))?;
    let id = batch.id.clone();
    let threshold = app.config.multipart_from_bytes;
    let created = app
        .store
        .transact(move |transaction| {
            let state = jobs::get(transaction, access.job)?.job.state;
            if !state.has_agent() {
                let text = format!("job {} takes no artifacts: it is {state}", access.job);
                return Err(Problem::Refused(text));
            }
            let in_parts = batch.multipart_supported && batch.upload_destination.is_empty();
            let count = |size: i64| parts::count(u64::try_from(size).unwrap_or_default(), threshold);
            artifacts::create(
                transaction,
                (access.build, access.job),
                &batch,
                |artifact| count(artifact.file_size).filter(|_| in_parts),
                Timestamp::now(),
            )
        })
        .await?;
    let (origin, prefix) = split(&base);
    let form = |path: String| UploadInstructions {
        action: UploadAction {
            url: origin.to_owned(),
            method: "POST".to_owned(),
            path,
            file_input: files::FILE_FIELD.to_owned(),
            part_number: None,
        },
        ..UploadInstructions::default()
    };
    let instructions = |artifact: &ArtifactRow| match artifact.parts {
        None => form(format!("{prefix}{}", app.files.upload_path(artifact.id, None))),
        Some(count) => {
            let actions = (1..=count).map(|part| part_action(&app, &base, artifact.id, part)).collect();
            UploadInstructions { actions, ..form(String::new()) }
        }
    };
    Ok(Json(ArtifactBatchCreated {
        id,
        artifact_ids: created.iter().map(|artifact| artifact.id.to_string()).collect(),
        // Never used, as each artifact has its own; but clients crash without it.
        upload_instructions: form(format!("{prefix}/_artifacts")),
        per_artifact_instructions: created
            .iter()
            .filter(|artifact| artifact.upload_destination.is_empty())
            .map(|artifact| (artifact.id.to_string(), instructions(artifact)))
            .collect(),
    }))
}

fn part_action(app: &Shared, base: &str, artifact: Uuid, part: u32) -> UploadAction {
    UploadAction {
        url: format!("{base}{}", app.files.upload_path(artifact, Some(part))),
        method: "PUT".to_owned(),
        part_number: Some(part),
        ..UploadAction::default()
    }
}

/// The scheme and host of a URL, and the path behind them: clients replace the path of a form's URL.
fn split(base: &str) -> (&str, &str) {
    let host = base.find("://").map_or(0, |at| at + 3);
    let end = base[host..].find('/').map_or(base.len(), |at| host + at);
    base.split_at(end)
}

async fn update(
    access: JobAccess,
    State(app): State<Shared>,
    Body(update): Body<ArtifactUpdate>,
) -> ApiResult<Json<serde_json::Value>> {
    // Agents give up on an answer after a few seconds and ask again. The work goes on meanwhile, and the
    // repetition finds it done.
    let work = tokio::spawn(async move {
        for report in &update.artifacts {
            end(&app, access.job, report).await?;
        }
        Ok(Json(json!({})))
    });
    work.await.map_err(|_| Problem::Broken)?
}

async fn end(app: &Shared, job: Uuid, report: &UploadedArtifact) -> ApiResult<()> {
    let _turn = if report.multipart { Some(app.files.turn().await) } else { None };
    let (artifact, come) = announced(app, job, &report.id).await?;
    let (id, state) = (artifact.id, settle(app, &artifact, report, &come).await?);
    Ok(app.store.transact(move |transaction| artifacts::set_state(transaction, id, state)).await?)
}

/// An artifact of this very job, and its parts that have come.
async fn announced(app: &Shared, job: Uuid, id: &str) -> ApiResult<(ArtifactRow, Vec<(u32, String)>)> {
    let id = extract::id("artifact", id)?;
    let found = app
        .store
        .transact(move |transaction| {
            let artifact = artifacts::get(transaction, id)?;
            if artifact.job != job {
                return Err(Problem::not_found("artifact of this job", id));
            }
            Ok((artifact, artifacts::parts(transaction, id)?))
        })
        .await?;
    Ok(found)
}

/// The state that an artifact is in after this report. A report that comes again changes nothing.
async fn settle(
    app: &Shared,
    artifact: &ArtifactRow,
    report: &UploadedArtifact,
    come: &[(u32, String)],
) -> ApiResult<ArtifactState> {
    let (id, depot) = (artifact.id, &app.files.depot);
    let state = ArtifactState::named(&report.state).filter(|state| *state != ArtifactState::New);
    let state = state.ok_or_else(|| {
        let text = format!("state {:?} of artifact {id} is neither finished nor error", report.state);
        ApiError::unprocessable(text)
    })?;
    if artifact.state == state || !artifact.upload_destination.is_empty() {
        return Ok(state);
    }
    if artifact.state != ArtifactState::New {
        let text = format!("artifact {id} is {} already", artifact.state.as_str());
        return Err(ApiError::unprocessable(text));
    }
    let done = match (state, artifact.parts) {
        (ArtifactState::Error, _) => depot.remove(id).await,
        // It is in its place when the server ended before the state was written.
        (_, Some(_)) if depot.has(id).await.is_ok_and(|has| has) => Ok(()),
        (_, Some(count)) => {
            check_parts(artifact, count, &report.multipart_etags, come)?;
            artifact.verify(&depot.gathered(id).await.map_err(|error| files::failed(&error))?)?;
            depot.keep_gathered(id).await
        }
        (_, None) => {
            if !depot.has(id).await.map_err(|error| files::failed(&error))? {
                let text = format!("the bytes of {:?} have not come; upload it first", artifact.path);
                return Err(ApiError::unprocessable(text));
            }
            Ok(())
        }
    };
    done.map_err(|error| files::failed(&error))?;
    Ok(state)
}

/// Whether all parts have come, and are those that the client means.
fn check_parts(
    artifact: &ArtifactRow,
    count: u32,
    claimed: &[PartEtag],
    come: &[(u32, String)],
) -> ApiResult<()> {
    let refuse = |text: String| Err(ApiError::unprocessable(format!("{:?}: {text}", artifact.path)));
    if claimed.len() != count as usize {
        return refuse(format!("it has {count} parts, but the report names {}", claimed.len()));
    }
    for part in 1..=count {
        let etag = |list: &[(u32, String)]| list.iter().find(|one| one.0 == part).map(|one| one.1.clone());
        let Some(received) = etag(come) else {
            return refuse(format!("part {part} has not come"));
        };
        let promised = claimed.iter().find(|one| one.part_number == part).map(|one| one.etag.as_str());
        if promised.map(|etag| etag.trim_matches('"')) != Some(received.trim_matches('"')) {
            return refuse(format!("the ETag of part {part} is not the one it was answered with"));
        }
    }
    Ok(())
}

/// What a build has uploaded. A search that finds nothing is no error: agents
/// would try it again for a minute.
async fn search(
    access: BuildReader,
    State(app): State<Shared>,
    BaseUrl(base): BaseUrl,
    Params(params): Params<ArtifactSearch>,
) -> ApiResult<Json<Vec<Artifact>>> {
    let state = match params.state.as_str() {
        "" => None,
        name => match ArtifactState::named(name) {
            Some(state) => Some(state),
            None => return Ok(Json(Vec::new())),
        },
    };
    let search = Search {
        query: params.query,
        scope: params.scope,
        include_retried_jobs: params.include_retried_jobs,
        include_duplicates: params.include_duplicates,
    };
    let found =
        app.store.transact(move |transaction| artifacts::of_build(transaction, access.build, state)).await?;
    let found = search.select(found, |(_, origin)| origin);
    Ok(Json(found.into_iter().map(|(artifact, _)| render(&app, &base, artifact)).collect()))
}

fn render(app: &Shared, base: &str, artifact: ArtifactRow) -> Artifact {
    Artifact {
        id: artifact.id.to_string(),
        url: app.files.download_url(base, &artifact),
        path: artifact.path,
        absolute_path: artifact.absolute_path,
        glob_path: artifact.glob_path,
        file_size: i64::try_from(artifact.file_size).unwrap_or(i64::MAX),
        sha1sum: artifact.sha1sum,
        sha256sum: artifact.sha256sum,
        job_id: artifact.job.to_string(),
        created_at: artifact.created_at.to_string(),
        upload_destination: artifact.upload_destination,
        content_type: artifact.content_type,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_behind_the_host_is_kept_apart() {
        assert_eq!(split("http://bk.local:8384"), ("http://bk.local:8384", ""));
        assert_eq!(split("https://ci.local/buildkite"), ("https://ci.local", "/buildkite"));
    }
}
