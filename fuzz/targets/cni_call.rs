#![no_main]
//! See `weft_fuzz::cni::cni_call`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::cni::cni_call(bytes);
});
