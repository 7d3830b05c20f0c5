//! Gathering what the environment of a job is made of.

use rusqlite::Transaction;
use uuid::Uuid;

use super::{agents, builds, jobs, pipelines, schema};
use crate::pipeline::env::{self, Facts, Organization};
use crate::problem::Problem;

/// The organisation as the database knows it. `base_url` is where people reach this server.
pub(crate) fn organization(
    transaction: &Transaction<'_>,
    slug: &str,
    base_url: &str,
) -> Result<Organization, Problem> {
    Ok(Organization {
        slug: slug.to_owned(),
        id: schema::identity(transaction, "organization")?,
        cluster_id: schema::identity(transaction, "cluster")?,
        cluster_name: "local".to_owned(),
        base_url: base_url.to_owned(),
    })
}

/// The id of something that a server has one of; the same for as long as the database is.
pub(crate) fn id_of(transaction: &Transaction<'_>, name: &str) -> Result<uuid::Uuid, Problem> {
    schema::identity(transaction, name)
}

/// When an id was made.
pub(crate) fn born(id: uuid::Uuid) -> jiff::Timestamp {
    let (seconds, nanoseconds) = id.get_timestamp().map_or((0, 0), |made| made.to_unix());
    let seconds = i64::try_from(seconds).unwrap_or_default();
    let nanoseconds = i32::try_from(nanoseconds).unwrap_or_default();
    jiff::Timestamp::new(seconds, nanoseconds).unwrap_or_default()
}

/// Slug and id of the organisation, for what is decided without a request at hand.
pub(crate) fn organization_identity(transaction: &Transaction<'_>) -> Result<(String, Uuid), Problem> {
    Ok((
        schema::remembered(transaction, "organization_slug")?,
        schema::identity(transaction, "organization")?,
    ))
}

/// Keeps the organisation's slug, as the settings have it now.
pub(crate) fn remember_organization(transaction: &Transaction<'_>, slug: &str) -> Result<(), Problem> {
    schema::remember(transaction, "organization_slug", slug)
}

/// The one who acts through the page and the API: there is only one.
fn local_user(transaction: &Transaction<'_>) -> Result<env::Person, Problem> {
    Ok(env::Person {
        id: schema::identity(transaction, "user")?,
        name: "Local User".to_owned(),
        email: "local@localhost".to_owned(),
    })
}

/// The id of the registration token.
pub(crate) fn token_id(transaction: &Transaction<'_>) -> Result<Uuid, Problem> {
    schema::identity(transaction, "token")
}

/// The id of the cache registry.
pub(crate) fn cache_registry_id(transaction: &Transaction<'_>) -> Result<uuid::Uuid, Problem> {
    schema::identity(transaction, "cache registry")
}

/// The id under which a secret is known.
pub(crate) fn secret_id(transaction: &Transaction<'_>, name: &str) -> Result<uuid::Uuid, Problem> {
    schema::identity(transaction, &format!("secret {name}"))
}

/// Everything that a job's environment is made of; with the agent's part once `agent` has the job.
pub(crate) fn of_job(
    transaction: &Transaction<'_>,
    organization: Organization,
    owned: &jobs::OwnedJob,
    agent: Option<&agents::AgentRow>,
) -> Result<Facts, Problem> {
    let build = builds::get(transaction, owned.build)?;
    let pipeline = pipelines::by_id(transaction, build.pipeline)?;
    let (written, group) = builds::step(transaction, owned.job.step)?;
    let step = written.permuted(owned.job.matrix.as_ref()).into_owned();
    let group = match group {
        Some(id) => {
            let (step, _) = builds::step(transaction, id)?;
            Some(env::Group { id, key: step.key, label: step.label })
        }
        None => None,
    };
    Ok(Facts {
        organization,
        pipeline,
        build,
        written,
        step,
        unblocker: builds::was_unblocked(transaction, owned.build)?
            .then(|| local_user(transaction))
            .transpose()?,
        group,
        job: owned.job.clone(),
        agent: agent.map(|agent| env::Agent {
            id: agent.id,
            name: agent.name.clone(),
            tags: agent.tags.clone(),
        }),
    })
}
