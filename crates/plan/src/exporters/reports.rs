//! What exporters say came of them, and what of that people have to hear.

use bk_api::exporters::{ExporterReport, ExporterStatus, SinkReport};

use crate::facts::{ContainerFacts, ContainerState, Ended};

/// What is to be said about an exporter once it is not waited for any more.
pub fn of(exporter: &ContainerFacts) -> ExporterStatus {
    let report = match &exporter.state {
        ContainerState::Ended(end) => ended(end),
        ContainerState::Running => because("it did not end in time".to_owned()),
        ContainerState::Waiting { reason, message } => {
            let why: Vec<&str> =
                [reason.as_str(), message.as_str()].into_iter().filter(|part| !part.is_empty()).collect();
            because(format!("it never started: {}", why.join(": ")))
        }
    };
    ExporterStatus { name: exporter.name.clone(), report }
}

fn ended(end: &Ended) -> ExporterReport {
    let read = serde_json::from_str::<ExporterReport>(&end.message).ok();
    read.unwrap_or_else(|| {
        let reason = if end.reason.is_empty() { String::new() } else { format!(" ({})", end.reason) };
        because(format!("it ended with status {}{reason} and left no report", end.exit_status))
    })
}

fn because(reason: String) -> ExporterReport {
    ExporterReport { reason: Some(reason), ..ExporterReport::default() }
}

/// What the job's author has to hear: what was not exported, and why.
pub(crate) fn loss(all: &[ExporterStatus]) -> Option<String> {
    let losses: Vec<String> = all.iter().filter_map(loss_of).collect();
    (!losses.is_empty())
        .then(|| format!("Not everything that the job left was exported: {}", losses.join("; ")))
}

fn loss_of(exporter: &ExporterStatus) -> Option<String> {
    // What was not there is not lost.
    let ExporterReport { sinks, lost_bytes, reason, unmatched: _ } = &exporter.report;
    let mut parts: Vec<String> = sinks.iter().filter_map(lack).collect();
    let because =
        |reason: &Option<String>| reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    if *lost_bytes > 0 {
        parts.push(format!("{lost_bytes} bytes were lost{}", because(reason)));
    } else {
        // How much it is, nobody knows: a directory that cannot be read, or more files than are followed.
        parts.extend(reason.clone());
    }
    (!parts.is_empty()).then(|| format!("{}: {}", exporter.name, parts.join(", ")))
}

fn lack(sink: &SinkReport) -> Option<String> {
    let lacking = sink.waiting + sink.lost;
    let reason = sink.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    (lacking > 0).then(|| format!("`{}` lacks {lacking} of {}{reason}", sink.name, lacking + sink.sent))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn container(state: ContainerState) -> ContainerFacts {
        ContainerFacts { name: "log-exporter".to_owned(), state, ..ContainerFacts::default() }
    }

    fn with(exit_status: i32, reason: &str, message: &str) -> ContainerState {
        let (reason, message) = (reason.to_owned(), message.to_owned());
        ContainerState::Ended(Box::new(Ended { exit_status, reason, message, at: None }))
    }

    fn waiting(reason: &str) -> ContainerState {
        ContainerState::Waiting { reason: reason.to_owned(), message: String::new() }
    }

    #[rstest]
    #[case::all_is_well(with(0, "Completed", r#"{"sinks":[{"name":"a","sent":5}]}"#), None)]
    #[case::nobody_knows_how_much(
        with(0, "", r#"{"sinks":[{"name":"a","sent":5}],"reason":"cannot read /logs/x"}"#),
        Some("log-exporter: cannot read /logs/x")
    )]
    #[case::what_was_not_there_is_no_loss(
        with(0, "", r#"{"sinks":[{"name":"a","sent":5}],"unmatched":["/logs/*"]}"#),
        None
    )]
    #[case::a_sink_refuses(
        with(0, "", r#"{"sinks":[{"name":"a","sent":5},{"name":"b","sent":2,"waiting":1,"lost":2,"reason":"answered 400"}]}"#),
        Some("log-exporter: `b` lacks 3 of 5 (answered 400)")
    )]
    #[case::too_quick(
        with(0, "", r#"{"sinks":[{"name":"a","sent":5}],"lostBytes":70,"reason":"too quick"}"#),
        Some("log-exporter: 70 bytes were lost: too quick")
    )]
    #[case::killed(
        with(137, "OOMKilled", ""),
        Some("log-exporter: it ended with status 137 (OOMKilled) and left no report")
    )]
    #[case::no_image(waiting("ErrImagePull"), Some("log-exporter: it never started: ErrImagePull"))]
    #[case::endless(ContainerState::Running, Some("log-exporter: it did not end in time"))]
    fn people_hear_of_losses(#[case] state: ContainerState, #[case] expected: Option<&str>) {
        let said = loss(&[of(&container(state))]);
        let said = said
            .as_deref()
            .and_then(|said| said.strip_prefix("Not everything that the job left was exported: "));
        assert_eq!(said, expected);
    }
}
