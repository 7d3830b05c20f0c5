//! The custom resource definitions that people install.

use std::{fs, path::Path, process};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::{operator, output};

#[test]
fn the_output_is_what_the_api_server_takes() {
    let yaml: Vec<CustomResourceDefinition> =
        serde_saphyr::from_multiple(&output(operator().arg("crds"))).expect("YAML of definitions");
    let json = output(operator().args(["crds", "--output=json"]));
    let json: Vec<CustomResourceDefinition> = serde_json::Deserializer::from_str(&json)
        .into_iter()
        .collect::<Result<_, _>>()
        .expect("JSON of definitions");
    assert_eq!(yaml, json);
    assert_eq!(yaml, bk_api::crds::all());
}

#[test]
fn the_manifests_have_the_same_definitions() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds.yaml");
    let installed = fs::read_to_string(&file).unwrap();
    assert!(
        installed == output(operator().arg("crds")),
        "deploy/crds.yaml is out of date; run: cargo run -p buildkite-operator -- crds > deploy/crds.yaml"
    );
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    for args in [["crds"].as_slice(), &["--help"], &["run", "--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = process::Command::new(env!("CARGO_BIN_EXE_buildkite-operator"))
            .args(args)
            .env("RUST_BACKTRACE", "1")
            .stdout(writer)
            .output()
            .unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
        assert_eq!(String::from_utf8_lossy(&done.stderr), "", "{args:?}");
    }
}
