//! Packs: whether they are whole, which of them to join, and the proof that nothing got lost by it.
//!
//! Reads the files themselves: a look at the ends of each costs nothing, also on a volume across the network.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use sha1::{Digest, Sha1};

/// The length of an object's name (SHA-1, the format of nearly all repositories).
const NAME: usize = 20;
/// The first bytes of an index of the second version.
const INDEX_MAGIC: [u8; 8] = [0xff, b't', b'O', b'c', 0, 0, 0, 2];
/// Where the names of objects begin: after the magic and 256 counts.
const NAMES: usize = 8 + 256 * 4;

/// A pack that has an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pack {
    /// Its name, such as `pack-0123…`.
    pub name: String,
    /// How many objects it has.
    pub objects: u32,
}

/// The packs of a repository, or what is wrong with one of them: it is cut off, is missing, or has another's index.
pub fn inspect(repository: &Path) -> Result<Vec<Pack>, String> {
    let directory = repository.join("objects/pack");
    let broken = |error: io::Error| format!("cannot read {}: {error}", directory.display());
    let mut packs = Vec::new();
    for entry in fs::read_dir(&directory).map_err(broken)? {
        let path = entry.map_err(broken)?.path();
        if path.extension().is_some_and(|ending| ending == "idx") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let objects = whole(&path).map_err(|why| format!("{name}: {why}"))?;
            packs.push(Pack { name, objects });
        }
    }
    packs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(packs)
}

/// The number of objects of a pack whose index and content belong together and have not lost their ends.
fn whole(index: &Path) -> Result<u32, String> {
    let unreadable =
        |what: &'static str| move |error: io::Error| format!("its {what} cannot be read: {error}");
    let mut file = File::open(index).map_err(unreadable("index"))?;
    let mut head = [0; NAMES];
    file.read_exact(&mut head).map_err(unreadable("index"))?;
    if head[..8] != INDEX_MAGIC {
        return Err("its index is of an unknown kind".to_owned());
    }
    let objects = count(&head);
    let sums = last(&mut file, 2 * NAME).map_err(unreadable("index"))?;
    let mut pack = File::open(index.with_extension("pack")).map_err(unreadable("content"))?;
    let mut head = [0; 12];
    pack.read_exact(&mut head).map_err(unreadable("content"))?;
    if head[..4] != *b"PACK" || head[8..] != objects.to_be_bytes() {
        return Err("its content does not begin as its index says".to_owned());
    }
    if last(&mut pack, NAME).map_err(unreadable("content"))? != sums[..NAME] {
        return Err("its content does not end as its index says".to_owned());
    }
    Ok(objects)
}

fn count(head: &[u8; NAMES]) -> u32 {
    let last: [u8; 4] = head[NAMES - 4..].try_into().expect("four bytes");
    u32::from_be_bytes(last)
}

fn last(file: &mut File, bytes: usize) -> io::Result<Vec<u8>> {
    let back = i64::try_from(bytes).expect("a few bytes");
    file.seek(SeekFrom::End(-back))?;
    let mut read = vec![0; bytes];
    file.read_exact(&mut read)?;
    Ok(read)
}

/// What is wrong with the content of a repository's packs and indexes: each ends with a sum of all that is before. Everything is read, unless
/// it is not wanted any more.
pub fn damage(repository: &Path, is_wanted: impl Fn() -> bool) -> io::Result<Option<String>> {
    for entry in fs::read_dir(repository.join("objects/pack"))? {
        let path = entry?.path();
        let is_summed = path.extension().is_some_and(|ending| ending == "pack" || ending == "idx");
        if is_summed && !is_as_summed(&path, &is_wanted)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            return Ok(Some(format!("{name}: its content is not what its sum says")));
        }
    }
    Ok(None)
}

fn is_as_summed(path: &Path, is_wanted: &impl Fn() -> bool) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let mut left = file.metadata()?.len().saturating_sub(NAME as u64);
    let mut sum = Sha1::new();
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        if !is_wanted() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        file.read_exact(&mut buffer[..part])?;
        sum.update(&buffer[..part]);
        left -= part as u64;
    }
    let mut written = [0; NAME];
    file.read_exact(&mut written)?;
    Ok(sum.finalize().as_slice() == written)
}

