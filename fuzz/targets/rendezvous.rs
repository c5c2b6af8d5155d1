#![no_main]
//! See `weft_fuzz::comm::rendezvous_line`.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weft_fuzz::comm::rendezvous_line(bytes);
});
