//! Figures as a table that people read.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result};

/// One line of the table.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) figure: Figure,
    /// Processes that wanted to run while it was measured; above the number of cores, times are too long.
    pub(crate) load: f64,
}

/// What was measured.
pub(crate) enum Figure {
    /// How long calls took.
    Calls(Calls),
    /// Something else: the value, and its target with whether it was met.
    Value { text: String, target: Option<(&'static str, bool)> },
}

/// How long calls took.
#[derive(Default)]
pub(crate) struct Calls {
    pub(crate) times: Vec<Duration>,
    /// What all of them cost the server.
    pub(crate) cpu: Option<Duration>,
    /// What 95 of 100 calls must keep within.
    pub(crate) target: Option<Duration>,
}

impl Line {
    pub(crate) fn calls(name: impl Into<String>, calls: Calls) -> Self {
        Self { name: name.into(), figure: Figure::Calls(calls), load: load_average() }
    }

    pub(crate) fn value(name: impl Into<String>, text: String) -> Self {
        Self { name: name.into(), figure: Figure::Value { text, target: None }, load: load_average() }
    }

    pub(crate) fn with_target(mut self, target: &'static str, met: bool) -> Self {
        if let Figure::Value { target: slot, .. } = &mut self.figure {
            *slot = Some((target, met));
        }
        self
    }
}

impl Line {
    /// Whether it has a target that was not met.
    pub(crate) fn is_missed(&self) -> bool {
        match &self.figure {
            Figure::Calls(calls) => calls.is_met() == Some(false),
            Figure::Value { target, .. } => target.is_some_and(|(_, met)| !met),
        }
    }
}

impl Calls {
    /// Whether 95 of 100 calls kept within the target, if there is one.
    fn is_met(&self) -> Option<bool> {
        let mut sorted = self.times.clone();
        sorted.sort_unstable();
        self.target.map(|target| percentile(&sorted, 0.95) < target)
    }
}

/// The load average over the last minute.
pub(crate) fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

/// What the figures were measured on.
pub(crate) fn machine() -> Result<String> {
    let cores = std::thread::available_parallelism().context("counting the cores")?;
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").context("reading /proc/cpuinfo")?;
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let model = model.trim_start_matches(['\t', ' ', ':']);
    Ok(format!("{cores} cores, {model}; load average before {:.2}", load_average()))
}

/// The value that `share` of the times do not exceed.
pub(crate) fn percentile(sorted: &[Duration], share: f64) -> Duration {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let index = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(index.saturating_sub(1)).copied().unwrap_or_default()
}

/// Milliseconds with two digits that mean something.
fn millis(time: Duration) -> String {
    let value = time.as_secs_f64() * 1000.0;
    match value {
        100.0.. => format!("{value:.0} ms"),
        10.0.. => format!("{value:.1} ms"),
        _ => format!("{value:.2} ms"),
    }
}

/// Median and 99th percentile, as text, and the median itself.
pub(crate) fn spread(mut times: Vec<Duration>) -> (String, Duration) {
    times.sort_unstable();
    let median = percentile(&times, 0.5);
    let text =
        format!("{} times, median {}, p99 {}", times.len(), millis(median), millis(percentile(&times, 0.99)));
    (text, median)
}

fn mark(met: bool) -> &'static str {
    if met { "ok" } else { "OVER" }
}

/// Renders the lines of a benchmark.
pub(crate) fn table(name: &str, lines: &[Line]) -> String {
    let calls = lines.iter().any(|line| matches!(line.figure, Figure::Calls(_)));
    let columns = if calls { ["calls", "min", "median", "p95", "CPU/call"] } else { [""; 5] };
    let [calls, min, median, p95, cpu] = columns;
    let mut text = format!(
        "{name:<44}{calls:>7}{min:>10}{median:>10}{p95:>10}{cpu:>11}{:>12}{:>6}{:>7}\n",
        "target", "", "load"
    );
    for Line { name, figure, load } in lines {
        let written = match figure {
            Figure::Calls(calls) => write!(text, "  {name:<42}{}", calls_columns(calls)),
            Figure::Value { text: value, target } => {
                let (target, mark) = target.map_or(("", ""), |(target, met)| (target, mark(met)));
                // A long name takes the room of its value.
                let width = 90_usize.saturating_sub(name.chars().count().max(42));
                write!(text, "  {name:<42}{value:>width$}{target:>12}{mark:>6}")
            }
        };
        written.and_then(|()| writeln!(text, "{load:>7.2}")).expect("text takes what is written");
    }
    text.trim_end().to_owned()
}

fn calls_columns(calls: &Calls) -> String {
    let mut sorted = calls.times.clone();
    sorted.sort_unstable();
    let p95 = percentile(&sorted, 0.95);
    let count = u32::try_from(sorted.len()).unwrap_or(u32::MAX);
    let cpu = calls.cpu.and_then(|cpu| cpu.checked_div(count)).map(millis).unwrap_or_default();
    let target = calls.target.map(|target| format!("< {} ms", target.as_millis())).unwrap_or_default();
    let mark = calls.is_met().map_or("", mark);
    format!(
        "{count:>7}{:>10}{:>10}{:>10}{cpu:>11}{target:>12}{mark:>6}",
        millis(percentile(&sorted, 0.0)),
        millis(percentile(&sorted, 0.5)),
        millis(p95),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let times: Vec<_> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 0.0), Duration::from_millis(1));
        assert_eq!(percentile(&times, 0.5), Duration::from_millis(50));
        assert_eq!(percentile(&times, 0.95), Duration::from_millis(95));
        assert_eq!(percentile(&times, 1.0), Duration::from_millis(100));
        assert_eq!(percentile(&[], 0.5), Duration::ZERO);
    }

    #[test]
    fn a_spread_names_the_median_and_the_slowest_of_a_hundred() {
        let times: Vec<_> = (1..=200).rev().map(Duration::from_millis).collect();
        let (text, median) = spread(times);
        assert_eq!(text, "200 times, median 100 ms, p99 198 ms");
        assert_eq!(median, Duration::from_millis(100));
    }

    #[test]
    fn a_target_that_is_missed_stands_out() {
        let calls = |target| {
            let times = vec![Duration::from_millis(10); 20];
            let cpu = Some(Duration::from_millis(100));
            let calls = Calls { times, cpu, target: Some(Duration::from_millis(target)) };
            Line { load: 0.5, ..Line::calls("list", calls) }
        };
        let memory = Line::value("memory", "200 MB".into()).with_target("< 150 MB", false);
        let lines = [calls(20), calls(10), Line { load: 0.5, ..memory }];
        assert_eq!(lines.each_ref().map(Line::is_missed), [false, true, true]);
        let text = table("queue", &lines);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let times = ["list", "20", "10.0", "ms", "10.0", "ms", "10.0", "ms", "5.00", "ms", "<"];
        assert_eq!(rows[1], [&times[..], &["20", "ms", "ok", "0.50"]].concat());
        assert_eq!(rows[2], [&times[..], &["10", "ms", "OVER", "0.50"]].concat());
        assert_eq!(rows[0], ["queue", "calls", "min", "median", "p95", "CPU/call", "target", "load"]);
        assert_eq!(rows[3], ["memory", "200", "MB", "<", "150", "MB", "OVER", "0.50"]);
    }

    #[test]
    fn lines_end_in_one_column_also_if_a_name_is_long() {
        let value = |name: &str| Line { load: 0.5, ..Line::value(name, "1 per job".into()) };
        let text = table("idle", &[value("short"), value(&"long".repeat(15))]);
        let widths: Vec<usize> = text.lines().map(str::len).collect();
        assert_eq!(widths, [widths[0]; 3], "{text}");
        assert_eq!(
            text.lines().next().unwrap().split_whitespace().collect::<Vec<_>>(),
            ["idle", "target", "load"]
        );
    }
}
