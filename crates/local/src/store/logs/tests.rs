use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use rusqlite::Connection;

use super::*;
use crate::log::{self, Log};
use crate::store::schema;

const NO_LIMIT: i64 = i64::MAX;

/// A database that takes logs of jobs that it does not know.
fn database() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    schema::prepare(&connection).unwrap();
    connection.pragma_update(None, "foreign_keys", false).unwrap();
    connection
}

fn chunk(offset: usize, bytes: &[u8]) -> Chunk {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    let size = i64::try_from(bytes.len()).unwrap();
    Chunk { offset: i64::try_from(offset).unwrap(), size, gzip: encoder.finish().unwrap() }
}

/// Stores pieces `start..end` of `text` under the numbers given.
fn store(transaction: &Transaction<'_>, text: &[u8], pieces: &[(i64, usize, usize)]) {
    for (sequence, start, end) in pieces {
        add(transaction, Uuid::nil(), *sequence, &chunk(*start, &text[*start..*end]), NO_LIMIT).unwrap();
    }
}

fn part(transaction: &Transaction<'_>, from: i64, max: usize, ended: bool) -> Log {
    log::read(&read_from(transaction, Uuid::nil(), from, max).unwrap(), ended).unwrap()
}

#[test]
fn a_part_of_a_long_log_fetches_its_own_chunks_only() {
    let mut connection = database();
    let transaction = connection.transaction().unwrap();
    let line = b"a line of the log, as builds write them\n";
    let (lines, each) = (1000, 100 * line.len());
    for sequence in 0..lines {
        let piece = chunk(sequence * each, &line.repeat(100));
        add(&transaction, Uuid::nil(), i64::try_from(sequence).unwrap(), &piece, NO_LIMIT).unwrap();
    }
    let from = i64::try_from(500 * each + 7).unwrap();
    let excerpt = read_from(&transaction, Uuid::nil(), from, 2 * each).unwrap();
    assert_eq!(excerpt.chunks.len(), 4, "three that hold the part, and one that tells of more");
    assert_eq!(excerpt.length, i64::try_from(lines * each).unwrap());
    let log = log::read(&excerpt, true).unwrap();
    assert!(log.more && log.bytes.len() > each && log.bytes.ends_with(line));
}

#[test]
fn what_is_too_much_is_discarded_whatever_it_repeats() {
    let mut connection = database();
    let transaction = connection.transaction().unwrap();
    let piece = vec![b'x'; 1000];
    for sequence in 0..10 {
        add(&transaction, Uuid::nil(), sequence, &chunk(0, &piece), 2500).unwrap();
    }
    let stored: i64 =
        transaction.query_row("SELECT SUM(size) FROM log_chunks", [], |row| row.get(0)).unwrap();
    assert_eq!(stored, 2000, "the same piece under ever new numbers");
    add(&transaction, Uuid::nil(), 10, &chunk(2400, &piece), 2500).unwrap();
    assert_eq!(length(&transaction, Uuid::nil()).unwrap(), 3400);
    let log = part(&transaction, 0, usize::MAX, true);
    let told = "\n[the log is too long: its last 2400 bytes were discarded]\n";
    assert_eq!((&log.bytes[1000..], log.end), (told.as_bytes(), 3400));
}

/// Text and overlapping pieces of it that cover all of it, in any order, some of them twice.
fn pieces() -> impl Strategy<Value = (Vec<u8>, Vec<(i64, usize, usize)>)> {
    let text = prop::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(b'\n')], 0..400);
    let cuts = prop::collection::vec((1usize..60, 0usize..20), 1..20);
    (text, cuts).prop_flat_map(|(text, cuts)| {
        let mut pieces = Vec::new();
        let mut at = 0;
        for (length, overlap) in cuts.iter().cycle() {
            if at >= text.len() {
                break;
            }
            let start = at - (*overlap).min(at);
            let end = (at + length).min(text.len());
            pieces.push((i64::try_from(pieces.len()).unwrap(), start, end));
            at = end;
        }
        let repeated: Vec<_> = pieces.iter().step_by(3).copied().collect();
        pieces.extend(repeated);
        (Just(text), Just(pieces).prop_shuffle())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Cut anywhere, overlapping, repeated, in any order: the text is the one that was written, read as a
    /// whole, from any byte, or in parts of any size.
    #[test]
    fn chunks_become_the_log(
        (text, pieces) in pieces(),
        from in any::<prop::sample::Index>(),
        step in 1usize..200,
    ) {
        let mut connection = database();
        let transaction = connection.transaction().unwrap();
        store(&transaction, &text, &pieces);
        let whole = part(&transaction, 0, usize::MAX, true);
        prop_assert_eq!(&whole.bytes, &text);
        let from = from.index(text.len() + 1);
        let rest = part(&transaction, i64::try_from(from).unwrap(), usize::MAX, true);
        prop_assert_eq!(&rest.bytes[..], &text[from..]);
        let (mut at, mut bytes) = (0, Vec::<u8>::new());
        loop {
            let log = part(&transaction, at, step, true);
            prop_assert!(log.bytes.len() <= step);
            bytes.extend(&log.bytes);
            prop_assert!(log.end > at || !log.more, "reading goes on");
            at = log.end;
            if !log.more { break; }
        }
        prop_assert_eq!(bytes, text);
    }

    /// While the log grows, what is read is always a beginning of it in whole lines, and nothing is read
    /// twice; in the end all of it was read.
    #[test]
    fn a_growing_log_is_read_without_gap_or_repetition((text, pieces) in pieces(), max in 1usize..200) {
        let mut connection = database();
        let transaction = connection.transaction().unwrap();
        let (mut at, mut bytes) = (0, Vec::<u8>::new());
        for piece in &pieces {
            store(&transaction, &text, &[*piece]);
            let log = part(&transaction, at, max, false);
            bytes.extend(&log.bytes);
            at = log.end;
            prop_assert!(text.starts_with(&bytes));
        }
        bytes.extend(part(&transaction, at, usize::MAX, true).bytes);
        prop_assert_eq!(bytes, text);
    }

    /// A missing piece ends what can be read of a growing log, and shows in an ended one.
    #[test]
    fn a_gap_is_visible((text, pieces) in pieces(), lost in any::<prop::sample::Index>()) {
        prop_assume!(!text.is_empty());
        let lost = lost.index(text.len());
        let without: Vec<_> = pieces.iter().filter(|(_, start, end)| !(*start..*end).contains(&lost)).copied().collect();
        let mut connection = database();
        let transaction = connection.transaction().unwrap();
        store(&transaction, &text, &without);
        let growing = part(&transaction, 0, usize::MAX, false);
        prop_assert!(growing.bytes.len() <= lost && text.starts_with(&growing.bytes));
        let later = without.iter().any(|(_, start, _)| *start > lost);
        let ended = String::from_utf8_lossy(&part(&transaction, 0, usize::MAX, true).bytes).into_owned();
        prop_assert_eq!(ended.contains("bytes of the log are missing]"), later);
        store(&transaction, &text, &pieces);
        prop_assert_eq!(part(&transaction, 0, usize::MAX, true).bytes, text);
    }
}
