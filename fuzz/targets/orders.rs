#![no_main]
//! See `weft_fuzz::orders::orders`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::orders::orders(bytes);
});
