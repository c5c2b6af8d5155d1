#![no_main]
//! See `weft_fuzz::coll::head`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::coll::head(bytes);
});
