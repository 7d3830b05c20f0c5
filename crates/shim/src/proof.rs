//! What the agent registers with beside its token: a service account token, which says in which pod it is. The kubelet puts a new one
//! in its file from time to time, so it is read when the agent is about to start.

use crate::failure::{Failure, Flaw};
use crate::sys::{self, Change, Process};
use crate::text::Text;
use core::ffi::CStr;

/// The variable with the file's path; the agent does not get it.
const FILE: &[u8] = b"BUILDKITE_SHIM_PROOF=";
/// The variable that the proof is added to.
const TOKEN: &[u8] = b"BUILDKITE_AGENT_TOKEN=";

/// The size of a file at most.
const LONGEST: usize = 4096;

/// The variable with the agent's token and the proof, a `!` between them.
type Proven = Text<8192>;

/// The agent's token with a proof.
pub struct Proof {
    /// The variables as the container has them.
    file: &'static CStr,
    token: &'static CStr,
    proven: Proven,
}

impl Proof {
    /// Reads the proof, if the agent needs one.
    pub fn of(process: &Process) -> Result<Option<Self>, Failure<'static>> {
        let entry = |name| process.environment.into_iter().find(|entry| entry.to_bytes().starts_with(name));
        let Some(file) = entry(FILE) else { return Ok(None) };
        let token = entry(TOKEN).unwrap_or_default();
        let path = CStr::from_bytes_until_nul(&file.to_bytes_with_nul()[FILE.len()..]).unwrap_or_default();
        match read(path, &mut [0; LONGEST + 1]).and_then(|content| prove(token, content)) {
            Ok(proven) => Ok(Some(Self { file, token, proven })),
            Err(flaw) => Err(Failure::Proof(path, flaw)),
        }
    }

    /// What the agent gets instead of the container's variables.
    pub fn changes(&self) -> [Change<'_>; 2] {
        [(self.token, Some(self.proven.as_c_str())), (self.file, None)]
    }
}

/// As much of a file as there is room for.
fn read<'a>(path: &CStr, buffer: &'a mut [u8]) -> Result<&'a [u8], Flaw> {
    let file = sys::open(path, libc::O_RDONLY, 0).map_err(Flaw::Read)?;
    let mut length = 0;
    loop {
        match sys::read(&file, &mut buffer[length..]).map_err(Flaw::Read)?.len() {
            0 => return Ok(&buffer[..length]),
            count => length += count,
        }
    }
}

/// The variable `token` with the content of a file.
fn prove(token: &CStr, content: &[u8]) -> Result<Proven, Flaw> {
    if content.len() > LONGEST {
        return Err(Flaw::Content("it is larger than 4 KiB"));
    }
    let proof = content.trim_ascii_end();
    if proof.is_empty() {
        return Err(Flaw::Content("it is empty"));
    }
    // A NUL would end the variable, and the agent could not send the end of a line.
    let proof =
        core::str::from_utf8(proof).ok().filter(|proof| proof.bytes().all(|byte| byte.is_ascii_graphic()));
    let proof = proof.ok_or(Flaw::Content("it is not one word of text"))?;
    let token = token.to_str().ok().filter(|token| !token.is_empty());
    let token = token.ok_or(Flaw::Content("BUILDKITE_AGENT_TOKEN is not set, or not text"))?;
    let proven = Proven::new(format_args!("{token}!{proof}"));
    if proven.is_whole() {
        Ok(proven)
    } else {
        Err(Flaw::Content("BUILDKITE_AGENT_TOKEN is too long for it"))
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, prove};
    use crate::failure::Flaw;
    use std::ffi::CString;
    use std::string::{String, ToString};
    use std::vec::Vec;

    fn proven(token: &str, content: &[u8]) -> Result<String, Flaw> {
        prove(&CString::new(token).unwrap(), content)
            .map(|proven| proven.as_c_str().to_str().unwrap().to_string())
    }

    const TOKEN: &str = "BUILDKITE_AGENT_TOKEN=bkt.a-b_c";

    #[test]
    fn a_proof_follows_the_token() {
        let long = "a".repeat(LONGEST);
        for (token, content, expected) in [
            (TOKEN, "x.y.z", "BUILDKITE_AGENT_TOKEN=bkt.a-b_c!x.y.z"),
            (TOKEN, "x.y.z \r\n\n", "BUILDKITE_AGENT_TOKEN=bkt.a-b_c!x.y.z"),
            ("BUILDKITE_AGENT_TOKEN=", "x", "BUILDKITE_AGENT_TOKEN=!x"),
            ("A=", &long, &["A=!", &long].concat()),
        ] {
            assert_eq!(proven(token, content.as_bytes()), Ok(expected.to_string()));
        }
    }

    #[test]
    fn what_is_no_proof_is_refused() {
        let (long, long_token) = ("a".repeat(LONGEST + 1), ["A=", &"b".repeat(8189)].concat());
        for (token, content, flaw) in [
            (TOKEN, "", "it is empty"),
            (TOKEN, " \n", "it is empty"),
            (TOKEN, &long, "it is larger than 4 KiB"),
            (TOKEN, "x\ny", "it is not one word of text"),
            (TOKEN, "x\0y", "it is not one word of text"),
            (TOKEN, "xß", "it is not one word of text"),
            ("", "x", "BUILDKITE_AGENT_TOKEN is not set, or not text"),
            (&long_token, "x", "BUILDKITE_AGENT_TOKEN is too long for it"),
        ] {
            assert_eq!(proven(token, content.as_bytes()), Err(Flaw::Content(flaw)));
        }
        let not_text: Vec<u8> = [b'x', 0xff].into();
        assert_eq!(proven(TOKEN, &not_text), Err(Flaw::Content("it is not one word of text")));
    }
}
