#![no_main]
//! See `weft_fuzz::transport::endpoint`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::transport::endpoint(bytes);
});
