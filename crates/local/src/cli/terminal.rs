//! What the command line prints.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this module is for")]

use std::io::{IsTerminal, Write};

/// One line on standard error.
pub(super) fn error(text: &str) {
    eprintln!("error: {text}");
}

/// Something worth knowing, on standard error.
pub(super) fn note(text: &str) {
    eprintln!("note: {text}");
}

/// Standard output, coloured on a terminal.
pub(super) struct Terminal {
    colours: bool,
}

/// What a line is about.
#[derive(Clone, Copy)]
pub(super) enum Tone {
    Plain,
    Good,
    Bad,
    Quiet,
}

impl Terminal {
    pub(super) fn stdout() -> Self {
        Self { colours: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() }
    }

    /// One line of a job's log. Its own colours stay on a terminal and go elsewhere.
    pub(super) fn log(&self, title: &str, text: &str) {
        let text = last_state(text);
        if self.colours {
            self.line(Tone::Plain, &format!("{title} | {text}\u{1b}[0m"));
        } else {
            self.line(Tone::Plain, &format!("{title} | {}", without_escapes(text)));
        }
    }

    /// One line.
    pub(super) fn line(&self, tone: Tone, text: &str) {
        let code = match tone {
            Tone::Plain => "",
            Tone::Good => "\u{1b}[32m",
            Tone::Bad => "\u{1b}[31m",
            Tone::Quiet => "\u{1b}[2m",
        };
        if self.colours && !code.is_empty() {
            println!("{code}{text}\u{1b}[0m");
        } else {
            println!("{text}");
        }
        // A reader of a pipe sees lines as they come; a closed pipe is noticed at the next print.
        let _closed = std::io::stdout().flush();
    }
}

/// What a terminal would show of a line that was overwritten by carriage returns, as progress displays are.
fn last_state(text: &str) -> &str {
    let text = text.trim_end_matches('\r');
    text.rsplit('\r').next().unwrap_or(text)
}

/// Text without escape sequences.
fn without_escapes(text: &str) -> String {
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
    fn escapes_go(#[case] raw: &str, #[case] plain: &str) {
        assert_eq!(without_escapes(raw), plain);
    }

    #[test]
    fn progress_shows_its_last_state() {
        assert_eq!(last_state("10%\r50%\r100%, done\r"), "100%, done");
    }
}
