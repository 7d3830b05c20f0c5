//! The GraphQL API, as test suites and job spawners use it.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{API, REGISTRATION, Rig};

const ONE: &str = "steps: [{label: one, key: k, command: x, agents: {queue: big}}]";

impl Rig {
    /// The data of an answer without errors.
    async fn graphql(&self, query: &str, variables: Value) -> Value {
        let mut answer = self.graphql_raw(query, &variables).await;
        assert!(answer.get("errors").is_none(), "{answer}");
        answer["data"].take()
    }

    async fn graphql_raw(&self, query: &str, variables: &Value) -> Value {
        let request = self.request(Method::POST, "/v1").bearer_auth(API);
        self.send(request.json(&json!({"query": query, "variables": variables}))).await.ok()
    }

    async fn graphql_error(&self, query: &str, variables: Value) -> String {
        let answer = self.graphql_raw(query, &variables).await;
        answer["errors"][0]["message"].as_str().unwrap_or_else(|| panic!("no error: {answer}")).to_owned()
    }
}

#[tokio::test]
async fn a_build_is_created_watched_and_canceled() {
    let rig = Rig::start().await;
    let create =
        "mutation($steps: String!) { pipelineCreate(input: {name: \"Demo\", repository: {url: \"r\"},
        steps: {yaml: $steps}}) { pipeline { id slug } } }";
    let made = rig.graphql(create, json!({"steps": ONE})).await;
    assert_eq!(made["pipelineCreate"]["pipeline"]["slug"], "demo");
    assert!(rig.graphql_error(create, json!({"steps": ONE})).await.contains("exists already"));
    assert!(rig.graphql_error(create, json!({"steps": "steps: 1"})).await.contains("invalid"));
    let id = &made["pipelineCreate"]["pipeline"]["id"];
    let create = "mutation($input: BuildCreateInput!) { buildCreate(input: $input) { clientMutationId build {
        id uuid number state branch env message metaData(first: 1) { count edges { node { key value } } }
        jobs(first: 100) { count edges { node { __typename ... on JobTypeCommand {
            uuid label command state exitStatus agentQueryRules step { key } } } } } } } }";
    let input = json!({"clientMutationId": "m", "pipelineID": id, "commit": "HEAD", "branch": "b", "message": "hi",
        "author": {"name": "Ada", "email": "a@b"}, "env": ["A=1=2"], "metaData": [{"key": "k", "value": "v"}]});
    let made = rig.graphql(create, json!({"input": input})).await;
    assert_eq!(made["buildCreate"]["clientMutationId"], "m");
    let build = &made["buildCreate"]["build"];
    assert_eq!((&build["number"], &build["state"]), (&json!(1), &json!("SCHEDULED")));
    assert_eq!((&build["env"], &build["branch"]), (&json!(["A=1=2"]), &json!("b")));
    assert_eq!(build["metaData"]["edges"][0]["node"], json!({"key": "k", "value": "v"}));
    let job = &build["jobs"]["edges"][0]["node"];
    let uuid = job["uuid"].as_str().unwrap();
    assert_eq!(
        *job,
        json!({"__typename": "JobTypeCommand", "uuid": uuid, "label": "one", "command": "x",
        "state": "SCHEDULED", "exitStatus": null, "agentQueryRules": ["queue=big"], "step": {"key": "k"}})
    );
    let cancel = "mutation($id: ID!) { buildCancel(input: {id: $id}) { build { state } } }";
    let canceled = rig.graphql(cancel, json!({"id": build["id"]})).await;
    assert_eq!(canceled["buildCancel"]["build"]["state"], "CANCELED");
    let again = rig.graphql_error(cancel, json!({"id": build["id"]})).await;
    assert!(again.contains("already finished"), "{again}");
    let unknown = json!({"id": "00000000-0000-0000-0000-000000000000"});
    assert_eq!(rig.graphql_error(cancel, unknown).await, "No build found");
    let by_slug = rig.graphql("{ build(slug: \"local/demo/1\") { uuid state url } }", json!({})).await;
    assert_eq!(by_slug["build"]["uuid"], build["uuid"]);
    let rebuild = "mutation($id: ID!) { buildRebuild(input: {id: $id}) { build { number } } }";
    let repeated = rig.graphql(rebuild, json!({"id": build["id"]})).await;
    assert_eq!(repeated["buildRebuild"]["build"]["number"], 2);
    let delete = "mutation($id: ID!) { pipelineDelete(input: {id: $id}) { deletedPipelineID } }";
    assert_eq!(rig.graphql(delete, json!({"id": id})).await["pipelineDelete"]["deletedPipelineID"], *id);
    assert!(rig.graphql("{ pipeline(slug: \"local/demo\") { id } }", json!({})).await["pipeline"].is_null());
}

