//! How far a container's log has been read, so that it can be read on after the connection was lost: no line twice, and
//! none left out.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// Lines of a container's two outputs may follow one another in another order than their times, by less than this.
const DISORDER: SignedDuration = SignedDuration::from_secs(1);

/// A place in a log whose lines begin with the time at which they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// How many lines of each moment were read, as far as they would come again.
    read: BTreeMap<Timestamp, usize>,
    /// How many lines of each moment are still to come again.
    again: BTreeMap<Timestamp, usize>,
}

impl Position {
    /// From when on to ask for lines. Servers know whole seconds, so some come again.
    pub(super) fn since(&self) -> Option<Timestamp> {
        let (last, _) = self.read.last_key_value()?;
        let second = Timestamp::from_second(last.as_second()).unwrap_or(Timestamp::MIN);
        Some(second.checked_sub(DISORDER).unwrap_or(Timestamp::MIN))
    }

    /// The log is about to be read anew from there.
    pub(super) fn restart(&mut self) {
        if let Some(since) = self.since() {
            self.read = self.read.split_off(&since);
        }
        self.again.clone_from(&self.read);
    }

    /// A line without its time, unless it was read before.
    pub(super) fn take<'a>(&mut self, line: &'a [u8]) -> Option<&'a [u8]> {
        let Some((written, text)) = parts(line) else {
            // Not as it should be; better twice than not at all.
            return Some(line);
        };
        if let Some(count) = self.again.get_mut(&written).filter(|count| **count > 0) {
            *count -= 1;
            return None;
        }
        if self.read.last_key_value().is_some_and(|(last, _)| last.as_second() < written.as_second()) {
            self.forget(written);
        }
        *self.read.entry(written).or_default() += 1;
        Some(text)
    }

    /// Forgets what will not come again after a line of this time.
    fn forget(&mut self, written: Timestamp) {
        let next = Self { read: [(written, 1)].into(), again: BTreeMap::new() };
        if let Some(since) = next.since() {
            self.read = self.read.split_off(&since);
        }
    }
}

fn parts(line: &[u8]) -> Option<(Timestamp, &[u8])> {
    let at = line.iter().position(|byte| *byte == b' ')?;
    let (time, text) = line.split_at(at);
    let time = std::str::from_utf8(time).ok()?.parse().ok()?;
    Some((time, text.get(1..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOG: [&str; 5] = [
        "2026-01-01T00:00:01.1Z one\n",
        "2026-01-01T00:00:01.12Z two\n",
        "2026-01-01T00:00:01.12Z two\n",
        "2026-01-01T00:00:01.12Z three\n",
        "2026-01-01T00:00:02Z \n",
    ];

    fn read(position: &mut Position, lines: &[&str]) -> String {
        let taken = lines.iter().filter_map(|line| position.take(line.as_bytes()));
        taken.map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    }

    #[test]
    fn a_log_is_read_whole_wherever_it_breaks_off() {
        for broken_at in 0..=LOG.len() {
            let mut position = Position::default();
            let mut text = read(&mut position, &LOG[..broken_at]);
            // Whole seconds: all of it comes again.
            for _ in 0..2 {
                position.restart();
                text += &read(&mut position, &LOG);
            }
            assert_eq!(text, "one\ntwo\ntwo\nthree\n\n", "broken at {broken_at}");
        }
    }

    /// A server leaves out what is older than the whole second that it is asked for.
    #[test]
    fn it_is_read_on_from_a_whole_second_before_the_last_line() {
        let mut position = Position::default();
        assert_eq!(position.since(), None);
        read(&mut position, &["2026-01-01T00:00:07.999Z one\n"]);
        assert_eq!(position.since(), "2026-01-01T00:00:06Z".parse().ok());
    }

    #[test]
    fn a_line_that_is_older_than_the_one_before_is_shown() {
        let lines = ["2026-01-01T00:00:02.000Z out\n", "2026-01-01T00:00:01.999Z err\n"];
        assert_eq!(read(&mut Position::default(), &lines), "out\nerr\n");
        let mut position = Position::default();
        assert_eq!(read(&mut position, &lines[..1]), "out\n");
        position.restart();
        assert_eq!(read(&mut position, &lines), "err\n");
    }

    #[test]
    fn only_what_may_come_again_is_remembered() {
        let mut position = Position::default();
        for second in 0..100 {
            read(&mut position, &[&format!("{} x\n", Timestamp::from_second(second).unwrap())]);
        }
        assert_eq!(position.read.len(), 2);
    }

    #[test]
    fn what_has_no_time_is_shown_as_it_is() {
        assert_eq!(read(&mut Position::default(), &["no time\n", "x"]), "no time\nx");
    }

    /// A log as lines of one moment, of close ones, and of ones that are slightly older than those before them.
    fn logs() -> impl Strategy<Value = Vec<(Timestamp, String)>> {
        prop::collection::vec((0_i64..700, 0_i64..900), 0..40).prop_map(|steps| {
            let mut clock = 0;
            let line = |(number, (step, back)): (usize, (i64, i64))| {
                clock += if step < 200 { 0 } else { step };
                let late = if back < 300 { back } else { 0 };
                let written = Timestamp::from_millisecond(1_700_000_000_000 + clock - late);
                (written.unwrap(), format!("line {number}\n"))
            };
            steps.into_iter().enumerate().map(line).collect()
        })
    }

    proptest! {
        /// Wherever a log breaks off, and however often: the server begins at the second that it is asked for.
        #[test]
        fn every_line_comes_once_and_in_order(log in logs(), breaks in prop::collection::vec(0_usize..40, 0..5)) {
            let mut position = Position::default();
            let mut text = String::new();
            for broken_at in breaks.into_iter().chain([usize::MAX]) {
                let since = position.since();
                position.restart();
                let sent = log.iter().take(broken_at).filter(|(written, _)| since.is_none_or(|since| *written >= since));
                let lines: Vec<String> = sent.map(|(written, line)| format!("{written} {line}")).collect();
                text += &read(&mut position, &lines.iter().map(String::as_str).collect::<Vec<_>>());
            }
            let whole: String = log.iter().map(|(_, line)| line.as_str()).collect();
            prop_assert_eq!(text, whole);
        }
    }
}
