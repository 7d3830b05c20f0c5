//! What the job's containers print, one container after another.

use std::{io::Write, time::Duration};

use anyhow::{Context, Result, bail};
use bk_plan::pod;
use futures::{AsyncBufRead, AsyncBufReadExt};
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use kube::{Api, Client, ResourceExt, api::LogParams};

use super::{
    position::Position,
    watched::{Known, Watched},
};
use crate::cli::output::say;

/// How long to wait before a log that broke off is read on.
const PAUSE: Duration = Duration::from_millis(500);

/// Which containers to read.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct Selection {
    /// This one; those that take turns if none is named.
    pub(in crate::cli) container: Option<String>,
    /// Whether each line begins with the name of its container, if there are several.
    pub(in crate::cli) names: bool,
}

impl Selection {
    /// The chosen containers of a pod, in the order of their turns, each with what its lines begin with.
    fn of(&self, pod: &Pod) -> Result<Vec<(String, String)>> {
        let Some(spec) = &pod.spec else { return Ok(Vec::new()) };
        let all = || spec.init_containers.iter().flatten().chain(&spec.containers).map(|c| c.name.as_str());
        if let Some(wanted) = &self.container {
            if !all().any(|name| name == wanted) {
                let all: Vec<_> = all().collect();
                bail!("pod {} has no container {wanted}; it has {}", pod.name_any(), all.join(", "));
            }
            return Ok(vec![(wanted.clone(), String::new())]);
        }
        let managed: Vec<String> = pod::managed_containers(spec).map(|c| c.name.clone()).collect();
        let is_marked = self.names && managed.len() > 1;
        let marked = |name: String| {
            let mark = if is_marked { format!("[{name}] ") } else { String::new() };
            (name, mark)
        };
        Ok(managed.into_iter().map(marked).collect())
    }
}

/// Copies the logs of the job's containers to the standard output, in the order of their turns, until the job is over. Says whether
/// all that there was has been read.
pub(in crate::cli) async fn print(
    client: Client,
    namespace: &str,
    mut watched: Watched,
    selection: &Selection,
) -> Result<bool> {
    let pods = Api::<Pod>::namespaced(client, namespace);
    let known = watched.until(|known| known.pod.is_some() || known.is_over()).await;
    let Some(pod) = known.pod else { return Ok(false) };
    let mut is_whole = true;
    for (container, mark) in selection.of(&pod)? {
        is_whole &= print_one(&pods, &pod.name_any(), &container, &mark, &mut watched).await?;
    }
    Ok(is_whole)
}

/// Copies what the containers of a pod have printed so far.
pub(in crate::cli) async fn print_so_far(
    client: Client,
    namespace: &str,
    pod: &Pod,
    selection: &Selection,
) -> Result<()> {
    let pods = Api::<Pod>::namespaced(client, namespace);
    for (container, mark) in selection.of(pod)? {
        let params =
            LogParams { container: Some(container.clone()), timestamps: true, ..LogParams::default() };
        match pods.log_stream(&pod.name_any(), &params).await {
            Ok(stream) => {
                copy(stream, &mut Position::default(), &mark).await?;
            }
            // It has not started.
            Err(kube::Error::Api(status)) if status.code == 400 => {
                say(&format!("{container}: {}", status.message));
            }
            Err(error) => {
                bail!("cannot read the log of container {container}: {}", bk_ops::report::one_line(&error))
            }
        }
    }
    Ok(())
}

/// Copies the log of one container, from its start to its end, over as many connections as it takes. Says whether all of it came.
async fn print_one(
    pods: &Api<Pod>,
    pod: &str,
    container: &str,
    mark: &str,
    watched: &mut Watched,
) -> Result<bool> {
    let mut position = Position::default();
    let (mut told, mut broken) = (false, false);
    loop {
        let known = watched
            .until(|known| has_started(known.pod.as_ref(), container) || is_lost(known, container))
            .await;
        // The watch of the pod may be behind that of the BuildJob.
        if is_lost(&known, container) && !has_started(live(pods, &known).await.as_ref(), container) {
            if broken {
                say(&format!("the end of the log of container {container} went with its pod"));
            }
            return Ok(false);
        }
        let may_say_more = !has_ended(&known, container);
        let params = LogParams {
            container: Some(container.to_owned()),
            follow: true,
            timestamps: true,
            since_time: position.since(),
            ..LogParams::default()
        };
        position.restart();
        match pods.log_stream(pod, &params).await {
            Ok(stream) => {
                let end = copy(stream, &mut position, mark).await?;
                // A connection that ends after the container has ended has brought all of it.
                if end == End::Whole && !may_say_more {
                    return Ok(true);
                }
                broken = end == End::Broken;
            }
            // There is nothing, and there will be nothing.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                say(&format!("cannot read the job's log: {}", status.message));
                return Ok(false);
            }
            Err(_) if told => {}
            Err(error) => {
                told = true;
                say(&format!(
                    "cannot read the job's log, trying again: {}",
                    bk_ops::report::one_line(&error)
                ));
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// How a connection came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The server had no more to say.
    Whole,
    /// It was cut.
    Broken,
}

/// Copies a log. Its last line need not end, unless the connection was cut: then the whole line comes again.
async fn copy(stream: impl AsyncBufRead, position: &mut Position, mark: &str) -> Result<End> {
    let mut stream = std::pin::pin!(stream);
    let mut line = Vec::new();
    loop {
        match stream.read_until(b'\n', &mut line).await {
            Ok(0) => return Ok(End::Whole),
            Ok(_) => {}
            Err(_) => return Ok(End::Broken),
        }
        if let Some(text) = position.take(&line) {
            let mut out = std::io::stdout().lock();
            let written = out.write_all(mark.as_bytes()).and_then(|()| out.write_all(text));
            written.and_then(|()| out.flush()).context("cannot write to the standard output")?;
        }
        line.clear();
    }
}

/// The pod as it is now, unless it is known to be gone. What cannot be read is not there.
async fn live(pods: &Api<Pod>, known: &Known) -> Option<Pod> {
    pods.get_opt(&known.pod.as_ref()?.name_any()).await.ok().flatten()
}

fn state<'a>(pod: Option<&'a Pod>, container: &str) -> Option<&'a ContainerState> {
    let status = pod?.status.as_ref()?;
    let mut all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    all.find(|status| status.name == container)?.state.as_ref()
}

fn has_started(pod: Option<&Pod>, container: &str) -> bool {
    state(pod, container).is_some_and(|state| state.running.is_some() || state.terminated.is_some())
}

fn has_ended(known: &Known, container: &str) -> bool {
    known.is_over() || state(known.pod.as_ref(), container).is_some_and(|state| state.terminated.is_some())
}

/// Whether there will be no log any more: the pod is gone, or the job is over and its container never started.
fn is_lost(known: &Known, container: &str) -> bool {
    known.pod.is_none() || (known.is_over() && !has_started(known.pod.as_ref(), container))
}
