//! Events where somebody has to do something.

use bk_api::{config::Config, names};
use bk_buildkite::stacks::crop;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ObjectReference, Secret},
};
use kube::{
    Api, Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use crate::settings::Deployed;

/// Publishes Events about the operator itself: on its Deployment, or on the agent token's Secret if it has none. Cheap to clone.
#[derive(Clone)]
pub struct Announcer {
    client: Client,
    reporter: Reporter,
    recorder: Recorder,
    deployed: Option<Deployed>,
    namespace: String,
    secret: String,
}

impl Announcer {
    /// An announcer for an operator of this Deployment, if any, whose jobs are in this namespace.
    pub fn new(client: Client, deployed: Option<Deployed>, namespace: &str, config: &Config) -> Self {
        let reporter = Reporter { controller: names::FIELD_MANAGER.to_owned(), instance: None };
        Self {
            recorder: Recorder::new(client.clone(), reporter.clone()),
            reporter,
            client,
            deployed,
            namespace: namespace.to_owned(),
            secret: config.pods.agent_token_secret.clone(),
        }
    }

    /// Publishes a warning some time soon. Whoever warns has something better to do than to wait for it.
    pub fn warn(&self, reason: &'static str, note: &str) {
        let event = event(EventType::Warning, reason, note, "TakingJobs");
        let announcer = self.clone();
        in_the_background(async move { announcer.publish(&event).await });
    }

    /// Publishes what is to be known about an object some time soon.
    pub fn tell(&self, subject: ObjectReference, type_: EventType, reason: &str, note: &str) {
        let event = event(type_, reason, note, "Configuring");
        // One that remembers would count this as the last Event for the same reason, and keep the note of that.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        in_the_background(async move { recorder.publish(&event, &subject).await });
    }

    async fn publish(&self, event: &Event) -> Result<(), kube::Error> {
        match self.subject().await? {
            Some(subject) => self.recorder.publish(event, &subject).await,
            // There is nothing to see the Event on.
            None => Ok(()),
        }
    }

    async fn subject(&self) -> Result<Option<ObjectReference>, kube::Error> {
        if let Some(Deployed { namespace, name }) = &self.deployed {
            let api = Api::<Deployment>::namespaced(self.client.clone(), namespace);
            return Ok(api.get_opt(name).await?.map(|deployment| deployment.object_ref(&())));
        }
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        Ok(api.get_opt(&self.secret).await?.map(|secret| secret.object_ref(&())))
    }
}

fn event(type_: EventType, reason: &str, note: &str, action: &str) -> Event {
    Event {
        type_,
        reason: reason.to_owned(),
        note: Some(crop(note, 1024)),
        action: action.to_owned(),
        secondary: None,
    }
}

fn in_the_background(publishing: impl Future<Output = Result<(), kube::Error>> + Send + 'static) {
    tokio::spawn(async move {
        if let Err(error) = publishing.await {
            tracing::warn!(error = %bk_ops::report::one_line(&error), "cannot publish an event");
        }
    });
}
