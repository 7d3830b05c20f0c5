//! Tidying up: small packs are joined, and what nobody can be reading any more goes.
//!
//! A repository that somebody may borrow from never loses a file. So packs are joined in another one beside it, which has the same
//! large packs under the same names by hard links, and is borrowed from next.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{Work, remove_directory, repository::Repository};
use crate::{
    Error, pack,
    place::{BORROWED_REFS, Leaving, Record},
};

impl Work<'_> {
    /// Removes repositories that have been left for long enough, and joins small packs of the one in use.
    pub(super) async fn tidy(&self, record: &mut Record) -> Result<(), Error> {
        self.remove_leavings(record)?;
        let old = self.repository(self.place.repository(record));
        let packs = pack::inspect(&old.directory).map_err(Error::Corrupt)?;
        let small = pack::to_join(&packs, self.rules.gc.max_packs);
        if small.is_empty() {
            return Ok(());
        }
        let (directory, name) =
            self.place.next(Some(record)).map_err(Error::file("find a name for a mirror"))?;
        let new = self.repository(directory);
        if let Err(error) = join(&old, &new, &small).await {
            remove_directory(&new.directory)?;
            return Err(error);
        }
        let renamed = fs::rename(&new.directory, self.place.directory.join(&name));
        renamed.map_err(Error::file(format!("rename {} to {name}", new.directory.display())))?;
        tracing::info!(repository = %self.order.address, packs = small.len(), into = name, "packs joined");
        let left = std::mem::replace(&mut record.generation, name);
        record.leavings.push(Leaving { name: left, since: self.now });
        Ok(())
    }

    fn remove_leavings(&self, record: &mut Record) -> Result<(), Error> {
        let (gone, kept): (Vec<Leaving>, Vec<Leaving>) = std::mem::take(&mut record.leavings)
            .into_iter()
            .partition(|leaving| self.is_past(leaving.since, self.rules.gc.grace_seconds));
        record.leavings = kept;
        for Leaving { name, .. } in gone.into_iter().filter(|leaving| leaving.name != record.generation) {
            remove_directory(&self.place.directory.join(name))?;
        }
        Ok(())
    }
}

/// Makes `new` a repository with everything that `old` has, reachable or not, in which some packs are one.
async fn join(old: &Repository<'_>, new: &Repository<'_>, packs: &[String]) -> Result<(), Error> {
    new.make().await?;
    let linked = ["objects", "lfs"].into_iter().try_for_each(|part| {
        let stays = |path: &Path| {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            packs.iter().all(|pack| *pack != stem)
        };
        link(&old.directory.join(part), &new.directory.join(part), &stays)
    });
    linked.map_err(Error::file(format!("link the files of {}", old.directory.display())))?;
    let base = new.directory.join("objects/pack/pack");
    let options = ["--stdin-packs", "--quiet", "--delta-base-offset", "--threads=1"];
    let input = packs.join(".pack\n") + ".pack\n";
    let joined = old.git("pack-objects").args(options).args([base]).input(input).text().await?;
    let joined = format!("pack-{}", joined.trim());
    let lost = pack::lost((&old.directory, packs), (&new.directory, &joined));
    if let Some(object) = lost.map_err(Error::file(format!("compare {joined} with what it was made of")))? {
        return Err(Error::Corrupt(format!("joining packs would have lost object {object}")));
    }
    for file in ["HEAD", "packed-refs", BORROWED_REFS] {
        let copied = fs::copy(old.directory.join(file), new.directory.join(file));
        copied.map_err(Error::file(format!("copy {file} of {}", old.directory.display())))?;
    }
    Ok(())
}

/// The same files once more, without their content where the volume can do that.
fn link(from: &Path, to: &Path, stays: &dyn Fn(&Path) -> bool) -> io::Result<()> {
    if !from.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            link(&path, &target, stays)?;
        } else if stays(&path) && !target.exists() && fs::hard_link(&path, &target).is_err() {
            fs::copy(&path, &target)?;
        }
    }
    Ok(())
}

/// Removes what a git that was killed has left: half packs, and locks of files that nobody else writes.
pub(super) fn remove_traces(repository: &Path) -> Result<(), Error> {
    let is_trace = |name: &str| {
        name.starts_with("tmp_")
            || name.starts_with(".tmp-")
            || name.starts_with(".replacing-")
            || name.rsplit_once('.').is_some_and(|(_, ending)| ending == "lock")
    };
    for directory in ["", "objects/pack", "objects/info", "info"] {
        let directory = repository.join(directory);
        for path in files(&directory).map_err(Error::file(format!("read {}", directory.display())))? {
            if path.file_name().is_some_and(|name| is_trace(&name.to_string_lossy())) {
                fs::remove_file(&path).map_err(Error::file(format!("remove {}", path.display())))?;
            }
        }
    }
    remove_locks(&repository.join("refs"))
}

fn remove_locks(directory: &Path) -> Result<(), Error> {
    let unreadable = || format!("read {}", directory.display());
    for entry in fs::read_dir(directory).map_err(Error::file(unreadable()))? {
        let path = entry.map_err(Error::file(unreadable()))?.path();
        if path.is_dir() {
            remove_locks(&path)?;
        } else if path.extension().is_some_and(|ending| ending == "lock") {
            fs::remove_file(&path).map_err(Error::file(format!("remove {}", path.display())))?;
        }
    }
    Ok(())
}

fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    Ok(paths?.into_iter().filter(|path| path.is_file()).collect())
}

/// How much room a directory takes. What goes away meanwhile does not count, and what has two names counts once.
pub(super) fn size(directory: &Path) -> u64 {
    sum(directory, &mut BTreeSet::new())
}

fn sum(directory: &Path, seen: &mut BTreeSet<u64>) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => sum(&entry.path(), seen),
            Ok(meta) if seen.insert(meta.ino()) => meta.len(),
            _ => 0,
        })
        .sum()
}
