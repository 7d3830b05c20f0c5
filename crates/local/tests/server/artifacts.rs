//! Artifacts: announced, sent, reported, found, downloaded.

use reqwest::Method;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Rig};

const FORM: &str = "multipart/form-data; boundary=b";
const TWO: &str = "steps: [{label: one, key: first, command: x}, {label: two, key: second, command: x}]";

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

fn file(path: &str, bytes: &[u8]) -> Value {
    json!({
        "id": "", "job_id": "", "created_at": "0001-01-01T00:00:00Z",
        "path": path, "absolute_path": format!("/build/{path}"), "glob_path": "**/*", "file_size": bytes.len(),
        "sha1sum": hex(digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref()),
        "sha256sum": hex(digest(&SHA256, bytes).as_ref()), "content_type": "text/plain; charset=utf-8",
    })
}

/// A server with a running job.
struct Job {
    rig: Rig,
    build: String,
    id: String,
    token: String,
}

impl Job {
    async fn start() -> Self {
        Self::on(Rig::start().await).await
    }

    async fn on(rig: Rig) -> Self {
        let build = rig.build(TWO).await["id"].as_str().unwrap().to_owned();
        let id = rig.job_id("one").await;
        let (_, token) = rig.start_job(&id).await;
        Self { rig, build, id, token }
    }

    async fn create(&self, batch: Value) -> Answer {
        let path = format!("jobs/{}/artifacts", self.id);
        self.rig.v3(Method::POST, &path, &self.token, Some(batch)).await
    }

    async fn batch(&self, files: &[Value]) -> Value {
        let id = uuid::Uuid::new_v4();
        self.create(json!({"id": id, "upload_destination": "", "artifacts": files})).await.ok()
    }

    async fn send(&self, action: &Value, bytes: &[u8]) -> Answer {
        let mut body = b"--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nvalue\r\n\
            --b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a \xc3\xa9\"\r\n\
            Content-Type: application/octet-stream\r\n\r\n"
            .to_vec();
        body.extend(bytes);
        body.extend(b"\r\n--b--\r\n");
        assert_eq!(
            (action["url"].as_str(), action["file_input"].as_str()),
            (Some(&*self.rig.root), Some("file"))
        );
        let method = action["method"].as_str().unwrap().parse().unwrap();
        let request = self
            .rig
            .request(method, action["path"].as_str().unwrap())
            .header("Content-Type", "multipart/form-data; boundary=b")
            .body(body);
        self.rig.send(request).await
    }

    async fn report(&self, artifacts: Value) -> Answer {
        let path = format!("jobs/{}/artifacts", self.id);
        self.rig.v3(Method::PUT, &path, &self.token, Some(json!({"artifacts": artifacts}))).await
    }

    /// Uploads a file from beginning to end; returns its id.
    async fn upload(&self, path: &str, bytes: &[u8]) -> String {
        let batch = self.batch(&[file(path, bytes)]).await;
        let id = batch["artifact_ids"][0].as_str().unwrap().to_owned();
        self.send(&batch["per_artifact_instructions"][&id]["action"], bytes).await.ok();
        self.report(json!([{"id": id, "state": "finished"}])).await.ok();
        id
    }

    async fn search(&self, query: &str) -> Vec<Value> {
        let path = format!("builds/{}/artifacts/search?state=finished&{query}", self.build);
        self.rig.v3(Method::GET, &path, &self.token, None).await.ok().as_array().unwrap().clone()
    }

    async fn download(&self, url: &str, range: Option<&str>) -> Answer {
        let mut request = self.rig.request(Method::GET, url.strip_prefix(&self.rig.root).unwrap());
        if let Some(range) = range {
            request = request.header("Range", range);
        }
        self.rig.send(request).await
    }
}

