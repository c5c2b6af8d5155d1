#![no_main]
//! See `weft_fuzz::steer::gnmi_answer`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::steer::gnmi_answer(bytes);
});
