#![no_main]
//! See `weft_fuzz::wire::eth`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::wire::eth(bytes);
});
