//! What a check has found.

use bk_ops::table;
use serde::Serialize;

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Grade {
    /// As it should be.
    Ok,
    /// It may be wrong, or cannot be told from here.
    Warn,
    /// It is wrong.
    Fail,
}

/// What a check has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// What was looked at.
    pub(super) check: &'static str,
    /// How it is.
    pub(super) grade: Grade,
    /// What was seen.
    pub(super) message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, grade: Grade::Ok, message: message.into(), advice: None }
    }

    pub(super) fn warn(check: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, grade: Grade::Warn, message: message.into(), advice: Some(advice.into()) }
    }

    pub(super) fn fail(check: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, grade: Grade::Fail, message: message.into(), advice: Some(advice.into()) }
    }
}

/// The findings, one on each line with its advice below, and how many are bad.
pub(super) fn lines(findings: &[Finding]) -> Vec<String> {
    let row = |finding: &Finding| {
        let grade = match finding.grade {
            Grade::Ok => "ok",
            Grade::Warn => "warn",
            Grade::Fail => "FAIL",
        };
        vec![grade.to_owned(), finding.check.to_owned()]
    };
    let rows: Vec<Vec<String>> = findings.iter().map(row).collect();
    let widths = table::widths(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let indent = widths.iter().map(|width| width + 2).sum::<usize>();
    let mut lines = Vec::new();
    for (finding, row) in findings.iter().zip(&rows) {
        lines.push(format!("{:indent$}{}", table::line(row, &widths), finding.message));
        lines.extend(finding.advice.as_ref().map(|advice| format!("{:indent$}→ {advice}", "")));
    }
    let count = |grade| findings.iter().filter(|finding| finding.grade == grade).count();
    lines.push(format!(
        "{} checks: {} failed, {} with a warning",
        findings.len(),
        count(Grade::Fail),
        count(Grade::Warn)
    ));
    lines
}
