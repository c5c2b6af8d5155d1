#![no_main]
//! See `weft_fuzz::vpc::open`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::vpc::open(bytes);
});
