//! Users: who a container runs as, an entry in `/etc/passwd` for whoever the image does not know, and a home.
//!
//! ssh refuses to work for a user without an entry. The kubelet can write one without root: as an annotation of the pod that
//! a volume shows as a file.

use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, DownwardAPIVolumeSource, EmptyDirVolumeSource, ObjectFieldSelector,
    PodSpec, Volume, VolumeMount,
};

use super::{mount, variables::env};

/// Home of the user who runs git, where it cannot be the image's.
pub(super) const HOME: &str = "/buildkite/home";
const HOME_VOLUME: &str = "buildkite-home";
const PASSWD_VOLUME: &str = "buildkite-passwd";
const PASSWD: &str = "/etc/passwd";

/// The user that a container runs as; none if its image decides.
pub(super) fn user(container: &Container, spec: &PodSpec) -> Option<i64> {
    let own = container.security_context.as_ref().and_then(|context| context.run_as_user);
    own.or_else(|| spec.security_context.as_ref().and_then(|context| context.run_as_user))
}

fn group(container: &Container, spec: &PodSpec) -> Option<i64> {
    let own = container.security_context.as_ref().and_then(|context| context.run_as_group);
    own.or_else(|| spec.security_context.as_ref().and_then(|context| context.run_as_group))
}

/// Whether containers run as different users, so far as the pod tells. Images that decide for themselves are taken to agree.
pub(super) fn differ<'a>(containers: impl IntoIterator<Item = &'a Container>, spec: &PodSpec) -> bool {
    let mut users = containers.into_iter().map(|container| user(container, spec));
    let first = users.next();
    users.any(|user| Some(user) != first)
}

/// Gives a container's user an entry, if it is said who that is and it is not root. Returns the entry for the pod's
/// annotation.
pub(super) fn introduce(container: &mut Container, spec: &PodSpec) -> Option<String> {
    let user = user(container, spec).filter(|user| *user != 0)?;
    let group = group(container, spec).unwrap_or(0);
    let mounts = container.volume_mounts.get_or_insert_default();
    if mounts.iter().any(|mount| mount.mount_path == PASSWD) {
        return None;
    }
    mounts.push(VolumeMount {
        sub_path: Some("passwd".to_owned()),
        ..mount(PASSWD_VOLUME, PASSWD, Some(true))
    });
    Some(format!("buildkite-agent:x:{user}:{group}:Buildkite agent:{HOME}:/bin/sh\n"))
}

/// Gives a container a home that is nobody else's.
pub(super) fn give_home(container: &mut Container) {
    let mounts = container.volume_mounts.get_or_insert_default();
    if !mounts.iter().any(|mount| mount.mount_path == HOME) {
        mounts.push(mount(HOME_VOLUME, HOME, None));
    }
    let vars = container.env.get_or_insert_default();
    if !vars.iter().any(|var| var.name == "HOME") {
        vars.push(env("HOME", HOME));
    }
}

/// The volumes that containers with a home or an entry need.
pub(super) fn volumes(containers: &[Container]) -> Vec<Volume> {
    let used = |name: &str| {
        let mounts = containers.iter().flat_map(|container| container.volume_mounts.iter().flatten());
        mounts.into_iter().any(|mount| mount.name == name)
    };
    let home = Volume {
        name: HOME_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    };
    let field_path = format!("metadata.annotations['{}']", bk_api::names::ANNOTATION_PASSWD);
    let passwd = Volume {
        name: PASSWD_VOLUME.to_owned(),
        downward_api: Some(DownwardAPIVolumeSource {
            items: Some(vec![DownwardAPIVolumeFile {
                path: "passwd".to_owned(),
                field_ref: Some(ObjectFieldSelector { field_path, ..ObjectFieldSelector::default() }),
                ..DownwardAPIVolumeFile::default()
            }]),
            ..DownwardAPIVolumeSource::default()
        }),
        ..Volume::default()
    };
    [home, passwd].into_iter().filter(|volume| used(&volume.name)).collect()
}

/// The annotation's value: root, and those who were introduced.
pub(super) fn passwd(entries: &[String]) -> Option<String> {
    let mut lines: Vec<&String> = entries.iter().collect();
    lines.dedup();
    (!lines.is_empty()).then(|| {
        let lines: String = lines.into_iter().cloned().collect();
        format!("root:x:0:0:root:/root:/bin/sh\n{lines}")
    })
}
