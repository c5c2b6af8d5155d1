#![no_main]
//! See `weft_fuzz::route::state`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::route::state(bytes);
});