#[tokio::test]
async fn jobs_are_found_by_state_and_rules_in_pages() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: a, command: x, agents: {queue: big}, priority: 1}, {label: b, command: x, agents: {queue: big},
        priority: 2}, {label: c, command: x}, wait]").await;
    let query = "query($after: String, $rules: [String!]) { organization(slug: \"local\") { jobs(type: [COMMAND],
        state: [SCHEDULED], agentQueryRules: $rules, first: 1, after: $after, order: RECENTLY_ASSIGNED, clustered: true) {
        count pageInfo { hasNextPage endCursor } edges { node { ... on JobTypeCommand { label priority { number }
            build { number pipeline { slug } } } } } } } }";
    let first = rig.graphql(query, json!({"rules": ["queue=big"]})).await;
    let page = &first["organization"]["jobs"];
    assert_eq!((&page["count"], &page["pageInfo"]["hasNextPage"]), (&json!(2), &json!(true)));
    assert_eq!(page["edges"][0]["node"]["label"], "b");
    let second =
        rig.graphql(query, json!({"rules": ["queue=big"], "after": page["pageInfo"]["endCursor"]})).await;
    let page = &second["organization"]["jobs"];
    assert_eq!(page["edges"][0]["node"]["label"], "a");
    assert_eq!(
        (&page["edges"][0]["node"]["build"]["pipeline"]["slug"], &page["pageInfo"]["hasNextPage"]),
        (&json!("demo"), &json!(false))
    );
    assert_eq!(rig.graphql(query, json!({"rules": null})).await["organization"]["jobs"]["count"], 3);
    let builds = "{ pipeline(slug: \"local/demo\") { builds(state: [SCHEDULED, RUNNING], first: 1) { edges { node { number
        jobs(type: [WAIT]) { count } } } } } organization(slug: \"local\") { pipelines(search: \"DEM\", first: 9) { count } } }";
    let found = rig.graphql(builds, json!({})).await;
    assert_eq!(found["pipeline"]["builds"]["edges"][0]["node"], json!({"number": 1, "jobs": {"count": 1}}));
    assert_eq!(found["organization"]["pipelines"]["count"], 1);
    assert!(
        rig.graphql("{ organization(slug: \"other\") { id } }", json!({})).await["organization"].is_null()
    );
}

