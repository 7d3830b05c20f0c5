//! Marks: files in the workspace by which the containers of a pod know of each other.

use crate::decision::Container;
use crate::errno::Errno;
use crate::failure::{Failure, OWN_FAULT};
use crate::layout::{Layout, Name, Place, Spot};
use crate::sys::{self, Fd};
use crate::text::Text;

/// Makes directories that everyone may use; one that another container has made is as good.
pub fn make_directories<'a>(layout: Layout<'a>, spots: &[Spot<'a>]) -> Result<(), Failure<'a>> {
    for spot in spots {
        let place = layout.at(*spot);
        match sys::mkdir(place.path().as_c_str(), 0o777) {
            Ok(()) | Err(Errno(libc::EEXIST)) => {}
            Err(errno) => return Err(Failure::at(place, "make the directory")(errno)),
        }
    }
    Ok(())
}

/// Leaves an empty mark.
pub fn leave(place: Place<'_>) -> Result<(), Failure<'_>> {
    let flags = libc::O_WRONLY | libc::O_CREAT;
    sys::open(place.path().as_c_str(), flags, 0o666).map(drop).map_err(Failure::at(place, "leave the mark"))
}

/// Whether something is at this place.
pub fn exists(place: Place<'_>) -> bool {
    sys::exists(place.path().as_c_str())
}

/// What the marks say about a container.
pub fn look(layout: Layout<'_>, name: Name<'_>) -> Container {
    Container { started: exists(layout.at(Spot::Started(name))), ended: ended(layout, name) }
}

/// The status in a container's end mark, if it has ended. One that cannot be read stands for a failure.
pub fn ended(layout: Layout<'_>, name: Name<'_>) -> Option<u8> {
    let mark = match sys::open(layout.at(Spot::Ended(name)).path().as_c_str(), libc::O_RDONLY, 0) {
        Ok(mark) => mark,
        Err(Errno(libc::ENOENT)) => return None,
        Err(_) => return Some(OWN_FAULT),
    };
    let mut buffer = [0; 8];
    let content = sys::read(&mark, &mut buffer).unwrap_or_default();
    Some(parse(content).unwrap_or(OWN_FAULT))
}

/// Whether the container's shim lives: whether somebody holds the end mark that nobody sees yet. Nothing if it cannot be told, as there
/// is no such mark or the filesystem knows no locks.
pub fn is_held(layout: Layout<'_>, name: Name<'_>) -> Option<bool> {
    let draft = sys::open(layout.at(Spot::EndDraft(name)).path().as_c_str(), libc::O_RDWR, 0).ok()?;
    sys::lock(&draft).ok().map(|free| !free)
}

fn parse(content: &[u8]) -> Option<u8> {
    core::str::from_utf8(content).ok()?.trim_ascii_end().parse().ok()
}

/// A mark of an end before the end. Its room on the disk is taken at the start, so that a job which fills
/// the disk does not leave those waiting who wait for the mark.
pub struct EndMark<'a> {
    file: Fd,
    draft: Place<'a>,
    mark: Place<'a>,
}

impl<'a> EndMark<'a> {
    /// Prepares the mark of a container; nobody sees it yet, but others can tell that it is held.
    pub fn of_container(layout: Layout<'a>, name: Name<'a>) -> Result<Self, Failure<'a>> {
        Self::prepare(layout.at(Spot::EndDraft(name)), layout.at(Spot::Ended(name)))
    }

    /// Prepares the mark of the job, in case this container is the one to leave it.
    pub fn of_job(layout: Layout<'a>, name: Name<'a>) -> Result<Self, Failure<'a>> {
        Self::prepare(layout.at(Spot::JobEndDraft(name)), layout.at(Spot::JobEnded))
    }

    fn prepare(draft: Place<'a>, mark: Place<'a>) -> Result<Self, Failure<'a>> {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
        let file = sys::open(draft.path().as_c_str(), flags, 0o666)
            .and_then(|file| sys::write(&file, b"???").map(|()| file))
            .map_err(Failure::at(draft, "prepare the mark"))?;
        // Where files cannot be locked, nobody can tell; see `is_held`.
        let _ = sys::lock(&file);
        Ok(Self { file, draft, mark })
    }

    /// Nobody will see it.
    pub fn discard(self) {
        let _ = sys::unlink(self.draft.path().as_c_str());
    }

    /// Leaves the mark, complete at once.
    pub fn leave(self, status: u8) -> Result<(), Failure<'a>> {
        let content = Text::<8>::new(format_args!("{status}"));
        sys::rewind(&self.file)
            .and_then(|()| sys::write(&self.file, content.as_bytes()))
            .and_then(|()| sys::truncate(&self.file, content.as_bytes().len()))
            .and_then(|()| sys::rename(self.draft.path().as_c_str(), self.mark.path().as_c_str()))
            .map_err(Failure::at(self.mark, "leave the mark"))
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn statuses() {
        for (content, expected) in [
            ("0", Some(0)),
            ("255", Some(255)),
            ("7\n", Some(7)),
            ("", None),
            ("256", None),
            ("-1", None),
            ("???", None),
        ] {
            assert_eq!(parse(content.as_bytes()), expected, "{content}");
        }
    }
}
