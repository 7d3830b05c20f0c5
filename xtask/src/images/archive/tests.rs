use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::Value;

use super::*;

fn config() -> ImageConfig {
    ImageConfig { user: "65532".into(), entrypoint: vec!["/tool".into()], ..ImageConfig::default() }
}

fn sample(text: &str) -> Vec<LayerSource> {
    vec![LayerSource::Entries(vec![Entry::new("tool", 0o755, Node::Text(text.to_owned()))])]
}

fn files(archive: &Path) -> HashMap<String, Vec<u8>> {
    tar::Archive::new(File::open(archive).unwrap())
        .entries()
        .unwrap()
        .map(|entry| {
            let mut entry = entry.unwrap();
            let mut contents = Vec::new();
            entry.read_to_end(&mut contents).unwrap();
            (entry.path().unwrap().display().to_string(), contents)
        })
        .collect()
}

fn parse(files: &HashMap<String, Vec<u8>>, name: &str) -> Value {
    serde_json::from_slice(&files[name]).unwrap()
}

#[test]
fn same_inputs_give_the_same_bytes() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (first, second) = (one.path().join("a.tar"), two.path().join("deep/b.tar"));
    let digest = write(&first, "localhost/tool:dev", sample("x"), &config()).unwrap();
    assert_eq!(digest, write(&second, "localhost/tool:dev", sample("x"), &config()).unwrap());
    assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap());
    assert_ne!(digest, write(&second, "localhost/tool:dev", sample("y"), &config()).unwrap());
    assert_eq!(fs::read_dir(two.path().join("deep")).unwrap().count(), 1, "scratch files are gone");
}

#[test]
fn both_formats_lead_to_the_same_blobs() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("a.tar");
    let digest = write(&out, "localhost:5000/tool:dev", sample("x"), &config()).unwrap();
    let files = files(&out);

    for (name, contents) in &files {
        if let Some(hex) = name.strip_prefix("blobs/sha256/") {
            assert_eq!(Digest::of(contents).hex(), hex);
        }
    }
    let described = &parse(&files, "index.json")["manifests"][0];
    assert_eq!(described["digest"], digest.to_string());
    assert_eq!(described["annotations"]["io.containerd.image.name"], "localhost:5000/tool:dev");
    assert_eq!(described["annotations"]["org.opencontainers.image.ref.name"], "dev");

    let manifest = parse(&files, &blob(&digest));
    let docker = &parse(&files, "manifest.json")[0];
    let path = |value: &Value| format!("blobs/{}", value.as_str().unwrap().replace(':', "/"));
    assert_eq!(docker["Config"], path(&manifest["config"]["digest"]));
    assert_eq!(docker["Layers"][0], path(&manifest["layers"][0]["digest"]));
    let image = parse(&files, &path(&manifest["config"]["digest"]));
    assert_eq!(image["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
    assert_eq!(image["config"], serde_json::json!({"User": "65532", "Entrypoint": ["/tool"]}));
}

#[test]
fn a_layer_used_twice_is_stored_once() {
    let place = tempfile::tempdir().unwrap();
    let stored: PathBuf = place.path().join("layer.tar");
    let layer = layer::write(&stored, vec![Entry::new("d", 0o755, Node::Directory)]).unwrap();
    let out = place.path().join("a.tar");
    write(
        &out,
        "localhost/tool:dev",
        vec![LayerSource::Stored(layer.clone()), LayerSource::Stored(layer)],
        &config(),
    )
    .unwrap();
    let blobs = files(&out).into_keys().filter(|name| name.starts_with("blobs/")).count();
    assert_eq!(blobs, 3, "manifest, configuration and one layer");
}

#[test]
fn a_port_is_not_a_tag() {
    for (reference, expected) in
        [("localhost/tool:dev", "dev"), ("localhost:5000/tool", "latest"), ("tool", "latest")]
    {
        assert_eq!(tag(reference), expected, "{reference}");
    }
}

#[test]
fn what_a_killed_run_left_goes() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join(".image-killed")).unwrap();
    write(&place.path().join("a.tar"), "localhost/tool:dev", sample("x"), &config()).unwrap();
    let left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["a.tar"]);
}
