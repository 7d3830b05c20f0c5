//! What was answered with success is there, whatever happens to the process or the disk.
#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

/// How often the server is killed.
const KILLS: u64 = 5;
const WRITERS: usize = 4;

fn binary() -> PathBuf {
    assert_cmd::cargo::cargo_bin("buildkite-local")
}

/// The server as a process; killed without a chance to clean up when dropped.
struct Server {
    process: Child,
    root: String,
    http: Client,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Server {
    async fn start(mut command: Command, address: SocketAddr) -> Self {
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let http = bk_ops::http::client("test", Duration::from_secs(20)).unwrap();
        let server = Self { process, root: format!("http://{address}"), http };
        let started = Instant::now();
        while tokio::net::TcpStream::connect(address).await.is_err() {
            assert!(started.elapsed() < Duration::from_secs(30), "the server does not come up");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        server
    }

    async fn on_file(database: &Path) -> Self {
        let address = free_address();
        let mut command = Command::new(binary());
        command.args(["serve", "--listen", &address.to_string(), "--database"]).arg(database);
        Self::start(command, address).await
    }

    fn caller(&self) -> Caller {
        Caller { http: self.http.clone(), root: self.root.clone() }
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[derive(Clone)]
struct Caller {
    http: Client,
    root: String,
}

impl Caller {
    /// A call; `None` when there was no whole answer.
    async fn call(
        &self,
        method: Method,
        path: &str,
        token: &str,
        body: Value,
    ) -> Option<(StatusCode, Value)> {
        let mut request =
            self.http.request(method, format!("{}{path}", self.root)).header("Authorization", token);
        if !body.is_null() {
            request = request.json(&body);
        }
        let response = request.send().await.ok()?;
        let status = response.status();
        Some((status, response.json().await.ok()?))
    }

    async fn rest(&self, method: Method, path: &str, body: Value) -> Option<(StatusCode, Value)> {
        self.call(method, &format!("/v2/organizations/local/{path}"), "Bearer local-api-token", body).await
    }

    async fn v3(&self, method: Method, path: &str, token: &str, body: Value) -> Option<Value> {
        let (status, body) =
            self.call(method, &format!("/v3/{path}"), &format!("Token {token}"), body).await?;
        assert!(status.is_success(), "{path}: {status} {body}");
        Some(body)
    }

    async fn chunk(&self, job: &str, token: &str, number: usize, text: &str) -> Option<StatusCode> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        let size = text.len();
        let path = format!("/v3/jobs/{job}/chunks?sequence={number}&offset={}&size={size}", number * size);
        let request = self
            .http
            .post(format!("{}{path}", self.root))
            .header("Authorization", format!("Token {token}"))
            .header("Content-Encoding", "gzip")
            .body(encoder.finish().unwrap());
        Some(request.send().await.ok()?.status())
    }

    /// Registers an agent that acquires the job and starts it. Returns the job's token.
    async fn take(&self, job: &str) -> Option<String> {
        let agent = self.v3(Method::POST, "register", "local-agent-token", json!({"name": "x"})).await?;
        let access = agent["access_token"].as_str().unwrap();
        let acquired = self.v3(Method::PUT, &format!("jobs/{job}/acquire"), access, Value::Null).await?;
        let token = acquired["token"].as_str().unwrap().to_owned();
        self.v3(Method::PUT, &format!("jobs/{job}/start"), &token, json!({"started_at": ""})).await?;
        Some(token)
    }

    async fn pipeline(&self) {
        let pipeline = json!({
            "name": "demo", "repository": "https://git.local/demo.git", "configuration": "steps: [{command: x}]"
        });
        assert!(self.rest(Method::POST, "pipelines", pipeline).await.unwrap().0.is_success());
    }
}

/// What the server has promised to know.
#[derive(Debug, Default, Clone)]
struct Promise {
    number: i64,
    job: String,
    log: String,
    finished: bool,
}

type Promises = Arc<Mutex<Vec<Promise>>>;

/// Runs builds until the server is gone, and writes down what was answered with success.
async fn write(caller: Caller, promises: Promises) -> Option<()> {
    loop {
        let (status, build) =
            caller.rest(Method::POST, "pipelines/demo/builds", json!({"message": "m"})).await?;
        assert!(status.is_success(), "{status} {build}");
        let job = build["jobs"][0]["id"].as_str().unwrap().to_owned();
        let place = {
            let mut promises = promises.lock().unwrap();
            let number = build["number"].as_i64().unwrap();
            promises.push(Promise { number, job: job.clone(), ..Promise::default() });
            promises.len() - 1
        };
        let token = caller.take(&job).await?;
        for number in 0..3 {
            let line = format!("line {number} of {job}\n");
            assert_eq!(caller.chunk(&job, &token, number, &line).await?, StatusCode::OK);
            promises.lock().unwrap()[place].log += &line;
        }
        let ending = json!({"exit_status": "0", "finished_at": "", "chunks_failed_count": 0});
        caller.v3(Method::PUT, &format!("jobs/{job}/finish"), &token, ending).await?;
        promises.lock().unwrap()[place].finished = true;
    }
}

async fn check(caller: &Caller, promises: &[Promise]) {
    for promise in promises {
        let path = format!("pipelines/demo/builds/{}", promise.number);
        let (status, build) = caller.rest(Method::GET, &path, Value::Null).await.unwrap();
        assert_eq!(status, 200, "{promise:?}: {build}");
        assert_eq!(build["jobs"][0]["id"], promise.job.as_str());
        if promise.finished {
            assert_eq!(build["state"], "passed", "{promise:?}");
        }
        let path = format!("{path}/jobs/{}/log", promise.job);
        let (_, log) = caller.rest(Method::GET, &path, Value::Null).await.unwrap();
        let text = log["content"].as_str().unwrap();
        assert!(text.starts_with(&promise.log), "{promise:?}: {text:?}");
    }
}

fn integrity(database: &Path) {
    let connection = rusqlite::Connection::open(database).unwrap();
    let verdict: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    let loose: i64 =
        connection.query_row("SELECT COUNT(*) FROM pragma_foreign_key_check", [], |row| row.get(0)).unwrap();
    assert_eq!(loose, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_has_lost_nothing_that_it_answered() {
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("state.db");
    let promises = Promises::default();
    for round in 0..KILLS {
        let mut server = Server::on_file(&database).await;
        let caller = server.caller();
        if round == 0 {
            caller.pipeline().await;
        }
        let known = promises.lock().unwrap().clone();
        check(&caller, &known).await;
        let writers: Vec<_> =
            (0..WRITERS).map(|_| tokio::spawn(write(caller.clone(), promises.clone()))).collect();
        // Any moment will do; it differs from run to run.
        let nanos =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
        tokio::time::sleep(Duration::from_millis(150 + u64::from(nanos) % 500)).await;
        server.process.kill().unwrap();
        for writer in writers {
            assert!(writer.await.unwrap().is_none(), "a writer ends when the server does");
        }
        drop(server);
        let now = promises.lock().unwrap().len();
        assert!(now > known.len(), "something was written in round {round}");
    }
    let server = Server::on_file(&database).await;
    let known = promises.lock().unwrap().clone();
    check(&server.caller(), &known).await;
    drop(server);
    integrity(&database);
}

/// A server whose database is on a disk of two megabytes, most of them taken by a ballast file.
async fn on_small_disk(directory: &Path) -> Server {
    let address = free_address();
    // In a mount namespace of its own, so that nobody else sees the disk and nothing is left of it.
    let script = "mount -t tmpfs -o size=2m none \"$1\" && head -c 1400000 /dev/zero > \"$1/ballast\" \
                  && exec \"$2\" serve --listen \"$3\" --database \"$1/state.db\" --artifacts \"$4\"";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    command.arg(directory).arg(binary()).arg(address.to_string()).arg(directory.with_extension("artifacts"));
    Server::start(command, address).await
}

#[tokio::test]
async fn a_full_disk_gives_errors_and_the_server_goes_on_when_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let server = on_small_disk(&disk).await;
    let caller = server.caller();
    caller.pipeline().await;
    let mut kept = 0;
    let refusal = loop {
        let new = json!({"message": "x".repeat(10_000)});
        let (status, body) = caller.rest(Method::POST, "pipelines/demo/builds", new).await.unwrap();
        if !status.is_success() {
            break (status, body);
        }
        kept += 1;
        assert!(kept < 500, "the disk never fills up");
    };
    assert_eq!(refusal.0, StatusCode::INSUFFICIENT_STORAGE, "{}", refusal.1);
    assert!(refusal.1["message"].as_str().unwrap().contains("disk is full"), "{}", refusal.1);
    let last = format!("pipelines/demo/builds/{kept}");
    assert_eq!(caller.rest(Method::GET, &last, Value::Null).await.unwrap().0, 200, "what it has can be read");
    let ballast = format!("/proc/{}/root{}", server.process.id(), disk.join("ballast").display());
    std::fs::remove_file(ballast).unwrap();
    for more in 1..=3 {
        let new = json!({"message": "there is room again"});
        let (status, build) = caller.rest(Method::POST, "pipelines/demo/builds", new).await.unwrap();
        assert!(status.is_success(), "{status} {build}");
        assert_eq!(build["number"], kept + more, "nothing of a refused build is left");
    }
    let database = format!("/proc/{}/root{}", server.process.id(), disk.join("state.db").display());
    let copy = directory.path().join("copy.db");
    for end in ["", "-wal"] {
        std::fs::copy(format!("{database}{end}"), format!("{}{end}", copy.display())).unwrap();
    }
    integrity(&copy);
}

fn serve(database: &Path) -> Output {
    let mut command = Command::new(binary());
    command.args(["serve", "--listen", "127.0.0.1:0", "--database"]).arg(database).output().unwrap()
}

#[test]
fn a_file_that_is_no_database_of_ours_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("notes.txt");
    std::fs::write(&text, "these are my notes, ".repeat(500)).unwrap();
    let foreign = directory.path().join("foreign.db");
    rusqlite::Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE mine (x)").unwrap();
    let other = directory.path().join("other.db");
    let layout = "CREATE TABLE x (x); PRAGMA application_id = 1112230991; PRAGMA user_version = 99";
    rusqlite::Connection::open(&other).unwrap().execute_batch(layout).unwrap();
    let missing = directory.path().join("no/such/directory/state.db");
    for (file, reason) in [
        (&text, "it is no database, or it is damaged"),
        (&foreign, "it belongs to another program"),
        (&other, "it has layout 99"),
        (&missing, "unable to open database file"),
    ] {
        let before = std::fs::read(file).ok();
        let output = serve(file);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        assert!(message.contains(reason) && message.contains(file.to_str().unwrap()), "{message}");
        assert!(std::fs::read(file).ok() == before, "{} was changed", file.display());
    }
}
