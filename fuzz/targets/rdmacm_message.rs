#![no_main]
//! See `weft_fuzz::rdmacm::message`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::rdmacm::message(bytes);
});
