//! Text of bounded length: there is no allocator, so paths and messages are built in place.

use core::ffi::CStr;
use core::fmt::{self, Arguments, Write};

/// Longest path that a flag may name. The layout adds less than [`Path`] holds beyond it.
pub const LONGEST_PATH: usize = 1024;

/// A path for the kernel.
pub type Path = Text<1536>;

/// UTF-8 text in a fixed buffer, always followed by a NUL. What does not fit is cut off.
#[derive(Clone)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
    whole: bool,
}

impl<const N: usize> Text<N> {
    /// Formats `arguments`, cutting off what does not fit.
    pub fn new(arguments: Arguments<'_>) -> Self {
        let mut text = Self { bytes: [0; N], length: 0, whole: true };
        // `write_str` marks what was cut off and never fails.
        let _ = text.write_fmt(arguments);
        text
    }

    /// Whether all of it fitted.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// The bytes without the NUL.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The text up to its first NUL, for the kernel.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).expect("the last byte of the buffer is never written")
    }

    /// The text; a character that was cut in half is left out.
    pub fn as_str(&self) -> &str {
        match core::str::from_utf8(self.as_bytes()) {
            Ok(text) => text,
            Err(error) => core::str::from_utf8(&self.bytes[..error.valid_up_to()]).unwrap_or_default(),
        }
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = N - 1 - self.length;
        let count = text.len().min(room);
        self.whole &= count == text.len();
        self.bytes[self.length..self.length + count].copy_from_slice(&text.as_bytes()[..count]);
        self.length += count;
        Ok(())
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), out)
    }
}

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn holds_what_fits() {
        let text = Text::<8>::new(format_args!("a{}", 12));
        assert_eq!(text.as_c_str(), c"a12");
        assert!(text.is_whole());
    }

    #[test]
    fn cuts_what_does_not_fit_and_says_so() {
        let text = Text::<4>::new(format_args!("abc{}", 'd'));
        assert_eq!(text.as_c_str(), c"abc");
        assert!(!text.is_whole());
    }

    #[test]
    fn a_character_cut_in_half_is_left_out() {
        let text = Text::<4>::new(format_args!("abß"));
        assert_eq!(text.as_str(), "ab");
    }
}
