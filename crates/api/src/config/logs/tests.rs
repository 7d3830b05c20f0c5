use rstest::rstest;

use super::*;

fn read(text: &str) -> Result<LogExporterConfig, String> {
    let config: LogExporterConfig = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    config.check()?;
    Ok(config)
}

#[test]
fn every_sink_is_a_default_unless_some_are_named() {
    let sinks = "sinks: {b: {stdout: {}}, a: {otlp: {url: 'http://x'}}}";
    assert_eq!(read(sinks).unwrap().default_sinks(), ["a", "b"]);
    assert_eq!(read(&format!("{sinks}\ndefaultSinks: [b]")).unwrap().default_sinks(), ["b"]);
}

#[rstest]
#[case("indented", Multiline::Indented)]
#[case("{start: '^\\d{4}-'}", Multiline::Start(r"^\d{4}-".to_owned()))]
#[case("{continuation: '^\\s'}", Multiline::Continuation(r"^\s".to_owned()))]
fn rules_of_joining(#[case] text: &str, #[case] expected: Multiline) {
    let config = read(&format!("multiline: {text}\nmaxLineBytes: 1000")).unwrap();
    let expected = LogHandling { multiline: Some(expected), max_line_bytes: 1000, ..LogHandling::default() };
    assert_eq!(config.handling(), expected);
}

#[rstest]
#[case("sinks: {A: {stdout: {}}}", "`sinks.A`: a sink's name must be")]
#[case("sinks: {a: {otlp: {url: ftp://x}}}", "`sinks.a.otlp.url` must begin with http:// or https://")]
#[case("sinks: {a: {otlp: {url: 'https:///v1'}}}", "`sinks.a.otlp.url` must begin with http:// or https://")]
#[case("sinks: {a: {otlp: {url: 'https://u:p@x'}}}", "`sinks.a.otlp.url` must not hold credentials")]
#[case("sinks: {a: {elasticsearch: {url: 'http://x'}}}", "`sinks.a.elasticsearch` needs either")]
#[case("sinks: {a: {elasticsearch: {url: 'http://x', dataStream: logs, index: x}}}", "needs either")]
#[case(
    "sinks: {a: {elasticsearch: {url: 'http://x', index: 'logs-%H'}}}",
    "`sinks.a.elasticsearch.index` must be"
)]
#[case("sinks: {a: {elasticsearch: {url: 'http://x', dataStream: Logs}}}", ".dataStream` must be")]
#[case("sinks: {a: {loki: {url: 'http://x', labels: {'a-b': c}}}}", "`sinks.a.loki.labels` has `a-b`")]
#[case("sinks: {a: {file: {volume: {name: x}}}}", "`sinks.a.file.volume` must say what kind")]
#[case("sinks: {a: {file: {volume: {emptyDir: {}}, maxBytes: 1}}}", "`sinks.a.file.maxBytes` must be")]
#[case("defaultSinks: [x]", "`defaultSinks`: `x` is not in `sinks`")]
#[case(
    "{sinks: {a: {stdout: {}}, b: {stdout: {}}}, defaultSinks: [a, b, a]}",
    "`defaultSinks`: `a` is there twice"
)]
#[case("sinks: {a: {otlp: {url: 'http://x', secret: ''}}}", "`sinks.a.otlp.secret` must not be empty")]
#[case("sinks: {a: {loki: {url: 'http://x', secret: A_b}}}", "`sinks.a.loki.secret` `A_b` is no name")]
#[case(
    "sinks: {a: {elasticsearch: {url: 'http://x', dataStream: logs, secret: 'a b'}}}",
    "`sinks.a.elasticsearch.secret` `a b` is no name"
)]
#[case("enabled: true", "`enabled` needs at least one sink")]
#[case("drainSeconds: 0", "`drainSeconds` must be at least 1")]
#[case("spoolBytes: 1", "`spoolBytes` must be at least 1048576")]
#[case("maxLineBytes: 2000000", "`maxLineBytes` must be 256 to 1048576")]
#[case("batch: {lines: 0}", "`batch.lines` must be")]
#[case("batch: {bytes: 1}", "`batch.bytes` must be")]
#[case("batch: {milliseconds: 0}", "`batch.milliseconds` must be")]
#[case("multiline: {start: '('}", "`multiline`: `(` is no regular expression: unclosed group")]
#[case("redaction: {variables: ['']}", "`redaction.variables` must not hold empty patterns")]
fn what_cannot_work_is_refused(#[case] text: &str, #[case] expected: &str) {
    let refusal = read(text).unwrap_err();
    assert!(refusal.contains(expected), "{refusal}");
}
