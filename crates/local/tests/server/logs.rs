//! Logs over HTTP: bounds, and what is refused.

use reqwest::Method;

use crate::harness::{Answer, Rig};

async fn raw(rig: &Rig, id: &str, token: &str, query: &str, body: Vec<u8>) -> Answer {
    let request = rig
        .request(Method::POST, &format!("/v3/jobs/{id}/chunks?{query}"))
        .header("Authorization", format!("Token {token}"))
        .header("Content-Encoding", "gzip")
        .body(body);
    rig.send(request).await
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn a_chunk_that_explodes_is_refused() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}]").await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    let bomb = gzip(&vec![0; 20_000_000]);
    let message = raw(&rig, &id, &token, "sequence=1&offset=0&size=1000", bomb.clone()).await.refused(422);
    assert_eq!(message, "the chunk holds more than the 1000 bytes that were announced");
    let message = raw(&rig, &id, &token, "sequence=1&offset=0&size=20000000", bomb).await.refused(413);
    assert!(message.contains("too large"), "{message}");
    for query in ["sequence=1&offset=-1&size=1", "sequence=1&offset=9223372036854775807&size=1", "sequence=1"]
    {
        raw(&rig, &id, &token, query, gzip(b"x")).await.refused(400);
    }
    rig.chunk(&id, &token, 1, 0, b"fine\n").await.ok();
}

#[tokio::test]
async fn a_log_that_is_too_long_is_cut_and_says_so() {
    let rig = Rig::with(|config| config.log_max_bytes = 2000).await;
    rig.build("steps: [{label: one, command: x}]").await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    for sequence in 0..5u32 {
        let offset = sequence as usize * 1000;
        rig.chunk(&id, &token, sequence, offset, "0123456\n".repeat(125).as_bytes()).await.ok();
    }
    rig.finish_job(&id, &token, "0").await.ok();
    let log = rig.v2(Method::GET, &format!("pipelines/demo/builds/1/jobs/{id}/log"), None).await.ok();
    let text = log["content"].as_str().unwrap();
    assert_eq!(text.lines().filter(|line| *line == "0123456").count(), 250);
    assert!(text.ends_with("[the log is too long: its last 3000 bytes were discarded]\n"), "{text}");
}

#[tokio::test]
async fn a_log_of_many_parts_is_downloaded_whole() {
    let rig = Rig::start().await;
    rig.build("steps: [{label: one, command: x}]").await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    let lines = |chunk: u32| (0..40_000).map(|line| format!("{chunk} {line}\n")).collect::<Vec<_>>().concat();
    let mut whole = String::new();
    for sequence in 1..=6 {
        let text = lines(sequence);
        rig.chunk(&id, &token, sequence, whole.len(), text.as_bytes()).await.ok();
        whole += &text;
    }
    assert!(whole.len() > 1024 * 1024);
    rig.finish_job(&id, &token, "0").await.ok();
    let file = rig.send(rig.request(Method::GET, &format!("/-/jobs/{id}/log?download=true"))).await.ok();
    assert!(file == whole.as_str(), "the file differs from the log");
}
