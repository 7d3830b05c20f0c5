//! What processes have used so far, as the kernel counts it.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// The processor time of a process, user and system.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    cpu_of(&read(pid, "stat")?).with_context(|| format!("reading the processor time of process {pid}"))
}

/// Field 14 and 15, of which the second may hold blanks and brackets of its own.
fn cpu_of(stat: &str) -> Option<Duration> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    let ticks = ticks(11)? + ticks(12)?;
    Some(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
}

/// Resident memory in megabytes: now, and at most so far.
pub(crate) fn memory(pid: u32) -> Result<(u64, u64)> {
    let status = read(pid, "status")?;
    let megabytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).map(|kb| kb / 1024)
    };
    megabytes("VmRSS").zip(megabytes("VmHWM")).with_context(|| format!("reading the memory of process {pid}"))
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).with_context(|| format!("reading {path}: the process may have ended"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_whatever_the_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 1 2 3 4 150 50 7 8 20 0 1 0 987654 100 200";
        let per_tick = 1000 / rustix::param::clock_ticks_per_second();
        assert_eq!(cpu_of(stat), Some(Duration::from_millis(200 * per_tick)));
        assert!(cpu(std::process::id()).is_ok());
    }

    #[test]
    fn the_most_memory_is_no_less_than_what_is_used_now() {
        let (now, most) = memory(std::process::id()).unwrap();
        assert!(now <= most, "{now} {most}");
        assert!(memory(0).unwrap_err().to_string().contains("/proc/0/status"));
    }
}
