#![no_main]
//! See `weft_fuzz::vswitch::control_socket`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::vswitch::control_socket(bytes);
});
