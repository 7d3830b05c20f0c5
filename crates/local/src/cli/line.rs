//! Lines of job logs, as the command line shows them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// What is shown of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    /// Colours and other escape sequences stay.
    pub(super) escapes: bool,
    /// Each line begins with when it was written.
    pub(super) timestamps: bool,
}

const STAMP: &str = "\u{1b}_bk;t=";

impl Form {
    /// One line without its end. Time stamps of the agent are read, never shown as they came.
    pub(super) fn show(self, raw: &str) -> String {
        let (written, text) = split_stamps(raw);
        let text = last_state(&text);
        let mut shown = if self.escapes { text.to_owned() } else { without_escapes(text) };
        if self.escapes && text.contains('\u{1b}') {
            shown.push_str("\u{1b}[0m");
        }
        match written {
            Some(at) if self.timestamps => format!("{} {shown}", clock(at)),
            _ if self.timestamps => format!("{:12} {shown}", ""),
            _ => shown,
        }
    }
}

fn clock(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%H:%M:%S%.3f").to_string()
}

/// The first time stamp of a line, and the line without any.
fn split_stamps(raw: &str) -> (Option<Timestamp>, String) {
    let mut first = None;
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find(STAMP) {
        let after = &rest[at + STAMP.len()..];
        let Some((digits, next)) = after.split_once('\u{7}') else { break };
        let Ok(millis) = digits.parse() else { break };
        text.push_str(&rest[..at]);
        first = first.or(Timestamp::from_millisecond(millis).ok());
        rest = next;
    }
    text.push_str(rest);
    (first, text)
}

/// What a terminal would show of a line that was overwritten by carriage returns, as progress displays are.
fn last_state(text: &str) -> &str {
    let text = text.trim_end_matches('\r');
    text.rsplit('\r').next().unwrap_or(text)
}

/// Text without escape sequences.
pub(super) fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\u{1b}' {
            plain.push(c);
            continue;
        }
        match rest.next() {
            // Control sequences end with a letter or one of a few signs; their parameters come before.
            Some('[') => drop(rest.find(|c| ('@'..='~').contains(c))),
            // Strings to the terminal end with BEL, or with ESC and a backslash.
            Some('_' | ']' | 'P' | '^') => {
                let end = rest.find(|c| matches!(c, '\u{7}' | '\u{1b}'));
                if end == Some('\u{1b}') {
                    rest.next();
                }
            }
            _ => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("plain", "plain")]
    #[case("\u{1b}[90m$\u{1b}[0m make", "$ make")]
    #[case("\u{1b}[38;5;48mx\u{1b}[K", "x")]
    #[case("a\u{1b}]8;;http://x\u{7}b\u{1b}]8;;\u{1b}\\c", "abc")]
    #[case("cut \u{1b}[3", "cut ")]
    #[case("\u{1b}_bk;t=1\u{7}a\u{1b}_bk;t=2\u{7}b\r", "ab")]
    #[case("10%\r50%\r100%, done\r", "100%, done")]
    fn escapes_go(#[case] raw: &str, #[case] plain: &str) {
        assert_eq!(Form { escapes: false, timestamps: false }.show(raw), plain);
    }

    #[test]
    fn colours_stay_on_a_terminal_and_end_with_the_line() {
        let form = Form { escapes: true, timestamps: false };
        assert_eq!(form.show("\u{1b}_bk;t=1\u{7}\u{1b}[31mred"), "\u{1b}[31mred\u{1b}[0m");
        assert_eq!(form.show("none"), "none");
    }

    #[test]
    fn lines_say_when_they_were_written() {
        let form = Form { escapes: false, timestamps: true };
        let shown = form.show("\u{1b}_bk;t=1700000000123\u{7}text");
        assert!(shown.ends_with(":20.123 text"), "{shown}");
        assert_eq!(form.show("without"), "             without");
    }
}
