#![no_main]
//! See `weft_fuzz::sim::flows`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::sim::flows(bytes);
});
