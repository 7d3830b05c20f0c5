//! Where the processor time goes while something is measured.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::figures::Line;
use crate::process;

/// Processes to watch: a name and a number each.
pub(super) type Processes = Vec<(String, u32)>;

/// What had been used when the measurement began.
pub(super) struct Meter {
    began: Instant,
    idle: u64,
    used: Vec<(String, u32, Duration)>,
}

impl Meter {
    /// Begins to watch.
    pub(super) fn start(processes: Processes) -> Result<Self> {
        let used = processes.into_iter().map(|(name, pid)| Ok((name, pid, process::cpu(pid)?)));
        Ok(Self { began: Instant::now(), idle: idle()?, used: used.collect::<Result<_>>()? })
    }

    /// Who has used how much since, the most first, and how busy the whole machine was.
    pub(super) fn lines(&self) -> Result<Vec<Line>> {
        let elapsed = self.began.elapsed();
        let mut shares = Vec::new();
        for (name, pid, before) in &self.used {
            let used = process::cpu(*pid)?.saturating_sub(*before);
            shares.push((name, used, used.as_secs_f64() / elapsed.as_secs_f64()));
        }
        shares.sort_by_key(|(_, used, _)| std::cmp::Reverse(*used));
        let visible = shares.into_iter().filter(|(_, _, cores)| *cores >= 0.01);
        let mut lines: Vec<Line> = visible
            .map(|(name, used, cores)| {
                let text = format!("{:.1} s, {cores:.2} cores", used.as_secs_f64());
                Line::value(format!("  processor: {name}"), text)
            })
            .collect();
        lines.push(Line::value("  processor: not used by anybody", self.unused(elapsed)?));
        Ok(lines)
    }

    #[allow(clippy::cast_precision_loss, reason = "ticks are far below 2^52")]
    fn unused(&self, elapsed: Duration) -> Result<String> {
        let ticks = idle()?.saturating_sub(self.idle) as f64;
        let seconds = ticks / rustix::param::clock_ticks_per_second() as f64;
        Ok(format!("{seconds:.1} s, {:.2} cores", seconds / elapsed.as_secs_f64()))
    }
}

/// How long all cores together have had nothing to do, in clock ticks.
fn idle() -> Result<u64> {
    let stat = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    idle_of(&stat).context("reading idle times in /proc/stat")
}

/// Idle, and waiting for disks.
fn idle_of(stat: &str) -> Option<u64> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let mut fields = all.split_whitespace().skip(3).map(|field| field.parse::<u64>().ok());
    Some(fields.next()?? + fields.next()??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_times_are_those_of_all_cores() {
        assert_eq!(idle_of("cpu  10 20 30 400 5 0 0 0 0 0\ncpu0 1 2 3 4 5 0\n"), Some(405));
        assert_eq!(idle_of("intr 1"), None);
    }

    #[test]
    fn the_whole_machine_is_part_of_it_and_a_process_that_is_gone_is_an_error() {
        let lines = Meter::start(Vec::new()).unwrap().lines().unwrap();
        assert_eq!(lines[0].name, "  processor: not used by anybody");
        assert!(Meter::start(vec![("nobody".to_owned(), 0)]).is_err());
    }
}
