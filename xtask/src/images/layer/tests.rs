use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A tree with one of each kind of node, made in an order that is not the sorted one.
fn tree(root: &Path) {
    fs::create_dir_all(root.join("usr/bin")).unwrap();
    fs::create_dir_all(root.join("tmp")).unwrap();
    fs::write(root.join("usr/bin/tool"), "tool").unwrap();
    fs::write(root.join("usr-notes"), "sorts between usr and usr/bin as plain text").unwrap();
    fs::hard_link(root.join("usr/bin/tool"), root.join("usr/bin/also")).unwrap();
    symlink("usr/bin", root.join("bin")).unwrap();
    fs::set_permissions(root.join("usr/bin/tool"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    for directory in ["usr", "usr/bin"] {
        fs::set_permissions(root.join(directory), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(root.join("usr-notes"), fs::Permissions::from_mode(0o644)).unwrap();
}

fn layer_of(root: &Path, out: &Path) -> Layer {
    write(out, scan(root).unwrap()).unwrap()
}

/// Name, type, mode, owner, time and link target of every entry, as the file holds them.
fn listing(layer: &Layer) -> Vec<String> {
    let mut archive = tar::Archive::new(File::open(&layer.file).unwrap());
    archive
        .entries()
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!(header.mtime().unwrap(), EPOCH);
            assert_eq!(header.username().unwrap(), Some(""), "names of users differ between machines");
            let target = entry.link_name().unwrap();
            format!(
                "{:?} {:o} {}{}",
                header.entry_type(),
                header.mode().unwrap(),
                entry.path().unwrap().display(),
                target.map(|target| format!(" -> {}", target.display())).unwrap_or_default()
            )
        })
        .collect()
}

#[test]
fn keeps_modes_links_and_order() {
    let place = tempfile::tempdir().unwrap();
    tree(&place.path().join("root"));
    let layer = layer_of(&place.path().join("root"), &place.path().join("layer.tar"));
    assert_eq!(
        listing(&layer),
        [
            "Symlink 777 bin -> usr/bin",
            "Directory 1777 tmp/",
            "Directory 755 usr/",
            "Directory 755 usr/bin/",
            "Regular 4755 usr/bin/also",
            "Link 4755 usr/bin/tool -> usr/bin/also",
            "Regular 644 usr-notes",
        ]
    );
}

#[test]
fn digest_does_not_depend_on_place_time_or_order() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    tree(&one.path().join("root"));
    tree(&two.path().join("another-root"));
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
    File::options()
        .write(true)
        .open(two.path().join("another-root/usr-notes"))
        .unwrap()
        .set_modified(old)
        .unwrap();
    let first = layer_of(&one.path().join("root"), &one.path().join("layer.tar"));
    let mut entries = scan(&two.path().join("another-root")).unwrap();
    entries.reverse();
    let second = write(&two.path().join("layer.tar"), entries).unwrap();
    assert_eq!((&first.digest, first.size), (&second.digest, second.size));
    assert_eq!(first.size, fs::metadata(&first.file).unwrap().len());
    assert_eq!(first.digest, Digest::of(&fs::read(&first.file).unwrap()));
}

#[test]
fn digest_follows_contents_and_mode() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("layer.tar");
    let digest = |mode, text: &str| {
        write(&out, vec![Entry::new("file", mode, Node::Text(text.to_owned()))]).unwrap().digest
    };
    let original = digest(0o644, "a");
    assert_ne!(original, digest(0o644, "b"));
    assert_ne!(original, digest(0o755, "a"));
    assert_eq!(original, digest(0o644, "a"));
}

#[test]
fn long_names_survive() {
    let place = tempfile::tempdir().unwrap();
    let path = format!("{}/{}", "d".repeat(120), "f".repeat(120));
    let layer = write(
        &place.path().join("layer.tar"),
        vec![
            Entry::new(&path, 0o644, Node::Text(String::new())),
            Entry::new(format!("{path}.link"), 0o777, Node::Symlink(PathBuf::from(&path))),
        ],
    )
    .unwrap();
    assert_eq!(
        listing(&layer),
        [format!("Regular 644 {path}"), format!("Symlink 777 {path}.link -> {path}")]
    );
}

#[test]
fn refuses_what_has_no_single_meaning() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("layer.tar");
    let twice = vec![Entry::new("a", 0o644, Node::Directory), Entry::new("a", 0o755, Node::Directory)];
    assert!(write(&out, twice).unwrap_err().to_string().contains("two entries for a"));
    let absolute = vec![Entry::new("/a", 0o644, Node::Directory)];
    assert!(write(&out, absolute).unwrap_err().to_string().contains("must be relative"));
}
