#![no_main]
//! See `weft_fuzz::wire::sealed`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::wire::sealed(bytes);
});
