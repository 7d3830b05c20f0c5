//! The components' logs.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use super::component::Component;
use super::state::Home;
use crate::process;

/// Shows the end of the components' logs.
pub(crate) fn show(home: &Home, components: &[Component], lines: usize, follow: bool) -> Result<ExitCode> {
    let mut tail = Command::new("tail");
    tail.arg("--lines").arg(lines.to_string());
    if follow {
        tail.arg("--follow=name").arg("--retry");
    }
    // A component that has never started has no log.
    let logs = components.iter().map(|component| home.log(component.name()));
    tail.args(logs.filter(|log| follow || log.exists()));
    let status = tail.status().with_context(|| format!("starting {}", process::line(&tail)))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Copies the components' logs into a directory, in place of those of an earlier time.
pub(crate) fn save(home: &Home, directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
    for component in Component::ALL {
        let (from, to) = (home.log(component.name()), directory.join(format!("{}.log", component.name())));
        // A component that has never started has no log.
        if from.exists() {
            fs::copy(&from, &to)
                .with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
        }
    }
    Ok(())
}

/// The component of this name, or all.
pub(crate) fn select(name: Option<&str>) -> Result<Vec<Component>> {
    let Some(name) = name else { return Ok(Component::ALL.to_vec()) };
    if let Some(component) = Component::ALL.into_iter().find(|component| component.name() == name) {
        return Ok(vec![component]);
    }
    let known = Component::ALL.map(Component::name).join(", ");
    bail!("there is no component {name:?}; there are {known}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_is_answered_with_the_right_ones() {
        assert_eq!(select(Some("etcd")).unwrap(), [Component::Etcd]);
        assert_eq!(select(None).unwrap(), Component::ALL);
        let error = select(Some("docker")).unwrap_err().to_string();
        assert!(
            error.starts_with("there is no component \"docker\"; there are containerd, etcd, "),
            "{error}"
        );
    }
}
