//! Paths that need no token: whoever has one may use it, for one purpose and for a while.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use ring::hmac;
use uuid::Uuid;

/// What a path is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Reading the bytes.
    Download,
    /// Sending the whole file as a form.
    Upload,
    /// Sending one part.
    Part(u32),
}

impl Purpose {
    /// Long enough for a client to use it; an upload may wait for others before it.
    fn good_for(self) -> SignedDuration {
        match self {
            Self::Download => SignedDuration::from_hours(1),
            Self::Upload | Self::Part(_) => SignedDuration::from_hours(24),
        }
    }

    fn segment(self) -> String {
        match self {
            Self::Download => "download".to_owned(),
            Self::Upload => "upload".to_owned(),
            Self::Part(part) => format!("parts/{part}"),
        }
    }
}

/// Signs paths and checks signed ones.
pub(crate) struct Tickets(hmac::Key);

impl Tickets {
    /// With the server's own secret.
    pub(crate) fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The path, relative to the server's root, under which `artifact` can be used for `purpose` from now on.
    pub(crate) fn path(&self, artifact: Uuid, purpose: Purpose, now: Timestamp) -> String {
        let until = now.checked_add(purpose.good_for()).unwrap_or(Timestamp::MAX).as_second();
        let tag = hmac::sign(&self.0, message(artifact, purpose, until).as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(tag);
        format!("/_artifacts/{artifact}/{}/{until}-{signature}", purpose.segment())
    }

    /// Whether `ticket`, the last segment of such a path, is good.
    pub(crate) fn check(&self, artifact: Uuid, purpose: Purpose, ticket: &str, now: Timestamp) -> bool {
        let Some((until, signature)) = ticket.split_once('-') else { return false };
        let Ok(until) = until.parse::<i64>() else { return false };
        let Ok(signature) = URL_SAFE_NO_PAD.decode(signature) else { return false };
        now.as_second() <= until
            && hmac::verify(&self.0, message(artifact, purpose, until).as_bytes(), &signature).is_ok()
    }
}

fn message(artifact: Uuid, purpose: Purpose, until: i64) -> String {
    format!("{artifact} {} {until}", purpose.segment())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(path: &str) -> &str {
        path.rsplit_once('/').unwrap().1
    }

    #[test]
    fn a_ticket_is_good_for_one_artifact_one_purpose_and_a_while() {
        let tickets = Tickets::new(b"secret");
        let (artifact, now) = (Uuid::now_v7(), Timestamp::now());
        let path = tickets.path(artifact, Purpose::Part(2), now);
        assert!(path.starts_with(&format!("/_artifacts/{artifact}/parts/2/")));
        let ticket = ticket(&path);
        assert!(tickets.check(artifact, Purpose::Part(2), ticket, now));
        assert!(!tickets.check(artifact, Purpose::Part(1), ticket, now));
        assert!(!tickets.check(artifact, Purpose::Download, ticket, now));
        assert!(!tickets.check(Uuid::now_v7(), Purpose::Part(2), ticket, now));
        assert!(!Tickets::new(b"other").check(artifact, Purpose::Part(2), ticket, now));
        let later = now + SignedDuration::from_hours(25);
        assert!(!tickets.check(artifact, Purpose::Part(2), ticket, later));
        let (_, signature) = ticket.split_once('-').unwrap();
        let stretched = format!("{}-{signature}", later.as_second() + 60);
        assert!(!tickets.check(artifact, Purpose::Part(2), &stretched, later));
    }

    #[test]
    fn nonsense_is_no_ticket() {
        let tickets = Tickets::new(b"secret");
        for ticket in ["", "-", "1", "9999999999-", "9999999999-zz", "9999999999-abc", "x-é"] {
            assert!(!tickets.check(Uuid::nil(), Purpose::Download, ticket, Timestamp::now()), "{ticket}");
        }
    }
}
