//! What may become an artifact, and which artifacts a search means. No I/O.

pub(crate) mod parts;
pub(crate) mod path;
pub(crate) mod search;

use bk_buildkite::artifacts::{ArtifactBatch, NewArtifact};

use path::PathProblem;

/// The most artifacts of one batch.
const MAX_BATCH: usize = 30;
/// Far above what agents send.
const MAX_TEXT: usize = 4096;

/// Why a batch of artifacts is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BatchProblem {
    /// Without an id a repetition cannot be recognised.
    #[error("the batch needs an id of 1 to 128 characters")]
    Id,
    /// Too few or too many.
    #[error("a batch has 1 to {MAX_BATCH} artifacts, not {0}")]
    Count(usize),
    /// The path cannot be an artifact's.
    #[error(transparent)]
    Path(#[from] PathProblem),
    /// A number of bytes that cannot be.
    #[error("the size of {path:?} is negative")]
    NegativeSize { path: String },
    /// More than the server keeps.
    #[error("{path:?} has {size} bytes; this server keeps artifacts of at most {limit} bytes")]
    TooLarge { path: String, size: u64, limit: u64 },
    /// Not a checksum.
    #[error("the {name} of {path:?} is not {digits} hexadecimal digits")]
    Sum { path: String, name: &'static str, digits: usize },
    /// A field that would not fit anywhere.
    #[error("the {name} of {path:?} has more than {MAX_TEXT} bytes or holds control characters")]
    Text { path: String, name: &'static str },
}

/// Checks a batch before anything is kept of it.
pub(crate) fn check(batch: &ArtifactBatch, max_bytes: u64) -> Result<(), BatchProblem> {
    if batch.id.is_empty() || batch.id.len() > 128 {
        return Err(BatchProblem::Id);
    }
    if !(1..=MAX_BATCH).contains(&batch.artifacts.len()) {
        return Err(BatchProblem::Count(batch.artifacts.len()));
    }
    batch.artifacts.iter().try_for_each(|artifact| check_one(artifact, &batch.upload_destination, max_bytes))
}

fn check_one(artifact: &NewArtifact, destination: &str, max_bytes: u64) -> Result<(), BatchProblem> {
    let path = || artifact.path.clone();
    path::check(&artifact.path)?;
    let size = u64::try_from(artifact.file_size).map_err(|_| BatchProblem::NegativeSize { path: path() })?;
    // What goes to a bucket is not the server's to limit.
    if destination.is_empty() && size > max_bytes {
        return Err(BatchProblem::TooLarge { path: path(), size, limit: max_bytes });
    }
    for (name, sum, digits) in [("sha1sum", &artifact.sha1sum, 40), ("sha256sum", &artifact.sha256sum, 64)] {
        let hexadecimal = sum.len() == digits && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !sum.is_empty() && !hexadecimal {
            return Err(BatchProblem::Sum { path: path(), name, digits });
        }
    }
    let texts = [
        ("absolute_path", artifact.absolute_path.as_str()),
        ("glob_path", &artifact.glob_path),
        ("content_type", &artifact.content_type),
        ("url", &artifact.url),
        ("upload_destination", destination),
    ];
    match texts.iter().find(|(_, text)| text.len() > MAX_TEXT || text.chars().any(char::is_control)) {
        Some((name, _)) => Err(BatchProblem::Text { path: path(), name }),
        None => Ok(()),
    }
}

/// What came, to be compared with what was promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) size: u64,
    /// Lower-case hexadecimal.
    pub(crate) sha1: String,
    /// Lower-case hexadecimal.
    pub(crate) sha256: String,
}

/// Bytes that are not those which were promised.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {what} of {path:?} is {received}, but {promised} was promised; upload the file again")]
pub(crate) struct Mismatch {
    what: &'static str,
    path: String,
    received: String,
    promised: String,
}

impl Received {
    /// Whether this is the file that was promised. Sums that were not given are not compared.
    pub(crate) fn verify(&self, path: &str, size: u64, sha1: &str, sha256: &str) -> Result<(), Mismatch> {
        let mismatch = |what, received: &str, promised: &str| Mismatch {
            what,
            path: path.to_owned(),
            received: received.to_owned(),
            promised: promised.to_owned(),
        };
        if self.size != size {
            return Err(mismatch("size", &self.size.to_string(), &size.to_string()));
        }
        for (what, received, promised) in
            [("SHA-1 sum", &self.sha1, sha1), ("SHA-256 sum", &self.sha256, sha256)]
        {
            if !promised.is_empty() && !received.eq_ignore_ascii_case(promised) {
                return Err(mismatch(what, received, promised));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn batch(artifact: NewArtifact) -> ArtifactBatch {
        ArtifactBatch { id: "batch".into(), artifacts: vec![artifact], ..ArtifactBatch::default() }
    }

    fn good() -> NewArtifact {
        NewArtifact {
            path: "dir/a b é.txt".into(),
            file_size: 3,
            sha1sum: "a".repeat(40),
            ..NewArtifact::default()
        }
    }

    #[test]
    fn a_usual_batch_passes() {
        assert_eq!(check(&batch(good()), 3), Ok(()));
    }

    #[rstest]
    #[case::path(NewArtifact { path: "../x".into(), ..good() })]
    #[case::negative(NewArtifact { file_size: -1, ..good() })]
    #[case::large(NewArtifact { file_size: 4, ..good() })]
    #[case::short_sum(NewArtifact { sha1sum: "abc".into(), ..good() })]
    #[case::no_digits(NewArtifact { sha256sum: "z".repeat(64), ..good() })]
    #[case::header_injection(NewArtifact { content_type: "text/plain\r\nSet-Cookie: a=b".into(), ..good() })]
    fn what_cannot_be_is_refused(#[case] artifact: NewArtifact) {
        assert!(check(&batch(artifact), 3).is_err());
    }

    #[test]
    fn buckets_have_limits_of_their_own() {
        let mut batch = batch(NewArtifact { file_size: 4, ..good() });
        batch.upload_destination = "s3://bucket/prefix".into();
        assert_eq!(check(&batch, 3), Ok(()));
    }

    #[test]
    fn batches_have_an_id_and_a_size() {
        let many = ArtifactBatch { artifacts: vec![good(); 31], ..batch(good()) };
        assert_eq!(check(&many, 3), Err(BatchProblem::Count(31)));
        let none = ArtifactBatch { artifacts: Vec::new(), ..batch(good()) };
        assert_eq!(check(&none, 3), Err(BatchProblem::Count(0)));
        let nameless = ArtifactBatch { id: String::new(), ..batch(good()) };
        assert_eq!(check(&nameless, 3), Err(BatchProblem::Id));
    }

    #[test]
    fn a_mismatch_names_both_sides() {
        let received = Received { size: 1, sha1: "ab".into(), sha256: "cd".into() };
        assert_eq!(received.verify("x", 1, "AB", ""), Ok(()));
        let wrong = received.verify("x", 1, "ab", "ef").unwrap_err().to_string();
        assert_eq!(wrong, r#"the SHA-256 sum of "x" is cd, but ef was promised; upload the file again"#);
        assert!(received.verify("x", 2, "", "").is_err());
    }
}
