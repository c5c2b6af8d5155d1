#![no_main]
//! See `weft_fuzz::steer::steer_config`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::steer::steer_config(bytes);
});
