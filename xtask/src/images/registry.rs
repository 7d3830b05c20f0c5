//! Pushing images to a registry with whichever tool the machine has.

use std::process::Command;

use anyhow::{Context, Result};

use super::build::Built;
use crate::{process, progress};

/// A program that can push an archive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Tool {
    Skopeo,
    Crane,
    Docker,
    Podman,
}

impl Tool {
    /// Those that need no daemon come first.
    const ALL: [Self; 4] = [Self::Skopeo, Self::Crane, Self::Podman, Self::Docker];

    fn program(self) -> &'static str {
        match self {
            Self::Skopeo => "skopeo",
            Self::Crane => "crane",
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }

    /// The commands that bring an image to its place in a registry.
    fn commands(self, image: &Built, target: &str) -> Vec<Vec<String>> {
        let archive = image.archive.display();
        match self {
            Self::Skopeo => {
                vec![vec!["copy".into(), format!("oci-archive:{archive}"), format!("docker://{target}")]]
            }
            Self::Crane => vec![vec!["push".into(), archive.to_string(), target.into()]],
            Self::Docker | Self::Podman => vec![
                vec!["load".into(), "--input".into(), archive.to_string()],
                vec!["tag".into(), image.reference.clone(), target.into()],
                vec!["push".into(), target.into()],
            ],
        }
    }
}

/// How an image is called in a registry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Naming {
    /// With the tag that it has here.
    Tag,
    /// With a tag that no other content has: a node that has pulled an earlier image does not take it for this one.
    Content,
}

/// Pushes images into a repository. Credentials are those that the tool has.
pub(crate) fn push(repo: &str, images: &[Built], naming: Naming) -> Result<Vec<String>> {
    let tool = Tool::ALL
        .into_iter()
        .find(|tool| Command::new(tool.program()).arg("--version").output().is_ok())
        .context("pushing an image needs skopeo, crane, podman or docker, and none of them is installed")?;
    let mut pushed = Vec::new();
    for image in images {
        let target = target(repo, image, naming);
        progress::step(&format!("pushing {target} with {}", tool.program()), || {
            tool.commands(image, &target).into_iter().try_for_each(|arguments| {
                process::run(Command::new(tool.program()).args(arguments)).map(drop)
            })
        })?;
        pushed.push(target);
    }
    Ok(pushed)
}

/// The image's name and tag in another repository.
fn target(repo: &str, image: &Built, naming: Naming) -> String {
    let name = image.reference.rsplit('/').next().unwrap_or(&image.reference);
    let target = format!("{}/{name}", repo.trim_end_matches('/'));
    match naming {
        Naming::Tag => target,
        Naming::Content => format!("{target}-{:.16}", image.digest.hex()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::archive::Digest;
    use super::*;

    fn image(content: &[u8]) -> Built {
        Built {
            reference: "localhost/toolbox:v1".into(),
            archive: "/out/toolbox.tar".into(),
            digest: Digest::of(content),
        }
    }

    fn typed(tool: Tool) -> Vec<String> {
        tool.commands(&image(b""), "registry.example/team/toolbox:v1")
            .iter()
            .map(|words| words.join(" "))
            .collect()
    }

    #[test]
    fn each_tool_ends_with_the_image_at_its_target() {
        assert_eq!(
            typed(Tool::Skopeo),
            ["copy oci-archive:/out/toolbox.tar docker://registry.example/team/toolbox:v1"]
        );
        assert_eq!(typed(Tool::Crane), ["push /out/toolbox.tar registry.example/team/toolbox:v1"]);
        for tool in [Tool::Docker, Tool::Podman] {
            assert_eq!(
                typed(tool),
                [
                    "load --input /out/toolbox.tar",
                    "tag localhost/toolbox:v1 registry.example/team/toolbox:v1",
                    "push registry.example/team/toolbox:v1",
                ]
            );
        }
    }

    #[test]
    fn the_name_and_tag_are_kept() {
        assert_eq!(
            target("registry.example:5000/team/", &image(b""), Naming::Tag),
            "registry.example:5000/team/toolbox:v1"
        );
    }

    #[test]
    fn other_content_has_another_tag() {
        let named = |content| target("registry.example", &image(content), Naming::Content);
        assert_eq!(named(b""), "registry.example/toolbox:v1-e3b0c44298fc1c14");
        assert_ne!(named(b""), named(b"other"));
    }
}
