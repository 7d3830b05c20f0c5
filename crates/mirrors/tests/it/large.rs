//! What a mirror saves, measured on a repository of 200 MB: `cargo test -p bk-mirrors --test it -- --ignored --nocapture large`.

use std::{fs, io::Write, process::Stdio, time::Instant};

use crate::{
    origin::{command, git},
    scene::{Scene, agent_goes_on},
};

const FILES: usize = 1000;
const EACH: usize = 210 * 1024;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes a repository of 200 MB, and takes a minute"]
async fn a_large_repository_is_cloned_quickly_and_with_few_bytes() {
    let scene = Scene::new().await;
    let app = scene.origin.create("app");
    fill(&app.directory);
    app.push(&["main"]);
    scene.sync("app").await.unwrap();
    let commit = app.commit("newest", "what the mirror does not have yet");
    app.push(&["main"]);

    let (sent, began) = (scene.origin.sent(), Instant::now());
    let plain = scene.checkout();
    git(scene.workspace.path(), &["clone", "--quiet", &scene.origin.url("app"), plain.to_str().unwrap()]);
    git(&plain, &["checkout", "--quiet", "-f", &commit]);
    let (plain_time, plain_bytes) = (began.elapsed(), scene.origin.sent() - sent);

    let (sent, began) = (scene.origin.sent(), Instant::now());
    let (checkout, log) = scene.borrow("app", &commit).await;
    let borrowed = began.elapsed();
    agent_goes_on(&checkout, &commit, &["--quiet", "--prune"]);
    let (mirror_time, mirror_bytes) = (began.elapsed(), scene.origin.sent() - sent);
    println!("plain clone: {plain_bytes} bytes in {plain_time:.2?}");
    println!(
        "from the mirror: {mirror_bytes} bytes in {mirror_time:.2?}, of which repo-mirror {borrowed:.2?}"
    );
    assert!(log.contains("is borrowed"), "{log}");
    assert!(plain_bytes > 200_000_000, "{plain_bytes}");
    assert!(mirror_bytes * 100 < plain_bytes, "{mirror_bytes} of {plain_bytes}");
    assert!(mirror_time * 5 <= plain_time, "{mirror_time:?} of {plain_time:?}");
}

/// Commits files that cannot be compressed, in ten commits of which the last ones replace what came before.
fn fill(directory: &std::path::Path) {
    let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut stream =
        command(directory, &["fast-import", "--quiet", "--force"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = std::io::BufWriter::new(stream.stdin.take().unwrap());
    for number in 0..FILES {
        let content: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        })
        .take(EACH / 8)
        .flatten()
        .collect();
        writeln!(
            input,
            "commit refs/heads/main\ncommitter a <a@example.com> {} +0000\ndata 1\nx",
            1_700_000_000 + number
        )
        .unwrap();
        if number == 0 {
            writeln!(input, "from refs/heads/main^0").unwrap();
        }
        // A checkout has a tenth of what the history has.
        writeln!(input, "M 100644 inline data/{}\ndata {}", number % (FILES / 10), content.len()).unwrap();
        input.write_all(&content).unwrap();
        writeln!(input).unwrap();
    }
    drop(input);
    assert!(stream.wait().unwrap().success());
    git(directory, &["reset", "--quiet", "--hard", "main"]);
    fs::write(directory.join("marker"), "x").unwrap();
}
