//! Lines that belong together, such as those of a stack trace.

use bk_api::config::Multiline;
use regex::bytes::Regex;

/// Which lines go on with the record before them.
#[derive(Debug)]
pub enum Rule {
    /// Those that begin with a space or a tab.
    Indented,
    /// Those that do not match.
    Start(Regex),
    /// Those that match.
    Continuation(Regex),
}

impl Rule {
    /// The configured rule.
    pub fn of(configured: &Multiline) -> Result<Self, regex::Error> {
        Ok(match configured {
            Multiline::Indented => Self::Indented,
            Multiline::Start(expression) => Self::Start(Regex::new(expression)?),
            Multiline::Continuation(expression) => Self::Continuation(Regex::new(expression)?),
        })
    }

    /// Whether `line` goes on with the record before it.
    pub fn continues(&self, line: &[u8]) -> bool {
        match self {
            Self::Indented => line.first().is_some_and(|byte| matches!(byte, b' ' | b'\t')),
            Self::Start(start) => !start.is_match(line),
            Self::Continuation(continuation) => continuation.is_match(line),
        }
    }
}

/// A record that may not be whole yet.
#[derive(Debug, Default)]
pub struct Joint {
    text: Vec<u8>,
    first: Option<First>,
}

/// What is known of a record's first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// Where it begins.
    pub offset: u64,
    /// When it came.
    pub time: u64,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined<'a> {
    /// Its lines.
    pub text: &'a [u8],
    /// Its first line.
    pub first: First,
    /// Whether it goes on in the next record, because it is too long.
    pub partial: bool,
}

impl Joint {
    /// Takes a line, or a part of one that is too long, and hands out the record before it if that is whole.
    /// No record is longer than `most`, unless a line is.
    pub fn push(
        &mut self,
        rule: &Rule,
        line: &[u8],
        first: First,
        partial: bool,
        most: usize,
        out: &mut impl FnMut(Joined<'_>),
    ) {
        let continues = self.first.is_some() && rule.continues(line);
        let full = continues && self.text.len() + 1 + line.len() > most;
        if !continues || full {
            self.end_as(full, out);
            self.first = Some(first);
        } else {
            self.text.push(b'\n');
        }
        self.text.extend_from_slice(line);
        if partial {
            self.end_as(true, out);
        }
    }

    /// Hands out what is left: nothing more has come for a while, or will.
    pub fn end(&mut self, out: &mut impl FnMut(Joined<'_>)) {
        self.end_as(false, out);
    }

    /// Hands out what there is of a record that is not whole, and lets go of its memory.
    pub fn release(&mut self, out: &mut impl FnMut(Joined<'_>)) {
        self.end_as(true, out);
        self.text.shrink_to_fit();
    }

    /// The memory that it takes.
    pub fn held(&self) -> usize {
        self.text.capacity()
    }

    fn end_as(&mut self, partial: bool, out: &mut impl FnMut(Joined<'_>)) {
        if let Some(first) = self.first.take() {
            out(Joined { text: &self.text, first, partial });
        }
        self.text.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn joined(rule: &Multiline, lines: &[&str], most: usize) -> Vec<String> {
        let (rule, mut joint, mut records) = (Rule::of(rule).unwrap(), Joint::default(), Vec::new());
        let mut out = |record: Joined<'_>| {
            let text = String::from_utf8_lossy(record.text).replace('\n', "|");
            records.push(format!("{}:{text}{}", record.first.offset, if record.partial { "…" } else { "" }));
        };
        for (offset, line) in (0..).zip(lines) {
            joint.push(&rule, line.as_bytes(), First { offset, time: 0 }, false, most, &mut out);
        }
        joint.end(&mut out);
        records
    }

    #[rstest]
    #[case(Multiline::Indented, &["a", " b", "\tc", "d", ""], &["0:a| b|\tc", "3:d", "4:"])]
    #[case(Multiline::Indented, &[" begins indented", "a"], &["0: begins indented", "1:a"])]
    #[case(Multiline::Start(r"^\d".to_owned()), &["x", "1", "a", "", "2"], &["0:x", "1:1|a|", "4:2"])]
    #[case(Multiline::Continuation("^(Caused|  at)".to_owned()), &["e", "  at x", "Caused by", "f"], &["0:e|  at x|Caused by", "3:f"])]
    #[case(Multiline::Indented, &["1234567890", " 12345678", " bcd"], &["0:1234567890| 12345678…", "2: bcd"])]
    fn lines_that_belong_together(
        #[case] rule: Multiline,
        #[case] lines: &[&str],
        #[case] expected: &[&str],
    ) {
        assert_eq!(joined(&rule, lines, 20), expected);
    }

    #[test]
    fn parts_of_a_long_line_are_not_held_back() {
        let (mut joint, mut records) = (Joint::default(), Vec::new());
        let mut out = |record: Joined<'_>| records.push((record.text.len(), record.partial));
        joint.push(&Rule::Indented, b"part", First { offset: 0, time: 0 }, true, 4, &mut out);
        joint.push(&Rule::Indented, b"rest", First { offset: 4, time: 0 }, false, 4, &mut out);
        joint.end(&mut out);
        assert_eq!(records, [(4, true), (4, false)]);
    }

    proptest! {
        #[test]
        fn no_line_is_lost_or_moved(lines in prop::collection::vec("[ a]{0,5}", 0..20), most in 1_usize..30) {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let records = joined(&Multiline::Indented, &lines, most);
            let texts: Vec<&str> = records.iter().flat_map(|record| record.split_once(':').unwrap().1.trim_end_matches('…').split('|')).collect();
            prop_assert_eq!(texts, lines);
        }
    }
}
