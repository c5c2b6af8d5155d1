#![no_main]
//! See `weft_fuzz::evpn::evpn_neighbour`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::evpn::evpn_neighbour(bytes);
});
