#![no_main]
//! See `weft_fuzz::wire::ipv4`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::wire::ipv4(bytes);
});
