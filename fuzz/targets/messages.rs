#![no_main]
//! See `weft_fuzz::msg::peer`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::msg::peer(bytes);
});
