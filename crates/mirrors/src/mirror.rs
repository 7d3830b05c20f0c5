//! One mirror: made, fetched, tidied, checked and rebuilt. Only the holder of its lock writes.
//!
//! Nothing that a borrower may use is ever removed: no object is pruned, and a repository whose packs were joined in another one, or
//! that was rebuilt, stays as it is for the time of grace.

mod refs;
mod repository;
mod tidying;

use std::{
    fs::{self, File, TryLockError},
    os::unix::fs::DirBuilderExt,
    path::Path,
    time::Duration,
};

use bk_api::config::MirrorGc;
use jiff::{SignedDuration, Timestamp};

use self::repository::Repository;
use crate::{
    Error,
    access::Access,
    address::Address,
    pack,
    place::{Leaving, Place, Record},
};

/// What is to be mirrored.
pub struct Order {
    /// The repository.
    pub address: Address,
    /// Which references, as patterns.
    pub refs: Vec<String>,
    /// Whether files of Git LFS are fetched too.
    pub lfs: bool,
    /// How git gets at it.
    pub access: Access,
}

/// How mirrors are kept.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How long one command of git may take.
    pub timeout: Duration,
    /// When to tidy up and to check.
    pub gc: MirrorGc,
}

/// What came of a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The mirror now.
    pub record: Record,
    /// How much room it takes.
    pub size_bytes: u64,
    /// How many packs it has.
    pub packs: usize,
    /// Why it was made anew, if it was and had been there before.
    pub rebuilt: Option<String>,
    /// What did not work, but does not matter to the mirror.
    pub warning: Option<String>,
}

/// Brings a mirror up to date, whatever state it is in.
pub async fn sync(root: &Path, order: &Order, rules: Rules, now: Timestamp) -> Result<Outcome, Error> {
    let place = Place::of(root, &order.address);
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(&place.directory);
    made.map_err(Error::file(format!("make {}", place.directory.display())))?;
    let lock = Lock::take(&place)?;
    for unfinished in place.unfinished().map_err(Error::file("look for unfinished mirrors"))? {
        remove_directory(&unfinished)?;
    }
    let work = Work { place, order, rules, lock, now };
    let before = match work.place.read() {
        Ok(None) => return work.build(None, None).await,
        Ok(Some(before)) => before,
        Err(error) => return work.build(None, Some(bk_ops::report::one_line(&error))).await,
    };
    match work.renew(&before).await {
        Ok(Renewal::Done(warning)) => work.conclude(before, None, warning).await,
        Ok(Renewal::Damaged(damage)) => work.rebuild(before, damage).await,
        Err(error) => Err(error),
    }
}

/// The right to write a mirror. The kernel takes it back however we end, once every git that we have started has ended too.
struct Lock(File);

impl Lock {
    fn take(place: &Place) -> Result<Self, Error> {
        let path = place.lock_file();
        let opened = File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let file = opened.map_err(Error::file(format!("open {}", path.display())))?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(Error::Locked(place.directory.display().to_string())),
            Err(TryLockError::Error(error)) => Err(Error::file(format!("lock {}", path.display()))(error)),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A process that is just being started may have a copy of the file for a moment; it must not keep the lock.
        let _unlocked = self.0.unlock();
    }
}

enum Renewal {
    Done(Option<String>),
    Damaged(String),
}

struct Work<'a> {
    place: Place,
    order: &'a Order,
    rules: Rules,
    lock: Lock,
    now: Timestamp,
}

