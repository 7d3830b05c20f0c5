//! From chunks of bytes to lines: across chunks, cut where they are too long, and readable.

use crate::secrets::Redactor;

/// A line, or a part of one that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its bytes, without the line break.
    pub bytes: &'a [u8],
    /// So many of the first bytes belong to a secret that the part before has hidden.
    pub covered: usize,
    /// Where in its source it begins.
    pub offset: u64,
    /// When its first byte came, in nanoseconds since 1970.
    pub time: u64,
    /// Whether the line goes on in the next part.
    pub partial: bool,
}

/// Puts the lines of one source together.
#[derive(Debug, Default)]
pub struct Assembler {
    pending: Vec<u8>,
    covered: usize,
    /// Whether something of the pending line has come out.
    begun: bool,
    offset: u64,
    time: u64,
}

/// A chunk of a source, and what is known about it.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Where in the source they begin.
    pub offset: u64,
    /// When they came.
    pub time: u64,
}

impl Assembler {
    /// Takes a chunk, and hands out the lines that it ends. Lines longer than `most` come out in parts.
    pub fn push(
        &mut self,
        chunk: Chunk<'_>,
        most: usize,
        redactor: &Redactor,
        out: &mut impl FnMut(Line<'_>),
    ) {
        let mut rest = chunk.bytes;
        let at = |rest: &[u8]| chunk.offset + (chunk.bytes.len() - rest.len()) as u64;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            if self.pending.is_empty() && !self.begun && end <= most {
                out(Line {
                    bytes: trimmed(&rest[..end]),
                    covered: 0,
                    offset: at(rest),
                    time: chunk.time,
                    partial: false,
                });
            } else {
                self.keep(&rest[..end], at(rest), chunk.time, most, redactor, out);
                self.end(most, redactor, out);
            }
            rest = &rest[end + 1..];
        }
        self.keep(rest, at(rest), chunk.time, most, redactor, out);
    }

