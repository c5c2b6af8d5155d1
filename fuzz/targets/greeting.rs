#![no_main]
//! See `weft_fuzz::verbs::greeting`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::verbs::greeting(bytes);
});
