#![no_main]
//! See `weft_fuzz::topo::topology`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::topo::topology(bytes);
});
