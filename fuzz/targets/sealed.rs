#![no_main]
//! See `weft_fuzz::seal::sealed`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::seal::sealed(bytes);
});
