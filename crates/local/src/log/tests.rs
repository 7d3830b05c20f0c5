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

#[test]
fn a_chunk_must_hold_what_it_announces() {
    let good = chunk(0, b"hello");
    assert_eq!(unpack(&good).unwrap(), b"hello");
    assert!(matches!(unpack(&Chunk { size: 4, ..good.clone() }), Err(BadChunk::Size { .. })));
    assert!(matches!(unpack(&Chunk { size: 6, ..good }), Err(BadChunk::Size { .. })));
    let noise = Chunk { offset: 0, size: 5, gzip: b"noise".to_vec() };
    assert!(matches!(unpack(&noise), Err(BadChunk::Gzip(_))));
}

#[test]
fn a_gap_ends_a_growing_log_and_is_named_in_an_ended_one() {
    let chunks = [chunk(0, b"one\n"), chunk(8, b"three\n")];
    let growing = read(&chunks, 0, false).unwrap();
    assert_eq!((growing.bytes.as_slice(), growing.end), (b"one\n".as_slice(), 4));
    let ended = read(&chunks, 0, true).unwrap();
    assert_eq!(String::from_utf8(ended.bytes).unwrap(), "one\n\n[4 bytes of the log are missing]\nthree\n");
    assert_eq!(ended.end, 14);
}

#[test]
fn a_growing_log_ends_with_a_whole_line() {
    let log = read(&[chunk(0, b"one\ntw")], 0, false).unwrap();
    assert_eq!((log.bytes.as_slice(), log.end), (b"one\n".as_slice(), 4));
    let rest = read(&[chunk(0, b"one\ntw"), chunk(6, b"o\n")], log.end, false).unwrap();
    assert_eq!((rest.bytes.as_slice(), rest.end), (b"two\n".as_slice(), 8));
}

#[test]
fn time_stamps_and_carriage_returns_go_and_other_sequences_stay() {
    let raw = b"\x1b_bk;t=1700000000123\x07hi\r\n\x1b[31mred\x1b[0m \x1b_bk;t=12x \x1b_bk;t=";
    assert_eq!(plain(raw), "hi\n\u{1b}[31mred\u{1b}[0m \u{1b}_bk;t=12x \u{1b}_bk;t=");
}

proptest! {
    /// Cut anywhere, repeated, and read in steps: the text is the one that was written.
    #[test]
    fn chunks_become_the_log(
        text in prop::collection::vec(any::<u8>(), 0..400),
        cuts in prop::collection::vec(1usize..60, 1..20),
        repeated in any::<prop::sample::Index>(),
        from in any::<prop::sample::Index>(),
    ) {
        let mut chunks = Vec::new();
        let mut at = 0;
        for cut in cuts.iter().cycle() {
            if at >= text.len() { break; }
            let end = (at + cut).min(text.len());
            chunks.push(chunk(at, &text[at..end]));
            at = end;
        }
        if !chunks.is_empty() {
            let again = repeated.get(&chunks).clone();
            chunks.push(again);
        }
        chunks.sort_by_key(|chunk| chunk.offset);
        let log = read(&chunks, 0, true).unwrap();
        prop_assert_eq!(&log.bytes, &text);
        let from = from.index(text.len() + 1);
        let rest = read(&chunks, i64::try_from(from).unwrap(), true).unwrap();
        prop_assert_eq!(&rest.bytes[..], &text[from..]);
    }

    /// Stripping never fails and never adds.
    #[test]
    fn plain_text_is_never_longer(raw in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(plain(&raw).len() <= String::from_utf8_lossy(&raw).len());
    }
}
