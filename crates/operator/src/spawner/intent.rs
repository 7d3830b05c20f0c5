//! The written choice: a small ConfigMap that says which jobs are about to be taken.

use std::{
    collections::BTreeMap,
    sync::{MutexGuard, PoisonError},
};

use bk_api::names;
use bk_plan::intake::Candidate;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};

use super::take::Taker;
use crate::{error::Error, settings::intents};

impl Taker {
    /// Writes the choice down before anything follows from it. Where there are several replicas it is written on the version that is
    /// known only: no choice of another is overwritten that nobody has carried out, nor one of a replica that works by one
    /// that does no more.
    pub(super) async fn write_intent(&self, choice: &[Candidate]) -> Result<(), Error> {
        let name = names::intent(&self.terms.stack_key);
        let version = self.version().clone().filter(|_| self.is_fenced);
        // Candidates hold nothing but strings and numbers.
        let jobs = serde_json::to_string(choice).unwrap_or_default();
        let config_map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some(intents::labels()),
                owner_references: self.owner.clone().map(|owner| vec![owner]),
                resource_version: version.clone(),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([
                (intents::JOBS.to_owned(), jobs),
                (intents::QUEUE.to_owned(), self.terms.key.clone()),
                (intents::STACK.to_owned(), self.terms.stack_key.clone()),
            ])),
            ..ConfigMap::default()
        };
        let manager = names::FIELD_MANAGER;
        let written = if self.is_fenced && version.is_none() {
            let params = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
            self.intents().create(&params, &config_map).await
        } else {
            let params = PatchParams::apply(manager).force();
            self.intents().patch(&name, &params, &Patch::Apply(&config_map)).await
        };
        let attempt = format!("write ConfigMap {}/{name}", self.namespace);
        let written = written.map_err(Error::kubernetes(attempt))?;
        *self.version() = written.metadata.resource_version;
        Ok(())
    }

    /// The last choice, of this process or of one before it.
    pub(super) async fn read_intent(&self) -> Result<Vec<Candidate>, Error> {
        let name = names::intent(&self.terms.stack_key);
        let found = self
            .intents()
            .get_opt(&name)
            .await
            .map_err(Error::kubernetes(format!("read ConfigMap {}/{name}", self.namespace)))?;
        *self.version() = found.as_ref().and_then(|config_map| config_map.metadata.resource_version.clone());
        let Some(jobs) = found.and_then(|config_map| config_map.data?.remove(intents::JOBS)) else {
            return Ok(Vec::new());
        };
        match serde_json::from_str(&jobs) {
            Ok(choice) => Ok(choice),
            Err(error) => {
                // Reservations lapse by themselves, so nothing is lost for good.
                tracing::warn!(%error, config_map = name, "the last choice of jobs is not readable and is ignored");
                Ok(Vec::new())
            }
        }
    }

    fn version(&self) -> MutexGuard<'_, Option<String>> {
        // Each change is a single step.
        self.version.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn intents(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::http::Method;
    use serde_json::json;

    use super::*;
    use crate::{
        api_server::{ApiServer, refusal},
        intake::fake::Fake,
        spawner::take::tests::{candidate, taker},
    };

    #[tokio::test]
    async fn a_choice_is_written_on_the_version_that_is_known() {
        let server = ApiServer::start(|call, before| match (&call.method, before) {
            (&Method::GET, 0) => refusal(404, "NotFound"),
            // Another replica has written meanwhile.
            (_, 3) => refusal(409, "Conflict"),
            (&Method::GET, _) => (200, json!({"metadata": {"name": "any", "resourceVersion": "other"}})),
            (_, before) => (200, json!({"metadata": {"name": "any", "resourceVersion": before.to_string()}})),
        })
        .await;
        let taker = Taker { is_fenced: true, ..taker(&server, Arc::new(Fake::default())) };
        taker.read_intent().await.unwrap();
        taker.write_intent(&[candidate(1)]).await.unwrap();
        taker.write_intent(&[candidate(2)]).await.unwrap();
        taker.write_intent(&[candidate(3)]).await.unwrap_err();
        taker.read_intent().await.unwrap();
        taker.write_intent(&[candidate(3)]).await.unwrap();
        let calls: Vec<_> = server
            .calls()
            .into_iter()
            .filter(|call| call.method != Method::GET)
            .map(|call| {
                (call.method, call.body["metadata"]["resourceVersion"].as_str().map(ToOwned::to_owned))
            })
            .collect();
        let on = |version: &str| (Method::PATCH, Some(version.to_owned()));
        assert_eq!(calls, [(Method::POST, None), on("1"), on("2"), on("other")]);
    }
}
