#![no_main]
//! See `weft_fuzz::sim::selectors`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::sim::selectors(bytes);
});
