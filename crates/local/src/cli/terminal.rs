//! What the command line prints.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this module is for")]

use std::cell::RefCell;
use std::io::{IsTerminal, Write};

/// One line on standard error.
pub(super) fn error(text: &str) {
    eprintln!("error: {text}");
}

/// Something worth knowing, on standard error.
pub(super) fn note(text: &str) {
    eprintln!("note: {text}");
}

/// Standard output, coloured on a terminal, with a status below what was printed.
pub(super) struct Terminal {
    interactive: bool,
    colours: bool,
    status: RefCell<String>,
}

/// What a line is about.
#[derive(Clone, Copy)]
pub(super) enum Tone {
    Plain,
    Good,
    Bad,
    Quiet,
    Warning,
}

impl Terminal {
    pub(super) fn stdout() -> Self {
        let interactive = std::io::stdout().is_terminal();
        let colours = interactive && std::env::var_os("NO_COLOR").is_none();
        Self { interactive, colours, status: RefCell::default() }
    }

    /// Whether a person is looking.
    pub(super) fn is_interactive(&self) -> bool {
        self.interactive
    }

    /// Whether escape sequences are wanted.
    pub(super) fn has_colours(&self) -> bool {
        self.colours
    }

    /// One line.
    pub(super) fn line(&self, tone: Tone, text: &str) {
        let code = match tone {
            Tone::Plain => "",
            Tone::Good => "\u{1b}[32m",
            Tone::Bad => "\u{1b}[31m",
            Tone::Quiet => "\u{1b}[2m",
            Tone::Warning => "\u{1b}[33m",
        };
        let status = self.status.borrow();
        if !status.is_empty() {
            print!("\r\u{1b}[2K");
        }
        if self.colours && !code.is_empty() {
            println!("{code}{text}\u{1b}[0m");
        } else {
            println!("{text}");
        }
        if !status.is_empty() {
            print!("{status}");
        }
        flush();
    }

    /// Several lines.
    pub(super) fn lines(&self, lines: &[String]) {
        for line in lines {
            self.line(Tone::Plain, line);
        }
    }

    /// Text as it is.
    pub(super) fn raw(&self, text: &str) {
        debug_assert!(self.status.borrow().is_empty(), "a status would be torn");
        print!("{text}");
        flush();
    }

    /// Replaces the status, which stays below all lines. Only people see it; an empty one goes away.
    pub(super) fn status(&self, text: &str) {
        if !self.interactive {
            return;
        }
        let width = terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
        let cut: String = text.chars().take(width.saturating_sub(1)).collect();
        let mut status = self.status.borrow_mut();
        if *status == cut {
            return;
        }
        print!("\r\u{1b}[2K{cut}");
        *status = cut;
        flush();
    }
}

fn flush() {
    // A reader of a pipe sees lines as they come; a closed pipe is noticed at the next print.
    let _closed = std::io::stdout().flush();
}
