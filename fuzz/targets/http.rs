#![no_main]
//! See `weft_fuzz::http::properties::http`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::http::properties::http(bytes);
});
