//! Waiting for a component until it does its work, and saying which one does not.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::component::Component;
use crate::process;

const PERIOD: Duration = Duration::from_millis(100);

/// Waits until `ready` succeeds.
///
/// Ends early if the component's process does, so that a bad flag shows at once.
pub(crate) fn wait(
    component: Component,
    what: &str,
    log: &Path,
    process: Option<&mut Child>,
    limit: Duration,
    mut ready: impl FnMut() -> Result<()>,
) -> Result<()> {
    let deadline = Instant::now() + limit;
    let last_words = || format!("the end of {}:\n{}", log.display(), process::tail(log, 15));
    let mut process = process;
    loop {
        let Err(reason) = ready() else { return Ok(()) };
        if let Some(status) = process.as_mut().map(|child| child.try_wait()).transpose()?.flatten() {
            bail!("{component} ended with {status} before {what}; {}", last_words());
        }
        ensure!(
            Instant::now() < deadline,
            "{component}: not {what} within {} s ({reason:#}); {}",
            limit.as_secs(),
            last_words()
        );
        thread::sleep(PERIOD);
    }
}

/// Whether `kubectl` prints exactly this.
pub(crate) fn prints(kubectl: &mut Command, expected: &str) -> Result<()> {
    let printed = process::run(kubectl)?;
    ensure!(printed.trim() == expected, "{} printed {:?}", process::line(kubectl), printed.trim());
    Ok(())
}

/// Whether a name server knows the address of a name.
pub(crate) fn resolves(server: Ipv4Addr, name: &str, expected: Ipv4Addr) -> Result<()> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).context("opening a socket")?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    socket.connect((server, 53))?;
    socket.send(&question(name)).with_context(|| format!("asking {server}"))?;
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer).with_context(|| format!("no answer from {server}"))?;
    // An answer to this question about one name with one address ends with that address.
    ensure!(answer[..length].ends_with(&expected.octets()), "{server} does not know {name}");
    Ok(())
}

/// A DNS question for the address of a name (RFC 1035, section 4.1).
fn question(name: &str) -> Vec<u8> {
    // Number 1, recursion desired, one question, and nothing else.
    let mut packet = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        packet.push(u8::try_from(label.len()).expect("labels have at most 63 bytes"));
        packet.extend(label.as_bytes());
    }
    // The end of the name, type A, class IN.
    packet.extend([0, 0, 1, 0, 1]);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_laid_out_as_the_standard_says() {
        let expected = b"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x02bc\x00\x00\x01\x00\x01";
        assert_eq!(question("a.bc"), expected);
    }

    #[test]
    fn an_early_end_is_reported_with_the_last_words() {
        let log = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(log.path(), "unknown flag: --nonsense\n").unwrap();
        let mut child = Command::new("false").spawn().unwrap();
        let limit = Duration::from_mins(1);
        let never = || bail!("not yet");
        let error = wait(Component::Etcd, "serving", log.path(), Some(&mut child), limit, never).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("etcd ended with exit status: 1 before serving"), "{text}");
        assert!(text.ends_with("unknown flag: --nonsense"), "{text}");
    }

    #[test]
    fn a_missed_deadline_tells_the_last_reason() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let never = || bail!("node is tainted");
        let error = wait(Component::Kubelet, "ready", log.path(), None, Duration::ZERO, never).unwrap_err();
        assert!(error.to_string().starts_with("kubelet: not ready within 0 s (node is tainted)"), "{error}");
    }
}
