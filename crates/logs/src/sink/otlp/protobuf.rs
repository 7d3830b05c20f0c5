//! OTLP's messages on the wire of protobuf. They are written by hand, as types for them would need memory for each line and
//! attribute.

/// Kinds of fields on the wire.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

/// Adds a number of variable length.
fn varint(mut number: u64, out: &mut Vec<u8>) {
    loop {
        let low = u8::try_from(number & 0x7F).unwrap_or_default();
        number >>= 7;
        if number == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

fn varint_length(number: u64) -> usize {
    (number.max(1).ilog2() / 7 + 1) as usize
}

fn tag(field: u32, kind: u32, out: &mut Vec<u8>) {
    varint(u64::from(field << 3 | kind), out);
}

/// Adds a field of bytes, a string or a message that is written already.
pub(super) fn bytes(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    head(field, bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Adds what comes before the bytes of a field.
pub(super) fn head(field: u32, length: usize, out: &mut Vec<u8>) {
    tag(field, BYTES, out);
    varint(length as u64, out);
}

/// Adds a field of eight bytes.
pub(super) fn fixed64(field: u32, number: u64, out: &mut Vec<u8>) {
    tag(field, FIXED64, out);
    out.extend_from_slice(&number.to_le_bytes());
}

/// How long a field of bytes is, with its head.
pub(super) fn length(bytes: usize) -> usize {
    // All of OTLP's fields that are used here have numbers below sixteen, and so tags of one byte.
    1 + varint_length(bytes as u64) + bytes
}

/// Adds an attribute (`KeyValue`) as the field `field`.
pub(super) fn attribute(field: u32, name: &str, value: &str, out: &mut Vec<u8>) {
    let any_value = length(value.len());
    head(field, length(name.len()) + length(any_value), out);
    bytes(1, name.as_bytes(), out);
    head(2, any_value, out);
    bytes(1, value.as_bytes(), out);
}

/// Adds an attribute with a number.
pub(super) fn number_attribute(field: u32, name: &str, number: u64, out: &mut Vec<u8>) {
    let any_value = 1 + varint_length(number);
    head(field, length(name.len()) + length(any_value), out);
    bytes(1, name.as_bytes(), out);
    head(2, any_value, out);
    tag(3, VARINT, out);
    varint(number, out);
}

/// A field that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field<'a> {
    /// A number.
    Number(u32, u64),
    /// Bytes, a string or a message.
    Bytes(u32, &'a [u8]),
}

/// The fields of a message, as far as they can be read.
pub(super) fn fields(mut message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    std::iter::from_fn(move || {
        let tag = read_varint(&mut message)?;
        let field = u32::try_from(tag >> 3).ok()?;
        match u32::try_from(tag & 7).ok()? {
            VARINT => Some(Field::Number(field, read_varint(&mut message)?)),
            BYTES => {
                let length = usize::try_from(read_varint(&mut message)?).ok()?;
                Some(Field::Bytes(field, message.split_off(..length)?))
            }
            _ => None,
        }
    })
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(number in any::<u64>(), text in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut out = Vec::new();
            tag(3, VARINT, &mut out);
            varint(number, &mut out);
            prop_assert_eq!(out.len(), 1 + varint_length(number));
            bytes(15, &text, &mut out);
            prop_assert_eq!(out.len(), 1 + varint_length(number) + length(text.len()));
            prop_assert_eq!(fields(&out).collect::<Vec<_>>(), [Field::Number(3, number), Field::Bytes(15, &text)]);
        }

        #[test]
        fn reading_ends_whatever_the_bytes_are(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(fields(&bytes).count() <= bytes.len());
        }
    }
}