fn paths(found: &[Value]) -> Vec<&str> {
    found.iter().map(|one| one["path"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_file_comes_back_as_it_went() {
    let job = Job::start().await;
    let id = job.upload("dir/a é.html", b"<p>hello").await;
    let found = job.search("query=*.html").await;
    assert_eq!(found.len(), 1);
    let artifact = &found[0];
    assert_eq!((artifact["id"].as_str(), artifact["job_id"].as_str()), (Some(&*id), Some(&*job.id)));
    assert_eq!(artifact["file_size"], 8);
    assert_eq!(artifact["sha1sum"].as_str().unwrap().len(), 40);
    assert!(artifact["created_at"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    assert!(artifact.get("upload_destination").is_none());
    let url = artifact["url"].as_str().unwrap();
    let got = job.download(url, None).await;
    assert_eq!((got.status.as_u16(), &got.body), (200, &json!("<p>hello")));
    assert_eq!(got.headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(got.headers["content-disposition"], "inline; filename*=UTF-8''a%20%C3%A9.html");
    assert_eq!(got.headers["x-content-type-options"], "nosniff");
    assert!(got.headers["content-security-policy"].to_str().unwrap().starts_with("sandbox;"));
    let part = job.download(url, Some("bytes=3-4")).await;
    assert_eq!((part.status.as_u16(), &part.body), (206, &json!("he")));
    job.download(&format!("{url}0"), None).await.refused(403);
    job.download(&url.replace("download", "upload"), None).await.refused(405);
}

#[tokio::test]
async fn a_batch_is_created_once() {
    let job = Job::start().await;
    let batch =
        json!({"id": "b1", "upload_destination": "", "artifacts": [file("a", b"a"), file("b", b"b")]});
    let first = job.create(batch.clone()).await.ok();
    let again = job.create(batch).await.ok();
    assert_eq!(first["artifact_ids"], again["artifact_ids"]);
    assert_eq!(first["artifact_ids"].as_array().unwrap().len(), 2);
    assert!(first["upload_instructions"]["action"].is_object());
    assert!(job.search("query=*").await.is_empty(), "nothing has come yet");
}

#[tokio::test]
async fn what_was_not_promised_is_refused() {
    let job = Job::start().await;
    let batch = job.batch(&[file("a", b"good"), file("b", b"b")]).await;
    let ids: Vec<&str> = batch["artifact_ids"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let action = &batch["per_artifact_instructions"][ids[0]]["action"];
    let finished = json!([{"id": ids[0], "state": "finished"}]);
    assert!(job.report(finished.clone()).await.refused(422).contains("have not come"));
    assert!(job.send(action, b"evil").await.refused(422).contains("SHA-1"));
    assert!(job.send(action, b"goo").await.refused(422).contains("size"));
    assert!(job.send(action, &vec![b'x'; 100_000]).await.refused(422).contains("more than the 4 bytes"));
    job.report(finished.clone()).await.refused(422);
    job.send(action, b"good").await.ok();
    job.send(action, b"good").await.ok();
    job.report(finished.clone()).await.ok();
    job.report(finished).await.ok();
    job.send(action, b"good").await.refused(422);
    job.report(json!([{"id": ids[1], "state": "error"}])).await.ok();
    job.report(json!([{"id": ids[1], "state": "finished"}])).await.refused(422);
    job.report(json!([{"id": ids[1], "state": "lost"}])).await.refused(422);
    job.report(json!([{"id": uuid::Uuid::now_v7(), "state": "finished"}])).await.refused(404);
    assert_eq!(paths(&job.search("query=*").await), ["a"]);
}

#[rstest]
#[case("../up")]
#[case("a/../../up")]
#[case("/etc/passwd")]
#[case("a\\..\\..\\up")]
#[case("C:\\windows")]
#[case("nul\0byte")]
#[case("")]
#[tokio::test]
async fn paths_that_lead_elsewhere_are_refused(#[case] path: &str) {
    let job = Job::start().await;
    let message =
        job.create(json!({"id": "b", "artifacts": [file("fine", b""), file(path, b"")]})).await.refused(422);
    assert!(message.contains("path"), "{message}");
    assert!(
        job.rig
            .v3(Method::GET, &format!("builds/{}/artifacts/search?query=*", job.build), &job.token, None)
            .await
            .ok()
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn unusual_names_are_kept() {
    let job = Job::start().await;
    let names = ["with space/ü 漢字 🎉.txt", "back\\slash.txt", "per%2E%cent?&#.txt", "quo\"te'.txt"];
    for name in names {
        job.upload(name, b"").await;
    }
    let found = job.search("query=*").await;
    assert_eq!(paths(&found), names);
    for artifact in found {
        let got = job.download(artifact["url"].as_str().unwrap(), None).await;
        assert_eq!(got.status.as_u16(), 200, "{artifact}");
    }
}

#[tokio::test]
async fn batches_have_limits() {
    let job = Job::on(Rig::with(|config| config.max_artifact_bytes = 10).await).await;
    let many: Vec<Value> = (0..31).map(|n| file(&n.to_string(), b"")).collect();
    job.create(json!({"id": "b", "artifacts": many})).await.refused(422);
    job.create(json!({"id": "b", "artifacts": []})).await.refused(422);
    job.create(json!({"id": "b", "artifacts": [file("a", b"eleven bytes")]})).await.refused(422);
    let mut wrong = file("a", b"");
    wrong["sha1sum"] = json!("xyz");
    job.create(json!({"id": "b", "artifacts": [wrong]})).await.refused(422);
    job.create(json!({"id": "b", "artifacts": "none"})).await.refused(422);
    let text = job
        .rig
        .request(Method::POST, &format!("/v3/jobs/{}/artifacts", job.id))
        .header("Authorization", format!("Token {}", job.token))
        .body("x");
    job.rig.send(text).await.refused(415);
    job.rig.finish_job(&job.id, &job.token, "0").await.ok();
    job.create(json!({"id": "b", "artifacts": [file("a", b"")]})).await.refused(422);
}

#[tokio::test]
async fn forms_that_are_none_are_refused() {
    let job = Job::start().await;
    let batch = job.batch(&[file("a", b"good")]).await;
    let id = batch["artifact_ids"][0].as_str().unwrap();
    let path = batch["per_artifact_instructions"][id]["action"]["path"].as_str().unwrap();
    let post = |kind: &'static str, body: Vec<u8>| {
        let request = job.rig.request(Method::POST, path).header("Content-Type", kind).body(body);
        job.rig.send(request)
    };
    post("text/plain", b"good".to_vec()).await.refused(400);
    post(FORM, b"nonsense".to_vec()).await.refused(400);
    post(FORM, b"--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\ngood\r\n--b--\r\n".to_vec())
        .await
        .refused(422);
    post(FORM, b"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\ngo".to_vec()).await.refused(400);
    // Headers without an end must not be gathered without an end.
    let mut endless = b"--b\r\nX: ".to_vec();
    endless.resize(8 * 1024 * 1024, b'x');
    post(FORM, endless).await.refused(400);
    let unsigned = format!("/_artifacts/{id}/upload/9999999999-00");
    job.rig.send(job.rig.request(Method::POST, &unsigned)).await.refused(403);
    job.report(json!([{"id": id, "state": "finished"}])).await.refused(422);
}

#[tokio::test]
async fn large_files_come_in_parts() {
    let job = Job::on(Rig::with(|config| config.multipart_from_bytes = 64 * 1024).await).await;
    let bytes: Vec<u8> = (0..100_003_u32).map(|n| (n % 251) as u8).collect();
    let batch = json!({"id": "b", "multipart_supported": true, "artifacts": [file("big", &bytes), file("small", b"s")]});
    let created = job.create(batch).await.ok();
    let id = created["artifact_ids"][0].as_str().unwrap();
    let small = created["artifact_ids"][1].as_str().unwrap();
    assert!(created["per_artifact_instructions"][small].get("actions").is_none());
    let actions = created["per_artifact_instructions"][id]["actions"].as_array().unwrap().clone();
    assert_eq!(actions.len(), 4);
    let (share, rest) = (bytes.len() / 4, bytes.len() % 4);
    let mut etags = Vec::new();
    let mut at = 0;
    for (index, action) in actions.iter().enumerate() {
        let size = share + usize::from(index < rest);
        let path = action["url"].as_str().unwrap().strip_prefix(&job.rig.root).unwrap();
        let put = |body: Vec<u8>| {
            job.rig
                .send(job.rig.request(action["method"].as_str().unwrap().parse().unwrap(), path).body(body))
        };
        put(b"short".to_vec()).await.refused(422);
        let answer = put(bytes[at..at + size].to_vec()).await;
        let etag = answer.headers["etag"].to_str().unwrap().to_owned();
        etags.push(json!({"part_number": action["part_number"], "etag": etag}));
        at += size;
    }
    let finished =
        |etags: Value| json!([{"id": id, "state": "finished", "multipart": true, "multipart_etags": etags}]);
    job.report(finished(json!(etags[1..]))).await.refused(422);
    let mut wrong = etags.clone();
    wrong[2]["etag"] = json!("\"0\"");
    assert!(job.report(finished(json!(wrong))).await.refused(422).contains("part 3"));
    job.report(finished(json!(etags))).await.ok();
    let found = job.search("query=big").await;
    let url = found[0]["url"].as_str().unwrap().strip_prefix(&job.rig.root).unwrap().to_owned();
    let got = job.rig.request(Method::GET, &url).send().await.unwrap().bytes().await.unwrap();
    assert!(got == bytes);
}

#[tokio::test]
async fn searches_keep_to_their_scope() {
    let job = Job::start().await;
    job.upload("log.txt", b"old").await;
    job.upload("log.txt", b"new!").await;
    let two = job.rig.job_id("two").await;
    let (_, token) = job.rig.start_job(&two).await;
    let other = Job { id: two.clone(), token, build: job.build.clone(), rig: job.rig };
    other.upload("sub/log.txt", b"").await;
    assert_eq!(paths(&other.search("query=*log.txt").await), ["log.txt", "sub/log.txt"]);
    assert_eq!(other.search("query=log.txt").await[0]["file_size"], 4);
    assert_eq!(other.search("query=*&include_duplicates=true").await.len(), 3);
    assert_eq!(paths(&other.search("query=*&scope=second").await), ["sub/log.txt"]);
    assert_eq!(paths(&other.search("query=*&scope=one").await), ["log.txt"]);
    assert_eq!(paths(&other.search(&format!("query=*&scope={two}")).await), ["sub/log.txt"]);
    assert!(other.search("query=*&scope=nobody").await.is_empty());
    assert!(other.search("query=nothing").await.is_empty());
    // The first job may neither report the second one's artifacts nor look into other builds.
    let foreign = format!("builds/{}/artifacts/search?query=*", uuid::Uuid::now_v7());
    other.rig.v3(Method::GET, &foreign, &other.token, None).await.refused(403);
    let theirs = other.search("query=sub*").await[0]["id"].clone();
    let report = json!({"artifacts": [{"id": theirs, "state": "error"}]});
    let path = format!("jobs/{}/artifacts", job.id);
    other.rig.v3(Method::PUT, &path, &job.token, Some(report.clone())).await.refused(404);
    other.rig.v3(Method::PUT, &path, &other.token, Some(report)).await.refused(403);
}

#[tokio::test]
async fn artifacts_of_retried_jobs_are_left_out() {
    let job = Job::start().await;
    job.upload("a", b"").await;
    job.rig.finish_job(&job.id, &job.token, "1").await.ok();
    job.rig.v2(Method::PUT, &format!("jobs/{}/retry", job.id), None).await.ok();
    assert!(job.search("query=*").await.is_empty());
    assert_eq!(job.search("query=*&include_retried_jobs=true").await.len(), 1);
}

#[tokio::test]
async fn buckets_are_remembered() {
    let job = Job::start().await;
    let mut artifact = file("a.txt", b"abc");
    artifact["url"] = json!("https://bucket.s3.amazonaws.com/prefix/a.txt");
    let batch = json!({"id": "b", "upload_destination": "s3://bucket/prefix", "artifacts": [artifact]});
    let created = job.create(batch).await.ok();
    job.report(json!([{"id": created["artifact_ids"][0], "state": "finished"}])).await.ok();
    let found = &job.search("query=*").await[0];
    assert_eq!(found["upload_destination"], "s3://bucket/prefix");
    assert_eq!(found["url"], "https://bucket.s3.amazonaws.com/prefix/a.txt");
}

#[tokio::test]
async fn artifacts_survive_a_restart_and_orphans_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("state.db");
    let depot = directory.path().join("state.db.artifacts");
    let job = Job::on(Rig::with(|config| config.database = Some(database.clone())).await).await;
    job.upload("a", b"kept").await;
    let (build, token) = (job.build.clone(), job.token.clone());
    job.rig.stop().await;
    let orphan = depot.join(uuid::Uuid::now_v7().to_string());
    std::fs::write(&orphan, "x").unwrap();
    std::fs::write(depot.join("incoming/torn"), "x").unwrap();
    let rig = Rig::with(|config| config.database = Some(database)).await;
    assert!(!orphan.exists() && !depot.join("incoming/torn").exists());
    let search = format!("builds/{build}/artifacts/search?query=a&state=finished");
    let found = rig.v3(Method::GET, &search, &token, None).await.ok();
    let url = found[0]["url"].as_str().unwrap().strip_prefix(&rig.root).unwrap();
    assert_eq!(rig.send(rig.request(Method::GET, url)).await.ok(), "kept");
}