#[tokio::test]
async fn jobs_tell_what_stacks_said_and_are_retried_and_unblocked() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}, {block: Go, fields: [{text: Who, key: who}]}]").await;
    let id = rig.job_id("one").await;
    let stack = json!({"key": "s", "type": "custom", "queue_key": "default", "metadata": {}});
    rig.v3(Method::POST, "stacks/register", REGISTRATION, Some(stack)).await.ok();
    let finish = json!({"exit_status": -1, "detail": "no such image"});
    rig.v3(Method::POST, &format!("stacks/s/jobs/{id}/finish"), REGISTRATION, Some(finish)).await.ok();
    let events = "query($uuid: ID!) { job(uuid: $uuid) { ... on JobTypeCommand { state exitStatus passed events(last: 5) {
        edges { node { type timestamp ... on JobEventStackError { errorDetail } } } } } } }";
    let job = rig.graphql(events, json!({"uuid": id})).await["job"].take();
    assert_eq!(
        (&job["state"], &job["exitStatus"], &job["passed"]),
        (&json!("FINISHED"), &json!("-1"), &json!(false))
    );
    let event = &job["events"]["edges"][0]["node"];
    assert_eq!((&event["type"], &event["errorDetail"]), (&json!("STACK_ERROR"), &json!("no such image")));
    let retry = "mutation($id: ID!) { jobTypeCommandRetry(input: {id: $id}) { jobTypeCommand { uuid state retriesCount } } }";
    let retried = rig.graphql(retry, json!({"id": id})).await["jobTypeCommandRetry"]["jobTypeCommand"].take();
    assert_ne!(retried["uuid"], id);
    assert_eq!((&retried["state"], &retried["retriesCount"]), (&json!("SCHEDULED"), &json!(1)));
    let next = retried["uuid"].as_str().unwrap();
    let (_, token) = rig.start_job(next).await;
    let agents = rig.graphql("{ organization(slug: \"local\") { agents { edges { node { hostname isRunningJob job { ... on JobTypeCommand { uuid } } } } } } }", json!({})).await;
    let agent = &agents["organization"]["agents"]["edges"][0]["node"];
    assert_eq!((&agent["isRunningJob"], &agent["job"]["uuid"]), (&json!(true), &json!(next)));
    rig.finish_job(next, &token, "0").await.ok();
    let block = "{ build(slug: \"local/demo/1\") { jobs(type: [BLOCK]) { edges { node { ... on JobTypeBlock { id state isUnblockable } } } } } }";
    let gate = rig.graphql(block, json!({})).await["build"]["jobs"]["edges"][0]["node"].take();
    assert_eq!((&gate["state"], &gate["isUnblockable"]), (&json!("BLOCKED"), &json!(true)));
    let unblock = "mutation($id: ID!, $fields: JSON) { jobTypeBlockUnblock(input: {id: $id, fields: $fields}) { jobTypeBlock { state } } }";
    let done = rig.graphql(unblock, json!({"id": gate["id"], "fields": {"who": "me"}})).await;
    assert_eq!(done["jobTypeBlockUnblock"]["jobTypeBlock"]["state"], "UNBLOCKED");
    let told = rig
        .graphql(
            "{ build(slug: \"local/demo/1\") { state metaData { edges { node { value } } } } }",
            json!({}),
        )
        .await;
    assert_eq!(told["build"]["metaData"]["edges"][0]["node"]["value"], "me");
}

/// The query that spawners outside clusters list jobs with.
const SCHEDULED: &str = "query($slug: ID!, $rules: [String!], $first: Int!, $after: String) { organization(slug: $slug) {
    jobs(type: [COMMAND], state: [SCHEDULED], clustered: false, agentQueryRules: $rules, order: RECENTLY_ASSIGNED,
        first: $first, after: $after) { pageInfo { hasNextPage endCursor } edges { node { ... on JobTypeCommand {
        uuid agentQueryRules scheduledAt priority { number } pipeline { slug } } } } } } }";

