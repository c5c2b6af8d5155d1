#![no_main]
//! See `weft_fuzz::route::record`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::route::record(bytes);
});
