#![no_main]
//! See `weft_fuzz::stat::stat`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::stat::stat(bytes);
});
