//! The volume that the containers of a pod share.

use bk_api::BuildJob;
use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, EnvVar, PodSpec, Volume, VolumeMount};
use serde_json::Value;

use super::{
    PodSettings, RenderError, WORKSPACE, container_path, strict,
    variables::{env, literal},
};

const VOLUME: &str = "workspace";

/// A pod's workspace.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Workspace {
    /// The volume; none if the author's pod has one of this name.
    volume: Option<Volume>,
    mount: VolumeMount,
    /// What the mount's path may refer to.
    variables: Vec<EnvVar>,
}

impl Workspace {
    /// The workspace of a job: its own, or that of the author's pod, or the configuration's, or a directory that goes with the pod.
    pub(super) fn of(job: &BuildJob, spec: &PodSpec, settings: &PodSettings) -> Result<Self, RenderError> {
        let by_author = spec.volumes.iter().flatten().any(|volume| volume.name == VOLUME);
        let wanted = match (&job.spec.workspace_volume, &settings.config.workspace_volume) {
            (Some(own), _) => Some((own, "spec.workspaceVolume")),
            (None, _) if by_author => None,
            (None, configured) => configured.as_ref().map(|volume| (volume, "pod_config.workspaceVolume")),
        };
        let volume = match wanted {
            Some((volume, path)) => Some(read(volume, path)?),
            None if by_author => None,
            None => Some(Volume {
                name: VOLUME.to_owned(),
                empty_dir: Some(EmptyDirVolumeSource::default()),
                ..Volume::default()
            }),
        };
        let name = volume.as_ref().map_or(VOLUME, |volume| volume.name.as_str()).to_owned();
        if job.spec.workspace_volume.is_some()
            && spec.volumes.iter().flatten().any(|volume| volume.name == name)
        {
            let problem = format!("the pod has a volume `{name}` already; choose another name");
            return Err(RenderError { path: "spec.workspaceVolume.name".to_owned(), problem });
        }
        let (expression, place) = match (&job.spec.workspace_sub_path_expr, &settings.config) {
            (Some(own), _) => (Some(own.clone()), "spec.workspaceSubPathExpr"),
            (None, config) => (config.workspace_sub_path_expr.clone(), "pod_config.workspaceSubPathExpr"),
        };
        let variables = variables(expression.as_deref().unwrap_or_default(), place, job)?;
        let mount = VolumeMount {
            name,
            mount_path: WORKSPACE.to_owned(),
            sub_path_expr: expression,
            ..VolumeMount::default()
        };
        Ok(Self { volume, mount, variables })
    }

    /// The volume's name.
    pub(super) fn volume_name(&self) -> &str {
        &self.mount.name
    }

    /// Adds the volume to the pod.
    pub(super) fn add_volume(&self, spec: &mut PodSpec) {
        let volumes = spec.volumes.get_or_insert_default();
        volumes.extend(
            self.volume
                .iter()
                .filter(|own| volumes.iter().all(|other| other.name != own.name))
                .cloned()
                .collect::<Vec<_>>(),
        );
    }

    /// Lets a user other than root write to the workspace. An emptyDir is open to everybody; other volumes belong to root
    /// until the kubelet gives them to a group.
    pub(super) fn open_to(&self, user: i64, spec: &mut PodSpec) {
        let volume = spec.volumes.iter().flatten().find(|volume| volume.name == self.mount.name);
        if volume.is_none_or(|volume| volume.empty_dir.is_some()) {
            return;
        }
        let context = spec.security_context.get_or_insert_default();
        let group = context.run_as_group.filter(|group| *group != 0).unwrap_or(user);
        context.fs_group.get_or_insert(group);
        context.fs_group_change_policy.get_or_insert_with(|| "OnRootMismatch".to_owned());
    }

    /// Gives the workspace to a container, unless it has it.
    pub(super) fn share(&self, container: &mut Container) {
        let mounts = container.volume_mounts.get_or_insert_default();
        if mounts.iter().any(|mount| mount.mount_path == WORKSPACE) {
            return;
        }
        mounts.push(self.mount.clone());
        let vars = container.env.get_or_insert_default();
        // The path is made from variables that come before all others could change them.
        vars.extend(
            self.variables
                .iter()
                .filter(|new| vars.iter().all(|old| old.name != new.name))
                .cloned()
                .collect::<Vec<_>>(),
        );
        if vars.is_empty() {
            container.env = None;
        }
    }

    /// Refuses a container that takes turns and has something else where the workspace should be: the others would never hear of it.
    pub(super) fn check(&self, container: &Container) -> Result<(), RenderError> {
        let other = container.volume_mounts.iter().flatten().find(|mount| {
            mount.mount_path.trim_end_matches('/') == WORKSPACE
                && (mount.name != self.mount.name || mount.sub_path_expr != self.mount.sub_path_expr)
        });
        other.map_or(Ok(()), |mount| {
            Err(RenderError {
                path: format!("{}.volumeMounts", container_path(&container.name)),
                problem: format!(
                    "volume `{}` is mounted at {WORKSPACE}, where the pod's workspace has to be; to put the workspace on \
                     another volume, set `workspaceVolume`",
                    mount.name
                ),
            })
        })
    }
}

fn read(volume: &serde_json::Map<String, Value>, path: &str) -> Result<Volume, RenderError> {
    let mut volume = volume.clone();
    volume.entry("name").or_insert_with(|| VOLUME.into());
    strict::read(&Value::Object(volume), path)
}

/// The variables in `expression`, which stands at `place`, with their values for this job. The kubelet knows only what the
/// container itself defines.
fn variables(expression: &str, place: &str, job: &BuildJob) -> Result<Vec<EnvVar>, RenderError> {
    let mut variables = Vec::new();
    for part in expression.split("$(").skip(1) {
        let Some((name, _)) = part.split_once(')') else { continue };
        let value = value(name, job).ok_or_else(|| RenderError {
            path: place.to_owned(),
            problem: format!("there is no variable `{name}`; known: {}", KNOWN.join(", ")),
        })?;
        if !variables.iter().any(|var: &EnvVar| var.name == name) {
            variables.push(env(name, literal(&value)));
        }
    }
    Ok(variables)
}

const KNOWN: [&str; 3] = ["BUILDKITE_JOB_ID", "BUILDKITE_PIPELINE_SLUG", "BUILDKITE_BUILD_NUMBER"];

/// A variable's value for this job, the same as the job itself sees; `none` if nobody knows it.
fn value(name: &str, job: &BuildJob) -> Option<String> {
    let buildkite = job.spec.buildkite.as_ref();
    let value = match name {
        "BUILDKITE_JOB_ID" => buildkite.map(|job| job.job_uuid.clone()).or_else(|| job.metadata.uid.clone()),
        "BUILDKITE_PIPELINE_SLUG" => {
            buildkite.map_or_else(|| job.metadata.name.clone(), |job| job.pipeline.clone())
        }
        "BUILDKITE_BUILD_NUMBER" => buildkite.and_then(|job| job.build).map(|build| build.to_string()),
        _ => return None,
    };
    Some(value.filter(|value| !value.is_empty()).unwrap_or_else(|| "none".to_owned()))
}
