//! Credentials, and servers that do not answer.

use std::{collections::BTreeMap, fs, time::Duration};

use bk_mirrors::{access::Access, address::Address, mirror};

use crate::{origin::Origin, scene::Scene};

fn entries(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
}

#[tokio::test]
async fn a_private_repository_is_mirrored_and_the_password_is_nowhere() {
    let scene = Scene::of(Origin::with_login(Some("me:pa ss/word")).await);
    scene.origin.create("app");
    let error = scene.sync("app").await.unwrap_err();
    assert!(error.to_string().contains("could not read Username"), "{error}");

    let private = tempfile::tempdir().unwrap();
    let host = scene.origin.url("").trim_start_matches("http://").trim_end_matches("/.git").to_owned();
    let store = format!("http://me:pa%20ss%2Fword@{host}\n");
    let in_address = scene.origin.url("app").replace("http://", "http://me:pa%20ss%2Fword@");
    let cases = [
        (scene.origin.url("app"), Some(entries(&[("username", "me"), ("password", "pa ss/word")]))),
        (scene.origin.url("app"), Some(entries(&[(".git-credentials", &store)]))),
        (
            scene.origin.url("app").replace("http://", "http://me@"),
            Some(entries(&[("password", "pa ss/word")])),
        ),
    ];
    for (url, https) in cases {
        let address = Address::parse(&url).unwrap();
        let access = Access::new(&address, None, https.as_ref(), private.path()).unwrap();
        let order = mirror::Order { address, access, ..scene.order("app") };
        let outcome = mirror::sync(scene.mirrors.path(), &order, scene.rules, scene.now).await.unwrap();
        assert!(outcome.record.head.is_some());
    }
    assert_eq!(Address::parse(&in_address).unwrap().directory(), scene.address("app").directory());
    let wrong = entries(&[("username", "me"), ("password", "wrong-one")]);
    let access = Access::new(&scene.address("app"), None, Some(&wrong), private.path()).unwrap();
    let order = mirror::Order { access, ..scene.order("app") };
    let error = mirror::sync(scene.mirrors.path(), &order, scene.rules, scene.now).await.unwrap_err();
    assert!(!error.to_string().contains("wrong-one"), "{error}");
    drop(order);

    assert_eq!(fs::read_dir(private.path()).unwrap().count(), 0, "private files are gone");
    let mut seen = 0;
    for_each_file(scene.mirrors.path(), &mut |bytes| {
        seen += 1;
        for secret in ["pa ss", "pa%20ss", "me@", "wrong-one"] {
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{secret}");
        }
    });
    assert!(seen > 5, "there are files to look into");
}

fn for_each_file(directory: &std::path::Path, look: &mut impl FnMut(&[u8])) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            for_each_file(&path, look);
        } else {
            look(&fs::read(&path).unwrap());
        }
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up_and_nothing_runs_on() {
    let mut scene = Scene::new().await;
    scene.origin.create("app");
    scene.sync("app").await.unwrap();
    scene.origin.fall_silent();
    scene.rules.timeout = Duration::from_secs(1);
    let began = std::time::Instant::now();
    let error = scene.sync("app").await.unwrap_err();
    assert_eq!(error.to_string(), "git fetch took longer than 1 s");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let repository = scene.repository("app").display().to_string();
    // The signal has been sent; how soon the kernel has ended them is its own affair.
    let patience = std::time::Instant::now() + Duration::from_secs(20);
    while !processes_with(&repository).is_empty() {
        assert!(std::time::Instant::now() < patience, "git's helpers have ended too");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(scene.place("app").read().unwrap().is_some(), "the mirror is as it was");
}

/// Processes whose environment speaks of a directory.
fn processes_with(text: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let is_ended = fs::read_to_string(entry.path().join("stat")).is_ok_and(|stat| stat.contains(") Z "));
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let mentions = environment.windows(text.len()).any(|part| part == text.as_bytes());
        if entry.file_name().to_string_lossy() != own && mentions && !is_ended {
            found.push(entry.path().display().to_string());
        }
    }
    found
}

/// ssh with a key of its own against a real sshd, where there is one.
#[tokio::test]
async fn a_repository_behind_ssh_is_mirrored_with_the_key_of_its_secret() {
    let Some(server) = Sshd::start() else { return };
    let scene = Scene::new().await;
    let app = scene.origin.create("app");
    let path = app.directory.with_extension("git").display().to_string();
    let url = format!("ssh://{}@127.0.0.1:{}{path}", server.user, server.port);
    let address = Address::parse(&url).unwrap();
    let secret = entries(&[("ssh-privatekey", server.key.trim_end()), ("known_hosts", &server.known_hosts)]);
    let private = tempfile::tempdir().unwrap();
    let access = Access::new(&address, Some(&secret), None, private.path()).unwrap();
    let order = mirror::Order { address: address.clone(), access, ..scene.order("app") };
    let outcome = mirror::sync(scene.mirrors.path(), &order, scene.rules, scene.now).await.unwrap();
    assert!(outcome.record.head.is_some());

    let stranger =
        entries(&[("ssh-privatekey", &server.key), ("known_hosts", "other.example.com ssh-ed25519 AAAA")]);
    let access = Access::new(&address, Some(&stranger), None, private.path()).unwrap();
    let order = mirror::Order { address, access, ..scene.order("app") };
    let error = mirror::sync(scene.mirrors.path(), &order, scene.rules, scene.now).await.unwrap_err();
    assert!(error.to_string().contains("Host key verification failed"), "{error}");
}

/// A server for ssh that lets one key in.
struct Sshd {
    user: String,
    port: u16,
    key: String,
    known_hosts: String,
    process: std::process::Child,
    _directory: tempfile::TempDir,
}

impl Sshd {
    fn start() -> Option<Self> {
        use std::process::{Command, Stdio};
        let sshd = "/usr/sbin/sshd";
        // As another user than root it could not let anybody in, and root needs this directory.
        let user =
            String::from_utf8(Command::new("id").arg("-un").output().ok()?.stdout).ok()?.trim().to_owned();
        if !std::path::Path::new(sshd).exists() || user != "root" || fs::create_dir_all("/run/sshd").is_err()
        {
            return None;
        }
        let directory = tempfile::tempdir().ok()?;
        let at = |name: &str| directory.path().join(name).display().to_string();
        for name in ["host", "client"] {
            let made =
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &at(name)]).status();
            assert!(made.ok()?.success());
        }
        fs::copy(at("client.pub"), at("authorized_keys")).ok()?;
        let port = std::net::TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nPidFile none\n\
             PermitRootLogin yes\nUsePAM no\nPasswordAuthentication no\n",
            at("host"),
            at("authorized_keys")
        );
        fs::write(at("config"), config).ok()?;
        let process =
            Command::new(sshd).args(["-D", "-f", &at("config")]).stderr(Stdio::null()).spawn().ok()?;
        let public = fs::read_to_string(at("host.pub")).ok()?;
        let known_hosts = format!("[127.0.0.1]:{port} {public}");
        let key = fs::read_to_string(at("client")).ok()?;
        let waiting = std::time::Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(waiting.elapsed() < Duration::from_secs(10), "sshd does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Self { user, port, key, known_hosts, process, _directory: directory })
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}
