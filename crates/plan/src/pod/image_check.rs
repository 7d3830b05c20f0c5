//! `imageCheck: init`: init containers that start each image of the pod once, so that one that cannot be had is noticed before
//! anything else runs.

use k8s_openapi::api::core::v1::Container;

/// The beginning of the init containers' names, which patches may use.
pub(super) const PREFIX: &str = "imagecheck-";

/// One check for each image in `containers` that no container in `started` has: those run before, and so prove their image
/// themselves. An image is pulled as the most demanding of its containers wants it; as it is there then, they need not pull it again.
pub(super) fn checks(containers: &mut [&mut Container], started: &[Container], shim: &str) -> Vec<Container> {
    let mut checks: Vec<Container> = Vec::new();
    for container in containers {
        let Some(image) = container.image.clone() else { continue };
        let policy = container.image_pull_policy.clone();
        let proven = started.iter().any(|other| {
            other.image.as_ref() == Some(&image)
                && demand(other.image_pull_policy.as_deref()) >= demand(policy.as_deref())
        });
        if proven {
            continue;
        }
        match checks.iter_mut().find(|check: &&mut Container| check.image.as_ref() == Some(&image)) {
            Some(check) if demand(check.image_pull_policy.as_deref()) < demand(policy.as_deref()) => {
                check.image_pull_policy = policy;
            }
            Some(_) => {}
            None => checks.push(check(checks.len(), image, policy, shim)),
        }
        if container.image_pull_policy.as_deref() == Some("Always") {
            container.image_pull_policy = Some("IfNotPresent".to_owned());
        }
    }
    checks
}

/// Needs nothing of the image: the shim is a program of its own and says its version.
fn check(index: usize, image: String, policy: Option<String>, shim: &str) -> Container {
    Container {
        name: format!("{PREFIX}{index}"),
        image: Some(image),
        image_pull_policy: policy,
        command: Some(vec![shim.to_owned(), "--version".to_owned()]),
        ..Container::default()
    }
}

/// How much a pull policy asks for. Without one Kubernetes decides, at least as much as if the image were there.
fn demand(policy: Option<&str>) -> u8 {
    match policy {
        Some("Never") => 0,
        Some("IfNotPresent") => 1,
        None => 2,
        Some(_) => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(image: &str, policy: Option<&str>) -> Container {
        Container {
            image: Some(image.to_owned()),
            image_pull_policy: policy.map(str::to_owned),
            ..Container::default()
        }
    }

    fn shown(containers: &[Container]) -> Vec<String> {
        let line = |container: &Container| {
            let policy = container.image_pull_policy.clone().unwrap_or_default();
            format!("{} {} {policy}", container.name, container.image.clone().unwrap_or_default())
                .trim()
                .to_owned()
        };
        containers.iter().map(line).collect()
    }

    #[test]
    fn each_image_is_checked_once_in_order_and_as_demanding_as_any_of_its_containers() {
        let mut containers =
            [container("b", Some("IfNotPresent")), container("a", None), container("b", Some("Always"))];
        let checks = checks(&mut containers.iter_mut().collect::<Vec<_>>(), &[], "/shim");
        assert_eq!(shown(&checks), ["imagecheck-0 b Always", "imagecheck-1 a"]);
        assert_eq!(shown(&containers), ["b IfNotPresent", "a", "b IfNotPresent"]);
        assert_eq!(checks[0].command.as_deref(), Some(&["/shim".to_owned(), "--version".to_owned()][..]));
    }

    #[test]
    fn images_that_start_before_are_not_checked() {
        let started = [container("a", Some("IfNotPresent")), container("b", Some("Always"))];
        let mut containers = [
            container("a", Some("IfNotPresent")),
            container("a", Some("Always")),
            container("b", Some("Always")),
        ];
        assert_eq!(
            shown(&checks(&mut containers.iter_mut().collect::<Vec<_>>(), &started, "/shim")),
            ["imagecheck-0 a Always"]
        );
    }
}
