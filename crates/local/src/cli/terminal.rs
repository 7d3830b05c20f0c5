//! What the command line prints.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this module is for")]

use std::io::{IsTerminal, Write};

/// One line on standard error.
pub(super) fn error(text: &str) {
    eprintln!("error: {text}");
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
