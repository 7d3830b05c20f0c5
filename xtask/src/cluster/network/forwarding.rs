//! The machine's switch for passing packets on, which pods need to reach beyond it.
//!
//! It is one for the whole machine: the first cluster turns it on, the last one puts it back.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::LINK_PREFIX;

const SWITCH: &str = "/proc/sys/net/ipv4/ip_forward";

/// Exists if it was off before the first cluster came.
fn was_off() -> PathBuf {
    Path::new(super::RUN).join("forwarding-was-off")
}

/// Turns forwarding on.
pub(super) fn acquire() -> Result<()> {
    let now = fs::read_to_string(SWITCH).with_context(|| format!("reading {SWITCH}"))?;
    if now.trim() == "0" {
        fs::create_dir_all(super::RUN)
            .and_then(|()| fs::write(was_off(), ""))
            .context("recording the switch")?;
        fs::write(SWITCH, "1").with_context(|| format!("turning on {SWITCH}"))?;
    }
    Ok(())
}

/// Turns it off again if it was off before, once no other cluster needs it, and removes what clusters share.
pub(super) fn release() -> Result<()> {
    let links = fs::read_dir("/sys/class/net").context("listing network links")?.filter_map(Result::ok);
    let needed = links.into_iter().any(|link| link.file_name().to_string_lossy().starts_with(LINK_PREFIX));
    if needed {
        return Ok(());
    }
    if was_off().exists() {
        fs::write(SWITCH, "0").with_context(|| format!("turning off {SWITCH}"))?;
    }
    fs::remove_dir_all(super::RUN).with_context(|| format!("removing {}", super::RUN))
}