/// Which packs to join, if there are more than `most`: the small ones, so that each that is left is at least twice as large as all
/// smaller ones together. A large pack is copied once for each doubling of what has come since.
pub fn to_join(packs: &[Pack], most: usize) -> Vec<String> {
    if packs.len() <= most {
        return Vec::new();
    }
    let mut packs: Vec<&Pack> = packs.iter().collect();
    packs.sort_by_key(|pack| pack.objects);
    let mut joined = 0;
    let mut below: u64 = 0;
    for (index, pack) in packs.iter().enumerate() {
        if u64::from(pack.objects) < below.saturating_mul(2) {
            joined = index + 1;
        }
        below += u64::from(pack.objects);
    }
    // One alone would only be copied.
    let joined = if joined < 2 { 0 } else { joined };
    packs[..joined].iter().map(|pack| pack.name.clone()).collect()
}

/// The first object of old packs that the new one does not have. Each comes with its repository.
pub fn lost(old: (&Path, &[String]), new: (&Path, &str)) -> io::Result<Option<String>> {
    let found: BTreeSet<[u8; NAME]> = objects(&index(new.0, new.1))?.into_iter().collect();
    for pack in old.1 {
        if let Some(object) = objects(&index(old.0, pack))?.iter().find(|object| !found.contains(*object)) {
            let digits = object.iter().map(|byte| format!("{byte:02x}"));
            return Ok(Some(digits.collect::<Vec<_>>().concat()));
        }
    }
    Ok(None)
}

fn objects(index: &Path) -> io::Result<Vec<[u8; NAME]>> {
    let bytes = fs::read(index)?;
    let cut_off = || io::Error::other(format!("{} is cut off", index.display()));
    let head: &[u8; NAMES] = bytes.first_chunk().ok_or_else(cut_off)?;
    let names = bytes.get(NAMES..NAMES + NAME * count(head) as usize).ok_or_else(cut_off)?;
    Ok(names.as_chunks().0.to_vec())
}

fn index(repository: &Path, pack: &str) -> PathBuf {
    repository.join("objects/pack").join(format!("{pack}.idx"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn packs(sizes: &[u32]) -> Vec<Pack> {
        sizes.iter().enumerate().map(|(n, size)| Pack { name: format!("p{n}"), objects: *size }).collect()
    }

    #[rstest]
    #[case(&[1, 1, 1], 3, &[])]
    #[case(&[1000, 1, 1, 1], 3, &["p1", "p2", "p3"])]
    #[case(&[1000, 300, 2, 1], 3, &[])]
    #[case(&[1000, 990, 1, 1], 3, &["p2", "p3", "p1", "p0"])]
    #[case(&[1, 1], 1, &["p0", "p1"])]
    fn small_packs_are_joined(#[case] sizes: &[u32], #[case] most: usize, #[case] expected: &[&str]) {
        assert_eq!(to_join(&packs(sizes), most), expected);
    }

    proptest! {
        #[test]
        fn what_is_left_grows_by_doubling(sizes in prop::collection::vec(1_u32..100_000, 0..60), most in 2_usize..20) {
            let all = packs(&sizes);
            let joined = to_join(&all, most);
            prop_assert!(joined.len() != 1);
            let mut left: Vec<u64> =
                all.iter().filter(|pack| !joined.contains(&pack.name)).map(|pack| pack.objects.into()).collect();
            left.sort_unstable();
            if all.len() > most {
                let small: u64 = all.iter().filter(|pack| joined.contains(&pack.name)).map(|pack| u64::from(pack.objects)).sum();
                let mut below = small;
                for size in left {
                    prop_assert!(size >= 2 * below || below == 0);
                    below += size;
                }
            } else {
                prop_assert!(joined.is_empty());
            }
        }
    }
}
