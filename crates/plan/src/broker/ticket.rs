//! The one-time token of a pod: which job, BuildJob and attempt it is for, and a seal that only the operator can make.
//!
//! It says nothing secret but for the seal, and is worth nothing once it was used, or when its pod is gone.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::hmac;

/// What every ticket begins with, so that people and scanners of secrets know what they have found.
pub const PREFIX: &str = "bkot";

/// How long a key is.
pub const KEY_BYTES: usize = 32;

/// What tickets are sealed with.
#[derive(Clone)]
pub struct Key(hmac::Key);

impl Key {
    /// A key of these bytes; nothing if they are too few.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= KEY_BYTES).then(|| Self(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key")
    }
}

impl PartialEq for Key {
    /// Two keys are one if they seal alike.
    fn eq(&self, other: &Self) -> bool {
        hmac::sign(&self.0, &[]).as_ref() == hmac::sign(&other.0, &[]).as_ref()
    }
}

/// What a ticket is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The Buildkite job.
    pub job_uuid: String,
    /// The UID of the BuildJob.
    pub uid: String,
    /// Which attempt at it.
    pub attempt: u32,
    /// The name of the BuildJob.
    pub build_job: String,
}

impl Ticket {
    /// The ticket as the pod has it.
    pub fn sealed(&self, key: &Key) -> String {
        let text = self.text();
        let seal = URL_SAFE_NO_PAD.encode(hmac::sign(&key.0, text.as_bytes()));
        format!("{text}~{seal}")
    }

    /// What a token that somebody shows is for; nothing if it is none of ours, or was altered.
    pub fn read(token: &str, key: &Key) -> Option<Self> {
        let (text, seal) = token.rsplit_once('~')?;
        hmac::verify(&key.0, text.as_bytes(), &URL_SAFE_NO_PAD.decode(seal).ok()?).ok()?;
        let mut parts = text.split('~');
        let mut next = || parts.next().map(str::to_owned);
        let (prefix, job_uuid, uid, attempt, build_job) = (next()?, next()?, next()?, next()?, next()?);
        let attempt = attempt.parse().ok()?;
        (prefix == PREFIX && parts.next().is_none()).then_some(Self { job_uuid, uid, attempt, build_job })
    }

    /// No part of it can have a tilde in it.
    fn text(&self) -> String {
        let Self { job_uuid, uid, attempt, build_job } = self;
        format!("{PREFIX}~{job_uuid}~{uid}~{attempt}~{build_job}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(byte: u8) -> Key {
        Key::new(&[byte; KEY_BYTES]).unwrap()
    }

    fn ticket() -> Ticket {
        Ticket {
            job_uuid: "0198f0a0-0000-7000-8000-000000000001".to_owned(),
            uid: "4d0d3a86-6f8c-4d07-8a26-c6f0d1b1a111".to_owned(),
            attempt: 2,
            build_job: "nightly.1".to_owned(),
        }
    }

    #[test]
    fn a_ticket_is_read_as_it_was_made() {
        assert_eq!(Ticket::read(&ticket().sealed(&key(1)), &key(1)), Some(ticket()));
        assert_eq!(Ticket::read(&ticket().sealed(&key(1)), &key(2)), None, "another key");
        assert_eq!(Ticket::read("bkct_agent_token", &key(1)), None);
        assert_eq!(Ticket::read("", &key(1)), None);
        assert!(Key::new(&[1; KEY_BYTES - 1]).is_none());
    }

    #[test]
    fn keys_are_not_printed() {
        assert_eq!(format!("{:?}", key(1)), "Key");
        assert!(key(1) == key(1) && key(1) != key(2));
    }

    proptest! {
        #[test]
        fn no_altered_ticket_is_read(at in 0_usize..200, byte in 33_u8..127) {
            let sealed = ticket().sealed(&key(1));
            let mut altered = sealed.clone().into_bytes();
            let at = at % altered.len();
            altered[at] = byte;
            let altered = String::from_utf8(altered).unwrap();
            // The last character of the seal stands for fewer bits than it has.
            if altered != sealed && at + 1 < sealed.len() {
                prop_assert_eq!(Ticket::read(&altered, &key(1)), None);
            }
        }

        #[test]
        fn whatever_is_shown_is_read_without_a_panic(token in ".*") {
            prop_assert_eq!(Ticket::read(&token, &key(1)), None);
        }
    }
}
