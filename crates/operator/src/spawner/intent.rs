//! The written choice: a small ConfigMap that says which jobs are about to be taken.

use std::collections::BTreeMap;

use bk_api::names;
use bk_plan::intake::Candidate;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api,
    api::{Patch, PatchParams},
};

use super::Spawner;
use crate::error::Error;

const KEY: &str = "jobs";

impl Spawner {
    /// Writes the choice down before anything follows from it.
    pub(super) async fn write_intent(&self, choice: &[Candidate]) -> Result<(), Error> {
        let name = names::intent(&self.offer.queue);
        // Candidates hold nothing but strings and numbers.
        let jobs = serde_json::to_string(choice).unwrap_or_default();
        let config_map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some(BTreeMap::from([(names::LABEL_COMPONENT.to_owned(), "intent".to_owned())])),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(KEY.to_owned(), jobs)])),
            ..ConfigMap::default()
        };
        self.intents()
            .patch(&name, &PatchParams::apply(names::FIELD_MANAGER).force(), &Patch::Apply(&config_map))
            .await
            .map_err(Error::kubernetes(format!("write ConfigMap {}/{name}", self.namespace)))?;
        Ok(())
    }

    /// The last choice, of this process or of one before it.
    pub(super) async fn read_intent(&self) -> Result<Vec<Candidate>, Error> {
        let name = names::intent(&self.offer.queue);
        let found = self
            .intents()
            .get_opt(&name)
            .await
            .map_err(Error::kubernetes(format!("read ConfigMap {}/{name}", self.namespace)))?;
        let Some(jobs) = found.and_then(|config_map| config_map.data?.remove(KEY)) else {
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

    fn intents(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}
