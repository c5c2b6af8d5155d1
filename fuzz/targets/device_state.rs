#![no_main]
//! See `weft_fuzz::verbs::state`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::verbs::state(bytes);
});
