#![no_main]
//! See `weft_fuzz::sim::goal`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::sim::goal(bytes);
});
