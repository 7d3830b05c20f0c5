use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::*;

fn chunk(offset: usize, bytes: &[u8]) -> Chunk {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    Chunk {
        offset: i64::try_from(offset).unwrap(),
        size: i64::try_from(bytes.len()).unwrap(),
        gzip: encoder.finish().unwrap(),
    }
}

/// All of what these chunks, in order of their offsets, hold from `from` on.
fn excerpt(chunks: &[Chunk], from: usize, max: usize) -> Excerpt {
    let length = chunks.iter().map(|chunk| chunk.offset + chunk.size).max().unwrap_or(0);
    Excerpt { from: i64::try_from(from).unwrap(), max, length, chunks: chunks.to_vec() }
}

fn all(chunks: &[Chunk], ended: bool) -> Log {
    read(&excerpt(chunks, 0, usize::MAX), ended).unwrap()
}

#[test]
fn a_chunk_must_hold_what_it_announces() {
    let good = chunk(0, b"hello");
    assert_eq!(unpack(&good).unwrap(), b"hello");
    assert!(matches!(unpack(&Chunk { size: 4, ..good.clone() }), Err(BadChunk::Larger { announced: 4 })));
    assert!(matches!(unpack(&Chunk { size: 6, ..good.clone() }), Err(BadChunk::Size { actual: 5, .. })));
    assert!(matches!(unpack(&Chunk { size: MAX_CHUNK + 1, ..good.clone() }), Err(BadChunk::TooLarge { .. })));
    let in_two = [good.gzip.clone(), chunk(0, b" you").gzip].concat();
    assert_eq!(unpack(&Chunk { offset: 0, size: 9, gzip: in_two }).unwrap(), b"hello you");
    let trailing = [good.gzip.clone(), b"garbage".to_vec()].concat();
    assert!(unpack(&Chunk { gzip: trailing, ..good.clone() }).is_err());
    let cut = good.gzip[..good.gzip.len() - 4].to_vec();
    assert!(matches!(unpack(&Chunk { gzip: cut, ..good }), Err(BadChunk::Gzip(_))));
    let bomb = chunk(0, &vec![0; 20_000_000]);
    assert!(bomb.gzip.len() < 300_000, "it is small");
    assert!(matches!(unpack(&Chunk { size: 1000, ..bomb }), Err(BadChunk::Larger { .. })));
    let noise = Chunk { offset: 0, size: 5, gzip: b"noise".to_vec() };
    assert!(matches!(unpack(&noise), Err(BadChunk::Gzip(_))));
}

#[test]
fn a_gap_ends_a_growing_log_and_is_named_in_an_ended_one() {
    let chunks = [chunk(0, b"one\n"), chunk(8, b"three\n")];
    let growing = all(&chunks, false);
    assert_eq!((growing.bytes.as_slice(), growing.end), (b"one\n".as_slice(), 4));
    let ended = all(&chunks, true);
    assert_eq!(String::from_utf8(ended.bytes).unwrap(), "one\n\n[4 bytes of the log are missing]\nthree\n");
    assert_eq!((ended.end, ended.more), (14, false));
    let filled = [chunk(0, b"one\n"), chunk(4, b"two\n"), chunk(8, b"three\n")];
    assert_eq!(all(&filled, false).bytes, b"one\ntwo\nthree\n");
}

#[test]
fn what_was_discarded_is_told_once_at_the_end() {
    let whole = Excerpt { length: 1000, ..excerpt(&[chunk(0, b"one\n")], 0, usize::MAX) };
    assert_eq!(read(&whole, false).unwrap().end, 4, "not before the job has ended");
    let log = read(&whole, true).unwrap();
    let told = "one\n\n[the log is too long: its last 996 bytes were discarded]\n";
    assert_eq!((String::from_utf8(log.bytes).unwrap().as_str(), log.end), (told, 1000));
    let rest = read(&Excerpt { from: 1000, chunks: Vec::new(), ..whole }, true).unwrap();
    assert_eq!((rest.bytes.len(), rest.end), (0, 1000));
}

#[test]
fn a_bounded_part_ends_with_a_line_or_at_least_with_a_character() {
    let lines = [chunk(0, b"one\ntwo\n"), chunk(8, b"three\n")];
    let part = read(&excerpt(&lines, 0, 6), true).unwrap();
    assert_eq!((part.bytes.as_slice(), part.end, part.more), (b"one\n".as_slice(), 4, true));
    let part = read(&excerpt(&lines, 4, 4), true).unwrap();
    assert_eq!((part.bytes.as_slice(), part.end, part.more), (b"two\n".as_slice(), 8, true));
    let last = read(&excerpt(&lines, 8, 6), false).unwrap();
    assert_eq!((last.bytes.as_slice(), last.end, last.more), (b"three\n".as_slice(), 14, false));
    let wide = [chunk(0, "ééé".as_bytes())];
    let part = read(&excerpt(&wide, 0, 3), true).unwrap();
    assert_eq!((part.bytes.as_slice(), part.end, part.more), ("é".as_bytes(), 2, true));
}

#[test]
fn a_growing_log_ends_with_a_whole_line() {
    let log = all(&[chunk(0, b"one\ntw")], false);
    assert_eq!((log.bytes.as_slice(), log.end), (b"one\n".as_slice(), 4));
    let rest = read(&excerpt(&[chunk(0, b"one\ntw"), chunk(6, b"o\n")], 4, usize::MAX), false).unwrap();
    assert_eq!((rest.bytes.as_slice(), rest.end), (b"two\n".as_slice(), 8));
}

#[test]
fn time_stamps_and_carriage_returns_go_and_other_sequences_stay() {
    let raw = b"\x1b_bk;t=1700000000123\x07hi\r\n\x1b[31mred\x1b[0m \x1b_bk;t=12x \x1b_bk;t=";
    assert_eq!(plain(raw), "hi\n\u{1b}[31mred\u{1b}[0m \u{1b}_bk;t=12x \u{1b}_bk;t=");
}

proptest! {
    /// Stripping never fails and never adds.
    #[test]
    fn plain_text_is_never_longer(raw in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(plain(&raw).len() <= String::from_utf8_lossy(&raw).len());
    }
}
