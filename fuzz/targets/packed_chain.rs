#![no_main]
//! See `weft_fuzz::ports::packed_chain`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::ports::packed_chain(bytes);
});
