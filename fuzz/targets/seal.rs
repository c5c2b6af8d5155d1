#![no_main]
//! See `weft_fuzz::wire::seal`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::wire::seal(bytes);
});
