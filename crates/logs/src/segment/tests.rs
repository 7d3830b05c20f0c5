use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn record(time: u64, stream: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap();
    [&time.to_le_bytes()[..], &length.to_le_bytes(), &[stream, 0, 0, 0], bytes].concat()
}

#[rstest]
#[case(record(7, 1, b"a"), Parsed::Record(7, Content::Stdout(b"a"), 17))]
#[case(record(7, 2, b""), Parsed::Record(7, Content::Stderr(b""), 16))]
#[case(record(7, 0, &9_u64.to_le_bytes()), Parsed::Record(7, Content::Lost(9), 24))]
#[case(record(7, 0, b"four"), Parsed::Nonsense)]
#[case(record(7, 3, b"a"), Parsed::Nonsense)]
#[case(record(7, 1, b"abc")[..18].to_vec(), Parsed::Incomplete)]
#[case(vec![0; 15], Parsed::Incomplete)]
#[case(vec![0xFF; 16], Parsed::Nonsense)]
fn records(#[case] bytes: Vec<u8>, #[case] expected: Parsed<'_>) {
    assert_eq!(parse(&bytes), expected);
}

/// What comes out, as text, and where it was.
fn poll(segments: &mut Segments) -> (Vec<(u64, String)>, Seen) {
    let mut all = Vec::new();
    let seen = segments
        .poll(1 << 20, &mut |output| {
            let text = match output.content {
                Content::Stdout(bytes) => format!("out {}", String::from_utf8_lossy(bytes)),
                Content::Stderr(bytes) => format!("err {}", String::from_utf8_lossy(bytes)),
                Content::Lost(bytes) => format!("lost {bytes}"),
            };
            all.push((output.offset, text));
        })
        .unwrap();
    (all, seen)
}

fn append(path: &Path, bytes: &[u8]) {
    use std::io::Write;
    fs::OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(bytes).unwrap();
}

#[test]
fn segments_are_read_in_turn_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join("output").join(name);
    let mut segments = Segments::new(&directory.path().join("output"));
    assert_eq!(poll(&mut segments).0, [], "there is nothing yet");

    fs::create_dir(directory.path().join("output")).unwrap();
    let second = record(2, 2, b"b");
    append(&at("0"), &[&record(1, 1, b"a")[..], &second[..5]].concat());
    assert_eq!(poll(&mut segments).0, [(16, "out a".to_owned())]);
    append(&at("0"), &second[5..]);
    append(&at("1"), &record(3, 0, &512_u64.to_le_bytes()));
    assert_eq!(segments.unread(), 17 + 24);
    let expected = [(33, "err b".to_owned()), ((1 << 24) + 16, "lost 512".to_owned())];
    assert_eq!(poll(&mut segments).0, expected);
    assert!(!at("0").exists() && at("1").exists(), "the last one may grow");
    append(&at("10"), &record(4, 1, b"numbers are no words"));
    append(&at("notes"), b"not a segment");
    assert_eq!(poll(&mut segments).0, [((10 << 24) + 16, "out numbers are no words".to_owned())]);
    assert_eq!((segments.unread(), at("1").exists()), (0, false));
}

#[test]
fn what_is_no_record_is_counted_and_the_next_segment_is_read() {
    let directory = tempfile::tempdir().unwrap();
    append(&directory.path().join("0"), &[&record(1, 1, b"a")[..], &[0xFF; 100]].concat());
    append(&directory.path().join("1"), &[&record(1, 1, b"b")[..], &record(1, 1, b"cut off")[..20]].concat());
    append(&directory.path().join("2"), &record(1, 1, b"c"));
    let (outputs, seen) = poll(&mut Segments::new(directory.path()));
    assert_eq!(outputs.into_iter().map(|(_, text)| text).collect::<Vec<_>>(), ["out a", "out b", "out c"]);
    assert_eq!(seen.nonsense, 120);
}

proptest! {
    /// Whatever the bytes are, reading ends, and accounts for every byte.
    #[test]
    fn bytes_are_accounted_for(
        files in prop::collection::vec(prop::collection::vec(prop_oneof![Just(0_u8), Just(1), any::<u8>()], 0..80), 1..4),
    ) {
        let directory = tempfile::tempdir().unwrap();
        for (number, bytes) in files.iter().enumerate() {
            fs::write(directory.path().join(number.to_string()), bytes).unwrap();
        }
        let mut segments = Segments::new(directory.path());
        let mut seen = Seen::default();
        for _ in 0..=files.len() {
            let more = segments.poll(64, &mut |_| {}).unwrap();
            seen.bytes += more.bytes;
            seen.nonsense += more.nonsense;
        }
        let all: usize = files.iter().map(Vec::len).sum();
        prop_assert_eq!(seen.bytes as u64 + seen.nonsense + segments.unread(), all as u64);
    }
}
