use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::Write,
};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// A directory whose files are followed, and what came of them.
struct World {
    directory: TempDir,
    tail: Tail,
    now: Instant,
    seen: BTreeMap<usize, Vec<u8>>,
    begun: Vec<(String, u32)>,
    ended: Vec<usize>,
}

impl World {
    fn new(pattern: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let paths = vec![format!("{}/{pattern}", directory.path().display())];
        let tail = Tail::new(Wanted { paths, directory: None });
        let now = Instant::now();
        Self { directory, tail, now, seen: BTreeMap::new(), begun: Vec::new(), ended: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn append(&self, name: &str, text: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.path(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn look(&mut self, close: bool) {
        self.now += Duration::from_secs(1);
        let Self { tail, seen, begun, ended, now, .. } = self;
        let mut out = |event: Event<'_>| match event {
            Event::Begun { slot, path, generation } => {
                assert_eq!(slot, begun.len(), "numbers go up");
                begun.push((path.file_name().unwrap().to_str().unwrap().to_owned(), generation));
            }
            Event::Bytes { slot, bytes, .. } => seen.entry(slot).or_default().extend_from_slice(bytes),
            Event::Ended { slot } => ended.push(slot),
        };
        if close {
            tail.close(*now, &mut out);
        } else {
            tail.scan(*now, &mut out);
        }
        // A file that begins anew, or a copy of one, is read at the next look.
        for _ in 0..4 {
            while tail.poll(*now, &mut out) > 0 {}
        }
        if close {
            tail.end(&mut out);
        }
    }

    /// Everything seen, in the order in which files began.
    fn text(&self) -> String {
        self.seen.values().map(|bytes| String::from_utf8_lossy(bytes)).collect()
    }

    /// The lines seen, sorted.
    fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.text().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

#[test]
fn files_that_appear_later_are_read_from_the_start() {
    let mut world = World::new("*.log");
    world.look(false);
    world.append("a.log", "1\n2");
    world.append("b.txt", "no\n");
    world.look(false);
    assert_eq!(world.text(), "1\n2");
    world.append("a.log", "\n3\n");
    world.look(true);
    assert_eq!(world.text(), "1\n2\n3\n");
    assert_eq!((world.begun, world.ended), (vec![("a.log".to_owned(), 0)], vec![0]));
}

#[test]
fn what_can_be_read_later_is_no_trouble_any_more() {
    let mut trouble = Trouble::default();
    let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
    trouble.file((1, 1), Path::new("/a"), 5, &refused());
    trouble.file((1, 1), Path::new("/a"), 7, &refused());
    trouble.file((1, 2), Path::new("/b"), 3, &refused());
    assert_eq!(trouble.bytes(), 10, "as large as they were last");
    assert_eq!(trouble.complaint().unwrap(), "cannot read /a: permission denied, and 1 more");
    trouble.is_over((1, 1));
    assert_eq!(
        (trouble.bytes(), trouble.complaint().unwrap().as_str()),
        (3, "cannot read /b: permission denied")
    );
    trouble.is_over((1, 2));
    let directory = tempfile::tempdir().unwrap();
    let (stays, gone) = (directory.path().to_owned(), directory.path().join("gone"));
    let unreadable = [stays, gone].map(|path| (path, refused())).into();
    trouble.look(&discovery::Found { unreadable, ..Default::default() });
    trouble.look(&discovery::Found::default());
    let complaint = trouble.complaint().unwrap();
    assert!(complaint.contains("/gone: ") && !complaint.contains("more"), "{complaint}");
    trouble.look(&discovery::Found { too_many: true, ..Default::default() });
    assert_eq!(trouble.complaint(), Some(complaint));
}

#[test]
fn a_renamed_file_is_read_to_its_end_and_its_successor_from_the_start() {
    let mut world = World::new("a.log*");
    world.append("a.log", "1\n");
    world.look(false);
    world.append("a.log", "2\n");
    fs::rename(world.path("a.log"), world.path("a.log.1")).unwrap();
    world.append("a.log", "3\n");
    world.append("a.log.1", "late\n");
    world.look(false);
    assert_eq!(world.text(), "1\n2\nlate\n3\n");
    assert_eq!(world.begun, [("a.log".to_owned(), 0), ("a.log".to_owned(), 1)]);
}

#[test]
fn a_copy_gives_only_what_its_original_had_not_shown() {
    let mut world = World::new("a.log*");
    world.append("a.log", "1\n2\n");
    world.look(false);
    world.append("a.log", "3\n");
    fs::copy(world.path("a.log"), world.path("a.log.1")).unwrap();
    fs::write(world.path("a.log"), "4\n").unwrap();
    world.look(false);
    world.look(false);
    assert_eq!(world.lines(), ["1", "2", "3", "4"]);
}

#[test]
fn a_copy_that_is_found_before_the_original_is_truncated_waits_for_it() {
    let mut world = World::new("a.log*");
    world.append("a.log", "1\n");
    world.look(false);
    fs::copy(world.path("a.log"), world.path("a.log.1")).unwrap();
    world.look(false);
    assert_eq!(world.lines(), ["1"]);
    fs::write(world.path("a.log"), "").unwrap();
    world.append("a.log", "2\n");
    world.look(false);
    assert_eq!(world.lines(), ["1", "2"]);
}

#[test]
fn a_file_that_only_begins_like_another_is_read_after_all() {
    let mut world = World::new("a.log*");
    world.append("a.log", "header\nlong enough\n");
    world.look(false);
    world.append("a.log.audit", "header\n");
    world.look(false);
    assert_eq!(world.lines(), ["header", "long enough"], "it may be a copy in the making");
    world.append("a.log.audit", "other\n");
    world.look(true);
    assert_eq!(world.lines(), ["header", "header", "long enough", "other"]);
}

#[test]
fn a_file_written_anew_is_noticed_also_if_it_is_longer() {
    let mut world = World::new("a.log");
    world.append("a.log", "old\n");
    world.look(false);
    fs::write(world.path("a.log"), "new and longer\n").unwrap();
    world.look(false);
    assert_eq!(world.text(), "old\nnew and longer\n");
    assert_eq!(world.begun, [("a.log".to_owned(), 0), ("a.log".to_owned(), 1)]);
}

#[test]
fn a_removed_file_is_held_for_a_while_and_ends() {
    let mut world = World::new("a.log");
    world.append("a.log", "1\n");
    let mut writer = OpenOptions::new().append(true).open(world.path("a.log")).unwrap();
    world.look(false);
    fs::remove_file(world.path("a.log")).unwrap();
    writer.write_all(b"after removal\n").unwrap();
    world.look(false);
    assert_eq!((world.text().as_str(), world.ended.len()), ("1\nafter removal\n", 0));
    world.now += HELD;
    world.look(false);
    assert_eq!(world.ended, [0]);
}

#[test]
fn more_files_than_are_held_open() {
    let mut world = World::new("*.log");
    for round in 0..2 {
        for number in 0..MOST_OPEN + 50 {
            world.append(&format!("{number}.log"), &format!("{round}\n"));
        }
        world.look(false);
        assert!(world.tail.files.values().filter(|file| file.is_open()).count() <= MOST_OPEN);
    }
    assert_eq!(world.lines().len(), 2 * (MOST_OPEN + 50));
    assert_eq!(
        world.begun.len(),
        MOST_OPEN + 50,
        "files that were closed are the same when they are opened again"
    );
}

#[test]
fn what_is_written_after_the_end_is_left() {
    let mut world = World::new("a.log");
    world.append("a.log", "1\n");
    world.tail.close(world.now, &mut |_| {});
    world.append("a.log", "2\n");
    let mut read = 0;
    while world.tail.poll(world.now, &mut |event| {
        if let Event::Bytes { bytes, .. } = event {
            read += bytes.len();
        }
    }) > 0
    {}
    assert_eq!((read, world.tail.unread()), (2, 0));
}

/// What programs and log rotation do.
#[derive(Clone, Debug)]
enum Deed {
    Append(usize),
    Part(usize),
    Rename(usize),
    CopyAndTruncate(usize),
    /// Rotation by copying, seen in the middle.
    CopyLookTruncate(usize),
    ReplaceAfterLook(usize),
    RemoveAfterLook(usize),
    Look,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let file = 0_usize..3;
    let deed = prop_oneof![
        4 => file.clone().prop_map(Deed::Append),
        1 => file.clone().prop_map(Deed::Part),
        1 => file.clone().prop_map(Deed::Rename),
        1 => file.clone().prop_map(Deed::CopyAndTruncate),
        1 => file.clone().prop_map(Deed::CopyLookTruncate),
        1 => file.clone().prop_map(Deed::ReplaceAfterLook),
        1 => file.prop_map(Deed::RemoveAfterLook),
        3 => Just(Deed::Look),
    ];
    prop::collection::vec(deed, 0..40)
}

/// Does it, and says what was written.
fn perform(world: &mut World, deed: &Deed, number: usize) -> String {
    let name = |file: usize| format!("{file}.log");
    let text = format!("<line {number} of a log>");
    match *deed {
        Deed::Append(file) => {
            world.append(&name(file), &text);
            return text;
        }
        Deed::Part(file) => {
            world.append(&name(file), &text[..8]);
            world.look(false);
            world.append(&name(file), &text[8..]);
            return text;
        }
        Deed::Rename(file) if world.path(&name(file)).exists() => {
            fs::rename(world.path(&name(file)), world.path(&format!("{}.{number}", name(file)))).unwrap();
        }
        Deed::CopyAndTruncate(file) | Deed::CopyLookTruncate(file) if world.path(&name(file)).exists() => {
            // Rotation that comes again before anybody has looked loses what was written between.
            world.look(false);
            world.append(&name(file), &text);
            fs::copy(world.path(&name(file)), world.path(&format!("{}.{number}", name(file)))).unwrap();
            if let Deed::CopyLookTruncate(_) = deed {
                world.look(false);
            }
            fs::File::create(world.path(&name(file))).unwrap();
            world.look(false);
            return text;
        }
        Deed::ReplaceAfterLook(file) => {
            world.look(false);
            fs::write(world.path(&name(file)), &text).unwrap();
            return text;
        }
        Deed::RemoveAfterLook(file) if world.path(&name(file)).exists() => {
            world.look(false);
            fs::remove_file(world.path(&name(file))).unwrap();
        }
        Deed::Look => world.look(false),
        _ => {}
    }
    String::new()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever happens to files, each line comes out once.
    #[test]
    fn every_line_once(deeds in deeds()) {
        let mut world = World::new("*");
        let mut expected = Vec::new();
        for (number, deed) in deeds.iter().enumerate() {
            expected.push(perform(&mut world, deed, number));
        }
        world.look(true);
        let mut seen: Vec<String> = world.text().split_inclusive('>').map(str::to_owned).collect();
        seen.sort();
        expected.retain(|text| !text.is_empty());
        expected.sort();
        prop_assert_eq!(seen, expected);
        prop_assert_eq!(world.ended.len(), world.begun.len(), "what begins ends");
    }
}