    /// Hands out what is left: the source has ended.
    pub fn end(&mut self, most: usize, redactor: &Redactor, out: &mut impl FnMut(Line<'_>)) {
        while self.pending.len() > most {
            self.cut(most, redactor, out);
        }
        let bytes = trimmed(&self.pending);
        // Nothing is left of a line whose last part was a secret.
        if !self.begun || bytes.len() > self.covered {
            out(Line {
                bytes,
                covered: self.covered.min(bytes.len()),
                offset: self.offset,
                time: self.time,
                partial: false,
            });
        }
        self.pending.clear();
        self.covered = 0;
        self.begun = false;
    }

    /// Hands out what is there of a line that has not ended, but for what could be the beginning of a secret, and lets go of its memory.
    pub fn release(&mut self, redactor: &Redactor, out: &mut impl FnMut(Line<'_>)) {
        let kept = redactor.longest() + 1;
        if self.pending.len() > kept + redactor.longest() {
            self.cut(self.pending.len() - kept, redactor, out);
        }
        self.pending.shrink_to_fit();
    }

    /// The memory that it takes.
    pub fn held(&self) -> usize {
        self.pending.capacity()
    }

    /// Whether there is a line that has not ended.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn keep(
        &mut self,
        bytes: &[u8],
        offset: u64,
        time: u64,
        most: usize,
        redactor: &Redactor,
        out: &mut impl FnMut(Line<'_>),
    ) {
        if self.pending.is_empty() {
            self.offset = offset;
            self.time = time;
        }
        // What could be the beginning of a secret stays until more is known.
        let bound = most + redactor.longest() + 1;
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = bound.saturating_sub(self.pending.len()).max(1).min(rest.len());
            self.pending.extend_from_slice(&rest[..room]);
            rest = &rest[room..];
            if self.pending.len() >= bound {
                self.cut(most, redactor, out);
            }
        }
    }

    fn cut(&mut self, most: usize, redactor: &Redactor, out: &mut impl FnMut(Line<'_>)) {
        // Shorter parts than the longest secret could not get past it.
        let cut =
            redactor.cut(&self.pending, self.covered, most.max(redactor.longest()).min(self.pending.len()));
        let bytes = &self.pending[..cut.end];
        if cut.end > self.covered {
            out(Line { bytes, covered: self.covered, offset: self.offset, time: self.time, partial: true });
        }
        self.pending.drain(..cut.dropped);
        self.offset += cut.dropped as u64;
        self.covered = cut.covered;
        self.begun = true;
    }
}

/// Without the carriage returns that terminals put before a line break: one for each that the line came through.
fn trimmed(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| *byte != b'\r').map_or(0, |last| last + 1);
    &line[..end]
}

/// Adds `bytes` to `out` as text. What is no UTF-8 becomes `\xNN`, so that nothing of it is lost.
pub fn readable(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        out.extend_from_slice(chunk.valid().as_bytes());
        for byte in chunk.invalid() {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            out.extend_from_slice(&[
                b'\\',
                b'x',
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    /// Lines with their offsets; parts end in `…`.
    fn lines(chunks: &[&[u8]], most: usize, redactor: &Redactor) -> Vec<(String, u64)> {
        lines_of(chunks, most, redactor, false)
    }

    /// The same; if `early`, what can be is handed out after each chunk.
    fn lines_of(chunks: &[&[u8]], most: usize, redactor: &Redactor, early: bool) -> Vec<(String, u64)> {
        let (mut assembler, mut lines, mut offset) = (Assembler::default(), Vec::new(), 0);
        let mut out = |line: Line<'_>| {
            let mut text = Vec::new();
            redactor.hide(line.bytes, line.covered, &mut text);
            let text = String::from_utf8_lossy(&text) + if line.partial { "…" } else { "" };
            lines.push((text.into_owned(), line.offset));
        };
        for bytes in chunks {
            assembler.push(Chunk { bytes, offset, time: 0 }, most, redactor, &mut out);
            offset += bytes.len() as u64;
            if early {
                assembler.release(redactor, &mut out);
            }
        }
        if assembler.is_pending() {
            assembler.end(most, redactor, &mut out);
        }
        lines
    }

    #[rstest]
    #[case(&["a\nb\n"], &[("a", 0), ("b", 2)])]
    #[case(&["a", "b", "\nc"], &[("ab", 0), ("c", 3)])]
    #[case(&["a\r", "\nb\r\n\n"], &[("a", 0), ("b", 3), ("", 6)])]
    #[case(&["a\r\r\nb\rc\r\r\n"], &[("a", 0), ("b\rc", 4)])]
    #[case(&["12345678901234567890\nx\n"], &[("1234567890…", 0), ("1234567890", 10), ("x", 21)])]
    #[case(&["123456789012345678", "901\n"], &[("1234567890…", 0), ("1234567890…", 10), ("1", 20)])]
    #[case(&["123456789äö\n"], &[("123456789…", 0), ("äö", 9)])]
    #[case(&["1234567890"], &[("1234567890", 0)])]
    fn chunks_become_lines(#[case] chunks: &[&str], #[case] expected: &[(&str, u64)]) {
        let chunks: Vec<&[u8]> = chunks.iter().map(|chunk| chunk.as_bytes()).collect();
        let expected: Vec<_> = expected.iter().map(|(text, offset)| ((*text).to_owned(), *offset)).collect();
        assert_eq!(lines(&chunks, 10, &Redactor::default()), expected);
    }

    #[test]
    fn a_line_that_has_not_ended_is_handed_out_early_but_for_its_last_bytes() {
        let parts = lines_of(&[b"12345", b"678", b"\n"], 100, &Redactor::default(), true);
        let expected = [("1234…", 0), ("567…", 4), ("8", 7)];
        assert_eq!(parts, expected.map(|(text, offset)| (text.to_owned(), offset)));
    }

    #[test]
    fn what_is_no_text_stays_readable() {
        let mut out = Vec::new();
        readable(b"gr\xFC\xDFe \xE2\x82\xAC \xE2\x82", &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), r"gr\xFC\xDFe € \xE2\x82");
    }

    proptest! {
        /// However the bytes come, the lines are the same, and no secret is in them.
        #[test]
        fn borders_of_chunks_do_not_show(
            text in "[ab\n]{0,200}",
            cuts in prop::collection::vec(0_usize..200, 0..6),
            secrets in prop::collection::vec("[ab]{6,8}", 0..3),
            most in 10_usize..40,
            early in any::<bool>(),
        ) {
            let redactor = Redactor::new(secrets.iter().map(String::as_bytes));
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]).collect();
            let joined = |lines: Vec<(String, u64)>| {
                lines.into_iter().map(|(text, _)| if text.ends_with('…') { text.replace('…', "") } else { text + "\n" }).collect::<String>()
            };
            let mut expected = Vec::new();
            for line in text.split('\n') {
                redactor.hide(line.as_bytes(), 0, &mut expected);
                expected.push(b'\n');
            }
            let expected = String::from_utf8(expected).unwrap();
            let expected = expected.strip_suffix('\n').unwrap();
            let seen = joined(lines_of(&chunks, most, &redactor, early));
            prop_assert_eq!(seen.trim_end_matches('\n'), expected.trim_end_matches('\n'));
        }
    }
}
