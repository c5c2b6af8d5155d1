#![no_main]
//! See `weft_fuzz::coll::header`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::coll::header(bytes);
});
