#![no_main]
//! See `weft_fuzz::steer::job_table`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::steer::job_table(bytes);
});
