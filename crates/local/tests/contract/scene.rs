//! A server with something going on, and calls whose paths and bodies name the parts of it.

use std::collections::BTreeMap;

use buildkite_local::Faults;
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{API, Answer, REGISTRATION, Rig};

/// The pipeline of every scene.
const PIPELINE: &str = "
steps:
  - {label: one, key: one.key, command: x, timeout_in_minutes: 5}
  - {label: two, command: x}
  - {label: three, command: x}
  - {label: four, command: x, soft_fail: true, retry: {manual: {permit_on_passed: true}}}
  - {label: five, command: x, agents: {queue: ping}}
  - {label: six, command: x}
  - wait
  - {label: later, command: x}
  - {block: gate, key: gate}
";

/// What a caller shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    /// The registration token.
    Registration,
    /// The access token of the agent that has the job.
    Access,
    /// The job's token.
    Job,
    /// The access token of an agent with another job.
    OtherAccess,
    /// The token of another job.
    OtherJob,
    /// The token of a job of another build.
    Foreign,
    /// The access token of the agent that was offered a job by ping.
    Pinged,
    /// The API token, as the REST API wants it.
    Api,
    /// The API token in the place of an agent's.
    ApiMisplaced,
    /// The registration token in the place of the API's.
    RegistrationMisplaced,
    /// Something that was never a token.
    Nonsense,
    /// None at all.
    Absent,
}

impl Token {
    pub(crate) const ALL: [Self; 12] = [
        Self::Registration,
        Self::Access,
        Self::Job,
        Self::OtherAccess,
        Self::OtherJob,
        Self::Foreign,
        Self::Pinged,
        Self::Api,
        Self::ApiMisplaced,
        Self::RegistrationMisplaced,
        Self::Nonsense,
        Self::Absent,
    ];
}

/// A server where:
/// - job `{one}` runs with tokens [`Token::Access`] and [`Token::Job`], job `{two}` with the others';
/// - `{three}` is scheduled, `{accepted}` has an agent that has not started it, `{five}` was offered by ping;
/// - `{four}` has failed softly, `{later}` waits, `{gate}` will block;
/// - `{foreign}` runs in another build;
/// - the stack `mine` is registered.
pub(crate) struct Scene {
    pub(crate) rig: Rig,
    names: BTreeMap<&'static str, String>,
    tokens: BTreeMap<&'static str, String>,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        let rig = Rig::with(|config| {
            config.faults = Some(Faults::default());
            // The tables call faster than stacks may.
            config.rate_limits = false;
        })
        .await;
        let build = rig.build(PIPELINE).await;
        let mut names = BTreeMap::new();
        let ids = [("one", "one"), ("two", "two"), ("three", "three"), ("four", "four"), ("five", "five")];
        for (name, label) in ids.into_iter().chain([("accepted", "six"), ("later", "later")]) {
            names.insert(name, rig.job_id(label).await);
        }
        let gate = build["jobs"].as_array().unwrap().iter().find(|job| job["step_key"] == "gate").unwrap();
        names.insert("gate", gate["id"].as_str().unwrap().to_owned());
        names.insert("build", build["id"].as_str().unwrap().to_owned());
        names.insert("unknown", uuid::Uuid::now_v7().to_string());
        names.insert("upload", uuid::Uuid::now_v7().to_string());
        let mut tokens = BTreeMap::new();
        let (access, job) = rig.start_job(&names["one"]).await;
        let (other_access, other_job) = rig.start_job(&names["two"]).await;
        let (_, failed) = rig.start_job(&names["four"]).await;
        rig.finish_job(&names["four"], &failed, "1").await.ok();
        let path = format!("jobs/{}/acquire", names["accepted"]);
        let accepting = rig.agent().await;
        rig.v3(Method::PUT, &path, &accepting, None).await.ok();
        let register = json!({"name": "pinged", "meta_data": ["queue=ping"]});
        let pinged = rig.v3(Method::POST, "register", REGISTRATION, Some(register)).await.ok();
        names.insert("agent", pinged["id"].as_str().unwrap().to_owned());
        let pinged = pinged["access_token"].as_str().unwrap().to_owned();
        let offer = rig.v3(Method::GET, "ping", &pinged, None).await.ok();
        assert_eq!(offer["job"]["id"], names["five"]);
        let stack = json!({"key": "mine", "type": "custom", "queue_key": "default", "metadata": {}});
        rig.v3(Method::POST, "stacks/register", REGISTRATION, Some(stack)).await.ok();
        let foreign = rig.v2(Method::POST, "pipelines/demo/builds", Some(json!({}))).await.ok();
        let foreign = foreign["jobs"][0]["id"].as_str().unwrap().to_owned();
        let (_, foreign_token) = rig.start_job(&foreign).await;
        names.insert("foreign", foreign);
        let clusters = rig.v2(Method::GET, "clusters", None).await.ok();
        let cluster = clusters[0]["id"].as_str().unwrap().to_owned();
        let queues = rig.v2(Method::GET, &format!("clusters/{cluster}/queues"), None).await.ok();
        names.insert("queue", queues[0]["id"].as_str().unwrap().to_owned());
        names.insert("cluster", cluster);
        for (name, token) in [
            ("access", access),
            ("job", job),
            ("other_access", other_access),
            ("other_job", other_job),
            ("foreign", foreign_token),
            ("pinged", pinged),
            ("accepting", accepting),
        ] {
            tokens.insert(name, token);
        }
        Self { rig, names, tokens }
    }

    /// Replaces `{one}` and the like.
    pub(crate) fn fill(&self, text: &str) -> String {
        self.names
            .iter()
            .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    }

    fn authorization(&self, token: Token) -> Option<String> {
        let agent = |name: &str| Some(format!("Token {}", self.tokens[name]));
        match token {
            Token::Registration => Some(format!("Token {REGISTRATION}")),
            Token::Access => agent("access"),
            Token::Job => agent("job"),
            Token::OtherAccess => agent("other_access"),
            Token::OtherJob => agent("other_job"),
            Token::Foreign => agent("foreign"),
            Token::Pinged => agent("pinged"),
            Token::Api => Some(format!("Bearer {API}")),
            Token::ApiMisplaced => Some(format!("Token {API}")),
            Token::RegistrationMisplaced => Some(format!("Bearer {REGISTRATION}")),
            Token::Nonsense => Some("Token nonsense".to_owned()),
            Token::Absent => None,
        }
    }

    /// A call as a client makes it; the body is JSON when there is one.
    pub(crate) async fn call(&self, method: &str, path: &str, token: Token, body: &str) -> Answer {
        let json = if body.is_empty() { &[][..] } else { &[("Content-Type", "application/json")] };
        self.send(method, path, token, json, body.as_bytes().to_vec()).await
    }

    /// A call with headers and a body of any kind.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        token: Token,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Answer {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.rig.request(method, &self.fill(path));
        if let Some(authorization) = self.authorization(token) {
            request = request.header("Authorization", authorization);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match String::from_utf8(body) {
            Ok(text) => self.fill(&text).into_bytes(),
            Err(bytes) => bytes.into_bytes(),
        };
        if !body.is_empty() {
            request = request.body(body);
        }
        self.rig.send(request).await
    }
}

/// Whether an answer is a refusal in the server's form.
pub(crate) fn is_refusal(answer: &Answer) -> bool {
    let message = answer.body["message"].as_str().unwrap_or_default();
    let kind = answer.headers.get("content-type").map(|value| value.to_str().unwrap());
    !message.is_empty() && matches!(&answer.body, Value::Object(_)) && kind == Some("application/json")
}
