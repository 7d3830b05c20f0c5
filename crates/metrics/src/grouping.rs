//! Where a Pushgateway keeps the metrics of a job: its *grouping key* is a path.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::family::Labels;

/// The path of a group, below the Pushgateway's own address. `job` comes first, as the gateway demands it; the others are in
/// order.
pub fn path(job: &str, labels: &Labels) -> String {
    let others = labels.iter().map(|(name, value)| segment(name, value));
    std::iter::once(segment("job", job)).chain(others).fold("/metrics".to_owned(), |path, part| path + &part)
}

/// What can stand in a path stands there as it is; everything else in base64, as the gateway reads it.
fn segment(name: &str, value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    match value {
        // One sign of padding says that the value is empty, and not absent.
        "" => format!("/{name}@base64/="),
        // Dots alone would be taken for directories.
        "." | ".." => format!("/{name}@base64/{}", URL_SAFE_NO_PAD.encode(value)),
        value if value.bytes().all(plain) => format!("/{name}/{value}"),
        value => format!("/{name}@base64/{}", URL_SAFE_NO_PAD.encode(value)),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::path;
    use crate::family::Labels;

    #[rstest]
    #[case::plain("build", "/metrics/job/build/step/x")]
    #[case::slash("a/b", "/metrics/job@base64/YS9i/step/x")]
    #[case::unicode("käse", "/metrics/job@base64/a8Okc2U/step/x")]
    #[case::empty("", "/metrics/job@base64/=/step/x")]
    #[case::dots("..", "/metrics/job@base64/Li4/step/x")]
    fn groups(#[case] job: &str, #[case] expected: &str) {
        assert_eq!(path(job, &Labels::from([("step".to_owned(), "x".to_owned())])), expected);
    }
}
