#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| buildkite_local::fuzzing::form(input));
