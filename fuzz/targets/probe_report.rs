#![no_main]
//! See `weft_fuzz::route::probe_report`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::route::probe_report(bytes);
});
