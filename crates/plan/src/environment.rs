//! BuildJob + the BuildEnvironments that it refers to → the containers they describe, and what the pod must have
//! for them.
//!
//! A job runs in one environment, its *primary*, and environments bring others: init containers that run before the job
//! and extra containers that run beside it. All of it is flattened here into one list of [`Part`]s. What comes with
//! a container precedes it, so a container finds running what its environment says that it needs.
//!
//! - [`trail`]: the way from a BuildJob's field to a container, for whoever has to find a mistake
//! - [`container`]: BuildEnvironment or inline container → container
//! - [`needs`]: what the pod must have for all of them

mod container;
pub(crate) mod needs;
mod trail;

use bk_api::{BuildEnvironmentSpec, BuildJob, container_use::ContainerUse, credentials::GitCredentials};
use k8s_openapi::api::core::v1::Container;

use crate::{
    pod::RenderError,
    surroundings::{self, MAX_ENVIRONMENTS, Surroundings},
};

pub use needs::{Needs, Wish};
pub use trail::Trail;

/// The most environments that may bring one another in a row.
const MAX_DEPTH: usize = 8;

/// The most containers that a job and its environments may add to a pod.
const MAX_PARTS: usize = 64;

/// Everything that a job's environments say, flattened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolved {
    /// What the command runs in.
    pub primary: Primary,
    /// Containers before and beside the job, in the order in which they start.
    pub parts: Vec<Part>,
    /// What the pod must have for them.
    pub needs: Needs,
}

/// What a job's command runs in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Primary {
    /// The container, without a name and without a command. It has no image if the job names none.
    pub container: Container,
    /// What to run if the job has no command of its own, as a list of words.
    pub command: Vec<String>,
    /// The words that follow.
    pub args: Vec<String>,
    /// How the checkout authenticates.
    pub git_credentials: Option<GitCredentials>,
    /// Where it comes from.
    pub trail: Trail,
}

/// A container before or beside the job.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The container, ready for the pod.
    pub container: Container,
    /// When it runs.
    pub role: Role,
    /// Where it comes from.
    pub trail: Trail,
}

/// When a container before or beside the job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It ends before the job starts.
    Init,
    /// It starts before the job, and runs until the job has ended.
    Before,
    /// It starts together with the job.
    With,
}

/// Flattens what a job and its environments say about containers.
pub fn resolve(job: &BuildJob, surroundings: &Surroundings) -> Result<Resolved, RenderError> {
    let namespace = job.metadata.namespace.as_deref().unwrap_or("default");
    let referred = surroundings::environments(job, surroundings).len();
    if referred > MAX_ENVIRONMENTS {
        let problem = format!("the job refers to {referred} BuildEnvironments; {MAX_ENVIRONMENTS} at most");
        return Err(RenderError { path: "spec".to_owned(), problem });
    }
    let mut walk = Walk { namespace, surroundings, resolved: Resolved::default() };
    walk.primary(job)?;
    walk.bring(&Trail::default(), &job.spec.init_containers, &job.spec.extra_containers)?;
    walk.resolved.needs.add_job(&job.spec);
    Ok(walk.resolved)
}

/// Which of an object's two lists a container is in.
#[derive(Clone, Copy)]
enum List {
    Init,
    Extra,
}

/// A way through the environments of a job.
struct Walk<'a> {
    namespace: &'a str,
    surroundings: &'a Surroundings,
    resolved: Resolved,
}

impl<'a> Walk<'a> {
    fn primary(&mut self, job: &BuildJob) -> Result<(), RenderError> {
        let mut primary = Primary::default();
        if let Some(name) = &job.spec.environment {
            let (environment, trail) = self.enter(&Trail::default().below("environment"), name)?;
            self.bring(&trail, &environment.init_containers, &environment.extra_containers)?;
            self.resolved.needs.add_environment(environment, &trail)?;
            primary = container::primary(environment, &trail)?;
        }
        if let Some(image) = &job.spec.image {
            primary.container.image = Some(image.clone());
        }
        // The job's own variables are added where its containers are made.
        let is_own = |name: &str| job.spec.env.iter().any(|own| own.name == name);
        if let Some(env) = &mut primary.container.env {
            env.retain(|var| !is_own(&var.name));
        }
        self.resolved.primary = primary;
        Ok(())
    }

    /// Adds the containers of two lists, and before each of them what it brings itself.
    fn bring(
        &mut self,
        trail: &Trail,
        init: &[ContainerUse],
        extra: &[ContainerUse],
    ) -> Result<(), RenderError> {
        for (index, part) in init.iter().enumerate() {
            self.add(&trail.below(&format!("initContainers[{index}]")), part, List::Init)?;
        }
        for (index, part) in extra.iter().enumerate() {
            self.add(&trail.below(&format!("extraContainers[{index}]")), part, List::Extra)?;
        }
        Ok(())
    }

    fn add(&mut self, trail: &Trail, wanted: &ContainerUse, list: List) -> Result<(), RenderError> {
        let part = match (&wanted.environment, &wanted.container) {
            (Some(name), None) => {
                let (environment, inner) = self.enter(trail, name)?;
                self.bring(&inner, &environment.init_containers, &environment.extra_containers)?;
                self.resolved.needs.add_environment(environment, &inner)?;
                container::named(wanted, name, environment, list, inner)?
            }
            (None, Some(inline)) => container::inline(wanted, inline, list, trail.clone())?,
            _ => {
                return Err(trail.refuse(
                    "give either `environment`, the name of a BuildEnvironment, or `container`".to_owned(),
                ));
            }
        };
        if self.resolved.parts.len() == MAX_PARTS {
            return Err(trail.refuse(format!(
                "that is one container too many: a job and its environments may add {MAX_PARTS}"
            )));
        }
        self.resolved.parts.push(part);
        Ok(())
    }

    /// The environment that `trail` names, and the trail that goes on from there.
    fn enter(&self, trail: &Trail, name: &str) -> Result<(&'a BuildEnvironmentSpec, Trail), RenderError> {
        let Some(Some(environment)) = self.surroundings.environments.get(name) else {
            let namespace = self.namespace;
            return Err(
                trail.refuse(format!("there is no BuildEnvironment \"{name}\" in namespace \"{namespace}\""))
            );
        };
        let inner = trail.into(name);
        if trail.passes(name) {
            return Err(inner.refuse(format!("\"{name}\" would bring itself: a cycle")));
        }
        if inner.depth() > MAX_DEPTH {
            return Err(
                inner.refuse(format!("more than {MAX_DEPTH} environments bring one another in a row"))
            );
        }
        Ok((environment, inner))
    }
}
