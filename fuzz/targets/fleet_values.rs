#![no_main]
//! See `weft_fuzz::vswitch::fleet_values`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::vswitch::fleet_values(bytes);
});
