//! The demo's manifests with the images that were just built.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::images::{Built, Image};
use crate::workspace;

/// A directory for `kubectl apply --kustomize`, two levels below the root of the source tree, with values for Helm in it.
pub(super) struct Overlay(PathBuf);

/// The file of values.
const VALUES: &str = "values.yaml";

impl Overlay {
    /// With images as this machine's nodes know them.
    pub(super) fn loaded(directory: &Path, images: &[Built]) -> Result<Self> {
        let references: Vec<String> = images.iter().map(|image| image.reference.clone()).collect();
        Self::pushed(directory, images, &references)
    }

    /// With images under these references, in the order of `images`.
    pub(super) fn pushed(directory: &Path, images: &[Built], references: &[String]) -> Result<Self> {
        fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
        let of = |image: Image| -> Result<(&Built, &str)> {
            let at = Image::ALL.iter().position(|other| *other == image);
            at.and_then(|at| Some((images.get(at)?, references.get(at)?.as_str())))
                .with_context(|| format!("image {} was not built", image.name()))
        };
        let pipeline = fs::read_to_string(workspace().join("examples/demo/pipeline.yml"))
            .context("reading examples/demo/pipeline.yml")?;
        let toolbox = format!("image: {}", of(Image::Toolbox)?.1);
        write(&directory.join("pipeline.yml"), &pipeline.replace("image: toolbox", &toolbox))?;

        // The same tag may hold a new image: pods have to be replaced when it does.
        let annotations = json!({ "image-digests": digests(images) });
        let (repository, tag) = split(of(Image::Operator)?.1);
        let values = json!({
            "image": { "repository": repository, "tag": tag },
            "podAnnotations": annotations,
            "config": { "pod_config": { "agentImage": of(Image::Agent)?.1 } },
        });
        // JSON is YAML.
        write(&directory.join(VALUES), &format!("{values:#}\n"))?;
        let mut transformed = Vec::new();
        for image in [Image::Agent, Image::Local] {
            transformed.push(transformer(image.name(), of(image)?.1));
        }
        let kustomization = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": ["../../examples/demo"],
            "images": transformed,
            "configMapGenerator": [{
                "name": "demo-pipeline",
                "namespace": super::NAMESPACE,
                "behavior": "replace",
                "files": ["pipeline.yml"],
            }],
            "patches": [{
                "target": { "kind": "Deployment" },
                "patch": json!([{ "op": "add", "path": "/spec/template/metadata/annotations", "value": annotations }]).to_string(),
            }],
        });
        write(&directory.join("kustomization.yaml"), &format!("{kustomization:#}\n"))?;
        Ok(Self(directory.to_owned()))
    }

    pub(super) fn directory(&self) -> &Path {
        &self.0
    }

    /// The values that depend on the images.
    pub(super) fn values(&self) -> PathBuf {
        self.0.join(VALUES)
    }
}

fn digests(images: &[Built]) -> String {
    images.iter().map(|image| image.digest.to_string()).collect::<Vec<_>>().join(" ")
}

/// Kustomize's way to say that an image has another name.
fn transformer(name: &str, reference: &str) -> Value {
    let (new_name, new_tag) = split(reference);
    json!({ "name": name, "newName": new_name, "newTag": new_tag })
}

/// A reference's name and tag.
fn split(reference: &str) -> (&str, &str) {
    reference.rsplit_once(':').unwrap_or((reference, "latest"))
}

/// Writes a file.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_split_before_the_tag() {
        let expected = json!({ "name": "a", "newName": "registry:5000/team/a", "newTag": "dev" });
        assert_eq!(transformer("a", "registry:5000/team/a:dev"), expected);
    }
}
