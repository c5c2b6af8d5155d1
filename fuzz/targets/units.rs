#![no_main]
//! See `weft_fuzz::units::units`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::units::units(bytes);
});
