#![no_main]
//! See `weft_fuzz::plan::tuner`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::plan::tuner(bytes);
});