impl Work<'_> {
    fn repository(&self, directory: std::path::PathBuf) -> Repository<'_> {
        Repository { directory, order: self.order, timeout: self.rules.timeout, lock: &self.lock.0 }
    }

    /// Fetches into the repository in use, and says if that is damaged.
    async fn renew(&self, before: &Record) -> Result<Renewal, Error> {
        if let Some(damage) = &before.damage {
            return Ok(Renewal::Damaged(damage.clone()));
        }
        let repository = self.repository(self.place.repository(before));
        if let Err(damage) = pack::inspect(&repository.directory) {
            return Ok(Renewal::Damaged(damage));
        }
        tidying::remove_traces(&repository.directory)?;
        if let Err(error) = repository.fetch().await {
            let suspect = error.suggests_damage() || pack::inspect(&repository.directory).is_err();
            return match if suspect { repository.verify().await } else { Ok(()) } {
                Ok(()) => Err(error.into()),
                Err(Error::Corrupt(damage)) => Ok(Renewal::Damaged(damage)),
                Err(other) => Err(other),
            };
        }
        let mut unverified = None;
        if self.is_past(before.verified_at, self.rules.gc.verify_seconds) {
            unverified = match repository.verify().await {
                Ok(()) => None,
                Err(Error::Corrupt(damage)) => return Ok(Renewal::Damaged(damage)),
                // What was fetched is good all the same: a check that takes too long must not let the mirror grow old.
                Err(error) => Some(self.warn("the mirror could not be checked", &error)),
            };
        }
        Ok(Renewal::Done(repository.fetch_lfs().await.or(unverified)))
    }

    /// Says what did not work, but does not matter to the mirror.
    fn warn(&self, what: &str, error: &Error) -> String {
        let warning = format!("{what}: {}", bk_ops::report::one_line(error));
        tracing::warn!(repository = %self.order.address, warning, "the mirror is not all that it could be");
        warning
    }

    fn is_past(&self, since: Timestamp, seconds: u32) -> bool {
        self.now.duration_since(since) >= SignedDuration::from_secs(seconds.into())
    }

    /// Makes a repository beside the one in use, and puts it in its place.
    async fn build(&self, before: Option<Record>, reason: Option<String>) -> Result<Outcome, Error> {
        let (directory, name) =
            self.place.next(before.as_ref()).map_err(Error::file("find a name for a mirror"))?;
        let repository = self.repository(directory.clone());
        let built = async {
            repository.make().await?;
            repository.fetch().await?;
            Ok::<_, Error>(repository.fetch_lfs().await)
        };
        let warning = match built.await {
            Ok(warning) => warning,
            Err(error) => {
                remove_directory(&directory)?;
                return Err(error);
            }
        };
        let finished = self.place.directory.join(&name);
        let renamed = fs::rename(&directory, &finished);
        renamed.map_err(Error::file(format!("rename {} to {name}", directory.display())))?;
        let mut leavings = before.as_ref().map(|before| before.leavings.clone()).unwrap_or_default();
        leavings.extend(before.map(|before| Leaving { name: before.generation, since: self.now }));
        let mut record = Record {
            repository: self.order.address.canonical(),
            generation: name,
            built_at: self.now,
            verified_at: self.now,
            leavings,
            ..Record::default()
        };
        let forgotten = self.place.forgotten(&record).map_err(Error::file("look for forgotten mirrors"))?;
        let since = self.now;
        record.leavings.extend(forgotten.into_iter().map(|name| Leaving { name, since }));
        self.conclude(record, reason, warning).await
    }

    /// Publishes what was fetched, and tidies up.
    async fn conclude(
        &self,
        mut record: Record,
        rebuilt: Option<String>,
        warning: Option<String>,
    ) -> Result<Outcome, Error> {
        let repository = self.repository(self.place.repository(&record));
        record.head = repository.publish(record.head.take()).await?;
        record.last_sync = self.now;
        if self.is_past(record.verified_at, self.rules.gc.verify_seconds) {
            record.verified_at = self.now;
        }
        // First, as what was fetched counts whatever becomes of the tidying.
        self.place.write(&record)?;
        let published = record.clone();
        let warning = match self.tidy(&mut record).await {
            Ok(()) => warning,
            Err(error) => warning.or(Some(self.warn("the mirror could not be tidied up", &error))),
        };
        if record != published {
            self.place.write(&record)?;
        }
        let packs = pack::inspect(&self.place.repository(&record)).map_err(Error::Corrupt)?.len();
        let size_bytes = tidying::size(&self.place.directory);
        Ok(Outcome { record, size_bytes, packs, rebuilt, warning })
    }

    /// Makes a damaged mirror anew. Until that is done, nobody borrows from it any more.
    async fn rebuild(&self, before: Record, damage: String) -> Result<Outcome, Error> {
        tracing::warn!(repository = %self.order.address, damage, "the mirror is damaged and made anew");
        let before = Record { damage: Some(damage.clone()), ..before };
        self.place.write(&before)?;
        self.build(Some(before), Some(damage)).await
    }
}

fn remove_directory(directory: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::file(format!("remove {}", directory.display()))(error))
        }
        _ => Ok(()),
    }
}
