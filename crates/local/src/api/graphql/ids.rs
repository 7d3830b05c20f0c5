//! The ids of GraphQL: `Build---UUID` in base64.

use async_graphql::{Context, ID, Result};
use base64::Engine;
use rusqlite::Transaction;
use uuid::Uuid;

use super::super::Shared;
use super::super::rest::render::graphql_id;
use crate::problem::Problem;

/// The id of something of this kind.
pub(super) fn id(kind: &str, uuid: Uuid) -> ID {
    ID(graphql_id(kind, uuid))
}

/// Reads an id of this kind; a bare UUID will do.
pub(super) fn uuid(kind: &str, id: &ID) -> Result<Uuid> {
    let unknown =
        || async_graphql::Error::new(format!("No {} found with the id {}", kind.to_lowercase(), id.as_str()));
    if let Ok(uuid) = Uuid::parse_str(id) {
        return Ok(uuid);
    }
    let bytes = base64::engine::general_purpose::STANDARD.decode(id.as_str()).map_err(|_| unknown())?;
    let text = String::from_utf8(bytes).map_err(|_| unknown())?;
    let (given, uuid) = text.split_once("---").ok_or_else(unknown)?;
    // Jobs have one kind of id, whatever their type is called.
    if given.starts_with(kind) { Uuid::parse_str(uuid).map_err(|_| unknown()) } else { Err(unknown()) }
}

/// Runs a transaction for a resolver.
pub(super) async fn transact<T, F>(context: &Context<'_>, with: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce(&Transaction<'_>) -> Result<T, Problem> + Send + 'static,
{
    let app = context.data::<Shared>()?;
    app.store.transact(with).await.map_err(|problem| async_graphql::Error::new(problem.to_string()))
}

/// The same, where what is not there is `null`.
pub(super) async fn find<T, F>(context: &Context<'_>, with: F) -> Result<Option<T>>
where
    T: Send + 'static,
    F: FnOnce(&Transaction<'_>) -> Result<T, Problem> + Send + 'static,
{
    transact(context, move |transaction| match with(transaction) {
        Ok(found) => Ok(Some(found)),
        Err(Problem::NotFound(_)) => Ok(None),
        Err(problem) => Err(problem),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_back() {
        let one = Uuid::now_v7();
        assert_eq!(uuid("Build", &id("Build", one)).unwrap(), one);
        assert_eq!(uuid("Build", &ID(one.to_string())).unwrap(), one);
        for wrong in [id("Pipeline", one), ID("?".into()), ID(String::new()), ID("QnVpbGQ=".into())] {
            assert!(uuid("Build", &wrong).is_err(), "{wrong:?}");
        }
    }
}
