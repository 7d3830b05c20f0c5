//! Structured logs on standard error, for people or for machines.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt, prelude::*, registry};

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One readable line per event.
    #[default]
    Human,
    /// One JSON object per event.
    Json,
}

/// The flags that every long-running command takes.
#[derive(Clone, Debug, clap::Args)]
pub struct LogArgs {
    /// Format of log lines
    #[arg(
        long,
        value_enum,
        env = "LOG_FORMAT",
        hide_env_values = true,
        default_value = "human",
        value_name = "FORMAT"
    )]
    pub log_format: LogFormat,

    /// What to log: a level (error, warn, info, debug, trace) or filters such as `info,kube=debug`
    #[arg(long, env = "LOG_LEVEL", hide_env_values = true, default_value = "info", value_name = "FILTER", value_parser = parse_filter)]
    pub log_level: String,
}

/// Checks a filter. The filter's own parser takes any bare word for the name of a module, so that a misspelt
/// level would silence everything.
fn parse_filter(text: &str) -> Result<String, String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let is_level = |word: &str| LEVELS.contains(&word.to_ascii_lowercase().as_str());
    if let Some(word) = text.split(',').map(str::trim).find(|part| !part.contains('=') && !is_level(part)) {
        return Err(format!("`{word}` is not one of {}, nor a filter such as kube=debug", LEVELS.join(", ")));
    }
    match EnvFilter::builder().parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Installs the process's log subscriber. Only the first call has an effect.
pub fn init(args: &LogArgs) {
    let filter = EnvFilter::new(&args.log_level);
    let writer = std::io::stderr;
    let installed = match args.log_format {
        LogFormat::Human => registry()
            .with(filter)
            .with(
                fmt::layer()
                    .with_writer(writer)
                    .with_ansi(std::io::stderr().is_terminal())
                    .with_target(false),
            )
            .try_init(),
        LogFormat::Json => registry()
            .with(filter)
            .with(
                fmt::layer()
                    .json()
                    .flatten_event(true)
                    .with_current_span(true)
                    .with_span_list(false)
                    .with_writer(writer),
            )
            .try_init(),
    };
    if installed.is_err() {
        tracing::debug!("a log subscriber is installed already");
    }
}

#[cfg(test)]
mod tests {
    use super::parse_filter;

    #[test]
    fn levels_and_filters_pass_and_typos_do_not() {
        for good in ["info", "WARN", "info,kube=debug", "warn,buildkite_operator::spawner=trace"] {
            assert_eq!(parse_filter(good).as_deref(), Ok(good));
        }
        for bad in ["loud", "info,kube=loud", "debug,kube"] {
            assert!(parse_filter(bad).is_err(), "{bad}");
        }
    }
}
