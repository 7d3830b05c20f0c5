//! What reads bytes from outside, for fuzzing: each takes any input and must not panic.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;

use crate::api::error::ApiResult;
use crate::api::files::form::{self, Sink};
use crate::log::{self, Chunk};
use crate::pipeline;
use crate::pipeline::step::Env;

/// A pipeline, as a file, as the steps that a server stores, and as an upload.
pub fn yaml(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let _file = pipeline::from_yaml(&text);
    let known = Env::from([("BUILDKITE_BRANCH".to_owned(), "main".to_owned())]);
    let _stored = pipeline::from_stored(&text, &known);
    if let Ok(json) = serde_json::from_slice(input) {
        let _upload = pipeline::from_json(json);
    }
}

/// A piece of a log: two bytes of announced size, then the packed bytes.
pub fn chunk(input: &[u8]) {
    let Some((size, gzip)) = input.split_first_chunk::<2>() else { return };
    let size = i64::from(u16::from_le_bytes(*size));
    let chunk = Chunk { offset: 0, size, gzip: gzip.to_vec() };
    if let Ok(bytes) = log::unpack(&chunk) {
        let _text = log::plain(&bytes);
    }
    // What was packed may be anything, so the same bytes are read as text, too.
    let _text = log::plain(gzip);
}

/// A form with a file, with the boundary `b`, in pieces of the size that the first byte says.
pub fn form(input: &[u8]) {
    let Some((piece, body)) = input.split_first() else { return };
    let pieces: Vec<Result<Vec<u8>, std::io::Error>> =
        body.chunks(usize::from(*piece).max(1)).map(|bytes| Ok(bytes.to_vec())).collect();
    let mut request = Request::new(Body::from_stream(futures::stream::iter(pieces)));
    let kind = axum::http::HeaderValue::from_static("multipart/form-data; boundary=b");
    request.headers_mut().insert(CONTENT_TYPE, kind);
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else { return };
    let _read = runtime.block_on(form::receive(request, "file", &mut Nowhere));
}

/// Forgets what it is given.
struct Nowhere;

impl Sink for Nowhere {
    async fn take(&mut self, _: &[u8]) -> ApiResult<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("yaml", yaml)]
    #[case("chunk", chunk)]
    #[case("form", form)]
    fn the_corpus_is_read_without_a_panic(#[case] name: &str, #[case] read: fn(&[u8])) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
        let files: Vec<_> = fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!files.is_empty(), "{} is empty", corpus.display());
        for file in files {
            read(&fs::read(file).unwrap());
        }
    }

    /// Text that is nearly a pipeline: words of the language in any order.
    fn nearly_yaml() -> impl Strategy<Value = String> {
        let words = [
            "steps:",
            "- ",
            "command:",
            "wait",
            "block:",
            "group:",
            "matrix:",
            "setup:",
            "if:",
            "env:",
            "[",
            "]",
            "{",
            "}",
            "\"",
            "'",
            ": ",
            "\n",
            "\n  ",
            "\n    ",
            "&a",
            "*a",
            "|",
            ">",
            "$X",
            "${X:-y}",
            "{{matrix}}",
            "1",
            "~",
            "trigger:",
            "depends_on:",
            "retry:",
            "automatic:",
            "exit_status:",
            "*",
            "soft_fail:",
            "#",
            "!!str",
            "? ",
        ];
        prop::collection::vec(prop::sample::select(words.to_vec()), 0..60).prop_map(|words| words.concat())
    }

    /// Bytes that are nearly a form.
    fn nearly_form() -> impl Strategy<Value = Vec<u8>> {
        let parts: [&[u8]; 9] = [
            b"--b\r\n",
            b"--b--\r\n",
            b"--b",
            b"\r\n\r\n",
            b"\r\n",
            b"x",
            b"--",
            b"Content-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n",
            b"Content-Disposition: form-data; name=",
        ];
        (any::<u8>(), prop::collection::vec(prop::sample::select(parts.to_vec()), 0..20))
            .prop_map(|(piece, parts)| [vec![piece], parts.concat()].concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn anything_is_read_without_a_panic(input in prop::collection::vec(any::<u8>(), 0..400)) {
            yaml(&input);
            chunk(&input);
            form(&input);
        }

        #[test]
        fn what_is_nearly_right_is_read_without_a_panic(text in nearly_yaml(), body in nearly_form()) {
            yaml(text.as_bytes());
            form(&body);
        }
    }
}
