//! JSON, written as it goes: a value in memory for each line would cost too much.

/// Adds `text`, which is UTF-8, as a JSON string.
pub fn string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let mut from = 0;
    for (index, byte) in text.iter().enumerate() {
        if *byte >= b' ' && *byte != b'"' && *byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&text[from..index]);
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
            }
        }
        from = index + 1;
    }
    out.extend_from_slice(&text[from..]);
    out.push(b'"');
}

/// Adds a number.
pub fn number(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

/// Adds `"name":"value"` and a comma before it if there is something before, unless the value is empty.
pub fn member(name: &str, value: &str, out: &mut Vec<u8>) {
    if value.is_empty() {
        return;
    }
    if !matches!(out.last(), None | Some(b'{')) {
        out.push(b',');
    }
    string(name.as_bytes(), out);
    out.push(b':');
    string(value.as_bytes(), out);
}

/// Writes times. Most lines come in the same second as the one before.
#[derive(Debug, Default)]
pub struct Clock {
    second: Option<u64>,
    written: Vec<u8>,
}

impl Clock {
    /// Adds a time, in nanoseconds since 1970, as `"2026-11-16T10:00:00.123456789Z"`.
    pub fn time(&mut self, nanoseconds: u64, out: &mut Vec<u8>) {
        let (second, fraction) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
        if self.second != Some(second) {
            self.second = Some(second);
            self.written = timestamp(second).strftime("\"%Y-%m-%dT%H:%M:%S.").to_string().into_bytes();
        }
        out.extend_from_slice(&self.written);
        let start = out.len();
        number(fraction + 1_000_000_000, out);
        out.remove(start);
        out.extend_from_slice(b"Z\"");
    }
}

/// A second since 1970.
pub fn timestamp(second: u64) -> jiff::Timestamp {
    i64::try_from(second)
        .ok()
        .and_then(|second| jiff::Timestamp::from_second(second).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn members_that_are_empty_are_left_out() {
        let mut out = b"{".to_vec();
        member("a", "", &mut out);
        member("b", "1", &mut out);
        member("c", "\"", &mut out);
        assert_eq!(out, br#"{"b":"1","c":"\"""#);
    }

    proptest! {
        #[test]
        fn strings_are_read_back(text in any::<String>()) {
            let mut out = Vec::new();
            string(text.as_bytes(), &mut out);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }

        #[test]
        fn numbers_are_as_displayed(value in any::<u64>()) {
            let mut out = Vec::new();
            number(value, &mut out);
            prop_assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
        }

        #[test]
        fn times_are_read_back(first in 0_u64..4_102_444_800_000_000_000, step in 0_u64..2_000_000_000) {
            let mut clock = Clock::default();
            for time in [first, first + step] {
                let mut out = Vec::new();
                clock.time(time, &mut out);
                let read: jiff::Timestamp = serde_json::from_slice(&out).unwrap();
                prop_assert_eq!(u64::try_from(read.as_nanosecond()).unwrap(), time);
            }
        }
    }
}