#[tokio::test]
async fn jobs_outside_clusters_are_found_with_all_that_an_agent_would_see() {
    let rig = Rig::with(|config| config.unclustered = true).await;
    let token = rig.v3(Method::GET, "token", REGISTRATION, None).await.ok();
    assert_eq!((&token["cluster_uuid"], &token["organization_slug"]), (&Value::Null, &json!("local")));
    let stack = json!({"key": "s", "type": "custom", "queue_key": "default", "metadata": {}});
    rig.v3(Method::POST, "stacks/register", REGISTRATION, Some(stack)).await.refused(422);

    rig.build(
        "steps: [{label: one, command: make, env: {A: '1=2'}, agents: {queue: big, os: linux}, priority: 2,
        plugins: [{kubernetes: {podSpec: {}}}]}, {label: two, command: x, agents: {queue: small}}]",
    )
    .await;
    let variables = json!({"slug": "local", "rules": ["queue=big"], "first": 100});
    let jobs = rig.graphql(SCHEDULED, variables.clone()).await["organization"]["jobs"].take();
    let (id, node) = (rig.job_id("one").await, &jobs["edges"][0]["node"]);
    assert_eq!(
        (jobs["edges"].as_array().unwrap().len(), &jobs["pageInfo"]["hasNextPage"]),
        (1, &json!(false))
    );
    assert_eq!((&node["uuid"], &node["agentQueryRules"]), (&json!(id), &json!(["queue=big", "os=linux"])));
    assert_eq!((&node["priority"]["number"], &node["pipeline"]["slug"]), (&json!(2), &json!("demo")));

    let query = "query($uuid: ID!) { job(uuid: $uuid) { ... on JobTypeCommand { state command env } } }";
    let job = rig.graphql(query, json!({"uuid": id})).await["job"].take();
    assert_eq!((&job["state"], &job["command"]), (&json!("SCHEDULED"), &json!("make")));
    let env: Vec<&str> = job["env"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let job_id = format!("BUILDKITE_JOB_ID={id}");
    for expected in ["A=1=2", "BUILDKITE_PIPELINE_SLUG=demo", "BUILDKITE_COMMAND=make", job_id.as_str()] {
        assert!(env.contains(&expected), "{expected} in {env:?}");
    }
    let plugins = env.iter().find_map(|variable| variable.strip_prefix("BUILDKITE_PLUGINS=")).unwrap();
    assert!(plugins.contains("\"podSpec\""), "{plugins}");

    let (_, token) = rig.start_job(&id).await;
    let left = rig.graphql(SCHEDULED, variables).await["organization"]["jobs"]["edges"].take();
    assert_eq!(left, json!([]), "a job that an agent has waits no more");
    let states = format!(
        "{{ a: job(uuid: \"{id}\") {{ ... on JobTypeCommand {{ state }} }} b: job(uuid: \"{}\") {{
        ... on JobTypeCommand {{ state }} }} }}",
        uuid::Uuid::nil()
    );
    assert_eq!(rig.graphql(&states, json!({})).await, json!({"a": {"state": "RUNNING"}, "b": null}));
    rig.finish_job(&id, &token, "0").await.ok();
}

#[tokio::test]
async fn jobs_in_clusters_are_not_outside() {
    let rig = Rig::start().await;
    rig.build("steps: [{command: x}]").await;
    let found = rig.graphql(SCHEDULED, json!({"slug": "local", "first": 100})).await;
    assert_eq!(found["organization"]["jobs"]["edges"], json!([]));
}

#[tokio::test]
async fn strangers_and_monsters_are_refused() {
    let rig = Rig::start().await;
    let query = json!({"query": "{ organization(slug: \"local\") { slug } }"});
    for path in ["/v1", "/v1/graphql", "/graphql"] {
        let post = || rig.request(Method::POST, path).json(&query);
        assert_eq!(rig.send(post().bearer_auth(API)).await.ok()["data"]["organization"]["slug"], "local");
        rig.send(post()).await.refused(401);
        rig.send(post().bearer_auth(REGISTRATION)).await.refused(401);
    }
    let text = rig.request(Method::POST, "/v1").bearer_auth(API).header("Content-Type", "application/json");
    rig.send(text.body("{")).await.refused(400);
    assert!(rig.graphql_error("{ nothing }", json!({})).await.contains("nothing"));
    assert!(!rig.graphql_error("{", json!({})).await.is_empty());
    let deep = format!(
        "{{ pipeline(slug: \"local/demo\") {} id {} }}",
        "{ organization { pipelines { edges { node".repeat(6),
        "} } } }".repeat(6)
    );
    assert_eq!(rig.graphql_error(&deep, json!({})).await, "Query is nested too deep.");
    let fields: Vec<_> =
        (0..1500).map(|n| format!("a{n}: organization(slug: \"local\") {{ slug }}")).collect();
    let wide = format!("{{ {} }}", fields.join(" "));
    assert_eq!(rig.graphql_error(&wide, json!({})).await, "Query is too complex.");
    let introspection =
        "{ __schema { types { name kind fields { name args { name type { name ofType { name } } } } } } }";
    let types = rig.graphql(introspection, json!({})).await["__schema"]["types"].take();
    let names: Vec<_> = types.as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    for name in
        ["Build", "BuildStates", "JobTypeCommand", "JobConnection", "JobEventStackError", "Organization"]
    {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
}
