#![no_main]
//! See `weft_fuzz::ports::front_end`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::ports::front_end(bytes);
});
